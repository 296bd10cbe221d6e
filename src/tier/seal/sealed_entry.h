// The payload of a sealed entry: a header of 64 bytes, then the ciphertext, as long as the
// plaintext. docs/formats/sealed-entry.md draws it.
//
// Threading: pure functions, but only one thread at a time may use a Cipher.
#pragma once

#include <cstdint>
#include <span>

#include "stemma/tier/sealed_tier.h"
#include "tier/seal/cipher.h"
#include "tier/seal/scope_key.h"

namespace stemma::tier::seal {

struct SealHeader {
  KeyId key_id{};
  Nonce nonce{};
  Tag tag{};

  friend bool operator==(const SealHeader&, const SealHeader&) = default;
};

void write_seal_header(const SealHeader& header, std::span<uint8_t, kSealBytes> out) noexcept;
// Error: unsupported (a newer version; the value says which), corrupt (anything else that
//        write_seal_header() would
// not have written).
Result<SealHeader> read_seal_header(std::span<const uint8_t, kSealBytes> bytes) noexcept;

// Seals `plain`, which is info.bytes long, into `out`, which is kSealBytes longer. False: OpenSSL
// failed. Requires: the nonce is from random_bytes(), and used for nothing else.
bool seal_entry(Cipher& cipher, const ScopeKey& scope, const EntryKey& key, const EntryInfo& info,
                const Nonce& nonce, std::span<const uint8_t> plain,
                std::span<uint8_t> out) noexcept;

// Opens a sealed entry into `out`, which is kSealBytes shorter. `info` describes the plaintext.
// False: these bytes were not sealed with this key for this entry; then `out` holds none of them.
bool open_entry(Cipher& cipher, const ScopeKey& scope, const EntryKey& key, const EntryInfo& info,
                std::span<const uint8_t> sealed, uint8_t* out) noexcept;

}  // namespace stemma::tier::seal
