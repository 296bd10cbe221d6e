// PagedCache, in terms of Core. A moved-from cache returns empty results from every query and
// wrong_state from every call.
#include "stemma/cache.h"

#include <new>
#include <optional>
#include <string>
#include <utility>

#include "cache/check_options.h"
#include "cache/core.h"
#include "cache/dump/index_dump.h"
#include "cache/dump/listing.h"
#include "cache/guarded.h"
#include "cache/lease/new_lease.h"
#include "cache/lease/prompt_calls.h"

namespace stemma {

using cache::guarded;
using cache::Store;

namespace {

Error gone() { return {Errc::wrong_state, "this PagedCache was moved from"}; }

}  // namespace

PagedCache::PagedCache(PagedCache&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

PagedCache& PagedCache::operator=(PagedCache&& other) noexcept {
  if (this != &other) {
    if (core_ != nullptr) core_->disown();
    core_ = std::exchange(other.core_, nullptr);
  }
  return *this;
}

PagedCache::~PagedCache() {
  if (core_ != nullptr) core_->disown();
}

Result<PagedCache> PagedCache::create(const Options& options) {
  STEMMA_TRY(PagedCache cache, create_part(options));
  const Stats stats = cache.stats();
  cache::log_line(LogLevel::info, [&] {
    return "a cache of " + std::to_string(stats.group_count) + " groups, " +
           std::to_string(stats.groups[0].capacity_blocks) + " blocks in the first, " +
           std::to_string(stats.kv_bytes_capacity) + " bytes of KV, policy " + options.policy;
  });
  return cache;
}

Result<PagedCache> PagedCache::create_part(const Options& options) {
  return guarded([&]() -> Result<PagedCache> {
    STEMMA_TRY(const Options checked, cache::check_options(options));
    auto core = std::make_unique<cache::Core>(checked);
    if (!core->create()) return Error(Errc::out_of_memory, "no address space for the index");
    return PagedCache(core.release());
  });
}

void PagedCache::note_evicted(std::vector<BlockId>* into) {
  core_->locked([&](Store& store) { store.evictor.note_evicted(into); });
}
bool PagedCache::holds(BlockId block) const {
  return core_->locked([&](Store& store) { return store.books.is_found(to_index(block)); });
}

Result<Report> PagedCache::lookup(const Scope& scope, const Prompt& prompt,
                                  const LookupOptions& options) const {
  if (core_ == nullptr) return gone();
  return guarded([&] { return cache::look_up(*core_, scope, prompt, options); });
}

Result<Lease> PagedCache::lease(const Scope& scope, const Prompt& prompt,
                                const LeaseOptions& options) {
  if (core_ == nullptr) return gone();
  STEMMA_TRY(cache::LeaseRecord * record,
             guarded([&] { return cache::new_lease(*core_, scope, prompt, options); }));
  return Lease(core_, record);
}

Result<PinResult> PagedCache::pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns) {
  if (core_ == nullptr) return gone();
  return guarded([&] { return cache::pin(*core_, scope, prompt, ttl_ns); });
}
Result<void> PagedCache::unpin(PinId id) {
  if (core_ == nullptr) return gone();
  return core_->locked([&](Store& store) -> Result<void> {
    if (store.pins.end(id)) return {};
    return Error(Errc::stale, "no such pin: it has expired or was ended");
  });
}
void PagedCache::end_session(SessionId session) {
  if (core_ == nullptr) return;
  core_->locked([&](Store& store) { store.holds.end_session(session); });
}
Result<void> PagedCache::set_quota(TenantId tenant, uint64_t bytes) {
  if (core_ == nullptr) return gone();
  return core_->locked([&](Store& store) -> Result<void> {
    if (store.books.quotas.set(tenant, bytes)) return {};
    return Error(Errc::invalid_argument, "this tenant was not given a quota at creation",
                 static_cast<uint32_t>(tenant));
  });
}
std::optional<TenantId> PagedCache::tenant_of(const Scope& scope) const {
  if (core_ == nullptr) return std::nullopt;
  return core_->locked([&](Store& store) -> std::optional<TenantId> {
    const cache::ScopeTable::Root* root = store.books.scopes.find(scope);
    return root == nullptr ? std::nullopt : std::optional(root->tenant);
  });
}
uint64_t PagedCache::tenant_bytes(TenantId tenant) const {
  if (core_ == nullptr) return 0;
  return core_->locked([&](Store& store) {
    return store.books.quotas.used_bytes(store.books.quotas.index_of(tenant));
  });
}

Result<uint32_t> PagedCache::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  if (core_ == nullptr) return gone();
  return guarded([&] { return cache::truncate(*core_, scope, prompt, keep); });
}
uint32_t PagedCache::drop_scope(const Scope& scope) {
  if (core_ == nullptr) return 0;
  return core_->locked([&](Store& store) {
    const cache::ScopeTable::Root* root = store.books.scopes.find(scope);
    return root == nullptr ? 0 : store.forgetter.drop_root(root->cell);
  });
}
Result<void> PagedCache::reset(OnBusy on_busy) {
  if (core_ == nullptr) return gone();
  if (on_busy != OnBusy::refuse && on_busy != OnBusy::defer) {
    return Error(Errc::invalid_argument, "OnBusy is refuse or defer");
  }
  core_->poll();
  return core_->locked([&](Store& store) -> Result<void> {
    const size_t leases = store.holds.live().size();
    if (leases != 0 && on_busy == OnBusy::refuse) {
      return Error(Errc::busy, "leases are alive", static_cast<uint32_t>(leases));
    }
    store.books.events.mute(true);  // One event covers it all.
    store.forgetter.drop_all();
    store.books.events.mute(false);
    store.books.events.cleared();
    return {};
  });
}
uint32_t PagedCache::evict(uint32_t blocks) {
  if (core_ == nullptr) return 0;
  return core_->locked([&](Store& store) { return store.evictor.evict_blocks(blocks); });
}
Result<Reclaimed> PagedCache::reclaim(uint32_t positions, uint32_t most) {
  if (core_ == nullptr) return gone();
  return guarded([&]() -> Result<Reclaimed> { return core_->reclaim(positions, most); });
}

