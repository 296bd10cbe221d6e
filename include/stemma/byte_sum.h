// ByteSum: a checksum of bytes that come in pieces. It notices damage: flipped bits, torn writes, bytes
// of something else. It is no signature: whoever wants to deceive it can.
//
// Every 64 bytes go through four independent multiplications of 64 by 64 bits, so it is about as fast
// as memory. How the bytes are split into pieces does not matter. The value is the same on every
// little-endian machine; it is not stored across versions.
// Threading:  one thread at a time.
// Cost:       no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace stemma {

class ByteSum {
 public:
  // The sum of bytes that are all there.
  static uint64_t of(std::span<const uint8_t> bytes) noexcept {
    ByteSum sum;
    sum.add(bytes);
    return sum.value();
  }

  void add(std::span<const uint8_t> piece) noexcept {
    size_ += piece.size();
    const uint8_t* at = piece.data();
    size_t left = piece.size();
    if (waiting_ != 0) {
      const size_t more = std::min(left, kBlock - waiting_);
      if (more != 0) std::memcpy(rest_.data() + waiting_, at, more);
      waiting_ += more;
      at += more;
      left -= more;
      if (waiting_ < kBlock) return;
      blocks(rest_.data(), 1);
      waiting_ = 0;
    }
    blocks(at, left / kBlock);
    waiting_ = left % kBlock;
    if (waiting_ != 0) std::memcpy(rest_.data(), at + (left - waiting_), waiting_);
  }

  // Of all that was added so far.
  uint64_t value() const noexcept {
    std::array<uint8_t, kBlock> last{};
    if (waiting_ != 0) std::memcpy(last.data(), rest_.data(), waiting_);
    uint64_t sum = size_;
    for (uint32_t i = 0; i < 4; ++i) {
      const uint64_t a = word(last.data() + 16 * i);
      const uint64_t b = word(last.data() + 16 * i + 8);
      const uint64_t lane = step(lanes_[i], a ^ kOdd[3 - i], b);
      sum = fold(sum ^ kOdd[1], lane ^ kOdd[2]) + lane;
    }
    return sum;
  }

 private:
  static constexpr size_t kBlock = 64;
  static constexpr std::array<uint64_t, 4> kOdd = {0x9E37'79B9'7F4A'7C15U, 0xC2B2'AE3D'27D4'EB4FU,
                                                   0x1656'67B1'9E37'79F9U, 0xD6E8'FEB8'6659'FD93U};

  static uint64_t word(const uint8_t* at) noexcept {
    uint64_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  // All 128 bits of a product, folded. The factors go in once more: where one of them is zero the
  // product no longer depends on the other, and bytes that happen to be a constant of ours would hide
  // their neighbours.
  static uint64_t fold(uint64_t a, uint64_t b) noexcept {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return a ^ b ^ static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
  }
  // A lane is rotated between blocks, so that two blocks that change places are noticed.
  static uint64_t step(uint64_t lane, uint64_t a, uint64_t b) noexcept {
    return (lane << 29U | lane >> 35U) + fold(a, b ^ lane);
  }
  void blocks(const uint8_t* at, size_t count) noexcept {
    std::array<uint64_t, 4> lanes = lanes_;
    for (; count != 0; --count, at += kBlock) {
      for (uint32_t i = 0; i < 4; ++i) {
        lanes[i] = step(lanes[i], word(at + 16 * i) ^ kOdd[i], word(at + 16 * i + 8));
      }
    }
    lanes_ = lanes;
  }

  // None is a constant of its lane: the two words of a product would be able to change places.
  std::array<uint64_t, 4> lanes_ = {0x2545'F491'4F6C'DD1DU, 0x9FB2'1C65'1E98'DF25U,
                                    0xA076'1D64'78BD'642FU, 0xE703'7ED1'A0B4'28DBU};
  uint64_t size_ = 0;
  size_t waiting_ = 0;  // Bytes of rest_, which are less than a block.
  std::array<uint8_t, kBlock> rest_{};
};

}  // namespace stemma
