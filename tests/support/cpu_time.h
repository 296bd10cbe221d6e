// The CPU time of this thread so far; other work on the machine does not count.
#pragma once

#include <cstdint>
#include <ctime>

namespace stemma::test {

inline uint64_t cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace stemma::test
