// Random numbers of bell shape that are the same on every machine: integers until the last step, which is
// one multiplication.
// Threading: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "engine/paged/random.h"

namespace stemma::gguf {

// The numbers of one tensor. What comes before or behind it in a file does not matter.
class Noise {
 public:
  Noise(uint64_t seed, std::string_view tensor) noexcept : key_(seed) {
    for (const char c : tensor) key_ = paged::mix(key_, static_cast<uint8_t>(c));
  }

  uint64_t bits(uint64_t index) const noexcept { return paged::mix(key_, index); }

  // Mean 0, deviation `scale`, never beyond 3.5 of them.
  float normal(uint64_t index, float scale) const noexcept {
    // The sum of four numbers of 16 bits has the deviation 65536 / sqrt(3).
    const uint64_t r = bits(index);
    const auto sum = static_cast<int32_t>((r & 0xFFFF) + ((r >> 16) & 0xFFFF) +
                                          ((r >> 32) & 0xFFFF) + (r >> 48));
    return static_cast<float>(sum - 2 * 65535) * (scale * (1.7320508F / 65536.0F));
  }

 private:
  uint64_t key_;
};

}  // namespace stemma::gguf
