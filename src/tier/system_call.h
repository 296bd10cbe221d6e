// Turns the result of a system call into what Files returns: a value, or -errno.
#pragma once

#include <cerrno>

namespace stemma::tier {

inline int told(int result) noexcept { return result < 0 ? -errno : result; }

// Repeats a call that a signal interrupted.
template <class Call>
auto again(Call&& call) noexcept {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

}  // namespace stemma::tier
