// AesGcm: AES-256-GCM (NIST SP 800-38D) with nonces of 12 bytes and tags of 16.
//
// Two libraries implement it, and what one seals the other opens. OpenSSL is always there. Intel's
// IPsec MB is used if Stemma was built with it and the CPU has VAES and AVX-512: it is four to five
// times as fast as OpenSSL 3.0 (docs/decisions/0033-sealing-uses-ipsec-mb-where-it-is-there.md).
//
// Threading:  one thread at a time. Objects share no state that changes, so each thread has its
//             own.
// Ownership:  keeps the key schedule of the last message until the next one, forget() or the
//             destructor overwrites it.
// Cost:       a key schedule a message (0.1 microseconds with IPsec MB), then one pass over the
//             bytes. It copies nothing and allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "tier/seal/key_file.h"

namespace stemma::tier::seal {

inline constexpr size_t kGcmNonceBytes = 12;
inline constexpr size_t kTagBytes = 16;
// AES-GCM's limit for one message.
inline constexpr uint64_t kMostSealedBytes = (uint64_t{1} << 36U) - 32;

using GcmNonce = std::span<const uint8_t, kGcmNonceBytes>;
using Tag = std::array<uint8_t, kTagBytes>;
using SealingKey = std::array<uint8_t, kKeyBytes>;

class AesGcm {
 public:
  AesGcm() = default;
  virtual ~AesGcm() = default;
  AesGcm(const AesGcm&) = delete;
  AesGcm& operator=(const AesGcm&) = delete;

  // The library that does it, for people to read.
  virtual const char* name() const noexcept = 0;

  // Writes as many bytes to `out` as `plain` has. They may be the same memory, but not overlap in
  // part. False: the library failed. Requires: at most kMostSealedBytes.
  virtual bool seal(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
                    std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept = 0;
  // False: not sealed with this key, nonce and associated data. `out` is all zeros then. Tags are
  // compared in constant time. `out` and `sealed` may be the same memory, as above.
  virtual bool open(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
                    std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept = 0;
  // Overwrites the key schedule of the last message.
  virtual void forget() noexcept = 0;
};

// Null: no memory, or this OpenSSL has no AES-256-GCM.
std::unique_ptr<AesGcm> make_openssl_aes_gcm();
// Null: no memory, built without IPsec MB, or the CPU lacks the instructions. The first call takes
// about 40 ms, in which the library tests itself.
std::unique_ptr<AesGcm> make_ipsec_mb_aes_gcm();
// The faster one of those that are there, or null.
std::unique_ptr<AesGcm> make_aes_gcm();

}  // namespace stemma::tier::seal
