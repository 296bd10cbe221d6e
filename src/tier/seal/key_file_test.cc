#include "tier/seal/key_file.h"

#include <gtest/gtest.h>

#include <vector>

#include "key/sha256.h"

namespace stemma::tier::seal {
namespace {

KeyFile example() {
  KeyFile file;
  file.owner = 0x0102'0304'0506'0708U;
  file.id = {1, 2, 3, 4, 5, 6, 7, 8};
  for (uint8_t i = 0; i < kKeyBytes; ++i) file.key[i] = static_cast<uint8_t>(0xA0 + i);
  return file;
}

// As docs/formats/key-ring.md describes it.
TEST(KeyFile, EveryByteIsWhereTheDocumentSays) {
  std::vector<uint8_t> expected{'S', 'T', 'E', 'M', 'M', 'A', 'K', 'Y', 1, 0, 0, 0, 0, 0, 0, 0,
                                8,   7,   6,   5,   4,   3,   2,   1,   1, 2, 3, 4, 5, 6, 7, 8};
  for (uint8_t i = 0; i < 32; ++i) expected.push_back(static_cast<uint8_t>(0xA0 + i));
  const key::Digest digest = key::sha256(expected);
  expected.insert(expected.end(), digest.begin(), digest.begin() + 8);
  const auto bytes = write_key_file(example());
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()), expected);
  const Result<KeyFile> read = read_key_file(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->owner, example().owner);
  EXPECT_EQ(read->id, example().id);
  EXPECT_EQ(read->key, example().key);
}

TEST(KeyFile, NoChangedBitIsAccepted) {
  const auto good = write_key_file(example());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1U << bit % 8);
    EXPECT_FALSE(read_key_file(bytes)) << bit;
  }
}

TEST(KeyFile, NoOtherLengthIsAccepted) {
  const auto good = write_key_file(example());
  std::vector<uint8_t> bytes(good.begin(), good.end());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(read_key_file(std::span(bytes).first(length)).error().code(), Errc::corrupt);
  }
  bytes.push_back(0);
  EXPECT_EQ(read_key_file(bytes).error().code(), Errc::corrupt);
  bytes[8] = 2;
  EXPECT_EQ(read_key_file(bytes).error().code(), Errc::unsupported);
}

}  // namespace
}  // namespace stemma::tier::seal
