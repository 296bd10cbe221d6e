#include "key/sha256.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace stemma::key {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const uint8_t byte : digest) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

std::span<const uint8_t> bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Digest judge(std::span<const uint8_t> message) {
  Digest digest;
  unsigned size = 0;
  EVP_Digest(message.data(), message.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

// Both ways to compute it must pass every test.
class Sha256Test : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    force_portable_sha256(GetParam());
    if (!GetParam() && !sha256_uses_instructions()) GTEST_SKIP() << "no SHA instructions here";
  }
  void TearDown() override { force_portable_sha256(false); }
};

INSTANTIATE_TEST_SUITE_P(BothPaths, Sha256Test, testing::Bool(),
                         [](const auto& test) { return test.param ? "Portable" : "Instructions"; });

TEST_P(Sha256Test, GivesThePublishedDigests) {
  EXPECT_EQ(hex(sha256(bytes(""))),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256(bytes("abc"))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256(bytes("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(bytes(std::string(1'000'000, 'a')))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_P(Sha256Test, AgreesWithOpenSslAtEveryLength) {
  std::mt19937_64 random(1);
  for (size_t length = 0; length <= 300; ++length) {
    for (int round = 0; round < 4; ++round) {
      std::vector<uint8_t> message(length);
      for (uint8_t& byte : message) byte = static_cast<uint8_t>(random());
      ASSERT_EQ(sha256(message), judge(message)) << length;
    }
  }
}

TEST_P(Sha256Test, PiecesGiveTheDigestOfTheWhole) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint8_t> message(random() % 600);
    for (uint8_t& byte : message) byte = static_cast<uint8_t>(random());
    Sha256 hash;
    for (std::span<const uint8_t> rest = message; !rest.empty();) {
      const size_t take = std::min<size_t>(rest.size(), random() % 150);
      hash.update(rest.first(take));
      rest = rest.subspan(take);
    }
    ASSERT_EQ(hash.finish(), judge(message)) << message.size();
  }
}

TEST_P(Sha256Test, AMessagePaddedInAdvanceHashesTheSame) {
  for (size_t length = 0; length <= 300; ++length) {
    std::vector<uint8_t> message(length, static_cast<uint8_t>(length));
    const Digest expected = judge(message);
    message.resize(length + 9 + kSha256Block, 0xEE);
    const size_t count = sha256_pad(message.data(), length);
    ASSERT_EQ(count, (length + 9 + 63) / 64);
    Digest digest;
    sha256_padded(message.data(), count, digest.data());
    ASSERT_EQ(digest, expected) << length;
  }
}

TEST(Sha256, ShortMessagesTakeTwoCompressions) {
  uint8_t room[192];
  EXPECT_EQ(sha256_pad(room, kShortMessage), 2U);
  EXPECT_EQ(sha256_pad(room, kShortMessage + 1), 3U);
}

TEST(Sha256, ThePortablePathCanBeForced) {
  force_portable_sha256(true);
  EXPECT_FALSE(sha256_uses_instructions());
  force_portable_sha256(false);
}

}  // namespace
}  // namespace stemma::key
