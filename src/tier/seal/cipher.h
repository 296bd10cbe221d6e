// XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM with nonces of 24 bytes.
//
// The key and the first 12 bytes of the nonce give each message its own key (NIST SP 800-108 with
// CMAC); the last 12 bytes are the nonce under that key. So nonces may be random: after 2^80
// messages under one key, the chance that two share key and nonce is 2^-32.
//
// Threading:  one thread at a time.
// Cost:       about half a microsecond a message, and AES-256-GCM over its bytes. Contexts, and in
//             them the keys of the last message, are kept until forget().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tier/seal/aes_gcm.h"

namespace stemma::tier::seal {

inline constexpr size_t kNonceBytes = 24;

using Nonce = std::array<uint8_t, kNonceBytes>;

class Cipher {
 public:
  // Null: no memory, or there is no AES-256-GCM.
  static std::unique_ptr<Cipher> create(std::unique_ptr<AesGcm> gcm = make_aes_gcm());
  ~Cipher();
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  // The library that does AES-256-GCM.
  const char* library() const noexcept { return gcm_->name(); }

  // Requires: `out` is as long as `plain`, at most kMostSealedBytes. False: a library
  // failed.
  bool seal(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept;
  // False: not sealed with this key, nonce and associated data. `out` is all zeros then.
  bool open(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept;
  // Overwrites the keys of the last message.
  void forget() noexcept;

 private:
  struct Derivation;
  Cipher(std::unique_ptr<Derivation> derivation, std::unique_ptr<AesGcm> gcm);

  std::unique_ptr<Derivation> derivation_;
  std::unique_ptr<AesGcm> gcm_;
};

// Unguessable bytes from the system. False: the system gave none.
bool random_bytes(std::span<uint8_t> out) noexcept;

}  // namespace stemma::tier::seal
