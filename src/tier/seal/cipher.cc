#include "tier/seal/cipher.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

namespace stemma::tier::seal {

namespace {

using Block = std::array<uint8_t, 16>;
constexpr int kEncrypt = 1;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

bool encrypt_blocks(EVP_CIPHER_CTX* ecb, const uint8_t* from, uint8_t* to, int bytes) noexcept {
  int written = 0;
  return EVP_EncryptUpdate(ecb, to, &written, from, bytes) == 1 && written == bytes;
}

// CMAC's first subkey: what encrypts zero, doubled in GF(2^128).
Block doubled(const Block& block) noexcept {
  Block twice;
  for (size_t i = 0; i < 15; ++i) {
    twice[i] = static_cast<uint8_t>(block[i] << 1U | block[i + 1] >> 7U);
  }
  twice[15] = static_cast<uint8_t>(block[15] << 1U ^ (block[0] >> 7U) * 0x87U);
  return twice;
}

// The message's own key.
bool derive(EVP_CIPHER_CTX* ecb, const SealingKey& key, const Nonce& nonce,
            SealingKey& derived) noexcept {
  if (EVP_EncryptInit_ex(ecb, nullptr, nullptr, key.data(), nullptr) != 1) return false;
  Block subkey{};
  if (!encrypt_blocks(ecb, subkey.data(), subkey.data(), 16)) return false;
  subkey = doubled(subkey);
  std::array<uint8_t, 32> blocks;
  for (uint8_t i = 0; i < 2; ++i) {
    uint8_t* const at = blocks.data() + 16 * size_t{i};
    const uint8_t counter[4] = {0, static_cast<uint8_t>(i + 1), 'X', 0};
    std::memcpy(at, counter, sizeof counter);
    std::memcpy(at + sizeof counter, nonce.data(), 12);
    for (size_t j = 0; j < subkey.size(); ++j) at[j] = static_cast<uint8_t>(at[j] ^ subkey[j]);
  }
  const bool good = encrypt_blocks(ecb, blocks.data(), derived.data(), 32);
  OPENSSL_cleanse(subkey.data(), subkey.size());
  return good;
}

}  // namespace

struct Cipher::Contexts {
  Context ecb{EVP_CIPHER_CTX_new()};
  Context gcm{EVP_CIPHER_CTX_new()};

  bool prepare() noexcept {
    return ecb && gcm &&
           EVP_EncryptInit_ex(ecb.get(), EVP_aes_256_ecb(), nullptr, nullptr, nullptr) == 1 &&
           EVP_CIPHER_CTX_set_padding(ecb.get(), 0) == 1 &&
           EVP_EncryptInit_ex(gcm.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr) == 1;
  }
};

Cipher::Cipher(std::unique_ptr<Contexts> contexts) : contexts_(std::move(contexts)) {}
Cipher::~Cipher() = default;

std::unique_ptr<Cipher> Cipher::create() try {
  auto contexts = std::make_unique<Contexts>();
  if (!contexts->prepare()) {
    ERR_clear_error();
    return nullptr;
  }
  return std::unique_ptr<Cipher>(new Cipher(std::move(contexts)));
} catch (const std::bad_alloc&) {
  return nullptr;
}

bool Cipher::begin(bool sealing, const SealingKey& key, const Nonce& nonce,
                   std::span<const uint8_t> associated) noexcept {
  SealingKey derived;
  bool good = derive(contexts_->ecb.get(), key, nonce, derived) &&
              EVP_CipherInit_ex(contexts_->gcm.get(), nullptr, nullptr, derived.data(),
                                nonce.data() + 12, sealing ? kEncrypt : 0) == 1;
  OPENSSL_cleanse(derived.data(), derived.size());
  int written = 0;
  good = good && EVP_CipherUpdate(contexts_->gcm.get(), nullptr, &written, associated.data(),
                                  static_cast<int>(associated.size())) == 1;
  return good;
}

bool Cipher::update(bool sealing, std::span<const uint8_t> from, uint8_t* out) noexcept {
  constexpr size_t kAtOnce = size_t{1} << 30U;
  EVP_CIPHER_CTX* const gcm = contexts_->gcm.get();
  while (!from.empty()) {
    const auto some = from.first(std::min(from.size(), kAtOnce));
    int written = 0;
    const auto bytes = static_cast<int>(some.size());
    const int ok = sealing ? EVP_EncryptUpdate(gcm, out, &written, some.data(), bytes)
                           : EVP_DecryptUpdate(gcm, out, &written, some.data(), bytes);
    if (ok != 1 || written != bytes) return false;
    out += bytes;
    from = from.subspan(some.size());
  }
  return true;
}

// Other keys take the place of those of the last message.
void Cipher::forget() noexcept {
  static constexpr std::array<uint8_t, kKeyBytes> kNone{};
  EVP_EncryptInit_ex(contexts_->ecb.get(), nullptr, nullptr, kNone.data(), nullptr);
  EVP_EncryptInit_ex(contexts_->gcm.get(), nullptr, nullptr, kNone.data(), kNone.data());
}

bool Cipher::seal(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
                  std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept {
  EVP_CIPHER_CTX* const gcm = contexts_->gcm.get();
  int written = 0;
  uint8_t none[16];
  const bool good = begin(true, key, nonce, associated) && update(true, plain, out) &&
                    EVP_EncryptFinal_ex(gcm, none, &written) == 1 &&
                    EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1;
  if (!good) ERR_clear_error();
  return good;
}

bool Cipher::open(const SealingKey& key, const Nonce& nonce, std::span<const uint8_t> associated,
                  std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept {
  EVP_CIPHER_CTX* const gcm = contexts_->gcm.get();
  Tag wanted = tag;  // OpenSSL's interface is not const.
  int written = 0;
  uint8_t none[16];
  const bool good =
      begin(false, key, nonce, associated) && update(false, sealed, out) &&
      EVP_CIPHER_CTX_ctrl(gcm, EVP_CTRL_AEAD_SET_TAG, kTagBytes, wanted.data()) == 1 &&
      EVP_DecryptFinal_ex(gcm, none, &written) == 1;
  if (good) return true;
  ERR_clear_error();
  OPENSSL_cleanse(out, sealed.size());
  return false;
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
