// Pseudo-random numbers that are the same everywhere, whatever the standard library.
// Threading: pure functions; a Random is one thread at a time.
#pragma once

#include <cstdint>

namespace stemma::paged {

// splitmix64's finisher: every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9U;
  x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBU;
  return x ^ (x >> 31);
}

constexpr uint64_t mix(uint64_t a, uint64_t b) noexcept {
  return mix(a * 0x9E37'79B9'7F4A'7C15U + mix(b + 0x9E37'79B9'7F4A'7C15U));
}

// In [-1, 1), on a grid of 2^-23: exact in a float.
constexpr float to_float(uint64_t bits) noexcept {
  return static_cast<float>(static_cast<int32_t>(bits >> 40) - (1 << 23)) * 0x1p-23F;
}

class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t next() noexcept { return mix(state_ += 0x9E37'79B9'7F4A'7C15U); }
  uint32_t below(uint32_t limit) noexcept { return static_cast<uint32_t>(next() % limit); }
  uint32_t between(uint32_t first, uint32_t last) noexcept {
    return first + below(last - first + 1);
  }
  bool chance(uint32_t percent) noexcept { return below(100) < percent; }
  float real() noexcept { return to_float(next()); }

 private:
  uint64_t state_;
};

}  // namespace stemma::paged
