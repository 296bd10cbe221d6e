// ScopeKey: the key of one scope, ready to seal, open and name its entries.
//
// From the key in the file two others are derived, one to seal with and one to name with, so that
// no key is used for two purposes.
//
// Threading:  immutable.
// Ownership:  shared; wiped from memory with its last user.
#pragma once

#include <array>
#include <cstdint>

#include "stemma/tier.h"
#include "tier/seal/key_file.h"

namespace stemma::tier {

class ScopeKey {
 public:
  explicit ScopeKey(const seal::KeyFile& file) noexcept;
  ~ScopeKey();
  ScopeKey(const ScopeKey&) = delete;
  ScopeKey& operator=(const ScopeKey&) = delete;

  const seal::KeyId& id() const noexcept { return id_; }
  const std::array<uint8_t, seal::kKeyBytes>& sealing() const noexcept { return sealing_; }

  // What the inner tier knows the entry by: the first 24 bytes of its chain are replaced by an
  // HMAC-SHA256 of the entry's key. Whoever does not have this key can neither compute it nor tell
  // which prompt it belongs to. The last 8 bytes stay, because they say whose entry it is.
  EntryKey name(const EntryKey& key) const noexcept;

 private:
  seal::KeyId id_;
  std::array<uint8_t, seal::kKeyBytes> sealing_;
  std::array<uint8_t, seal::kKeyBytes> naming_;
};

namespace seal {

// HMAC-SHA256 (RFC 2104) of a message of at most 55 bytes.
std::array<uint8_t, 32> hmac(const std::array<uint8_t, kKeyBytes>& key,
                             std::span<const uint8_t> message) noexcept;

}  // namespace seal

}  // namespace stemma::tier
