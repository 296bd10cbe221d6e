#include "cache/store/room.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace stemma::cache {

bool could_fit(const Books& books, const Need& need) noexcept {
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    if (uint64_t{need.blocks[g]} + need.kept[g] > books.group(g).options().capacity_blocks) {
      return false;
    }
  }
  return books.numbered() || uint64_t{need.cells} + need.kept_cells <= books.extra.capacity();
}

bool Room::enough(const Need& need, const Evictable& evictable) const noexcept {
  if (!books_.numbered() && need.cells > books_.extra.free_blocks() + evictable.cells) return false;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (books_.group(g).loose()) continue;  // Its own lists count it exactly.
    const uint64_t free = books_.pool_of_group(g).free_blocks();
    if (need.blocks[g] > free + evictable.blocks[g]) return false;
  }
  return true;
}

Error Room::short_of(const Need& need, const Evictable& evictable) const {
  const uint64_t cells = books_.extra.free_blocks() + evictable.cells;
  if (!books_.numbered() && need.cells > cells) {
    return refusal(need, kMaxGroups, need.cells - cells);
  }
  for (GroupIndex g = 0;; ++g) {
    const uint64_t blocks = books_.pool_of_group(g).free_blocks() + evictable.blocks[g];
    // Report the last group if no other one is short.
    if (g + 1 == books_.group_count() || (!books_.group(g).loose() && need.blocks[g] > blocks)) {
      return refusal(need, g, need.blocks[g] - std::min<uint64_t>(need.blocks[g], blocks));
    }
  }
}

Error Room::refusal(const Need& need, GroupIndex g, uint64_t missing) const {
  for (GroupIndex h = 0; h < books_.group_count(); ++h) {
    const uint64_t wanted = uint64_t{need.blocks[h]} + need.kept[h];
    const uint64_t capacity = books_.group(h).options().capacity_blocks;
    if (wanted > capacity) {
      return Error::missing_blocks("it can never fit: more blocks at once than this group has", h,
                                   wanted - capacity, true);
    }
  }
  const uint64_t cells = uint64_t{need.cells} + need.kept_cells;
  if (!books_.numbered() && cells > books_.extra.capacity()) {
    return Error::missing_blocks("it can never fit: more cells than the index has (index_cells)",
                                 kMaxGroups, cells - books_.extra.capacity(), true);
  }
  if (g == kMaxGroups) {
    return Error::missing_blocks("too few cells of the index are free or evictable (index_cells)",
                                 g, missing, false);
  }
  return Error::missing_blocks("too few blocks of this group are free or evictable", g, missing,
                               false);
}

uint64_t Room::idle_checkpoint_bytes(const Need& need, uint32_t tenant_index) const {
  uint64_t bytes = 0;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    if (!group.recurrent()) continue;
    uint64_t slots = 0;
    for (uint32_t slot = 0; slot < group.pool().capacity(); ++slot) {
      if (group.waiting(slot) && books_.tenant_of(group.home(slot)) == tenant_index) ++slots;
    }
    bytes += (slots - std::min<uint64_t>(slots, need.reserved[g])) * group.options().block_bytes;
  }
  return bytes;
}

bool Room::take_memory(const Need& need) {
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (!books_.group(g).numbers_cells()) {
      if (!books_.group(g).prepare(need.blocks[g])) return false;
      continue;
    }
    if (!books_.first.prepare(need.blocks[g])) return false;
    const uint32_t end = books_.first.fresh_after(need.blocks[g]);
    if (end != 0 && !books_.ensure_cells(end - 1)) return false;
  }
  return books_.numbered() ||
         (books_.extra.prepare(need.cells) &&
          books_.ensure_cells(books_.extra.fresh_after(need.cells) + books_.first_cells()));
}

Result<void> Room::check(const Need& need, uint32_t tenant_index) try {
  for (GroupIndex g = 0; books_.has_loose_groups() && g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    const uint64_t wanted = uint64_t{need.blocks[g]} + need.reserved[g];
    const uint64_t there = uint64_t{group.pool().free_blocks()} + group.waiting_blocks();
    if (group.loose() && wanted > there) return refusal(need, g, wanted - there);
  }
  const uint64_t excess = over_quota(need, tenant_index);
  if (excess != 0 || !enough(need, {})) {
    // First with cheap bounds that are never too high, then exactly.
    const Evictable sure = census_.at_least(need, tenant_index);
    if (census_.only_exact() || !enough(need, sure) || sure.tenant_bytes < excess) {
      const Evictable exact = census_.exactly(need, tenant_index);
      if (exact.tenant_bytes < excess &&
          exact.tenant_bytes + idle_checkpoint_bytes(need, tenant_index) < excess) {
        return Error(Errc::over_quota, "the tenant's quota does not allow this many more blocks",
                     static_cast<uint32_t>(books_.quotas.id_of(tenant_index)));
      }
      if (!enough(need, exact)) return short_of(need, exact);
    }
  }
  if (!take_memory(need)) return Error(Errc::out_of_memory, "no memory for the index");
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to count what could be evicted");
}

