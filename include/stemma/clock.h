// Time comes in through a Clock, so that a test can own it and a run can be replayed.
#pragma once

#include <cstdint>

namespace stemma {

// Nanoseconds that never run backwards. Threading: thread-safe. Must not call back into Stemma.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual uint64_t now_ns() const noexcept = 0;

  // The machine's monotonic clock; caches use it by default.
  static const Clock& monotonic() noexcept;
};

// A clock that stands still until it is moved. For tests and replay.
class ManualClock final : public Clock {
 public:
  uint64_t now_ns() const noexcept override { return now_ns_; }
  void advance_ns(uint64_t by_ns) noexcept { now_ns_ += by_ns; }
  void set_ns(uint64_t now_ns) noexcept { now_ns_ = now_ns; }

 private:
  uint64_t now_ns_ = 1;
};

inline constexpr uint64_t kNever = ~uint64_t{0};  // A deadline that never comes.

// The time `wait_ns` after `now_ns`; kNever if that is too far ahead to represent.
constexpr uint64_t deadline_after(uint64_t now_ns, uint64_t wait_ns) noexcept {
  return wait_ns > kNever - now_ns ? kNever : now_ns + wait_ns;
}

// The time from `begin_ns` to `end_ns`; 0 if the clock ran backwards between them.
constexpr uint64_t elapsed_ns(uint64_t begin_ns, uint64_t end_ns) noexcept {
  return end_ns > begin_ns ? end_ns - begin_ns : 0;
}

}  // namespace stemma
