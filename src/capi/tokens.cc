#include "capi/tokens.h"

#include <algorithm>
#include <memory>
#include <new>

#include "capi/decode.h"
#include "capi/handles.h"
#include "capi/last_error.h"

namespace stemma::capi {
namespace {

// Returns the OR of all tokens: bits that no token may have are checked once at the end, so that
// the loop can be vectorised.
[[gnu::always_inline]] inline uint64_t copy(const int64_t* tokens, size_t count,
                                            uint32_t* out) noexcept {
  uint64_t seen = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto token = static_cast<uint64_t>(tokens[i]);
    seen |= token;
    out[i] = static_cast<uint32_t>(token);
  }
  return seen;
}

using Copy = uint64_t (*)(const int64_t*, size_t, uint32_t*) noexcept;

uint64_t copy_plain(const int64_t* tokens, size_t count, uint32_t* out) noexcept {
  return copy(tokens, count, out);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] uint64_t copy_avx2(const int64_t* tokens, size_t count,
                                           uint32_t* out) noexcept {
  return copy(tokens, count, out);
}
[[gnu::target("avx512f,avx512vl,prefer-vector-width=512")]] uint64_t copy_avx512(
    const int64_t* tokens, size_t count, uint32_t* out) noexcept {
  return copy(tokens, count, out);
}

Copy choose() noexcept {
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    return copy_avx512;
  }
  return __builtin_cpu_supports("avx2") != 0 ? copy_avx2 : copy_plain;
}
#else
Copy choose() noexcept { return copy_plain; }
#endif

}  // namespace

Result<void> narrow(const int64_t* tokens, size_t count, uint32_t* out) noexcept {
  static const Copy kCopy = choose();
  if (kCopy(tokens, count, out) < STEMMA_TOKEN_LIMIT) return {};
  const int64_t* first = std::find_if(tokens, tokens + count, [](int64_t token) {
    return static_cast<uint64_t>(token) >= STEMMA_TOKEN_LIMIT;
  });
  return Error(Errc::out_of_range, "a token is negative, or not below 2^31; its index",
               static_cast<uint32_t>(first - tokens));
}

}  // namespace stemma::capi

using namespace stemma;
using namespace stemma::capi;

stemma_status stemma_tokens_from_int64(const int64_t* tokens, size_t count, uint32_t* out) {
  if (count != 0 && (tokens == nullptr || out == nullptr)) {
    return fail(__func__, {Errc::invalid_argument, "tokens or out is null, and count is not 0"});
  }
  return end(__func__, narrow(tokens, count, out));
}

namespace {

Result<void> lease_into_table(stemma_cache* cache, const stemma_scope* scope,
                              const stemma_prompt& prompt, std::span<BlockId> table, uint32_t pad,
                              uint32_t* blocks, stemma_lease* out) {
  STEMMA_TRY(Home* const home, caches().find(cache));
  STEMMA_TRY(const Scope in, decode(scope));
  MediaRoom room;
  STEMMA_TRY(const Prompt words, decode(&prompt, room));
  Result<Lease> lease = home->cache().lease(in, words, {});
  if (!lease) return lease.error();
  STEMMA_TRY(const uint32_t count, lease->block_table(0, table, BlockId{pad}));
  STEMMA_TRY_VOID(hand_out(lease, *home, *out));
  *blocks = count;
  return {};
}

}  // namespace

stemma_status stemma_cache_lease_table(stemma_cache* cache, const stemma_scope* scope,
                                       const void* tokens, size_t token_count, uint32_t token_bytes,
                                       uint32_t* table, size_t capacity, uint32_t pad,
                                       uint32_t* blocks, stemma_lease* out) {
  const auto wrong = [](const char* what) {
    return fail("stemma_cache_lease_table", {Errc::invalid_argument, what});
  };
  if (token_bytes != 4 && token_bytes != 8) return wrong("token_bytes is neither 4 nor 8");
  if (tokens == nullptr && token_count != 0)
    return wrong("tokens is null, and token_count is not 0");
  if (table == nullptr && capacity != 0) return wrong("table is null, and capacity is not 0");
  if (blocks == nullptr) return wrong("blocks is null");
  if (out == nullptr) return wrong("out is null");
  if (token_count > kMaxBytes) return wrong("token_count is more than 2^31 - 1");
  return end(
      __func__, caught([&]() -> Result<void> {
        stemma_prompt prompt{static_cast<const uint32_t*>(tokens), token_count, nullptr, 0};
        std::unique_ptr<uint32_t[]> narrowed;
        if (token_bytes == 8) {
          narrowed.reset(new uint32_t[token_count]);
          STEMMA_TRY_VOID(narrow(static_cast<const int64_t*>(tokens), token_count, narrowed.get()));
          prompt.tokens = narrowed.get();
        }
        return lease_into_table(cache, scope, prompt, {reinterpret_cast<BlockId*>(table), capacity},
                                pad, blocks, out);
      }));
}
