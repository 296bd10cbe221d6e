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

// A factor of zero must not hide the other factor. Bytes equal to the keys of their places make all
// factors zero.
TEST(ByteSum, BytesLikeItsKeysHideNothing) {
  std::vector<uint64_t> keys;
  uint64_t state = 0x2545'F491'4F6C'DD1DU;
  for (size_t i = 0; i < 24; ++i) {
    state += 0x9E37'79B9'7F4A'7C15U;
    uint64_t key = (state ^ state >> 30U) * 0xBF58'476D'1CE4'E5B9U;
    key = (key ^ key >> 27U) * 0x94D0'49BB'1331'11EBU;
    keys.push_back(key ^ key >> 31U);
  }
  for (size_t size : {64U, 100U, 192U}) {
    Bytes bytes = noise(size, 3);
    for (size_t at = 0; at + 8 <= size; at += 8) {
      std::memcpy(&bytes[at], &keys[at / 64 + at % 64 / 8], 8);
    }
    const uint64_t sum = ByteSum::of(bytes);
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
      EXPECT_NE(ByteSum::of(bytes), sum) << "bit " << bit << " of " << size;
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
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
  // Also words that change places within a block.
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

TEST(ByteSum, CopiesWhatItSumsWhereverBothLie) {
  const Bytes bytes = noise(9000, 8);
  for (size_t from : {0U, 1U, 4U, 63U}) {
    for (size_t to : {0U, 1U, 12U, 32U, 63U}) {
      for (size_t size : {0U, 1U, 511U, 512U, 513U, 700U, 4096U, 8000U}) {
        for (size_t before : {0U, 1U, 60U, 64U}) {
          ByteSum sum;
          sum.add(std::span(bytes).first(before));
          Bytes out(to + size + 1, 0xEE);
          sum.copy(std::span(bytes).subspan(from, size), out.data() + to);
          ByteSum::end_of_copies();
          ByteSum added;
          added.add(std::span(bytes).first(before));
          added.add(std::span(bytes).subspan(from, size));
          ASSERT_EQ(sum.value(), added.value()) << from << " " << to << " " << size;
          ASSERT_TRUE(std::equal(bytes.begin() + static_cast<ptrdiff_t>(from),
                                 bytes.begin() + static_cast<ptrdiff_t>(from + size),
                                 out.begin() + static_cast<ptrdiff_t>(to)))
              << from << " " << to << " " << size;
          ASSERT_EQ(out.back(), 0xEE) << "nothing behind it is written";
          ASSERT_EQ(std::count(out.begin(), out.begin() + static_cast<ptrdiff_t>(to), 0xEE),
                    static_cast<ptrdiff_t>(to))
              << "nothing before it is written";
        }
      }
    }
  }
}

TEST(ByteSum, IsTheSameOnEveryMachine) {
  EXPECT_EQ(ByteSum::of({}), 0xD0CA'8BA4'A2E9'85F5U);
  EXPECT_EQ(ByteSum::of(noise(64, 1)), 0x0E5C'E013'F797'9909U);
  EXPECT_EQ(ByteSum::of(noise(5000, 2)), 0xEFD4'175C'909D'E3B8U);
}

}  // namespace
}  // namespace stemma
