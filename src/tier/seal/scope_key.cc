#include "tier/seal/scope_key.h"

#include <openssl/crypto.h>

#include <cstring>
#include <string_view>

#include "base/check.h"
#include "key/sha256.h"

namespace stemma::tier {

namespace seal {

std::array<uint8_t, 32> hmac(const std::array<uint8_t, kKeyBytes>& key,
                             std::span<const uint8_t> message) noexcept {
  constexpr size_t kBlock = key::kSha256Block;
  std::array<uint8_t, key::kShortMessage> bytes;
  STEMMA_CHECK(message.size() <= bytes.size() - kBlock);
  const auto pad = [&](uint8_t with) {
    std::memset(bytes.data(), with, kBlock);
    for (size_t i = 0; i < key.size(); ++i) bytes[i] = static_cast<uint8_t>(key[i] ^ with);
  };
  pad(0x36);
  std::memcpy(bytes.data() + kBlock, message.data(), message.size());
  const key::Digest inner = key::sha256(std::span(bytes).first(kBlock + message.size()));
  pad(0x5c);
  std::memcpy(bytes.data() + kBlock, inner.data(), inner.size());
  const key::Digest outer = key::sha256(std::span(bytes).first(kBlock + inner.size()));
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return outer;
}

}  // namespace seal

namespace {

std::span<const uint8_t> bytes_of(std::string_view text) noexcept {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ScopeKey::ScopeKey(const seal::KeyFile& file) noexcept
    : id_(file.id),
      sealing_(seal::hmac(file.key, bytes_of("stemma seal 1: entries"))),
      naming_(seal::hmac(file.key, bytes_of("stemma seal 1: names"))) {}

ScopeKey::~ScopeKey() {
  OPENSSL_cleanse(sealing_.data(), sealing_.size());
  OPENSSL_cleanse(naming_.data(), naming_.size());
}

EntryKey ScopeKey::name(const EntryKey& key) const noexcept {
  std::array<uint8_t, 34> message;
  std::memcpy(message.data(), key.chain.bytes.data(), key.chain.bytes.size());
  message[32] = static_cast<uint8_t>(key.kind);
  message[33] = key.group;
  const std::array<uint8_t, 32> name = seal::hmac(naming_, message);
  EntryKey named = key;
  std::memcpy(named.chain.bytes.data(), name.data(), 24);
  return named;
}

}  // namespace stemma::tier
