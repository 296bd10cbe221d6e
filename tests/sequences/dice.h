// Chance that is the same everywhere, whatever the standard library.
#pragma once

#include <cstdint>
#include <iterator>

#include "base/random.h"

namespace stemma::schedules {

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(base::mix(seed + 1)) {}

  uint64_t next() { return base::mix(state_ += 0x9E37'79B9'7F4A'7C15U); }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(next() % limit); }  // limit > 0
  uint32_t between(uint32_t first, uint32_t last) { return first + below(last - first + 1); }
  bool chance(uint32_t percent) { return below(100) < percent; }
  template <class Container>
  auto& pick(Container& from) {
    return from[below(static_cast<uint32_t>(std::size(from)))];
  }
  // One of the two exactly, or something between; extremes are where the mistakes are.
  uint32_t edgy(uint32_t first, uint32_t last) {
    const uint32_t kind = below(4);
    return kind == 0 ? first : kind == 1 ? last : between(first, last);
  }

 private:
  uint64_t state_;
};

}  // namespace stemma::schedules
