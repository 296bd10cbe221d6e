#include "tier/seal/sealed_entry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace stemma::tier::seal {
namespace {

KeyFile key_file(uint8_t byte) {
  KeyFile file;
  file.id.fill(byte);
  file.key.fill(byte);
  return file;
}

struct Example {
  ScopeKey scope{key_file(7)};
  EntryKey key;
  EntryInfo info{.begin = 16, .end = 32, .layout = 99, .bytes = 100};
  std::vector<uint8_t> plain = std::vector<uint8_t>(100, 'p');
  std::unique_ptr<Cipher> cipher = Cipher::create();

  std::vector<uint8_t> seal() const {
    std::vector<uint8_t> out(plain.size() + kSealBytes);
    Nonce nonce;
    EXPECT_TRUE(random_bytes(nonce));
    EXPECT_TRUE(seal_entry(*cipher, scope, key, info, nonce, plain, out));
    return out;
  }
  bool opens(std::span<const uint8_t> sealed) const {
    std::vector<uint8_t> out(sealed.size());
    return open_entry(*cipher, scope, key, info, sealed, out.data()) &&
           std::equal(plain.begin(), plain.end(), out.begin());
  }
};

// As docs/formats/sealed-entry.md describes it.
TEST(SealedEntry, EveryByteIsWhereTheDocumentSays) {
  SealHeader header;
  header.key_id.fill(0xA1);
  header.nonce.fill(0xB2);
  header.tag.fill(0xC3);
  std::array<uint8_t, kSealBytes> bytes;
  write_seal_header(header, bytes);
  std::vector<uint8_t> expected{'S', 'T', 'E', 'M', 'M', 'A', 'S', 'E', 1, 0, 0, 0, 0, 0, 0, 0};
  expected.insert(expected.end(), 8, 0xA1);
  expected.insert(expected.end(), 24, 0xB2);
  expected.insert(expected.end(), 16, 0xC3);
  EXPECT_EQ(std::vector<uint8_t>(bytes.begin(), bytes.end()), expected);
  EXPECT_EQ(*read_seal_header(bytes), header);
  bytes[8] = 2;
  EXPECT_EQ(read_seal_header(bytes).error().code(), Errc::unsupported);
}

TEST(SealedEntry, OpensForTheSameEntryOnly) {
  Example one;
  const std::vector<uint8_t> sealed = one.seal();
  ASSERT_TRUE(one.opens(sealed));
  const auto refuses = [&](const char* what, auto&& change) {
    Example other;
    change(other);
    EXPECT_FALSE(other.opens(sealed)) << what;
  };
  refuses("begin", [](Example& e) { e.info.begin = 0; });
  refuses("end", [](Example& e) { e.info.end = 48; });
  refuses("layout", [](Example& e) { e.info.layout = 98; });
  refuses("bytes", [](Example& e) { e.info.bytes = 99; });
  refuses("kind", [](Example& e) { e.key.kind = EntryKind::segment; });
  refuses("group", [](Example& e) { e.key.group = 1; });
  for (size_t i = 0; i < 32; ++i) {
    refuses("chain", [i](Example& e) { e.key.chain.bytes[i] = 1; });
  }
}

TEST(SealedEntry, NoChangedBitIsAccepted) {
  const Example one;
  const std::vector<uint8_t> good = one.seal();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto sealed = good;
    sealed[bit / 8] = static_cast<uint8_t>(sealed[bit / 8] ^ 1U << bit % 8);
    EXPECT_FALSE(one.opens(sealed)) << bit;
  }
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(one.opens(std::span(good).first(length)));
  }
}

// A server with one library reads what a server with the other wrote.
TEST(SealedEntry, EitherLibraryOpensWhatTheOtherSealed) {
  Example one, other;
  one.cipher = Cipher::create(make_openssl_aes_gcm());
  other.cipher = Cipher::create(make_ipsec_mb_aes_gcm());
  if (other.cipher == nullptr) GTEST_SKIP() << "there is only OpenSSL";
  for (const size_t size : {0, 1, 63, 64, 100, 4032, 65536, 300'001}) {
    for (Example* example : {&one, &other}) {
      example->info.bytes = size;
      example->plain = std::vector<uint8_t>(size, 'q');
    }
    EXPECT_TRUE(other.opens(one.seal())) << size;
    EXPECT_TRUE(one.opens(other.seal())) << size;
    if (size == 0) continue;
    std::vector<uint8_t> changed = one.seal();
    changed.back() ^= 1U;
    EXPECT_FALSE(other.opens(changed)) << size;
  }
}

TEST(SealedEntry, AnotherKeyOpensNothing) {
  Example one;
  const std::vector<uint8_t> sealed = one.seal();
  const ScopeKey other(key_file(8));
  std::vector<uint8_t> out(100);
  EXPECT_FALSE(open_entry(*one.cipher, other, one.key, one.info, sealed, out.data()));
}

TEST(SealedEntry, NamesHideTheKeyAndKeepTheOwner) {
  const ScopeKey scope(key_file(7)), other(key_file(8));
  EntryKey key;
  for (size_t i = 0; i < 32; ++i) key.chain.bytes[i] = static_cast<uint8_t>(i);
  const EntryKey name = scope.name(key);
  EXPECT_EQ(name, scope.name(key));
  EXPECT_EQ(owner_of(name), owner_of(key));
  EXPECT_NE(std::memcmp(name.chain.bytes.data(), key.chain.bytes.data(), 8), 0);
  EXPECT_NE(std::memcmp(name.chain.bytes.data() + 16, key.chain.bytes.data() + 16, 8), 0);
  EXPECT_NE(name, other.name(key));
  EntryKey kind = key;
  kind.kind = EntryKind::logits;
  EXPECT_NE(std::memcmp(scope.name(kind).chain.bytes.data(), name.chain.bytes.data(), 24), 0);
}

}  // namespace
}  // namespace stemma::tier::seal
