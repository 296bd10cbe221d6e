// AES-256-GCM by OpenSSL, and the choice between the two libraries.
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <new>
#include <utility>

#include "tier/seal/aes_gcm.h"

namespace stemma::tier::seal {

namespace {

constexpr int kEncrypt = 1;

struct FreeGcm {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};

class OpensslAesGcm final : public AesGcm {
 public:
  bool prepare() noexcept {
    return gcm_ != nullptr &&
           EVP_EncryptInit_ex(gcm_.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr) == 1;
  }

  const char* name() const noexcept override { return "OpenSSL"; }

  bool seal(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept override {
    int written = 0;
    uint8_t none[16];
    const bool good =
        begin(true, key, nonce, associated) && update(true, plain, out) &&
        EVP_EncryptFinal_ex(gcm_.get(), none, &written) == 1 &&
        EVP_CIPHER_CTX_ctrl(gcm_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
    if (!good) ERR_clear_error();
    return good;
  }

  bool open(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept override {
    Tag wanted = tag;  // OpenSSL's interface is not const.
    int written = 0;
    uint8_t none[16];
    const bool good =
        begin(false, key, nonce, associated) && update(false, sealed, out) &&
        EVP_CIPHER_CTX_ctrl(gcm_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, wanted.data()) == 1 &&
        EVP_DecryptFinal_ex(gcm_.get(), none, &written) == 1;
    if (good) return true;
    ERR_clear_error();
    OPENSSL_cleanse(out, sealed.size());
    return false;
  }

  // Replaces the key. The destructor needs no more: OpenSSL wipes what it frees.
  void forget() noexcept override {
    static constexpr SealingKey kNone{};
    EVP_EncryptInit_ex(gcm_.get(), nullptr, nullptr, kNone.data(), kNone.data());
  }

 private:
  bool begin(bool sealing, const SealingKey& key, GcmNonce nonce,
             std::span<const uint8_t> associated) noexcept {
    int written = 0;
    return EVP_CipherInit_ex(gcm_.get(), nullptr, nullptr, key.data(), nonce.data(),
                             sealing ? kEncrypt : 0) == 1 &&
           EVP_CipherUpdate(gcm_.get(), nullptr, &written, associated.data(),
                            static_cast<int>(associated.size())) == 1;
  }

  bool update(bool sealing, std::span<const uint8_t> from, uint8_t* out) noexcept {
    constexpr size_t kAtOnce = size_t{1} << 30U;
    while (!from.empty()) {
      const auto some = from.first(std::min(from.size(), kAtOnce));
      int written = 0;
      const auto bytes = static_cast<int>(some.size());
      const int ok = sealing ? EVP_EncryptUpdate(gcm_.get(), out, &written, some.data(), bytes)
                             : EVP_DecryptUpdate(gcm_.get(), out, &written, some.data(), bytes);
      if (ok != 1 || written != bytes) return false;
      out += bytes;
      from = from.subspan(some.size());
    }
    return true;
  }

  std::unique_ptr<EVP_CIPHER_CTX, FreeGcm> gcm_{EVP_CIPHER_CTX_new()};
};

}  // namespace

std::unique_ptr<AesGcm> make_openssl_aes_gcm() try {
  auto made = std::make_unique<OpensslAesGcm>();
  if (made->prepare()) return made;
  ERR_clear_error();
  return nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

std::unique_ptr<AesGcm> make_aes_gcm() {
  std::unique_ptr<AesGcm> made = make_ipsec_mb_aes_gcm();
  return made != nullptr ? std::move(made) : make_openssl_aes_gcm();
}

}  // namespace stemma::tier::seal
