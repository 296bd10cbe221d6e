#include "stemma/byte_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace stemma {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes noise(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// Flips every bit, alone, and expects as many different sums.
void expect_every_flip_noticed(Bytes bytes) {
  std::set<uint64_t> seen{ByteSum::of(bytes)};
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_TRUE(seen.insert(ByteSum::of(bytes)).second) << "bit " << bit << " of " << bytes.size();
    bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
  }
}

TEST(ByteSum, EverySingleBitFlipIsNoticed) {
  for (size_t size = 1; size <= 200; ++size) {
    expect_every_flip_noticed(Bytes(size, 0));
    expect_every_flip_noticed(Bytes(size, 0xFF));
    expect_every_flip_noticed(noise(size, static_cast<uint32_t>(size)));
  }
}

// A factor of zero must not hide the other factor.
TEST(ByteSum, BytesLikeItsConstantsHideNothing) {
  constexpr uint64_t kOdd[4] = {0x9E37'79B9'7F4A'7C15U, 0xC2B2'AE3D'27D4'EB4FU,
                                0x1656'67B1'9E37'79F9U, 0xD6E8'FEB8'6659'FD93U};
  for (const uint64_t constant : kOdd) {
    for (size_t size : {64U, 100U, 128U}) {
      Bytes bytes = noise(size, 3);
      for (size_t at = 0; at + 8 <= size; at += 8) std::memcpy(&bytes[at], &constant, 8);
      expect_every_flip_noticed(bytes);
    }
  }
}

TEST(ByteSum, BlocksThatChangePlacesAreNoticed) {
  const Bytes bytes = noise(64 * 20, 1);
  const uint64_t sum = ByteSum::of(bytes);
  for (size_t a = 0; a < 20; ++a) {
    for (size_t b = a + 1; b < 20; ++b) {
      Bytes swapped = bytes;
      std::swap_ranges(swapped.begin() + static_cast<ptrdiff_t>(64 * a),
                       swapped.begin() + static_cast<ptrdiff_t>(64 * (a + 1)),
                       swapped.begin() + static_cast<ptrdiff_t>(64 * b));
      EXPECT_NE(ByteSum::of(swapped), sum) << a << " and " << b;
    }
  }
  // Words that change places within a block, too.
  for (size_t word = 1; word < 8; ++word) {
    Bytes swapped = bytes;
    std::swap_ranges(swapped.begin(), swapped.begin() + 8,
                     swapped.begin() + static_cast<ptrdiff_t>(8 * word));
    EXPECT_NE(ByteSum::of(swapped), sum) << word;
  }
}

TEST(ByteSum, LengthCounts) {
  for (const Bytes& whole : {noise(300, 2), Bytes(300, 0)}) {
    std::set<uint64_t> seen;
    for (size_t size = 0; size <= whole.size(); ++size) {
      EXPECT_TRUE(seen.insert(ByteSum::of(std::span(whole).first(size))).second) << size;
    }
  }
  Bytes longer = noise(130, 4);
  const uint64_t sum = ByteSum::of(longer);
  for (int zeros = 1; zeros < 200; ++zeros) {
    longer.push_back(0);
    EXPECT_NE(ByteSum::of(longer), sum) << zeros << " zeros behind";
  }
}

TEST(ByteSum, HowTheBytesAreSplitDoesNotMatter) {
  const Bytes bytes = noise(1000, 6);
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    ByteSum sum;
    for (std::span<const uint8_t> rest = bytes; !rest.empty();) {
      const size_t most = round % 2 == 0 ? 20 : 300;
      const size_t piece = std::min<size_t>(rest.size(), random() % most);
      sum.add(rest.first(piece));
      rest = rest.subspan(piece);
    }
    ASSERT_EQ(sum.value(), ByteSum::of(bytes)) << round;
  }
}

TEST(ByteSum, WhereTheBytesLieDoesNotMatter) {
  const Bytes bytes = noise(200, 5);
  for (size_t shift = 0; shift < 16; ++shift) {
    Bytes moved(shift, 7);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    EXPECT_EQ(ByteSum::of(std::span(moved).subspan(shift)), ByteSum::of(bytes));
  }
}

}  // namespace
}  // namespace stemma
