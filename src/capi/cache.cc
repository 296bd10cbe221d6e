// stemma_cache_*: each is a few lines around the C++ call of the same name.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/invalid.h"
#include "capi/decode.h"
#include "capi/handles.h"
#include "capi/last_error.h"

using namespace stemma;
using namespace stemma::capi;

namespace {

using base::invalid;

// Runs `body` with the cache behind the handle.
template <class Body>
stemma_status with_cache(const char* call, stemma_cache* handle, Body&& body) noexcept {
  const Result<Home*> home = caches().find(handle);
  if (!home) [[unlikely]] {
    return fail(call, home.error());
  }
  return end(call, caught([&] { return body((*home)->cache()); }));
}

// The same, for calls about a prompt.
template <class Body>
stemma_status with_prompt(const char* call, stemma_cache* handle, const stemma_scope* scope,
                          const stemma_prompt* prompt, Body&& body) noexcept {
  return with_cache(call, handle, [&](PagedCache& cache) -> Result<void> {
    STEMMA_TRY(const Scope in, decode(scope));
    MediaRoom room;
    STEMMA_TRY(const Prompt words, decode(prompt, room));
    return body(cache, in, words);
  });
}

void show(const Event& event, stemma_event_fn each, void* user) {
  static_assert(sizeof(stemma_content_key) == sizeof(ContentKey));
  stemma_event c{};
  c.struct_size = sizeof c;
  c.kind = static_cast<uint32_t>(event.kind);
  c.sequence = event.sequence;
  std::memcpy(c.parent.bytes, event.parent.bytes.data(), sizeof c.parent.bytes);
  c.keys = reinterpret_cast<const stemma_content_key*>(event.keys.data());
  c.key_count = event.keys.size();
  c.words = event.words.data();
  c.word_count = event.words.size();
  c.block_tokens = event.block_tokens;
  c.group = event.group;
  c.tail = event.tail ? 1 : 0;
  each(user, &c);
}

}  // namespace

stemma_status stemma_cache_create(const stemma_options* options, stemma_cache** out) {
  return end(__func__, caught([&]() -> Result<void> {
               if (out == nullptr) return invalid("out is null");
               STEMMA_TRY(const Options decoded, decode(options));
               STEMMA_TRY(const stemma_options given, read_sized(options));
               STEMMA_TRY(Home * home, Home::create(decoded, given));
               stemma_cache* handle = caches().make(home);
               if (handle == nullptr) {
                 home->forget_closed();
                 home->let_go();
                 return Error(Errc::out_of_memory, "4,096 caches are alive; destroy one");
               }
               *out = handle;
               return {};
             }));
}

stemma_status stemma_cache_destroy(stemma_cache* cache, uint32_t on_busy) {
  const Result<Home*> home = caches().find(cache);
  if (!home) return fail(__func__, home.error());
  const Result<OnBusy> decoded = decode_on_busy(on_busy);
  if (!decoded) return fail(__func__, decoded.error());
  if (const uint32_t live = (*home)->holders() - 1; live != 0 && *decoded == OnBusy::refuse) {
    return fail(__func__, {Errc::busy, "leases of this cache are alive, this many", live});
  }
  if (!caches().forget(cache, *home)) return fail(__func__, caches().stale());
  (*home)->let_go();
  return STEMMA_OK;
}

stemma_status stemma_cache_lookup(stemma_cache* cache, const stemma_scope* scope,
                                  const stemma_prompt* prompt, const stemma_lookup_options* options,
                                  stemma_report* out) {
  return with_prompt(
      __func__, cache, scope, prompt,
      [&](const PagedCache& c, const Scope& in, const Prompt& words) -> Result<void> {
        if (out == nullptr) return invalid("out is null");
        STEMMA_TRY_VOID(check_room(*out));
        LookupOptions decoded;
        STEMMA_TRY_VOID(decode(options, decoded));
        STEMMA_TRY(const Report report, c.lookup(in, words, decoded));
        encode(report, out);
        return {};
      });
}

