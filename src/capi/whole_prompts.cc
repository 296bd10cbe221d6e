// stemma_whole_prompts_* and stemma_prompt_lease_*, each a few lines around the call of the same
// name.
//
// Behind the handle is a PromptHome, which the handle and every lease hold; it is there to count
// them.
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/invalid.h"
#include "capi/decode.h"
#include "capi/handles.h"
#include "capi/last_error.h"
#include "capi/places.h"
#include "capi/slot_table.h"
#include "stemma/whole_prompt.h"

namespace stemma::capi {
struct PromptHome;
STEMMA_SIZED(stemma_whole_prompt_options, STEMMA_WHOLE_PROMPT_OPTIONS_INIT);
STEMMA_SIZED(stemma_whole_prompt_stats, {});
}  // namespace stemma::capi

// The place of a cache. Only its address leaves the library.
struct stemma_whole_prompts {
  static constexpr const char* kNull = "cache is null";
  static constexpr const char* kForeign = "cache points to no stemma_whole_prompts of this library";
  static constexpr const char* kDestroyed = "this cache was destroyed, or never created";
  std::atomic<stemma::capi::PromptHome*> home{nullptr};
};

namespace stemma::capi {

struct PromptHome {
  WholePromptCache cache;
  std::atomic<uint32_t> holders{1};

  void let_go() noexcept {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

namespace {

struct HeldPrompt {
  std::optional<WholePromptCache::Lease> lease;
  PromptHome* home = nullptr;
};

constinit Places<stemma_whole_prompts, PromptHome> prompt_places;
// As for turns: other leases are never confused with these.
constexpr uint32_t kFirstPromptGeneration = 0x4000'0000U;
constinit SlotTable<HeldPrompt> prompt_lease_table(kFirstPromptGeneration);

using base::invalid;

Result<WholePromptCache::Config> decode_config(const stemma_whole_prompt_options* given) noexcept {
  STEMMA_TRY(const stemma_whole_prompt_options c, read_sized(given));
  if (c.enabled > 1) return invalid("options.enabled is neither 0 nor 1");
  if (c.reserved != 0) return invalid("options.reserved is not 0");
  return WholePromptCache::Config{.budget_mib = c.budget_mib,
                                  .enabled = c.enabled != 0,
                                  .min_tokens = c.min_tokens,
                                  .max_entries = c.max_entries};
}

Result<std::span<const Token>> decode_tokens(const uint32_t* tokens, size_t count) noexcept {
  if (tokens == nullptr && count != 0) return invalid("tokens is null, and token_count is not 0");
  if (count >= STEMMA_TOKEN_LIMIT) {
    return Error(Errc::out_of_range, "token_count is more than 2^31 - 1");
  }
  return std::span<const Token>(tokens, count);
}

// Runs `body` with the object behind the handle.
template <class Body>
stemma_status with(const char* call, stemma_whole_prompts* handle, Body&& body) noexcept {
  const Result<PromptHome*> home = prompt_places.find(handle);
  if (!home) [[unlikely]] {
    return fail(call, home.error());
  }
  return end(call, caught([&] { return body(**home); }));
}

stemma_stored_prompt show(const WholePromptCache::Lease& lease) noexcept {
  return {.tokens = lease.key().data(),
          .token_count = lease.key().size(),
          .bytes = lease.bytes().data(),
          .size = lease.bytes().size(),
          .logits = lease.logits().empty() ? nullptr : lease.logits().data(),
          .logit_count = lease.logits().size(),
          .exact = lease.exact() ? 1U : 0U,
          .reserved = 0};
}

}  // namespace
}  // namespace stemma::capi

using namespace stemma;
using namespace stemma::capi;

stemma_status stemma_whole_prompts_create(const stemma_whole_prompt_options* options,
                                          stemma_whole_prompts** out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return invalid("out is null");
               STEMMA_TRY(const WholePromptCache::Config config, decode_config(options));
               STEMMA_TRY(WholePromptCache cache, WholePromptCache::create(config));
               auto* home = new PromptHome{.cache = std::move(cache)};
               stemma_whole_prompts* handle = prompt_places.make(home);
               if (handle == nullptr) {
                 home->let_go();
                 return Error(Errc::out_of_memory, "4,096 caches are alive; destroy one");
               }
               *out = handle;
               return {};
             }));
}

stemma_status stemma_whole_prompts_destroy(stemma_whole_prompts* cache, uint32_t on_busy) {
  const Result<PromptHome*> home = prompt_places.find(cache);
  if (!home) return fail(__func__, home.error());
  const Result<OnBusy> decoded = decode_on_busy(on_busy);
  if (!decoded) return fail(__func__, decoded.error());
  const uint32_t live = (*home)->holders.load(std::memory_order_acquire) - 1;
  if (live != 0 && *decoded == OnBusy::refuse) {
    return fail(__func__, {Errc::busy, "leases of this cache are alive, this many", live});
  }
  if (!prompt_places.forget(cache, *home)) return fail(__func__, prompt_places.stale());
  (*home)->let_go();
  return STEMMA_OK;
}

