// Waits for something until a deadline on the machine's monotonic clock; the deadline may be
// kNever. The condition and the lock are base's or the standard library's.
//
// Threading: the lock is held when `ready` is called and on return; the thread that makes it ready
// notifies.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/mutex.h"
#include "stemma/clock.h"

namespace stemma::tier {

// The machine's monotonic clock, on which deadlines are given.
inline uint64_t monotonic_ns() noexcept { return Clock::monotonic().now_ns(); }

// Waits for a notification or until `until_ns`; may return earlier for no reason.
template <class Condition, class Lock>
void wait_once(Condition& changed, Lock& lock, uint64_t until_ns) {
  // Standard clocks count in 63 bits: a deadline may be too far away for them.
  constexpr uint64_t kAtOnce_ns = 3'600'000'000'000;
  const uint64_t now_ns = monotonic_ns();
  if (now_ns >= until_ns) return;
  changed.wait_for(lock, std::chrono::nanoseconds(std::min(until_ns - now_ns, kAtOnce_ns)));
}

// Waits for `ready` until `until_ns`; returns whether it holds. It may hold even if the deadline
// has passed.
template <class Condition, class Lock, class Ready>
bool wait_until(Condition& changed, Lock& lock, uint64_t until_ns,
                const Ready& ready) STEMMA_NO_ANALYSIS {
  while (!ready()) {
    if (monotonic_ns() >= until_ns) return false;
    wait_once(changed, lock, until_ns);
  }
  return true;
}

}  // namespace stemma::tier
