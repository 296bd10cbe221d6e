// What system calls return, as the tiers' views of a file system do: a value, or -errno.
#pragma once

#include <cerrno>

namespace stemma::tier {

inline int told(int result) noexcept { return result < 0 ? -errno : result; }

// Repeats what a signal interrupted.
template <class Call>
auto again(Call&& call) noexcept {
  for (;;) {
    const auto result = call();
    if (result >= 0) return result;
    if (errno != EINTR) return static_cast<decltype(result)>(-errno);
  }
}

}  // namespace stemma::tier
