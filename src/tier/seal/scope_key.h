// ScopeKey: the key of one scope, ready to seal, open and name its entries.
//
// Two keys are derived from the key in the file, one for sealing and one for naming, so that no key
// serves two purposes.
//
// Threading:  immutable.
// Ownership:  shared; wiped from memory with its last user.
#pragma once

#include <array>
#include <cstdint>

#include "stemma/tier/tier.h"
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

  // The entry's name in the inner tier: an HMAC-SHA256 of the entry's key replaces the first 24
  // bytes of its chain. Without this scope key nobody can compute it or tell which prompt it
  // belongs to. The last 8 bytes stay, because they tell the entry's scope.
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
