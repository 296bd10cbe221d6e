// Waiting for something up to a deadline on the machine's monotonic clock, which may be kNever.
//
// Threading: the lock is held when `ready` is called and when it returns; who makes it ready notifies.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "stemma/clock.h"

namespace stemma::tier {

// The machine's monotonic clock, which deadlines are told in.
inline uint64_t monotonic_ns() noexcept { return Clock::monotonic().now_ns(); }

// Whether `ready` holds, at the latest when it is `until_ns`. A deadline that has passed is no error: what is
// ready is ready.
template <class Ready>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                uint64_t until_ns, const Ready& ready) {
  // Standard clocks count in 63 bits: a deadline may be too far away to be said to them.
  constexpr uint64_t kAtOnce_ns = 3'600'000'000'000;
  while (!ready()) {
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= until_ns) return false;
    changed.wait_for(lock, std::chrono::nanoseconds(std::min(until_ns - now_ns, kAtOnce_ns)));
  }
  return true;
}

}  // namespace stemma::tier
