// A checksum that notices damage: flipped bits, torn writes, bytes of something else. It is no
// signature: who wants to deceive it can.
//
// Every 64 bytes go through four independent multiplications of 64 by 64 bits, so that it is about as
// fast as memory. The value is the same on every little-endian machine; it is not stored across versions.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace stemma::base {

namespace detail {

inline uint64_t load_word(const uint8_t* at) noexcept {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// All 128 bits of a product, folded. The factors go in once more: where one of them is zero the product
// no longer depends on the other, and bytes that happen to be a constant of ours would hide their
// neighbours.
inline uint64_t fold(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return a ^ b ^ static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
}

}  // namespace detail

inline uint64_t checksum(std::span<const uint8_t> bytes) noexcept {
  constexpr uint64_t kOdd[4] = {0x9E37'79B9'7F4A'7C15U, 0xC2B2'AE3D'27D4'EB4FU,
                                0x1656'67B1'9E37'79F9U, 0xD6E8'FEB8'6659'FD93U};
  // None is a constant of its lane: the two words of a product would be able to change places.
  uint64_t lanes[4] = {0x2545'F491'4F6C'DD1DU, 0x9FB2'1C65'1E98'DF25U, 0xA076'1D64'78BD'642FU,
                       0xE703'7ED1'A0B4'28DBU};
  const uint8_t* at = bytes.data();
  size_t left = bytes.size();
  // A lane is rotated between blocks, so that two blocks that change places are noticed.
  for (; left >= 64; at += 64, left -= 64) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint64_t a = detail::load_word(at + 16 * i);
      const uint64_t b = detail::load_word(at + 16 * i + 8);
      lanes[i] = (lanes[i] << 29U | lanes[i] >> 35U) + detail::fold(a ^ kOdd[i], b ^ lanes[i]);
    }
  }
  uint8_t rest[64] = {};
  if (left != 0) std::memcpy(rest, at, left);
  for (uint32_t i = 0; i < 4; ++i) {
    const uint64_t a = detail::load_word(rest + 16 * i);
    const uint64_t b = detail::load_word(rest + 16 * i + 8);
    lanes[i] = (lanes[i] << 29U | lanes[i] >> 35U) + detail::fold(a ^ kOdd[3 - i], b ^ lanes[i]);
  }
  uint64_t sum = bytes.size();
  for (uint64_t lane : lanes) sum = detail::fold(sum ^ kOdd[1], lane ^ kOdd[2]) + lane;
  return sum;
}

}  // namespace stemma::base
