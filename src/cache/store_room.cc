// How the Store makes room: counting what could go, choosing through the policy, freeing.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "cache/store.h"

namespace stemma::cache {

// ---- Quotas ------------------------------------------------------------------------------------

void Store::charge_draft_to(Tenant& tenant, GroupIndex g) noexcept {
  const uint64_t bytes = groups_[g]->options().block_bytes;
  tenant.used_bytes += bytes;
  tenant.draft_bytes += bytes;
}

void Store::draft_became_cached_of(Tenant& tenant, GroupIndex g) noexcept {
  const uint64_t bytes = groups_[g]->options().block_bytes;
  tenant.draft_bytes -= bytes;
  if (groups_[g]->recurrent()) tenant.recurrent_bytes += bytes;
}

void Store::refund_to(Tenant& tenant, GroupIndex g, bool draft) noexcept {
  const uint64_t bytes = groups_[g]->options().block_bytes;
  tenant.used_bytes -= bytes;
  if (draft) {
    tenant.draft_bytes -= bytes;
  } else if (groups_[g]->recurrent()) {
    tenant.recurrent_bytes -= bytes;
  }
}

uint64_t Store::tenant_quick_bytes(uint32_t tenant_index) const noexcept {
  const Tenant& tenant = tenants_[tenant_index];
  const uint64_t cached = tenant.used_bytes - tenant.draft_bytes - tenant.recurrent_bytes;
  const uint64_t held = tenant.held_cells * cell_bytes_;
  return cached > held ? cached - held : 0;
}

// ---- Counting ----------------------------------------------------------------------------------

void Store::mark_path(CellIndex cell, uint32_t tenant_index, Evictable& held) {
  for (; !tree_.is_root(cell); cell = tree_.parent(cell)) {
    uint64_t& word = marks_[cell / 64];
    const uint64_t bit = uint64_t{1} << (cell % 64);
    if ((word & bit) != 0) return;
    word |= bit;
    ++held.cells;
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      const Group& group = *groups_[g];
      if (!group.numbers_cells()) {
        const uint32_t page = group.at(cell);
        if (page == kNoPage || group.home(page) != cell) continue;
      }
      ++held.blocks[g];
      // A window's block that waits may go though its cell stays.
      const bool waits = group.window() && group.waiting(group.at(cell));
      if (tenant_index != 0 && group.paged() && !waits) {
        held.tenant_bytes += group.options().block_bytes;
      }
    }
  }
}

Store::Evictable Store::count_exactly(const Need& need, uint32_t tenant_index) {
  ++tally.exact_counts;
  marks_.assign(tree_.total_cells() / 64 + 1, 0);
  Evictable held;
  std::vector<std::pair<GroupIndex, uint32_t>> pinned_pages;
  const auto mark = [&](CellIndex cell, uint32_t tenant) {
    const uint64_t before = held.tenant_bytes;
    mark_path(cell, tenant == tenant_index ? tenant_index : 0, held);
    if (tenant != tenant_index) held.tenant_bytes = before;
  };
  for (const LeaseRecord* lease : live_) {
    mark(lease->tip, lease->tenant_index);
    for (const CopySource& source : lease->sources) {
      // A draft that was forked from may have become a cell since.
      if (source.cell != kNoCell && books(source.cell).is_cached(place(source.cell))) {
        mark(source.cell, lease->tenant_index);
      }
      if (source.page != kPageMask) pinned_pages.emplace_back(source.group, source.page);
    }
  }
  if (need.sources != nullptr) {
    for (const CopySource& source : *need.sources) {
      if (source.page != kPageMask) pinned_pages.emplace_back(source.group, source.page);
    }
  }
  for (const TimedPin& pin : pins_) {
    if (pin.cell != kNoCell) mark(pin.cell, tenant_of(pin.cell));
  }
  for (CellIndex cell : need.held) {
    if (cell != kNoCell) mark(cell, tenant_index);
  }
  // Blocks that a copy reads stay when their cell goes.
  std::sort(pinned_pages.begin(), pinned_pages.end());
  pinned_pages.erase(std::unique(pinned_pages.begin(), pinned_pages.end()), pinned_pages.end());
  for (const auto& [g, page] : pinned_pages) {
    const Group& group = *groups_[g];
    if (!group.full() || !group.pool().is_cached(page)) continue;
    const CellIndex home = group.home(page);
    if ((marks_[home / 64] >> (home % 64) & 1U) == 0) ++held.blocks[g];
  }
  Evictable evictable;
  const uint64_t cached =
      numbered_ ? cells_.cached_blocks() : extra_.cached_blocks() - roots_ - inner_cells_;
  evictable.cells = cached - held.cells;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (group.numbers_cells()) {
      evictable.blocks[g] = evictable.cells;
    } else {
      const uint64_t all = group.pool().cached_blocks();
      evictable.blocks[g] = all - std::min(all, held.blocks[g]);
    }
  }
  const Tenant& tenant = tenants_[tenant_index];
  const uint64_t all = tenant.used_bytes - tenant.draft_bytes - tenant.recurrent_bytes;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (!groups_[g]->window()) continue;
    held.tenant_bytes += need.reserved[g] * groups_[g]->options().block_bytes;
  }
  evictable.tenant_bytes = all - std::min(all, held.tenant_bytes);
  known_evictable_ = evictable.cells;
  return evictable;
}

