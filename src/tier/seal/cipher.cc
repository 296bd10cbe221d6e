#include "tier/seal/cipher.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace stemma::tier::seal {

namespace {

using Block = std::array<uint8_t, 16>;

struct FreeEcb {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeEcb>;

bool encrypt_blocks(EVP_CIPHER_CTX* ecb, const uint8_t* from, uint8_t* to, int bytes) noexcept {
  int written = 0;
  return EVP_EncryptUpdate(ecb, to, &written, from, bytes) == 1 && written == bytes;
}

// CMAC's first subkey: the encryption of zero, doubled in GF(2^128).
Block doubled(const Block& block) noexcept {
  Block twice;
  for (size_t i = 0; i < 15; ++i) {
    twice[i] = static_cast<uint8_t>(block[i] << 1U | block[i + 1] >> 7U);
  }
  twice[15] = static_cast<uint8_t>(block[15] << 1U ^ (block[0] >> 7U) * 0x87U);
  return twice;
}

}  // namespace

// SP 800-108 with CMAC, for keys of 32 bytes.
struct Cipher::Derivation {
  Context ecb{EVP_CIPHER_CTX_new()};

  bool prepare() noexcept {
    return ecb &&
           EVP_EncryptInit_ex(ecb.get(), EVP_aes_256_ecb(), nullptr, nullptr, nullptr) == 1 &&
           EVP_CIPHER_CTX_set_padding(ecb.get(), 0) == 1;
  }

  // The message's own key.
  bool derive(const SealingKey& key, const Nonce& nonce, SealingKey& derived) noexcept {
    if (EVP_EncryptInit_ex(ecb.get(), nullptr, nullptr, key.data(), nullptr) != 1) return false;
    Block subkey{};
    if (!encrypt_blocks(ecb.get(), subkey.data(), subkey.data(), 16)) return false;
    subkey = doubled(subkey);
    std::array<uint8_t, 32> blocks;
    for (uint8_t i = 0; i < 2; ++i) {
      uint8_t* const at = blocks.data() + 16 * size_t{i};
      const uint8_t counter[4] = {0, static_cast<uint8_t>(i + 1), 'X', 0};
      std::memcpy(at, counter, sizeof counter);
      std::memcpy(at + sizeof counter, nonce.data(), 12);
      for (size_t j = 0; j < subkey.size(); ++j) at[j] = static_cast<uint8_t>(at[j] ^ subkey[j]);
    }
    const bool good = encrypt_blocks(ecb.get(), blocks.data(), derived.data(), 32);
    OPENSSL_cleanse(subkey.data(), subkey.size());
    return good;
  }

  void forget() noexcept {
    static constexpr SealingKey kNone{};
    EVP_EncryptInit_ex(ecb.get(), nullptr, nullptr, kNone.data(), nullptr);
  }
};

Cipher::Cipher(std::unique_ptr<Derivation> derivation, std::unique_ptr<AesGcm> gcm)
    : derivation_(std::move(derivation)), gcm_(std::move(gcm)) {}
Cipher::~Cipher() = default;

std::unique_ptr<Cipher> Cipher::create(std::unique_ptr<AesGcm> gcm) try {
  if (gcm == nullptr) return nullptr;
  auto derivation = std::make_unique<Derivation>();
  if (!derivation->prepare()) {
    ERR_clear_error();
    return nullptr;
  }
  return std::unique_ptr<Cipher>(new Cipher(std::move(derivation), std::move(gcm)));
} catch (const std::bad_alloc&) {
  return nullptr;
}

// Replaces the keys of the last message.
void Cipher::forget() noexcept {
  derivation_->forget();
  gcm_->forget();
}

bool Cipher::seal(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
                  std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept {
  SealingKey derived;
  const bool good =
      derivation_->derive(key, nonce, derived) &&
      gcm_->seal(derived, std::span(nonce).last<kGcmNonceBytes>(), associated, plain, out, tag);
  OPENSSL_cleanse(derived.data(), derived.size());
  if (!good) ERR_clear_error();
  return good;
}

bool Cipher::open(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
                  std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept {
  SealingKey derived;
  bool good = derivation_->derive(key, nonce, derived);
  if (good) {
    good =
        gcm_->open(derived, std::span(nonce).last<kGcmNonceBytes>(), associated, sealed, tag, out);
  } else {
    ERR_clear_error();
    OPENSSL_cleanse(out, sealed.size());
  }
  OPENSSL_cleanse(derived.data(), derived.size());
  return good;
}

bool random_bytes(std::span<uint8_t> out) noexcept {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace stemma::tier::seal
