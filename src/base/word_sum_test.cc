#include "base/word_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace stemma::base {
namespace {

std::vector<uint8_t> noise(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> made(bytes);
  for (uint8_t& byte : made) byte = static_cast<uint8_t>(random());
  return made;
}

uint64_t by_definition(std::span<const uint8_t> bytes, uint64_t first = 0) {
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    sum += word_term(word, word_key(first + at / 8));
  }
  return sum;
}

TEST(WordSum, IsItsDefinitionAtEveryLengthAndAddress) {
  const std::vector<uint8_t> bytes = noise(700, 1);
  for (size_t begin = 0; begin < 40; ++begin) {
    for (size_t size = 0; size + begin <= 700; size += 1 + size / 9) {
      const std::span<const uint8_t> part(bytes.data() + begin, size);
      ASSERT_EQ(word_sum(part, 5), by_definition(part, 5)) << begin << " " << size;
    }
  }
}

TEST(WordSum, CopiesWhatItSums) {
  const std::vector<uint8_t> bytes = noise(4200, 2);
  alignas(64) uint8_t room[4300];
  for (const size_t to : {0, 1, 8, 16, 32, 48}) {
    for (const size_t size : {0, 7, 8, 63, 64, 65, 128, 1000, 4096, 4100}) {
      std::memset(room, 0xEE, sizeof room);
      const std::span<const uint8_t> part(bytes.data() + 16, size);
      ASSERT_EQ(word_sum_copy(part, room + to, 3), by_definition(part, 3));
      end_of_word_copies();
      ASSERT_EQ(std::memcmp(room + to, part.data(), size), 0) << to << " " << size;
      ASSERT_EQ(room[to + size], 0xEE);
    }
  }
}

TEST(WordSum, PartsAddUpInAnyOrder) {
  const std::vector<uint8_t> bytes = noise(2048, 3);
  const std::span<const uint8_t> all(bytes);
  EXPECT_EQ(word_sum(all.subspan(1024), 128) + word_sum(all.subspan(512, 512), 64) +
                word_sum(all.first(512), 0),
            word_sum(all));
}

TEST(WordSum, EveryFlippedBitChangesIt) {
  for (const bool zeros : {false, true}) {
    std::vector<uint8_t> bytes = zeros ? std::vector<uint8_t>(264) : noise(264, 4);
    const uint64_t right = word_sum(bytes);
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
      ASSERT_NE(word_sum(bytes), right) << bit;
      bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    }
  }
}

// A sum whose terms were linear would miss half of these where the highest bits of words change.
TEST(WordSum, TheSameBitFlippedInTwoWordsChangesIt) {
  std::vector<uint8_t> bytes = noise(65536, 5);
  const uint64_t right = word_sum(bytes);
  std::mt19937_64 random(6);
  for (int round = 0; round < 4000; ++round) {
    const size_t a = random() % 8192, b = random() % 8192, bit = round % 64;
    if (a == b) continue;
    for (const size_t word : {a, b})
      bytes[word * 8 + bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    ASSERT_NE(word_sum(bytes), right) << a << " " << b << " " << bit;
    for (const size_t word : {a, b})
      bytes[word * 8 + bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
  }
}

TEST(WordSum, WordsThatChangePlacesChangeIt) {
  std::vector<uint8_t> bytes = noise(8192, 7);
  const uint64_t right = word_sum(bytes);
  for (size_t a = 0; a + 1 < 1024; ++a) {
    std::vector<uint8_t> other = bytes;
    std::memcpy(&other[a * 8], &bytes[a * 8 + 8], 8);
    std::memcpy(&other[a * 8 + 8], &bytes[a * 8], 8);
    ASSERT_NE(word_sum(other), right) << a;
  }
}

}  // namespace
}  // namespace stemma::base