stemma_status stemma_whole_prompts_enable(stemma_whole_prompts* cache, uint32_t on) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    if (on > 1) return Error(Errc::invalid_argument, "on is neither 0 nor 1", on);
    home.cache.enable(on != 0);
    return {};
  });
}

stemma_status stemma_whole_prompts_find(stemma_whole_prompts* cache, const stemma_scope* scope,
                                        const uint32_t* tokens, size_t token_count,
                                        stemma_prompt_lease* lease, stemma_stored_prompt* found) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    if (lease == nullptr) return invalid("lease is null");
    if (found == nullptr) return invalid("found is null");
    STEMMA_TRY(const Scope in, decode(scope));
    STEMMA_TRY(const std::span<const Token> words, decode_tokens(tokens, token_count));
    *lease = 0;
    *found = {};
    std::optional<WholePromptCache::Lease> got = home.cache.find(in, words);
    if (!got) return {};
    const stemma_stored_prompt shown = show(*got);
    home.holders.fetch_add(1, std::memory_order_relaxed);
    const uint64_t number = prompt_lease_table.put([&](HeldPrompt& held) {
      held.lease = std::move(got);
      held.home = &home;
    });
    if (number == 0) {
      got.reset();  // Before its home.
      home.let_go();
      return {};
    }
    *lease = number;
    *found = shown;
    return {};
  });
}

stemma_status stemma_whole_prompts_store(stemma_whole_prompts* cache, const stemma_scope* scope,
                                         const uint32_t* tokens, size_t token_count,
                                         const uint8_t* bytes, size_t size, const float* logits,
                                         size_t logit_count) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    if (bytes == nullptr && size != 0) return invalid("bytes is null, and size is not 0");
    if (logits == nullptr && logit_count != 0) {
      return invalid("logits is null, and logit_count is not 0");
    }
    if (size > PTRDIFF_MAX) return Error(Errc::out_of_range, "size is beyond any memory");
    if (logit_count >= STEMMA_TOKEN_LIMIT) {
      return Error(Errc::out_of_range, "logit_count is more than 2^31 - 1");
    }
    STEMMA_TRY(const Scope in, decode(scope));
    STEMMA_TRY(const std::span<const Token> words, decode_tokens(tokens, token_count));
    return home.cache.store(in, words, {bytes, size}, {logits, logit_count});
  });
}

stemma_status stemma_whole_prompts_touch(stemma_whole_prompts* cache, const stemma_scope* scope,
                                         const uint32_t* tokens, size_t token_count,
                                         uint32_t* there) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    STEMMA_TRY(const Scope in, decode(scope));
    STEMMA_TRY(const std::span<const Token> words, decode_tokens(tokens, token_count));
    const bool touched = home.cache.touch(in, words);
    if (there != nullptr) *there = touched ? 1 : 0;
    return {};
  });
}

stemma_status stemma_whole_prompts_evict(stemma_whole_prompts* cache, uint32_t n,
                                         uint32_t* evicted) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    const uint32_t went = home.cache.evict(n);
    if (evicted != nullptr) *evicted = went;
    return {};
  });
}

stemma_status stemma_whole_prompts_clear(stemma_whole_prompts* cache) {
  return with(__func__, cache, [](PromptHome& home) -> Result<void> {
    home.cache.clear();
    return {};
  });
}

stemma_status stemma_whole_prompts_stats(stemma_whole_prompts* cache,
                                         stemma_whole_prompt_stats* out) {
  return with(__func__, cache, [&](PromptHome& home) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    const WholePromptCache::Statistics s = home.cache.statistics();
    write_sized(out, {.struct_size = 0,
                      .reserved = 0,
                      .hits = s.hits,
                      .misses = s.misses,
                      .short_queries = s.short_queries,
                      .bypassed = s.bypassed,
                      .exact_hits = s.exact_hits,
                      .reused_tokens = s.reused_tokens,
                      .evictions = s.evictions,
                      .refused = s.refused,
                      .corrupt = s.corrupt,
                      .entries = s.entries,
                      .tokens = s.tokens,
                      .bytes = s.bytes,
                      .index_bytes = s.index_bytes,
                      .used_mib = s.used_mib,
                      .budget_mib = s.budget_mib});
    return {};
  });
}

stemma_status stemma_prompt_lease_release(stemma_prompt_lease lease) {
  PromptHome* home = nullptr;
  {
    SlotTable<HeldPrompt>::Use use(prompt_lease_table, lease);
    if (use.found() != Found::yes) {
      const bool ours = lease >> 32U > kFirstPromptGeneration;
      return fail(__func__,
                  ours ? why_no_lease(use.found(), lease) : why_no_lease(Found::never, lease));
    }
    home = use->home;
    use.drop();
  }
  home->let_go();
  return STEMMA_OK;
}
