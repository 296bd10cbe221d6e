#include "tier/seal/cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tier/seal/scope_key.h"

namespace stemma::tier::seal {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

Nonce alphabet() {
  Nonce nonce;
  std::memcpy(nonce.data(), "ABCDEFGHIJKLMNOPQRSTUVWX", nonce.size());
  return nonce;
}

SealingKey key_of(uint8_t byte) {
  SealingKey key;
  key.fill(byte);
  return key;
}

std::string sealed(const SealingKey& key, std::string_view associated, std::string_view plain) {
  const auto cipher = Cipher::create();
  std::vector<uint8_t> out(plain.size());
  Tag tag;
  EXPECT_TRUE(
      cipher->seal(key, alphabet(), bytes_of(associated), bytes_of(plain), out.data(), tag));
  return hex(out) + hex(tag);
}

// The vectors of the specification. They differ in the first bit of the encryption of zero.
TEST(Xaes, SealsAsTheSpecificationSays) {
  EXPECT_EQ(sealed(key_of(1), "", "XAES-256-GCM"),
            "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271");
  EXPECT_EQ(sealed(key_of(3), "c2sp.org/XAES-256-GCM", "XAES-256-GCM"),
            "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d");
}

TEST(Xaes, OpensOnlyWhatWasSealedSo) {
  const auto cipher = Cipher::create();
  const std::string plain(1000, 'p');
  const std::string_view associated = "which entry it is";
  std::vector<uint8_t> out(plain.size());
  Tag tag;
  ASSERT_TRUE(
      cipher->seal(key_of(7), alphabet(), bytes_of(associated), bytes_of(plain), out.data(), tag));
  std::vector<uint8_t> opened(plain.size());
  const auto opens = [&](const SealingKey& key, const Nonce& nonce, std::string_view with,
                         const std::vector<uint8_t>& bytes, const Tag& by) {
    opened.assign(plain.size(), 0xEE);
    const bool good = cipher->open(key, nonce, bytes_of(with), bytes, by, opened.data());
    // Bytes that did not authenticate are not left behind.
    if (!good) {
      EXPECT_EQ(opened, std::vector<uint8_t>(plain.size()));
    }
    return good;
  };
  ASSERT_TRUE(opens(key_of(7), alphabet(), associated, out, tag));
  EXPECT_EQ(std::string(opened.begin(), opened.end()), plain);
  EXPECT_FALSE(opens(key_of(8), alphabet(), associated, out, tag));
  EXPECT_FALSE(opens(key_of(7), alphabet(), "which entry it iS", out, tag));
  for (size_t i = 0; i < kNonceBytes; ++i) {
    Nonce other = alphabet();
    other[i] ^= 1U;
    EXPECT_FALSE(opens(key_of(7), other, associated, out, tag)) << i;
  }
  for (size_t i = 0; i < kTagBytes; ++i) {
    Tag other = tag;
    other[i] ^= 0x80U;
    EXPECT_FALSE(opens(key_of(7), alphabet(), associated, out, other)) << i;
  }
  for (size_t i = 0; i < out.size(); i += 37) {
    auto other = out;
    other[i] ^= 4U;
    EXPECT_FALSE(opens(key_of(7), alphabet(), associated, other, tag)) << i;
  }
  EXPECT_TRUE(opens(key_of(7), alphabet(), associated, out, tag)) << "a failure leaves nothing";
}

// RFC 4231, test case 2. HMAC itself pads short keys with zeros.
TEST(Hmac, IsThatOfTheStandard) {
  std::array<uint8_t, kKeyBytes> key{'J', 'e', 'f', 'e'};
  EXPECT_EQ(hex(hmac(key, bytes_of("what do ya want for nothing?"))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace stemma::tier::seal
