// A set of byte values.
// Threading: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stemma::constrain {

struct ByteSet {
  std::array<uint64_t, 4> bits{};

  static constexpr ByteSet range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (uint32_t byte = first; byte <= last; ++byte) set.add(static_cast<uint8_t>(byte));
    return set;
  }
  static constexpr ByteSet of(std::string_view bytes) {
    ByteSet set;
    for (const char byte : bytes) set.add(static_cast<uint8_t>(byte));
    return set;
  }

  constexpr void add(uint8_t byte) { bits[byte >> 6U] |= uint64_t{1} << (byte & 63U); }
  constexpr void remove(uint8_t byte) { bits[byte >> 6U] &= ~(uint64_t{1} << (byte & 63U)); }
  constexpr bool has(uint8_t byte) const { return (bits[byte >> 6U] >> (byte & 63U) & 1U) != 0; }
  constexpr bool empty() const { return (bits[0] | bits[1] | bits[2] | bits[3]) == 0; }
  constexpr ByteSet operator|(const ByteSet& other) const {
    ByteSet set = *this;
    for (size_t i = 0; i < 4; ++i) set.bits[i] |= other.bits[i];
    return set;
  }
  constexpr auto operator<=>(const ByteSet&) const = default;
};

}  // namespace stemma::constrain