bool Store::enough(const Need& need, const Evictable& evictable) const noexcept {
  if (!numbered_ && need.cells > extra_.free_blocks() + evictable.cells) return false;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (group.loose()) continue;  // Counted exactly by its own lists.
    const uint64_t free = group.numbers_cells() ? cells_.free_blocks() : group.pool().free_blocks();
    if (need.blocks[g] > free + evictable.blocks[g]) return false;
  }
  return true;
}

Error Store::short_of(const Need& need, const Evictable& evictable) const {
  const uint64_t cells = extra_.free_blocks() + evictable.cells;
  if (!numbered_ && need.cells > cells) return no_room(need, kMaxGroups, need.cells - cells);
  for (GroupIndex g = 0;; ++g) {
    const pool::BlockPool& pool = groups_[g]->numbers_cells() ? cells_ : groups_[g]->pool();
    const uint64_t blocks = pool.free_blocks() + evictable.blocks[g];
    // The last one, where it is none of the others.
    if (g + 1 == groups_.size() || (!groups_[g]->loose() && need.blocks[g] > blocks)) {
      return no_room(need, g, need.blocks[g] - std::min<uint64_t>(need.blocks[g], blocks));
    }
  }
}

Error Store::no_room(const Need& need, GroupIndex g, uint64_t missing) const {
  for (GroupIndex h = 0; h < groups_.size(); ++h) {
    const uint64_t wanted = uint64_t{need.blocks[h]} + need.kept[h];
    const uint64_t capacity = groups_[h]->options().capacity_blocks;
    if (wanted > capacity) {
      return Error::missing_blocks("it can never fit: more blocks at once than this group has", h,
                                   wanted - capacity, true);
    }
  }
  const uint64_t cells = uint64_t{need.cells} + need.kept_cells;
  if (!numbered_ && cells > extra_.capacity()) {
    return Error::missing_blocks("it can never fit: more cells than the index has (index_cells)",
                                 kMaxGroups, cells - extra_.capacity(), true);
  }
  if (g == kMaxGroups) {
    return Error::missing_blocks("too few cells of the index are free or evictable (index_cells)",
                                 g, missing, false);
  }
  return Error::missing_blocks("too few blocks of this group are free or evictable", g, missing,
                               false);
}

uint64_t Store::idle_checkpoint_bytes(const Need& need, uint32_t tenant_index) const {
  uint64_t bytes = 0;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (!group.recurrent()) continue;
    uint64_t slots = 0;
    for (uint32_t slot = 0; slot < group.pool().capacity(); ++slot) {
      if (group.waiting(slot) && tenant_of(group.home(slot)) == tenant_index) ++slots;
    }
    bytes += (slots - std::min<uint64_t>(slots, need.reserved[g])) * group.options().block_bytes;
  }
  return bytes;
}

bool Store::drop_idle(Attention kind, uint32_t tenant_index) {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (groups_[g]->options().attention != kind) continue;
    const uint32_t page = groups_[g]->next_of(now_, tenants_[tenant_index].id);
    if (page == kNoPage) continue;
    detach_page(g, page, tenant_index);
    return true;
  }
  return false;
}

bool Store::drop_passed(uint32_t tenant_index) {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (!groups_[g]->window()) continue;
    const uint32_t page = groups_[g]->next_of(now_, tenants_[tenant_index].id);
    if (page == kNoPage || !groups_[g]->is_left(page)) continue;
    detach_page(g, page, tenant_index);
    return true;
  }
  return false;
}

