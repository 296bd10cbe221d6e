// PagedCache, in terms of Shared.
#include "cache/shared.h"
#include "stemma/cache.h"

namespace stemma {

PagedCache::PagedCache(std::shared_ptr<cache::Shared> shared) noexcept
    : shared_(std::move(shared)) {}
PagedCache::PagedCache(PagedCache&&) noexcept = default;
PagedCache& PagedCache::operator=(PagedCache&&) noexcept = default;
PagedCache::~PagedCache() = default;

Result<PagedCache> PagedCache::create(const Options& options) {
  STEMMA_TRY(const Options checked, cache::check_options(options));
  auto shared = std::make_shared<cache::Shared>(checked);
  if (!shared->create()) return Error(Errc::out_of_memory, "no address space for the index");
  return PagedCache(std::move(shared));
}

Result<Report> PagedCache::lookup(const Scope& scope, const Prompt& prompt,
                                  const LookupOptions& options) const {
  return shared_->lookup(scope, prompt, options);
}

Result<Lease> PagedCache::lease(const Scope& scope, const Prompt& prompt,
                                const LeaseOptions& options) {
  STEMMA_TRY(cache::LeaseRecord * record, shared_->lease(scope, prompt, options));
  return Lease(shared_, record);
}

Result<PinResult> PagedCache::pin(const Scope& scope, const Prompt& prompt, uint64_t ttl_ns) {
  return shared_->pin(scope, prompt, ttl_ns);
}
Result<void> PagedCache::unpin(PinId id) { return shared_->unpin(id); }
void PagedCache::end_session(SessionId session) { shared_->end_session(session); }
Result<void> PagedCache::set_quota(TenantId tenant, uint64_t bytes) {
  return shared_->set_quota(tenant, bytes);
}
uint64_t PagedCache::tenant_bytes(TenantId tenant) const { return shared_->tenant_bytes(tenant); }

Result<uint32_t> PagedCache::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  return shared_->truncate(scope, prompt, keep);
}
uint32_t PagedCache::drop_scope(const Scope& scope) { return shared_->drop_scope(scope); }
Result<void> PagedCache::reset(OnBusy on_busy) { return shared_->reset(on_busy); }
uint32_t PagedCache::evict(uint32_t blocks) { return shared_->evict(blocks); }

Stats PagedCache::stats() const { return shared_->stats(); }
Result<std::vector<uint32_t>> PagedCache::branch_points(const Scope& scope,
                                                        const Prompt& prompt) const {
  return shared_->branch_points(scope, prompt);
}
uint64_t PagedCache::events(uint64_t from, uint32_t limit, std::vector<Event>& out) const {
  return shared_->events(from, limit, out);
}
EventDump PagedCache::event_dump() const { return shared_->event_dump(); }
uint32_t PagedCache::poll() { return shared_->poll(); }
std::vector<uint8_t> PagedCache::dump() const { return shared_->dump(); }
Result<void> PagedCache::load(std::span<const uint8_t> bytes) { return shared_->load(bytes); }
void PagedCache::check_invariants() const { shared_->check_invariants(); }

}  // namespace stemma
