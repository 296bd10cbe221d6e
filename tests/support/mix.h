// How fakes turn words into contents: every bit that goes in reaches every bit that comes out.
#pragma once

#include <cstdint>

namespace stemma::test {

// splitmix64's finisher.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58'476D'1CE4'E5B9U;
  x = (x ^ (x >> 27)) * 0x94D0'49BB'1331'11EBU;
  return x ^ (x >> 31);
}

constexpr uint64_t combine(uint64_t a, uint64_t b) {
  return mix(a * 0x9E37'79B9'7F4A'7C15U + mix(b + 0x9E37'79B9'7F4A'7C15U));
}

}  // namespace stemma::test