bool Store::ensure_cells(CellIndex last) {
  if (last < ready_cells_) return true;
  if (!tree_.ensure(last) || !policy_->prepare(last)) return false;
  for (auto& group : groups_) {
    if (!group->ensure(last)) return false;
  }
  ready_cells_ = last + 1;
  return true;
}

bool Store::take_memory(const Need& need) {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (!groups_[g]->numbers_cells()) {
      if (!groups_[g]->prepare(need.blocks[g])) return false;
      continue;
    }
    if (!cells_.prepare(need.blocks[g])) return false;
    const uint32_t end = cells_.fresh_after(need.blocks[g]);
    if (end != 0 && !ensure_cells(end - 1)) return false;
  }
  return numbered_ || (extra_.prepare(need.cells) &&
                       ensure_cells(extra_.fresh_after(need.cells) + first_cells_));
}

bool Store::could_fit(const Need& need) const noexcept {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (uint64_t{need.blocks[g]} + need.kept[g] > groups_[g]->options().capacity_blocks) {
      return false;
    }
  }
  return numbered_ || uint64_t{need.cells} + need.kept_cells <= extra_.capacity();
}

Result<void> Store::check_room(const Need& need, uint32_t tenant_index) try {
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    const uint64_t wanted = uint64_t{need.blocks[g]} + need.reserved[g];
    const uint64_t there = uint64_t{group.pool().free_blocks()} + group.waiting_blocks();
    if (group.loose() && wanted > there) return no_room(need, g, wanted - there);
  }
  const uint64_t excess = over_quota(need, tenant_index);
  if (excess != 0 || !enough(need, {})) {
    // First by bounds that are cheap and never too high; then exactly. (Drafts that forks still copy
    // from may have become cells held at a depth nobody knows: then only the exact count is right.)
    Evictable sure;
    const uint64_t cached =
        numbered_ ? cells_.cached_blocks() : extra_.cached_blocks() - roots_ - inner_cells_;
    sure.cells =
        std::max(cached > held_depth_sum_ ? cached - held_depth_sum_ : 0, known_evictable_);
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      const uint64_t blocks = groups_[g]->pool().cached_blocks();
      const uint64_t held =
          held_depth_sum_ + full_pins_[g] + (need.sources == nullptr ? 0 : need.sources->size());
      sure.blocks[g] = groups_[g]->numbers_cells() ? sure.cells : blocks > held ? blocks - held : 0;
    }
    sure.tenant_bytes = tenant_quick_bytes(tenant_index);
    if (forked_drafts_ != 0 || !enough(need, sure) || sure.tenant_bytes < excess) {
      const Evictable exact = count_exactly(need, tenant_index);
      if (exact.tenant_bytes < excess &&
          exact.tenant_bytes + idle_checkpoint_bytes(need, tenant_index) < excess) {
        return Error(Errc::over_quota, "the tenant's quota does not allow this many more blocks",
                     static_cast<uint32_t>(tenants_[tenant_index].id));
      }
      if (!enough(need, exact)) return short_of(need, exact);
    }
  }
  if (!take_memory(need)) return Error(Errc::out_of_memory, "no memory for the index");
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to count what could be evicted");
}

uint64_t Store::over_quota(const Need& need, uint32_t tenant_index) const noexcept {
  if (tenant_index == 0) return 0;
  uint64_t more = 0;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    more += need.blocks[g] * groups_[g]->options().block_bytes;
  }
  // A quota that was lowered below what is used refuses only those who want more.
  const uint64_t wanted = tenants_[tenant_index].used_bytes + more;
  const uint64_t quota = tenants_[tenant_index].quota_bytes;
  return (more != 0 || need.takes_over) && wanted > quota ? wanted - quota : 0;
}

void Store::evict_within_quota(const Need& need, uint32_t tenant_index) {
  // Who wants room for a checkpoint gives up checkpoints first, others blocks: first those of windows
  // that running requests have passed, then prompts, then what can go alone though its cell is in use.
  bool only_checkpoints = need.cells == 0;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    only_checkpoints = only_checkpoints && (groups_[g]->recurrent() || need.blocks[g] == 0);
  }
  while (over_quota(need, tenant_index) != 0) {
    if (only_checkpoints && drop_idle(Attention::recurrent, tenant_index)) continue;
    if (!only_checkpoints && drop_passed(tenant_index)) continue;
    if (evict_some(1, true, tenants_[tenant_index].id) != 0) continue;
    if (drop_idle(Attention::window, tenant_index)) continue;
    STEMMA_CHECK(drop_idle(Attention::recurrent, tenant_index));
  }
}