uint64_t Room::over_quota(const Need& need, uint32_t tenant_index) const noexcept {
  if (tenant_index == 0) return 0;
  uint64_t more = 0;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    more += need.blocks[g] * books_.group(g).options().block_bytes;
  }
  // A quota that was lowered below what is in use refuses only requests for more.
  if (more == 0 && !need.takes_over) return 0;
  return books_.quotas.excess(tenant_index, more);
}

void Room::evict_within_quota(const Need& need, uint32_t tenant_index) {
  // A request for a checkpoint evicts checkpoints first. Other requests evict blocks: first window
  // blocks that running requests have passed, then prompts, then blocks that can be evicted alone
  // while their cell is in use.
  bool only_checkpoints = need.cells == 0;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    only_checkpoints = only_checkpoints && (books_.group(g).recurrent() || need.blocks[g] == 0);
  }
  const auto evict = [&](Attention kind, Evictor::Which which = Evictor::Which::any) {
    return evictor_.evict_loose_of(tenant_index, kind, which);
  };
  while (over_quota(need, tenant_index) != 0) {
    if (only_checkpoints && evict(Attention::recurrent)) continue;
    if (!only_checkpoints && evict(Attention::window, Evictor::Which::passed)) continue;
    if (evictor_.evict_of(books_.quotas.id_of(tenant_index), 1) != 0) continue;
    if (evict(Attention::window)) continue;
    STEMMA_CHECK(evict(Attention::recurrent));
  }
}

void Room::evict_for(const Need& need, uint32_t tenant_index) {
  evict_within_quota(need, tenant_index);
  if (books_.numbered()) {
    while (books_.first.free_blocks() < need.blocks[0]) {
      STEMMA_CHECK(evictor_.evict_some(need.blocks[0] - books_.first.free_blocks()) != 0);
    }
  }
  while (!enough(need, {})) STEMMA_CHECK(evictor_.evict_some(1) != 0);
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    while (group.loose() && group.pool().free_blocks() < need.blocks[g]) evictor_.evict_loose(g);
  }
  books_.events.seal();
}

Result<void> Room::make(const Need& need, uint32_t tenant_index) {
  STEMMA_TRY_VOID(check(need, tenant_index));
  evict_for(need, tenant_index);
  return {};
}

// ---- Extra cells -------------------------------------------------------------------------------

bool Room::make_spare_place() {
  while (books_.extra.free_blocks() == 0) {
    // If blocks number the other cells, evicting those frees no spare cell.
    if (!books_.numbered() && evictor_.evict_some(1) != 0) continue;
    const CellIndex oldest =
        books_.logits.oldest([&](CellIndex cell) { return books_.tree.is_inner(cell); });
    if (oldest == kNoCell) return false;
    books_.logits.drop(oldest);
    anchors_.drop_inner_if_bare(oldest);
  }
  books_.events.seal();
  return true;
}

Result<const ScopeTable::Root*> Room::open_root(const Scope& scope, TenantId tenant, Need need) {
  if (const ScopeTable::Root* root = books_.scopes.find(scope)) {
    if (root->tenant != tenant) {
      return Error(Errc::invalid_argument, "this scope belongs to another tenant",
                   static_cast<uint32_t>(root->tenant));
    }
    return root;
  }
  if (books_.extra.free_blocks() == 0) {
    ++need.cells;
    STEMMA_TRY_VOID(make(need, books_.quotas.index_of(tenant)));
    if (!make_spare_place()) {
      return Error(Errc::out_of_blocks, "every cell of the index is in use (index_cells)");
    }
  }
  return cells_.add_root(scope, tenant);
}

CellIndex Room::inner_cell(CellIndex parent, std::span<const uint32_t> words) {
  const CellIndex found = books_.tree.find_inner(parent, words);
  if (found != kNoCell) return found;
  return make_spare_place() ? anchors_.add_inner(parent, words) : kNoCell;
}

CellIndex Room::draft_free_cell() {
  Need need;
  need.cells = 1;
  if (books_.extra.free_blocks() == 0) return kNoCell;
  if (!take_memory(need)) throw std::bad_alloc();
  return blocks_.draft_cell(0);
}

}  // namespace stemma::cache
