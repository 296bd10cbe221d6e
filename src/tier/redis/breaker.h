// Breaker decides when a node that failed may be asked again.
//
//   closed --fail()--> open --due(): probe()--> probing --succeed()--> closed
//                        ^--------- fail() --------'
//
// Each failure in a row doubles the interval, up to the longest; each interval is drawn anew between a half
// and all of it, so that many clients do not come back at the same instant.
// Threading:  one thread at a time. Time comes in as an argument.
#pragma once

#include <algorithm>
#include <cstdint>

namespace stemma::tier::redis {

class Breaker {
 public:
  Breaker(uint64_t first_ns, uint64_t longest_ns, uint64_t seed) noexcept
      : first_ns_(std::max<uint64_t>(first_ns, 1)),
        longest_ns_(std::max(longest_ns, first_ns_)),
        random_(seed) {}

  bool closed() const noexcept { return state_ == State::closed; }
  bool probing() const noexcept { return state_ == State::probing; }
  bool due(uint64_t now_ns) const noexcept { return state_ == State::open && now_ns >= probe_ns_; }
  // When due(); only while it is open.
  uint64_t probe_ns() const noexcept { return probe_ns_; }
  bool open() const noexcept { return state_ == State::open; }

  void fail(uint64_t now_ns) noexcept {
    interval_ns_ = interval_ns_ == 0 ? first_ns_ : std::min(interval_ns_ * 2, longest_ns_);
    // splitmix64
    random_ += 0x9E37'79B9'7F4A'7C15U;
    uint64_t mixed = (random_ ^ random_ >> 30U) * 0xBF58'476D'1CE4'E5B9U;
    mixed = (mixed ^ mixed >> 27U) * 0x94D0'49BB'1331'11EBU;
    mixed ^= mixed >> 31U;
    const uint64_t half = interval_ns_ / 2;
    probe_ns_ = now_ns + half + mixed % (interval_ns_ - half + 1);
    state_ = State::open;
  }
  void probe() noexcept { state_ = State::probing; }
  void succeed() noexcept {
    state_ = State::closed;
    interval_ns_ = 0;
  }

 private:
  enum class State : uint8_t { closed, open, probing };
  State state_ = State::closed;
  uint64_t first_ns_, longest_ns_, random_;
  uint64_t interval_ns_ = 0, probe_ns_ = 0;
};

}  // namespace stemma::tier::redis
