#include "tier/seal/aes_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace stemma::tier::seal {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<uint8_t>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

Bytes random_message(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// A message and what seals it.
struct Message {
  SealingKey key{};
  Bytes nonce = Bytes(kGcmNonceBytes);
  Bytes associated, plain;

  GcmNonce gcm_nonce() const { return std::span(nonce).first<kGcmNonceBytes>(); }
};

Message any_message(std::mt19937_64& random, size_t associated, size_t size) {
  Message message;
  const Bytes key = random_message(random, kKeyBytes);
  std::copy(key.begin(), key.end(), message.key.begin());
  message.nonce = random_message(random, kGcmNonceBytes);
  message.associated = random_message(random, associated);
  message.plain = random_message(random, size);
  return message;
}

struct Sealed {
  Bytes bytes;
  Tag tag{};

  friend bool operator==(const Sealed&, const Sealed&) = default;
};

Sealed seal(AesGcm& gcm, const Message& message) {
  Sealed sealed{Bytes(message.plain.size()), {}};
  EXPECT_TRUE(gcm.seal(message.key, message.gcm_nonce(), message.associated, message.plain,
                       sealed.bytes.data(), sealed.tag));
  return sealed;
}

// Opens into other memory, and checks what is left there.
bool opens(AesGcm& gcm, const Message& message, const Sealed& sealed) {
  Bytes out(sealed.bytes.size(), 0xEE);
  const bool good = gcm.open(message.key, message.gcm_nonce(), message.associated, sealed.bytes,
                             sealed.tag, out.data());
  EXPECT_EQ(out, good ? message.plain : Bytes(out.size()));
  return good;
}

// ---- The contract of both --------------------------------------------------------------------

using Make = std::unique_ptr<AesGcm> (*)();

class AesGcmContract : public testing::TestWithParam<Make> {
 protected:
  void SetUp() override {
    gcm_ = GetParam()();
    if (gcm_ == nullptr) GTEST_SKIP() << "not built in, or this CPU lacks the instructions";
  }

  std::unique_ptr<AesGcm> gcm_;
  std::mt19937_64 random_{1};
};

INSTANTIATE_TEST_SUITE_P(OpenSsl, AesGcmContract, testing::Values(&make_openssl_aes_gcm));
INSTANTIATE_TEST_SUITE_P(IpsecMb, AesGcmContract, testing::Values(&make_ipsec_mb_aes_gcm));

// Test cases 13, 14 and 16 of the GCM specification (McGrew and Viega).
TEST_P(AesGcmContract, SealsAsTheStandardSays) {
  Message message;
  EXPECT_EQ(seal(*gcm_, message).tag[0], 0x53);
  EXPECT_EQ(seal(*gcm_, message).tag[15], 0x8b);
  message.plain = Bytes(16);
  EXPECT_EQ(seal(*gcm_, message).bytes, from_hex("cea7403d4d606b6e074ec5d3baf39d18"));
  const Bytes key = from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  std::copy(key.begin(), key.end(), message.key.begin());
  message.nonce = from_hex("cafebabefacedbaddecaf888");
  message.associated = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
  message.plain = from_hex(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
      "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
  const Sealed sealed = seal(*gcm_, message);
  EXPECT_EQ(sealed.bytes,
            from_hex("522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
                     "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"));
  EXPECT_EQ(Bytes(sealed.tag.begin(), sealed.tag.end()),
            from_hex("76fc6ece0f4e1768cddf8853bb2d551b"));
}

TEST_P(AesGcmContract, NoFlippedBitIsAccepted) {
  for (const size_t size : std::initializer_list<size_t>{0, 1, 15, 16, 17, 64, 255, 257, 1031}) {
    const Message message = any_message(random_, size % 41, size);
    const Sealed sealed = seal(*gcm_, message);
    ASSERT_TRUE(opens(*gcm_, message, sealed)) << size;
    const auto refuses_each_bit = [&](const char* what, size_t bytes, auto&& byte_of) {
      for (size_t bit = 0; bit < bytes * 8; ++bit) {
        Message other = message;
        Sealed changed = sealed;
        byte_of(other, changed, bit / 8) ^= static_cast<uint8_t>(1U << bit % 8);
        // Only what `open` leaves behind is compared with the message.
        EXPECT_FALSE(opens(*gcm_, other, changed)) << what << " of " << size << ", bit " << bit;
      }
    };
    using M = Message;
    using S = Sealed;
    refuses_each_bit("bytes", size, [](M&, S& s, size_t i) -> uint8_t& { return s.bytes[i]; });
    refuses_each_bit("tag", kTagBytes, [](M&, S& s, size_t i) -> uint8_t& { return s.tag[i]; });
    refuses_each_bit("nonce", 12, [](M& m, S&, size_t i) -> uint8_t& { return m.nonce[i]; });
    refuses_each_bit("key", kKeyBytes, [](M& m, S&, size_t i) -> uint8_t& { return m.key[i]; });
    refuses_each_bit("associated data", size % 41,
                     [](M& m, S&, size_t i) -> uint8_t& { return m.associated[i]; });
    EXPECT_TRUE(opens(*gcm_, message, sealed)) << "a refusal leaves nothing behind";
  }
}

TEST_P(AesGcmContract, ALargeMessageIsCheckedWhole) {
  const Message message = any_message(random_, 88, (size_t{2} << 20U) + 5);
  const Sealed sealed = seal(*gcm_, message);
  EXPECT_TRUE(opens(*gcm_, message, sealed));
  for (int i = 0; i < 40; ++i) {
    Sealed changed = sealed;
    const size_t bit = random_() % (changed.bytes.size() * 8);
    changed.bytes[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    EXPECT_FALSE(opens(*gcm_, message, changed)) << bit;
  }
}

TEST_P(AesGcmContract, WorksInPlace) {
  for (const size_t size : std::initializer_list<size_t>{1, 16, 100, 4096, 70'001}) {
    const Message message = any_message(random_, 88, size);
    const Sealed apart = seal(*gcm_, message);
    Sealed inside{message.plain, {}};
    ASSERT_TRUE(gcm_->seal(message.key, message.gcm_nonce(), message.associated, inside.bytes,
                           inside.bytes.data(), inside.tag));
    EXPECT_EQ(inside, apart);
    Bytes good = inside.bytes, bad = inside.bytes;
    ASSERT_TRUE(gcm_->open(message.key, message.gcm_nonce(), message.associated, good, inside.tag,
                           good.data()));
    EXPECT_EQ(good, message.plain);
    inside.tag[3] ^= 1U;
    EXPECT_FALSE(gcm_->open(message.key, message.gcm_nonce(), message.associated, bad, inside.tag,
                            bad.data()));
    EXPECT_EQ(bad, Bytes(size));
  }
}

TEST_P(AesGcmContract, WorksAfterForget) {
  const Message message = any_message(random_, 88, 1000);
  const Sealed before = seal(*gcm_, message);
  gcm_->forget();
  gcm_->forget();
  EXPECT_EQ(seal(*gcm_, message), before);
  EXPECT_TRUE(opens(*gcm_, message, before));
}

TEST_P(AesGcmContract, EachThreadHasItsOwn) {
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([seed] {
      const std::unique_ptr<AesGcm> own = GetParam()(), judge = make_openssl_aes_gcm();
      std::mt19937_64 random(seed);
      for (int i = 0; i < 300; ++i) {
        const Message message = any_message(random, 88, random() % 3000);
        EXPECT_EQ(seal(*own, message), seal(*judge, message));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- What is left in memory ------------------------------------------------------------------

// A key that lies nowhere in memory as it is.
constexpr uint8_t secret_byte(size_t i) { return static_cast<uint8_t>(i * 37 + 11); }

[[gnu::noinline]] void seal_with_secret_key(AesGcm& gcm) {
  Message message;
  volatile uint8_t* const key = message.key.data();
  for (size_t i = 0; i < kKeyBytes; ++i) key[i] = secret_byte(i);
  message.plain = Bytes(1000);
  (void)seal(gcm, message);
  for (size_t i = 0; i < kKeyBytes; ++i) key[i] = 0;
}

// How often the key is in the heap. A schedule of AES-256 begins with the key.
size_t keys_in_heap() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  size_t found = 0;
  while (std::getline(maps, line)) {
    if (line.find("[heap]") == std::string::npos) continue;
    const auto* at = reinterpret_cast<const volatile uint8_t*>(std::stoull(line, nullptr, 16));
    const auto* const end = reinterpret_cast<const volatile uint8_t*>(
        std::stoull(line.substr(line.find('-') + 1), nullptr, 16));
    for (; at + kKeyBytes <= end; ++at) {
      size_t same = 0;
      while (same < kKeyBytes && at[same] == secret_byte(same)) ++same;
      if (same == kKeyBytes) ++found;
    }
  }
  return found;
}

TEST_P(AesGcmContract, ForgottenKeysAreWiped) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "its heap lies elsewhere";
#endif
  seal_with_secret_key(*gcm_);
  if (keys_in_heap() == 0) GTEST_SKIP() << "the schedule is not where this test looks";
  gcm_->forget();
  EXPECT_EQ(keys_in_heap(), 0U);
  seal_with_secret_key(*gcm_);
  EXPECT_NE(keys_in_heap(), 0U);
  gcm_.reset();
  EXPECT_EQ(keys_in_heap(), 0U) << "the destructor wipes as well";
}

// ---- One opens what the other sealed ---------------------------------------------------------

TEST(AesGcmBoth, WriteTheSameBytesAndOpenEachOthers) {
  const std::unique_ptr<AesGcm> ipsec_mb = make_ipsec_mb_aes_gcm();
  if (ipsec_mb == nullptr) GTEST_SKIP() << "not built in, or this CPU lacks the instructions";
  const std::unique_ptr<AesGcm> openssl = make_openssl_aes_gcm();
  std::mt19937_64 random(7);
  for (size_t round = 0; round < 1400; ++round) {
    // Each size up to 1100, then any.
    const size_t size = round < 1100 ? round : random() % (size_t{1} << (10 + random() % 12));
    const Message message = any_message(random, random() % 130, size);
    const Sealed one = seal(*openssl, message), other = seal(*ipsec_mb, message);
    ASSERT_EQ(one, other) << size;
    ASSERT_TRUE(opens(*ipsec_mb, message, one)) << size;
    ASSERT_TRUE(opens(*openssl, message, other)) << size;
  }
}

TEST(AesGcmBoth, AnyAlignmentGivesTheSame) {
  const std::unique_ptr<AesGcm> ipsec_mb = make_ipsec_mb_aes_gcm();
  if (ipsec_mb == nullptr) GTEST_SKIP() << "not built in, or this CPU lacks the instructions";
  const std::unique_ptr<AesGcm> openssl = make_openssl_aes_gcm();
  std::mt19937_64 random(8);
  const Message message = any_message(random, 88, 5000);
  const Sealed wanted = seal(*openssl, message);
  for (size_t from = 0; from < 64; ++from) {
    Bytes source(message.plain.size() + 64), target(source.size() + 64, 0xEE);
    const size_t to = random() % 64;
    std::copy(message.plain.begin(), message.plain.end(), source.begin() + ptrdiff_t(from));
    Tag tag;
    ASSERT_TRUE(ipsec_mb->seal(message.key, message.gcm_nonce(), message.associated,
                               std::span(source).subspan(from, message.plain.size()),
                               target.data() + to, tag));
    EXPECT_EQ(tag, wanted.tag);
    const auto begin = target.begin() + ptrdiff_t(to);
    EXPECT_TRUE(std::equal(wanted.bytes.begin(), wanted.bytes.end(), begin));
    const auto untouched = [](uint8_t byte) { return byte == 0xEE; };
    EXPECT_TRUE(std::all_of(target.begin(), begin, untouched));
    EXPECT_TRUE(std::all_of(begin + ptrdiff_t(wanted.bytes.size()), target.end(), untouched));
  }
}

TEST(AesGcmBoth, TheFasterOneIsTaken) {
  const bool has_ipsec_mb = make_ipsec_mb_aes_gcm() != nullptr;
  EXPECT_STREQ(make_aes_gcm()->name(), has_ipsec_mb ? "IPsec MB" : "OpenSSL");
}

}  // namespace
}  // namespace stemma::tier::seal
