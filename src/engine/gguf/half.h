// IEEE half precision, the F16 of GGUF files.
// Threading: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace stemma::gguf {

// The nearest half, ties to even. Values that are too large become infinite; NaN stays NaN.
constexpr uint16_t to_half(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFF'FFFFU;
  if (magnitude > 0x7F80'0000U) return static_cast<uint16_t>(sign | 0x7E00U);
  if (magnitude >= 0x477F'F000U) return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and more.
  const uint32_t exponent = magnitude >> 23;
  if (exponent >= 113) {  // 2^-14 and more: normal. Carries run into the exponent as they should.
    const uint32_t rounded = magnitude + 0x0FFFU + ((magnitude >> 13) & 1U);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
  }
  if (exponent < 102) return static_cast<uint16_t>(sign);  // Less than half of the smallest one.
  const uint32_t significand = (magnitude & 0x007F'FFFFU) | 0x0080'0000U;
  const uint32_t shift = 126 - exponent;
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1U << shift) - 1);
  const uint32_t middle = 1U << (shift - 1);
  const bool up = rest > middle || (rest == middle && (kept & 1U) != 0);
  return static_cast<uint16_t>(sign | (kept + (up ? 1U : 0U)));
}

}  // namespace stemma::gguf