Stats PagedCache::stats() const {
  Stats stats;
  if (core_ == nullptr) return stats;
  core_->locked([&](Store& store) { store.fill_stats(stats); });
  stats.index_bytes += core_->records().bytes();
  return stats;
}
Result<std::vector<CachedPath>> PagedCache::contents() const {
  if (core_ == nullptr) return gone();
  return guarded([&]() -> Result<std::vector<CachedPath>> {
    return core_->locked([](Store& store) { return cache::cached_paths(store.books); });
  });
}

Result<std::vector<uint32_t>> PagedCache::branch_points(const Scope& scope,
                                                        const Prompt& prompt) const {
  if (core_ == nullptr) return gone();
  return guarded([&] { return cache::branch_points(*core_, scope, prompt); });
}
uint64_t PagedCache::events(uint64_t from, uint32_t limit, std::vector<Event>& out) const {
  if (core_ == nullptr) return from;
  return core_->locked([&](Store& store) { return store.books.events.copy(from, limit, out); });
}
EventDump PagedCache::event_dump() const try {
  if (core_ == nullptr) return {};
  return core_->locked([](Store& store) { return cache::event_dump(store.books); });
} catch (const std::bad_alloc&) {
  return {.events = {}, .next_sequence = 0, .complete = false};
}
uint32_t PagedCache::poll() { return core_ != nullptr ? core_->poll() : 0; }
std::vector<uint8_t> PagedCache::dump() const try {
  if (core_ == nullptr) return {};
  return core_->locked([](Store& store) { return cache::dump_index(store.books); });
} catch (const std::bad_alloc&) {
  return {};
}
Result<void> PagedCache::load(std::span<const uint8_t> bytes) {
  if (core_ == nullptr) return gone();
  const Result<void> loaded = guarded([&]() -> Result<void> {
    STEMMA_TRY_VOID(cache::check_dump(bytes));
    return core_->locked([&](Store& store) { return cache::load_index(store, bytes); });
  });
  if (!loaded) {
    cache::log_line(LogLevel::error,
                    [&] { return "an index dump was refused: " + loaded.error().to_string(); });
  }
  return loaded;
}
void PagedCache::check_invariants() const try {
  if (core_ != nullptr) core_->locked([](Store& store) { store.check_invariants(); });
} catch (const std::bad_alloc&) {
}

}  // namespace stemma