stemma_status stemma_cache_lease(stemma_cache* cache, const stemma_scope* scope,
                                 const stemma_prompt* prompt, const stemma_lease_options* options,
                                 stemma_lease* out) {
  return with_prompt(__func__, cache, scope, prompt,
                     [&](PagedCache& c, const Scope& in, const Prompt& words) -> Result<void> {
                       if (out == nullptr) return invalid("out is null");
                       LeaseOptions decoded;
                       STEMMA_TRY_VOID(decode(options, decoded));
                       Result<Lease> lease = c.lease(in, words, decoded);
                       return hand_out(lease, **caches().find(cache), *out);
                     });
}

stemma_status stemma_cache_pin(stemma_cache* cache, const stemma_scope* scope,
                               const stemma_prompt* prompt, uint64_t ttl_ns, stemma_pin* out) {
  return with_prompt(__func__, cache, scope, prompt,
                     [&](PagedCache& c, const Scope& in, const Prompt& words) -> Result<void> {
                       if (out == nullptr) return invalid("out is null");
                       STEMMA_TRY(const PinResult pin, c.pin(in, words, ttl_ns));
                       *out = {static_cast<uint64_t>(pin.id), pin.pinned_tokens, 0};
                       return {};
                     });
}

stemma_status stemma_cache_unpin(stemma_cache* cache, uint64_t pin) {
  return with_cache(__func__, cache, [&](PagedCache& c) { return c.unpin(PinId{pin}); });
}

stemma_status stemma_cache_end_session(stemma_cache* cache, uint64_t session) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    c.end_session(SessionId{session});
    return {};
  });
}

stemma_status stemma_cache_set_quota(stemma_cache* cache, uint32_t tenant, uint64_t bytes) {
  return with_cache(__func__, cache,
                    [&](PagedCache& c) { return c.set_quota(TenantId{tenant}, bytes); });
}

stemma_status stemma_cache_tenant_bytes(stemma_cache* cache, uint32_t tenant, uint64_t* out) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    *out = c.tenant_bytes(TenantId{tenant});
    return {};
  });
}

stemma_status stemma_cache_tenant_of(stemma_cache* cache, const stemma_scope* scope,
                                     uint32_t* known, uint32_t* tenant) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    STEMMA_TRY(const Scope in, decode(scope));
    if (known == nullptr) return invalid("known is null");
    if (tenant == nullptr) return invalid("tenant is null");
    const std::optional<TenantId> found = c.tenant_of(in);
    *known = found ? 1 : 0;
    if (found) *tenant = static_cast<uint32_t>(*found);
    return {};
  });
}

stemma_status stemma_cache_truncate(stemma_cache* cache, const stemma_scope* scope,
                                    const stemma_prompt* prompt, uint32_t keep,
                                    uint32_t* forgotten) {
  return with_prompt(__func__, cache, scope, prompt,
                     [&](PagedCache& c, const Scope& in, const Prompt& words) -> Result<void> {
                       STEMMA_TRY(const uint32_t blocks, c.truncate(in, words, keep));
                       if (forgotten != nullptr) *forgotten = blocks;
                       return {};
                     });
}

stemma_status stemma_cache_drop_scope(stemma_cache* cache, const stemma_scope* scope,
                                      uint32_t* forgotten) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    STEMMA_TRY(const Scope in, decode(scope));
    const uint32_t blocks = c.drop_scope(in);
    if (forgotten != nullptr) *forgotten = blocks;
    return {};
  });
}

stemma_status stemma_cache_reset(stemma_cache* cache, uint32_t on_busy) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    STEMMA_TRY(const OnBusy decoded, decode_on_busy(on_busy));
    return c.reset(decoded);
  });
}

stemma_status stemma_cache_evict(stemma_cache* cache, uint32_t blocks, uint32_t* evicted) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    const uint32_t went = c.evict(blocks);
    if (evicted != nullptr) *evicted = went;
    return {};
  });
}