void Store::evict_for(const Need& need, uint32_t tenant_index) {
  evict_within_quota(need, tenant_index);
  if (numbered_) {
    while (cells_.free_blocks() < need.blocks[0]) {
      const uint32_t most = need.blocks[0] - cells_.free_blocks();
      STEMMA_CHECK(evict_some(most, false, kNoTenant) != 0);
    }
  }
  while (!enough(need, {})) STEMMA_CHECK(evict_some(1, false, kNoTenant) != 0);
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    while (group.loose() && group.pool().free_blocks() < need.blocks[g]) {
      const uint32_t page = group.next_to_go(now_);
      STEMMA_CHECK(page != kNoPage);
      detach_page(g, page, tenant_of(group.home(page)));
    }
  }
  events_.seal();
}

Result<void> Store::make_room(const Need& need, uint32_t tenant_index) {
  STEMMA_TRY_VOID(check_room(need, tenant_index));
  evict_for(need, tenant_index);
  return {};
}

// ---- Drafts ------------------------------------------------------------------------------------

uint32_t Store::draft(GroupIndex g, uint32_t tenant_index) {
  const uint32_t page = groups_[g]->pool().draft();
  STEMMA_CHECK(page != kNoPage);
  charge_draft(tenant_index, g);
  return page;
}

uint32_t Store::draft_cell(uint32_t tenant_index) {
  if (numbered_) {
    const uint32_t cell = cells_.draft();
    STEMMA_CHECK(cell != kNoPage);
    charge_draft(tenant_index, 0);
    return cell;
  }
  const uint32_t place = extra_.draft();
  STEMMA_CHECK(place != kNoPage);
  return place + first_cells_ + 1;
}

bool Store::draft_cell_exactly(CellIndex cell, uint32_t tenant_index) {
  if (!numbered_ || cell >= first_cells_) return false;
  if (!cells_.ensure(cell) || !ensure_cells(cell)) throw std::bad_alloc();
  if (!cells_.draft_exactly(cell)) return false;
  charge_draft(tenant_index, 0);
  return true;
}

bool Store::draft_exactly(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  Group& group = *groups_[g];
  if (page >= group.pool().capacity()) return false;
  if (!group.pool().ensure(page) || !group.ensure_page(page)) throw std::bad_alloc();
  if (!group.pool().draft_exactly(page)) return false;
  charge_draft(tenant_index, g);
  return true;
}

CellIndex Store::draft_free_cell() {
  Need need;
  need.cells = 1;
  if (extra_.free_blocks() == 0) return kNoCell;
  if (!take_memory(need)) throw std::bad_alloc();
  return draft_cell(0);
}

void Store::relist() {
  cells_.relist();
  for (auto& group : groups_) {
    if (!group->numbers_cells()) group->pool().relist();
  }
}

void Store::touch_loaded(CellIndex cell) {
  Touch touch;
  touch.now_ns = now_ns();
  touch.tenant = tenants_[tenant_of(cell)].id;
  policy_->touch(cell, touch);
}

void Store::discard(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  refund(tenant_index, g, true);
  groups_[g]->pool().release(page);
}

void Store::discard_cell(CellIndex cell, uint32_t tenant_index) {
  if (numbered_) refund(tenant_index, 0, true);
  books(cell).release(place(cell));
}

// ---- Evicting ----------------------------------------------------------------------------------

// Where leaves go one by one from among many siblings, most of the time goes into waiting for memory.
void Store::load_ahead(CellIndex victim, uint32_t most) noexcept {
  constexpr uint32_t kAtOnce = 16;
  if (loaded_ahead_ != 0) {
    --loaded_ahead_;
    return;
  }
  if (!one_by_one_ || most < kAtOnce / 2) return;
  std::array<CellIndex, kAtOnce> next;
  loaded_ahead_ = policy_->following(victim, std::span(next).first(std::min(most, kAtOnce)));
  tree_.load_for_removal({next.data(), loaded_ahead_});
}

