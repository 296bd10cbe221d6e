// Pseudo-random numbers (splitmix64) that are the same on every machine and standard library. The
// reference engine has its own (engine/paged/random.h), because it uses only public headers.
// Threading: pure functions.
#pragma once

#include <cstdint>

namespace stemma::base {

// Every bit of x reaches every bit of the result. 0 stays 0.
constexpr uint64_t mix(uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xBF58'476D'1CE4'E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D0'49BB'1331'11EBU;
  return x ^ (x >> 31U);
}

inline constexpr uint64_t kRandomStep = 0x9E37'79B9'7F4A'7C15U;

constexpr uint64_t mix(uint64_t a, uint64_t b) noexcept {
  return mix(a * kRandomStep + mix(b + kRandomStep));
}

// Returns the next number of the sequence and advances `state`.
constexpr uint64_t next_random(uint64_t& state) noexcept { return mix(state += kRandomStep); }

}  // namespace stemma::base
