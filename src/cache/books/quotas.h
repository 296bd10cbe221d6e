// Quotas: how many bytes each tenant that has a quota uses, and how many of them are held.
//
// A tenant is named by its index. Index 0 stands for all tenants without a quota; nothing is
// counted for it.
//
// Invariant:  a tenant's drafts and cached checkpoints are part of what it uses.
// Threading:  one thread at a time.
// Cost:       O(1), but finding an index is O(quotas); nothing allocates after add().
#pragma once

#include <cstdint>
#include <vector>

#include "cache/books/group.h"
#include "stemma/options.h"

namespace stemma::cache {

class Quotas {
 public:
  // May throw std::bad_alloc.
  void add(const TenantQuota& quota) { tenants_.push_back({quota.tenant, quota.bytes}); }

  // 0 if the tenant has no quota.
  uint32_t index_of(TenantId tenant) const noexcept;
  TenantId id_of(uint32_t tenant_index) const noexcept { return tenants_[tenant_index].id; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(tenants_.size()); }
  // Returns false if the tenant was given no quota at creation.
  [[nodiscard]] bool set(TenantId tenant, uint64_t bytes) noexcept;
  uint64_t used_bytes(uint32_t tenant_index) const noexcept {
    return tenants_[tenant_index].used_bytes;
  }

  // A block of the group became a draft, became cached, or was freed.
  void drafted(uint32_t tenant_index, const Group& group) noexcept {
    if (tenant_index != 0) count_draft(tenants_[tenant_index], group);
  }
  void cached(uint32_t tenant_index, const Group& group) noexcept {
    if (tenant_index != 0) count_cached(tenants_[tenant_index], group);
  }
  enum class Was : uint8_t { draft, cached };
  void freed(uint32_t tenant_index, const Group& group, Was was) noexcept {
    if (tenant_index != 0) count_freed(tenants_[tenant_index], group, was);
  }
  // A hold on a path of `depth_cells` began or ended.
  void hold(uint32_t tenant_index, uint32_t depth_cells) noexcept {
    if (tenant_index != 0) tenants_[tenant_index].held_cells += depth_cells;
  }
  void unhold(uint32_t tenant_index, uint32_t depth_cells) noexcept {
    if (tenant_index != 0) tenants_[tenant_index].held_cells -= depth_cells;
  }

  // By how much the tenant would exceed its quota with `more` bytes.
  uint64_t excess(uint32_t tenant_index, uint64_t more) const noexcept;
  // Cached bytes of window and full groups.
  uint64_t paged_bytes(uint32_t tenant_index) const noexcept {
    const Tenant& tenant = tenants_[tenant_index];
    return tenant.used_bytes - tenant.draft_bytes - tenant.recurrent_bytes;
  }
  // At least this much of them is not held, if a cell stands for at most `cell_bytes`.
  uint64_t surely_unheld_bytes(uint32_t tenant_index, uint64_t cell_bytes) const noexcept;
  void check_invariants() const;

 private:
  struct Tenant {
    TenantId id = kNoTenant;
    uint64_t quota_bytes = ~uint64_t{0};
    uint64_t used_bytes = 0;       // Drafts and cached blocks, checkpoints included.
    uint64_t draft_bytes = 0;      // Drafts' part of used_bytes.
    uint64_t recurrent_bytes = 0;  // Cached checkpoints' part of it.
    uint64_t held_cells = 0;       // Sum of the depths of all holds.
  };
  static void count_draft(Tenant& tenant, const Group& group) noexcept;
  static void count_cached(Tenant& tenant, const Group& group) noexcept;
  static void count_freed(Tenant& tenant, const Group& group, Was was) noexcept;

  std::vector<Tenant> tenants_ = std::vector<Tenant>(1);
};

}  // namespace stemma::cache