uint32_t Store::evict_some(uint32_t most, bool only_tenant, TenantId tenant, ReclaimList* list) {
  Victim victim;
  for (;;) {
    victim = policy_->victim(now_, only_tenant, tenant);
    if (victim.cell == kNoCell) return 0;
    if (!tree_.has_child(victim.cell) && holds(victim.cell) == 0) break;
    policy_->set_aside(victim.cell);
    ++tally.markers;
  }
  if (victim.next != kNoCell) {
    load_ahead(victim.cell, most);
    tree_.prefetch_cell(victim.next);
    books(victim.next).prefetch(place(victim.next));
  }
  const uint32_t tenant_index = tenant_of(victim.cell);  // Whatever a policy believes.
  if (list != nullptr) list->begin(*this, victim.cell);
  // Freeing a leaf makes its parent a leaf, which is mostly the next to go: run up the path.
  CellIndex cell = victim.cell;
  CellIndex parent;
  uint32_t done = 0;
  for (;;) {
    parent = tree_.parent(cell);
    const CellIndex ahead = tree_.up(cell);
    if (ahead != tree_.sentinel()) {
      tree_.prefetch_up(cell);
      if (numbered_) cells_.prefetch(ahead);
    }
    counters_.count_eviction(tree_.birth(cell), now_);
    if (tracks_contents_) policy_->evicted(cell);
    if (list != nullptr) list->take(*this, cell);
    if (evicted_ != nullptr && evicted_->size() < evicted_->capacity()) {
      evicted_->push_back(BlockId{cell});
    }
    free_cell(cell, tenant_index);
    if (++done == most || tree_.is_root(parent) || tree_.has_child(parent) || holds(parent) != 0 ||
        !policy_->parent_follows(parent, numbered_ && ahead != tree_.sentinel() ? ahead : parent)) {
      break;
    }
    cell = parent;
  }
  one_by_one_ = done == 1;
  tally.evicted += done;
  known_evictable_ -= std::min<uint64_t>(known_evictable_, done);
  if (tree_.is_root(parent)) {
    policy_->remove(victim.cell);
    if (!tree_.has_child(parent)) close_root(parent);
  } else if (tree_.has_child(parent)) {
    policy_->remove(victim.cell);
  } else {
    policy_->replace(victim.cell, parent);
  }
  return done;
}

void Store::evict_leaf(CellIndex cell, uint32_t tenant_index) {
  const CellIndex parent = tree_.parent(cell);
  counters_.count_eviction(tree_.birth(cell), now_);
  if (tracks_contents_) policy_->evicted(cell);
  free_cell(cell, tenant_index);
  ++tally.evicted;
  if (tree_.is_root(parent) || tree_.has_child(parent)) {
    policy_->remove(cell);
  } else {
    policy_->replace(cell, parent);
  }
}

uint32_t Store::evict_blocks(uint32_t blocks) {
  uint32_t done = 0;
  while (done < blocks) {
    const uint32_t more = evict_some(blocks - done, false, kNoTenant);
    if (more == 0) break;
    done += more;
  }
  events_.seal();
  return done;
}

void Store::free_cell_contents(CellIndex cell, uint32_t tenant_index) {
  for (GroupIndex g = numbered_ ? 1 : 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (group.recurrent()) continue;
    const uint32_t page = group.at(cell);
    if (page == kNoPage) continue;
    if (group.home(page) == cell) {
      detach_page(g, page, tenant_index);
    } else {
      groups_[g]->erase(cell);
    }
  }
  if (tree_.is_anchored(cell)) drop_anchors(cell, tenant_index);
  if (media_.size() != 0 && tree_.has_media(cell))
    hold_media({tree_.words(cell), tree_.word_count(cell)}, false);
}

void Store::free_cell(CellIndex cell, uint32_t tenant_index) {
  if (keyed_) events_.removed(tree_.key(cell), index_group());
  if (!plain_ || media_.size() != 0 || tree_.is_anchored(cell)) {
    free_cell_contents(cell, tenant_index);
  }
  tree_.remove(cell);
  if (numbered_) refund(tenant_index, 0, false);
  books(cell).release(place(cell));
}

void Store::free_orphans(CellIndex cell, uint32_t tenant_index) {
  while (tree_.is_live(cell) && tree_.is_orphan(cell) && bare(cell)) {
    if (tree_.is_root(cell)) {
      close_root(cell);
      return;
    }
    const CellIndex parent = tree_.parent(cell);
    const bool cut = tree_.is_cut(cell);
    if (tracks_contents_) policy_->forgotten(cell);
    free_cell_contents(cell, tenant_index);
    tree_.remove(cell);
    if (numbered_) refund(tenant_index, 0, false);
    books(cell).release(place(cell));
    if (cut) {
      books(parent).unpin(place(parent));
      if (tree_.is_root(parent)) {
        close_root(parent);
        return;
      }
      if (!tree_.is_orphan(parent)) return;  // Whoever ends a use there touches it.
    }
    cell = parent;
  }
}

}  // namespace stemma::cache
