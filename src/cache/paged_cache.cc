// PagedCache, in terms of Shared. One that was moved from answers every question with nothing and
// every call with wrong_state.
#include "stemma/cache.h"

#include "cache/shared.h"

namespace stemma {

using cache::guarded;

namespace {

Error gone() { return {Errc::wrong_state, "this PagedCache was moved from"}; }

}  // namespace

PagedCache::PagedCache(PagedCache&& other) noexcept
    : shared_(std::exchange(other.shared_, nullptr)) {}

PagedCache& PagedCache::operator=(PagedCache&& other) noexcept {
  if (this != &other) {
    if (shared_ != nullptr) shared_->disown();
    shared_ = std::exchange(other.shared_, nullptr);
  }
  return *this;
}

PagedCache::~PagedCache() {
  if (shared_ != nullptr) shared_->disown();
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
    auto shared = std::make_unique<cache::Shared>(checked);
    if (!shared->create()) return Error(Errc::out_of_memory, "no address space for the index");
    return PagedCache(shared.release());
  });
}

void PagedCache::note_evicted(std::vector<BlockId>* into) { shared_->note_evicted(into); }
bool PagedCache::holds(BlockId block) const { return shared_->holds(block); }

Result<Report> PagedCache::lookup(const Scope& scope, const Prompt& prompt,
                                  const LookupOptions& options) const {
  if (shared_ == nullptr) return gone();
  return guarded([&] { return shared_->lookup(scope, prompt, options); });
}

Result<Lease> PagedCache::lease(const Scope& scope, const Prompt& prompt,
                                const LeaseOptions& options) {
  if (shared_ == nullptr) return gone();
  STEMMA_TRY(cache::LeaseRecord * record,
             guarded([&] { return shared_->lease(scope, prompt, options); }));
  return Lease(shared_, record);
}

Result<PinResult> PagedCache::pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns) {
  if (shared_ == nullptr) return gone();
  return guarded([&] { return shared_->pin(scope, prompt, ttl_ns); });
}
Result<void> PagedCache::unpin(PinId id) {
  return shared_ != nullptr ? shared_->unpin(id) : gone();
}
void PagedCache::end_session(SessionId session) {
  if (shared_ != nullptr) shared_->end_session(session);
}
Result<void> PagedCache::set_quota(TenantId tenant, uint64_t bytes) {
  return shared_ != nullptr ? shared_->set_quota(tenant, bytes) : gone();
}
std::optional<TenantId> PagedCache::tenant_of(const Scope& scope) const {
  return shared_ != nullptr ? shared_->tenant_of(scope) : std::nullopt;
}
uint64_t PagedCache::tenant_bytes(TenantId tenant) const {
  return shared_ != nullptr ? shared_->tenant_bytes(tenant) : 0;
}

Result<uint32_t> PagedCache::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  if (shared_ == nullptr) return gone();
  return guarded([&] { return shared_->truncate(scope, prompt, keep); });
}
uint32_t PagedCache::drop_scope(const Scope& scope) {
  return shared_ != nullptr ? shared_->drop_scope(scope) : 0;
}
Result<void> PagedCache::reset(OnBusy on_busy) {
  return shared_ != nullptr ? shared_->reset(on_busy) : gone();
}
uint32_t PagedCache::evict(uint32_t blocks) {
  return shared_ != nullptr ? shared_->evict(blocks) : 0;
}
Result<Reclaimed> PagedCache::reclaim(uint32_t positions, uint32_t most) {
  if (shared_ == nullptr) return gone();
  return guarded([&]() -> Result<Reclaimed> { return shared_->reclaim(positions, most); });
}

Stats PagedCache::stats() const { return shared_ != nullptr ? shared_->stats() : Stats{}; }
Result<std::vector<CachedPath>> PagedCache::contents() const {
  if (shared_ == nullptr) return gone();
  return guarded([&] { return shared_->contents(); });
}

Result<std::vector<uint32_t>> PagedCache::branch_points(const Scope& scope,
                                                        const Prompt& prompt) const {
  if (shared_ == nullptr) return gone();
  return guarded([&] { return shared_->branch_points(scope, prompt); });
}
uint64_t PagedCache::events(uint64_t from, uint32_t limit, std::vector<Event>& out) const {
  return shared_ != nullptr ? shared_->events(from, limit, out) : from;
}
EventDump PagedCache::event_dump() const try {
  return shared_ != nullptr ? shared_->event_dump() : EventDump{};
} catch (const std::bad_alloc&) {
  return {.events = {}, .next_sequence = 0, .complete = false};
}
uint32_t PagedCache::poll() { return shared_ != nullptr ? shared_->poll() : 0; }
std::vector<uint8_t> PagedCache::dump() const try {
  return shared_ != nullptr ? shared_->dump() : std::vector<uint8_t>{};
} catch (const std::bad_alloc&) {
  return {};
}
Result<void> PagedCache::load(std::span<const uint8_t> bytes) {
  if (shared_ == nullptr) return gone();
  Result<void> loaded = guarded([&] { return shared_->load(bytes); });
  if (!loaded) {
    cache::log_line(LogLevel::error,
                    [&] { return "an index dump was refused: " + loaded.error().to_string(); });
  }
  return loaded;
}
void PagedCache::check_invariants() const try {
  if (shared_ != nullptr) shared_->check_invariants();
} catch (const std::bad_alloc&) {
}

}  // namespace stemma
