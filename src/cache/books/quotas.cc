#include "cache/books/quotas.h"

#include "base/check.h"

namespace stemma::cache {

uint32_t Quotas::index_of(TenantId tenant) const noexcept {
  for (uint32_t i = 1; i < tenants_.size(); ++i) {
    if (tenants_[i].id == tenant) return i;
  }
  return 0;
}

bool Quotas::set(TenantId tenant, uint64_t bytes) noexcept {
  const uint32_t index = index_of(tenant);
  if (index != 0) tenants_[index].quota_bytes = bytes;
  return index != 0;
}

void Quotas::count_draft(Tenant& tenant, const Group& group) noexcept {
  tenant.used_bytes += group.options().block_bytes;
  tenant.draft_bytes += group.options().block_bytes;
}

void Quotas::count_cached(Tenant& tenant, const Group& group) noexcept {
  tenant.draft_bytes -= group.options().block_bytes;
  if (group.recurrent()) tenant.recurrent_bytes += group.options().block_bytes;
}

void Quotas::count_freed(Tenant& tenant, const Group& group, Was was) noexcept {
  const uint64_t bytes = group.options().block_bytes;
  tenant.used_bytes -= bytes;
  if (was == Was::draft) {
    tenant.draft_bytes -= bytes;
  } else if (group.recurrent()) {
    tenant.recurrent_bytes -= bytes;
  }
}

uint64_t Quotas::excess(uint32_t tenant_index, uint64_t more) const noexcept {
  const uint64_t wanted = tenants_[tenant_index].used_bytes + more;
  const uint64_t quota = tenants_[tenant_index].quota_bytes;
  return wanted > quota ? wanted - quota : 0;
}

uint64_t Quotas::surely_unheld_bytes(uint32_t tenant_index, uint64_t cell_bytes) const noexcept {
  const uint64_t cached = paged_bytes(tenant_index);
  const uint64_t held = tenants_[tenant_index].held_cells * cell_bytes;
  return cached > held ? cached - held : 0;
}

void Quotas::check_invariants() const {
  for (const Tenant& tenant : tenants_) {
    STEMMA_CHECK(tenant.draft_bytes + tenant.recurrent_bytes <= tenant.used_bytes);
  }
}

}  // namespace stemma::cache