stemma_status stemma_cache_reclaim(stemma_cache* cache, uint32_t positions, uint32_t most,
                                   void (*save)(void* user, const stemma_reclaimed_block* blocks,
                                                size_t count),
                                   void* user, uint32_t* went) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    if (save == nullptr) return invalid("save is null");
    if (went != nullptr) *went = 0;
    STEMMA_TRY(const Reclaimed reclaimed, c.reclaim(positions, most));
    if (went != nullptr) *went = reclaimed.evicted();
    if (reclaimed.blocks().empty()) return {};
    std::vector<stemma_reclaimed_block> blocks;
    blocks.reserve(reclaimed.blocks().size());
    for (const Reclaimed::Block& block : reclaimed.blocks()) {
      const std::span<const Token> words = reclaimed.words(block);
      stemma_reclaimed_block& raw = blocks.emplace_back();
      raw = {.group = block.group,
             .block = to_index(block.block),
             .begin = block.begin,
             .end = block.end,
             .key = {},
             .words = words.empty() ? nullptr : words.data()};
      std::copy(block.key.bytes.begin(), block.key.bytes.end(), raw.key);
    }
    save(user, blocks.data(), blocks.size());
    return {};
  });
}

stemma_status stemma_cache_stats(stemma_cache* cache, stemma_stats* out) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (out == nullptr) return invalid("out is null");
    STEMMA_TRY_VOID(check_room(*out));
    encode(c.stats(), out);
    return {};
  });
}

stemma_status stemma_cache_branch_points(stemma_cache* cache, const stemma_scope* scope,
                                         const stemma_prompt* prompt, uint32_t* out,
                                         size_t capacity, size_t* count) {
  return with_prompt(
      __func__, cache, scope, prompt,
      [&](const PagedCache& c, const Scope& in, const Prompt& words) -> Result<void> {
        STEMMA_TRY(const std::vector<uint32_t> depths, c.branch_points(in, words));
        return fill(std::span<const uint32_t>(depths), out, capacity, count);
      });
}

stemma_status stemma_cache_contents(stemma_cache* cache, stemma_cached_path_fn each, void* user) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (each == nullptr) return invalid("each is null");
    STEMMA_TRY(const std::vector<CachedPath> paths, c.contents());
    for (const CachedPath& path : paths) {
      stemma_cached_path shown{};
      shown.struct_size = sizeof shown;
      shown.tokens = path.tokens;
      std::memcpy(shown.scope.digest, path.scope.digest().data(), sizeof shown.scope.digest);
      shown.held = path.held ? 1 : 0;
      each(user, &shown);
    }
    return {};
  });
}

stemma_status stemma_cache_events(stemma_cache* cache, uint64_t from, uint32_t limit,
                                  stemma_event_fn each, void* user, uint64_t* next) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (each == nullptr) return invalid("each is null");
    if (next == nullptr) return invalid("next is null");
    std::vector<Event> events;
    *next = c.events(from, limit, events);
    for (const Event& event : events) show(event, each, user);
    return {};
  });
}

stemma_status stemma_cache_event_dump(stemma_cache* cache, stemma_event_fn each, void* user,
                                      uint64_t* next) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (each == nullptr) return invalid("each is null");
    if (next == nullptr) return invalid("next is null");
    const EventDump dump = c.event_dump();
    if (!dump.complete) return Error(Errc::out_of_memory, "no memory for the dump");
    *next = dump.next_sequence;
    for (const Event& event : dump.events) show(event, each, user);
    return {};
  });
}

stemma_status stemma_cache_poll(stemma_cache* cache, uint32_t* settled) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    const uint32_t leases = c.poll();
    if (settled != nullptr) *settled = leases;
    return {};
  });
}

stemma_status stemma_cache_dump(stemma_cache* cache, stemma_bytes_fn take, void* user) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    if (take == nullptr) return invalid("take is null");
    const std::vector<uint8_t> bytes = c.dump();
    if (bytes.empty()) return Error(Errc::out_of_memory, "no memory for the dump");
    take(user, bytes.data(), bytes.size());
    return {};
  });
}

stemma_status stemma_cache_load(stemma_cache* cache, const uint8_t* bytes, size_t size) {
  return with_cache(__func__, cache, [&](PagedCache& c) -> Result<void> {
    if (bytes == nullptr && size != 0) return invalid("bytes is null, and size is not 0");
    if (size > PTRDIFF_MAX) return Error(Errc::out_of_range, "size is beyond any memory");
    return c.load({bytes, size});
  });
}

stemma_status stemma_cache_check_invariants(stemma_cache* cache) {
  return with_cache(__func__, cache, [&](const PagedCache& c) -> Result<void> {
    c.check_invariants();
    return {};
  });
}
