// XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM with nonces of 24 bytes, by OpenSSL.
//
// The first 12 bytes of the nonce and the key give a key of the message's own (NIST SP 800-108 with
// CMAC), the last 12 are the nonce under it. So nonces may be random: after 2^80 messages under one
// key the chance that two of them share key and nonce is 2^-32.
//
// Threading:  one thread at a time.
// Cost:       about half a microsecond a message, and AES-256-GCM over its bytes. Contexts are
//             kept, and with them the keys of the last message until forget().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tier/seal/key_file.h"

namespace stemma::tier::seal {

inline constexpr size_t kNonceBytes = 24;
inline constexpr size_t kTagBytes = 16;
// Of one message: what AES-GCM allows.
inline constexpr uint64_t kMostSealedBytes = (uint64_t{1} << 36U) - 32;

using Nonce = std::array<uint8_t, kNonceBytes>;
using Tag = std::array<uint8_t, kTagBytes>;
using SealingKey = std::array<uint8_t, kKeyBytes>;

class Cipher {
 public:
  // Null: there is no memory, or this OpenSSL has no AES-256-GCM.
  static std::unique_ptr<Cipher> create();
  ~Cipher();
  Cipher(const Cipher&) = delete;
  Cipher& operator=(const Cipher&) = delete;

  // Requires: `out` is as long as `plain`, at most kMostSealedBytes. False: OpenSSL could not.
  bool seal(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept;
  // False: not sealed with this key, nonce and associated data. `out` is all zeros then.
  bool open(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept;
  // Overwrites the keys of the last message.
  void forget() noexcept;

 private:
  struct Contexts;
  explicit Cipher(std::unique_ptr<Contexts> contexts);

  bool begin(bool sealing, const SealingKey& key, const Nonce& nonce,
             std::span<const uint8_t> associated) noexcept;
  bool update(bool sealing, std::span<const uint8_t> from, uint8_t* out) noexcept;

  std::unique_ptr<Contexts> contexts_;
};

// Bytes that nobody can guess, from the system. False: it has none to give.
bool random_bytes(std::span<uint8_t> out) noexcept;

}  // namespace stemma::tier::seal
