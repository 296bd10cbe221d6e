// Random numbers with a bell-shaped distribution, the same on every machine: all steps use
// integers, except the last, which is one multiplication.
// Threading: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/random.h"

namespace stemma::gguf {

// The numbers of one tensor. They do not depend on other tensors in the file.
class Noise {
 public:
  Noise(uint64_t seed, std::string_view tensor) noexcept : key_(seed) {
    for (const char c : tensor) key_ = base::mix(key_, static_cast<uint8_t>(c));
  }

  uint64_t bits(uint64_t index) const noexcept { return base::mix(key_, index); }

  // Mean 0, standard deviation `scale`, never beyond 3.5 deviations.
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
