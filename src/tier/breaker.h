// Breaker decides when something that fails may be asked again: a disk, a directory, a server, a
// level of a stack.
//
//   closed --fail(), `errors` times in a row, or trip()--> open --probe()--> probing --succeed()--> closed
//                                                           ^----- fail() -----'
//
// While it is open, nothing is asked until probe_ns(). Each failure after the first doubles that
// pause, up to the longest. With a seed, each pause is drawn at random between half of it and all
// of it, so that many clients do not return at the same instant.
// Threading: one thread at a time; lets_through() from any. Time is an argument.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "base/random.h"
#include "stemma/clock.h"

namespace stemma::tier {

class Breaker {
 public:
  struct Options {
    uint32_t errors = 1;      // This many in a row open it.
    uint64_t first_ns = 1;    // The first pause.
    uint64_t longest_ns = 0;  // The longest pause. If less than the first, all equal the first.
    std::optional<uint64_t> seed = {};
  };
  explicit Breaker(const Options& options) noexcept
      : options_(options), random_(options.seed.value_or(0)) {
    options_.first_ns = std::max<uint64_t>(options.first_ns, 1);
    options_.longest_ns = std::max(options.longest_ns, options_.first_ns);
    options_.errors = std::max(options.errors, 1U);
  }
  Breaker(const Breaker&) = delete;
  Breaker& operator=(const Breaker&) = delete;

  bool closed() const noexcept { return state_ == State::closed; }
  bool open() const noexcept { return state_ == State::open; }
  bool probing() const noexcept { return state_ == State::probing; }
  bool due(uint64_t now_ns) const noexcept { return open() && now_ns >= probe_ns(); }
  // When the next probe is due. Requires open().
  uint64_t probe_ns() const noexcept { return paused_until_ns_.load(std::memory_order_relaxed); }
  // Errors since the last success.
  uint32_t errors() const noexcept { return errors_; }
  // Whether a request may pass now: it is not open, or due. Any thread.
  bool lets_through(uint64_t now_ns) const noexcept { return now_ns >= probe_ns(); }

  // Reports an error. Returns whether this opened it.
  bool fail(uint64_t now_ns) noexcept {
    if (errors_ < ~0U) ++errors_;
    return closed() && errors_ < options_.errors ? false : trip(now_ns);
  }
  // Opens it, or begins its pause again, whatever the number of errors. Returns whether it was
  // closed.
  bool trip(uint64_t now_ns) noexcept {
    pause_ns_ = pause_ns_ == 0
                    ? options_.first_ns
                    : std::min(deadline_after(pause_ns_, pause_ns_), options_.longest_ns);
    return open_until(deadline_after(now_ns, options_.seed ? drawn(pause_ns_) : pause_ns_));
  }
  // Opens it with no probe due until succeed() is called. Returns whether it was closed.
  bool trip_for_good() noexcept { return open_until(kNever); }
  // The next request is a probe. Requires open().
  void probe() noexcept {
    state_ = State::probing;
    paused_until_ns_.store(0, std::memory_order_relaxed);
  }
  void succeed() noexcept {
    probe();
    state_ = State::closed;
    pause_ns_ = 0;
    errors_ = 0;
  }

 private:
  enum class State : uint8_t { closed, open, probing };

  bool open_until(uint64_t until_ns) noexcept {
    const bool was_closed = closed();
    state_ = State::open;
    paused_until_ns_.store(std::max<uint64_t>(until_ns, 1), std::memory_order_relaxed);
    return was_closed;
  }
  uint64_t drawn(uint64_t pause_ns) noexcept {
    const uint64_t half = pause_ns / 2;
    return half + base::next_random(random_) % (pause_ns - half + 1);
  }

  Options options_;
  uint64_t random_;
  State state_ = State::closed;
  uint32_t errors_ = 0;
  uint64_t pause_ns_ = 0;
  std::atomic<uint64_t> paused_until_ns_{0};  // 0: not open.
};

}  // namespace stemma::tier
