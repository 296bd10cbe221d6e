// AES-256-GCM by Intel's IPsec MB (libipsec-mb), where it was there at build time and the CPU has
// the wide AES instructions.
#include "tier/seal/aes_gcm.h"

#if defined(STEMMA_HAS_IPSEC_MB)

#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <new>

namespace stemma::tier::seal {

namespace {

// The library's functions for this CPU. They work on what they are given and on nothing else, so
// all threads may call them at once.
struct Functions {
  aes_gcm_pre_t expand = nullptr;
  aes_gcm_enc_dec_t seal = nullptr;
  aes_gcm_enc_dec_t open = nullptr;

  explicit operator bool() const noexcept { return expand && seal && open; }
};

// Whether CPU and operating system have what makes it faster than OpenSSL.
bool has_instructions() noexcept {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("vaes") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
}

// The manager is only needed to find the functions. Starting it takes about 40 ms, because the
// library tests itself.
Functions find_functions() noexcept {
  Functions found;
  if (!has_instructions()) return found;
  IMB_MGR* const manager = alloc_mb_mgr(0);
  if (manager == nullptr) return found;
  constexpr uint64_t kNeeded = IMB_FEATURE_AVX512_SKX | IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;
  if ((manager->features & kNeeded) == kNeeded) {
    init_mb_mgr_avx512(manager);
#if defined(IMB_FEATURE_SELF_TEST)
    const bool failed = (manager->features & IMB_FEATURE_SELF_TEST) != 0 &&
                        (manager->features & IMB_FEATURE_SELF_TEST_PASS) == 0;
#else
    const bool failed = false;
#endif
    if (!failed) found = {manager->gcm256_pre, manager->gcm256_enc, manager->gcm256_dec};
  }
  free_mb_mgr(manager);
  return found;
}

class IpsecMbAesGcm final : public AesGcm {
 public:
  explicit IpsecMbAesGcm(const Functions& functions) noexcept : functions_(functions) {}
  ~IpsecMbAesGcm() override { wipe(); }

  const char* name() const noexcept override { return "IPsec MB"; }

  bool seal(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> plain, uint8_t* out, Tag& tag) noexcept override {
    functions_.expand(key.data(), &key_);
    functions_.seal(&key_, &message_, out, plain.data(), plain.size(), nonce.data(),
                    associated.data(), associated.size(), tag.data(), tag.size());
    return true;
  }

  bool open(const SealingKey& key, GcmNonce nonce, std::span<const uint8_t> associated,
            std::span<const uint8_t> sealed, const Tag& tag, uint8_t* out) noexcept override {
    Tag computed{};
    functions_.expand(key.data(), &key_);
    functions_.open(&key_, &message_, out, sealed.data(), sealed.size(), nonce.data(),
                    associated.data(), associated.size(), computed.data(), computed.size());
    const bool good = CRYPTO_memcmp(computed.data(), tag.data(), tag.size()) == 0;
    // The right tag of bytes that somebody else made must not be found in memory.
    if (!good) OPENSSL_cleanse(computed.data(), computed.size());
    if (!good) OPENSSL_cleanse(out, sealed.size());
    return good;
  }

  void forget() noexcept override { wipe(); }

 private:
  void wipe() noexcept {
    OPENSSL_cleanse(&key_, sizeof key_);
    OPENSSL_cleanse(&message_, sizeof message_);
  }

  const Functions functions_;
  alignas(64) gcm_key_data key_{};
  alignas(64) gcm_context_data message_{};
};

}  // namespace

std::unique_ptr<AesGcm> make_ipsec_mb_aes_gcm() {
  static const Functions kFunctions = find_functions();
  if (!kFunctions) return nullptr;
  return std::unique_ptr<AesGcm>(new (std::nothrow) IpsecMbAesGcm(kFunctions));
}

}  // namespace stemma::tier::seal

#else

namespace stemma::tier::seal {

std::unique_ptr<AesGcm> make_ipsec_mb_aes_gcm() { return nullptr; }

}  // namespace stemma::tier::seal

#endif
