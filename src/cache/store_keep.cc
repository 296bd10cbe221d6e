// Anchors, pins with deadlines, forgetting on request, statistics and the checker of the Store.
#include <algorithm>

#include "base/check.h"
#include "cache/store.h"

namespace stemma::cache {

// ---- Anchors -----------------------------------------------------------------------------------

CellIndex Store::inner_cell(CellIndex parent, std::span<const uint32_t> words, bool make) {
  const CellIndex found = tree_.find_inner(parent, words);
  if (found != kNoCell || !make) return found;
  const uint32_t free_place = extra_.draft();
  if (free_place == kNoPage) return kNoCell;
  const CellIndex cell = free_place + first_cells_ + 1;
  if (!tree_.ensure(cell)) {
    extra_.release(free_place);
    return kNoCell;
  }
  bool media = false;
  for (uint32_t word : words) media = media || key::is_media_word(word);
  if (media) hold_media(words, true);
  extra_.publish(free_place);
  tree_.publish_inner(cell, parent, words, media);
  tree_.set_anchored(parent, true);
  ++inner_cells_;
  return cell;
}

void Store::drop_inner_if_bare(CellIndex cell) {
  if (!tree_.is_live(cell) || !tree_.is_inner(cell)) return;
  if (logits_at_.count(cell) != 0) return;
  for (const auto& group : groups_) {
    if (group->recurrent() && group->at(cell) != kNoPage) return;
  }
  if (tree_.has_media(cell)) hold_media({tree_.words(cell), tree_.word_count(cell)}, false);
  tree_.remove_inner(cell);
  extra_.release(place(cell));
  --inner_cells_;
}

void Store::attach_checkpoint(GroupIndex g, CellIndex cell, uint32_t slot, uint32_t tenant_index) {
  Group& group = *groups_[g];
  const uint32_t old = group.at(cell);
  if (old != kNoPage) {
    // Replace; the cell keeps its place even if it carried nothing else.
    group.stop_waiting(old);
    group.erase(cell);
    refund(tenant_index, g, false);
    group.pool().release(old);
  }
  group.pool().publish(slot);
  draft_became_cached(tenant_index, g);
  group.set_home(slot, cell);
  group.enter(cell, slot);
  group.wait(slot, Group::kRecent);
  if (!tree_.is_inner(cell)) tree_.set_anchored(cell, true);
}

Result<void> Store::attach_logits(CellIndex cell, std::span<const float> values) {
  const uint64_t bytes = values.size() * sizeof(float) + sizeof(LogitsEntry);
  auto blob = std::make_shared<const std::vector<float>>(values.begin(), values.end());
  if (const auto it = logits_at_.find(cell); it != logits_at_.end()) {
    logits_bytes_ -= it->second->bytes;
    logits_.erase(it->second);
    logits_at_.erase(it);
  }
  while (logits_bytes_ + bytes > options_.logits_bytes && !logits_.empty()) {
    const CellIndex oldest = logits_.front().cell;
    logits_bytes_ -= logits_.front().bytes;
    logits_.pop_front();
    logits_at_.erase(oldest);
    if (oldest != cell) drop_inner_if_bare(oldest);
  }
  logits_.push_back({cell, std::move(blob), bytes});
  logits_at_[cell] = std::prev(logits_.end());
  logits_bytes_ += bytes;
  if (!tree_.is_inner(cell)) tree_.set_anchored(cell, true);
  return {};
}

Logits Store::find_logits(CellIndex cell) {
  const auto it = logits_at_.find(cell);
  if (it == logits_at_.end()) return nullptr;
  logits_.splice(logits_.end(), logits_, it->second);
  return it->second->logits;
}

Logits Store::peek_logits(CellIndex cell) const {
  const auto it = logits_at_.find(cell);
  return it == logits_at_.end() ? nullptr : it->second->logits;
}

void Store::drop_anchors(CellIndex cell, uint32_t tenant_index) {
  std::vector<CellIndex> cells{cell};
  tree_.inner_children(cell, cells);
  for (CellIndex c : cells) {
    if (const auto it = logits_at_.find(c); it != logits_at_.end()) {
      logits_bytes_ -= it->second->bytes;
      logits_.erase(it->second);
      logits_at_.erase(it);
    }
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (!groups_[g]->recurrent()) continue;
      const uint32_t slot = groups_[g]->at(c);
      if (slot != kNoPage) detach_page(g, slot, tenant_index);
    }
    if (c != cell) drop_inner_if_bare(c);
  }
}

// ---- Forgetting --------------------------------------------------------------------------------

uint32_t Store::cut(CellIndex top, uint32_t tenant_index) {
  const CellIndex parent = tree_.parent(top);
  std::vector<CellIndex> cells{top};
  tree_.descendants(top, cells);
  tree_.orphan(top);
  known_evictable_ = 0;
  for (CellIndex cell : cells) {
    policy_->remove(cell);
    if (keyed_) events_.removed(tree_.key(cell));
  }
  books(parent).pin(place(parent));  // The cut-off top holds its parent until it goes.
  uint32_t left = 0;
  for (auto it = cells.rbegin(); it != cells.rend(); ++it) {
    if (!tree_.is_live(*it)) continue;
    if (bare(*it)) {
      free_orphans(*it, tenant_index);
    }
  }
  for (CellIndex cell : cells) left += tree_.is_live(cell) && tree_.is_orphan(cell) ? 1U : 0U;
  tally.orphaned += left;
  events_.seal();
  return static_cast<uint32_t>(cells.size());
}

uint32_t Store::drop_root(CellIndex root) {
  std::vector<CellIndex> cells;
  tree_.descendants(root, cells);
  const uint32_t tenant_index = scopes_.find(root)->tenant_index;
  tree_.orphan(root);
  scopes_.hide(root);
  known_evictable_ = 0;
  for (CellIndex cell : cells) {
    policy_->remove(cell);
    if (keyed_) events_.removed(tree_.key(cell));
  }
  for (auto it = cells.rbegin(); it != cells.rend(); ++it) {
    if (tree_.is_live(*it) && bare(*it)) free_orphans(*it, tenant_index);
  }
  uint32_t left = 0;
  for (CellIndex cell : cells) left += tree_.is_live(cell) && tree_.is_orphan(cell) ? 1U : 0U;
  tally.orphaned += left;
  if (cells.empty()) close_root(root);
  events_.seal();
  return static_cast<uint32_t>(cells.size());
}

void Store::drop_all() {
  end_all_pins();
  std::vector<CellIndex> roots;
  for (const ScopeTable::Root& root : scopes_.roots()) {
    if (root.cell != kNoCell && !root.hidden) roots.push_back(root.cell);
  }
  for (CellIndex root : roots) drop_root(root);
}

// ---- Pins with deadlines -----------------------------------------------------------------------

Result<PinId> Store::add_pin(CellIndex cell, uint32_t depth_cells, uint64_t deadline_ns) {
  const uint32_t supply = numbered_ ? cells_.capacity() : extra_.capacity();
  const auto share = static_cast<uint64_t>(options_.pin_share * supply);
  if (pinned_cells_ + depth_cells > share) {
    // Shared prefixes were counted once per pin; count them once.
    marks_.assign(tree_.total_cells() / 64 + 1, 0);
    Evictable held;
    mark_path(cell, 0, held);
    for (const TimedPin& pin : pins_) {
      if (pin.cell != kNoCell) mark_path(pin.cell, 0, held);
    }
    if (held.cells > share) {
      return Error(Errc::over_pin_share, "pins may not hold this much of the pool",
                   static_cast<uint32_t>(std::min<uint64_t>(held.cells, 0xFFFF'FFFEU)));
    }
  }
  uint32_t slot;
  if (free_pins_.empty()) {
    slot = static_cast<uint32_t>(pins_.size());
    pins_.emplace_back();
  } else {
    slot = free_pins_.back();
    free_pins_.pop_back();
  }
  TimedPin& pin = pins_[slot];
  pin.cell = cell;
  pin.depth_cells = depth_cells;
  pin.deadline_ns = deadline_ns;
  ++pin.generation;
  hold(cell, depth_cells, tenant_of(cell));
  pinned_cells_ += depth_cells;
  if (deadline_ns != kNever) deadlines_.push({deadline_ns, slot, pin.generation});
  return PinId{uint64_t{pin.generation} << 32U | slot};
}

void Store::end_timed_pin(uint32_t slot) {
  TimedPin& pin = pins_[slot];
  const CellIndex cell = pin.cell;
  pinned_cells_ -= pin.depth_cells;
  pin.cell = kNoCell;
  free_pins_.push_back(slot);
  LeaseRecord nobody;
  nobody.tenant_index = tenant_of(cell);
  let_go(cell, pin.depth_cells, nobody);
}

bool Store::end_pin(PinId id) {
  const auto slot = static_cast<uint32_t>(static_cast<uint64_t>(id));
  const auto generation = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32U);
  if (slot >= pins_.size() || pins_[slot].cell == kNoCell || pins_[slot].generation != generation) {
    return false;
  }
  end_timed_pin(slot);
  return true;
}

void Store::end_all_pins() {
  for (uint32_t slot = 0; slot < pins_.size(); ++slot) {
    if (pins_[slot].cell != kNoCell) end_timed_pin(slot);
  }
}

void Store::expire_pins() {
  while (!deadlines_.empty() && deadlines_.top().at_ns <= now_) {
    const Deadline due = deadlines_.top();
    deadlines_.pop();
    if (pins_[due.slot].cell == kNoCell || pins_[due.slot].generation != due.generation) continue;
    ++tally.pin_expiries;
    end_timed_pin(due.slot);
  }
}

// ---- Watching ----------------------------------------------------------------------------------

uint64_t Store::bytes() const noexcept {
  uint64_t total = sizeof(*this) + tree_.bytes() + cells_.bytes() + extra_.bytes() +
                   scopes_.bytes() + media_.bytes() + policy_->bytes() + logits_bytes_ +
                   live_.capacity() * sizeof(void*) + marks_.capacity() * sizeof(uint64_t) +
                   pins_.capacity() * sizeof(TimedPin) +
                   (sessions_.size() + session_at_.size()) * 40;
  for (const auto& group : groups_) total += group->bytes();
  return total;
}

void Store::fill_stats(Stats& stats) const {
  stats.group_count = group_count();
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    const pool::BlockPool& pool = group.numbers_cells() ? cells_ : group.pool();
    GroupStats& out = stats.groups[g];
    out.capacity_blocks = pool.capacity();
    out.free_blocks = pool.free_blocks();
    out.cached_blocks = pool.cached_blocks();
    out.draft_blocks = pool.used_blocks() - pool.cached_blocks();
    out.peak_used_blocks = pool.peak_used_blocks();
    out.block_bytes = group.options().block_bytes;
    stats.kv_bytes_used += out.block_bytes * pool.used_blocks();
    stats.kv_bytes_capacity += out.block_bytes * pool.capacity();
    if (group.recurrent()) stats.checkpoints += pool.cached_blocks();
  }
  stats.leases = live_.size();
  stats.scopes = scopes_.size();
  stats.evicted_blocks = tally.evicted;
  stats.duplicate_blocks = tally.duplicates;
  stats.tails_published = tally.tails;
  stats.forks = tally.forks;
  stats.rewinds = tally.rewinds;
  stats.pin_expiries = tally.pin_expiries;
  stats.quota_refusals = tally.quota_refusals;
  stats.orphaned_blocks = tally.orphaned;
  stats.stale_walks = tally.stale_walks;
  stats.hint_repairs = tally.hint_repairs;
  stats.markers_dropped = tally.markers;
  stats.exact_counts = tally.exact_counts;
  stats.pinned_blocks = pinned_cells_;
  stats.logits_bytes = logits_bytes_;
  stats.index_bytes = bytes();
  const uint64_t now = now_ns();
  stats.total = counters_.total();
  stats.window = counters_.window(now);
  stats.window_ns = options_.stats_window_ns;
  stats.match_tokens = counters_.match_tokens();
  stats.eviction_age_us = counters_.eviction_age_us();
}

bool Store::empty() const noexcept {
  return cells_.used_blocks() == 0 && extra_.used_blocks() == 0 && live_.empty();
}

void Store::check_invariants() const {
  cells_.check_invariants();
  extra_.check_invariants();
  policy_->check_invariants();
  media_.check_invariants();
  for (const auto& group : groups_) group->check_invariants();
  uint64_t reachable = 0;
  for (const ScopeTable::Root& root : scopes_.roots()) {
    if (root.cell == kNoCell) continue;
    STEMMA_CHECK(tree_.is_live(root.cell) && tree_.is_root(root.cell));
    STEMMA_CHECK(root.hidden == tree_.is_orphan(root.cell));
    tree_.check_invariants(root.cell);
    STEMMA_CHECK(!bare(root.cell));
    std::vector<CellIndex> cells;
    tree_.descendants(root.cell, cells);
    reachable += cells.size();
    for (CellIndex cell : cells) {
      STEMMA_CHECK(books(cell).is_cached(place(cell)));
      const bool orphan = tree_.is_orphan(cell);
      if (bare(cell)) STEMMA_CHECK(!orphan && policy_->holds(cell));
      for (const auto& group : groups_) {
        if (group->numbers_cells()) continue;
        const uint32_t page = group->at(cell);
        if (page == kNoPage) continue;
        STEMMA_CHECK(group->pool().is_cached(page));
        STEMMA_CHECK(group->at(group->home(page)) == page);
        if (group->loose() && group->home(page) == cell) {
          STEMMA_CHECK(group->waiting(page) == (group->pool().pins(page) == 0));
        }
      }
    }
  }
  // What was cut off and is still held is not reachable from any root.
  const uint64_t cached =
      numbered_ ? cells_.cached_blocks() : extra_.cached_blocks() - roots_ - inner_cells_;
  STEMMA_CHECK(reachable <= cached);
  uint64_t held = 0;
  for (const LeaseRecord* lease : live_) {
    STEMMA_CHECK(tree_.is_live(lease->tip));
    held += lease->published;
    for (const CopySource& source : lease->sources) held += source.depth_cells;
  }
  for (const TimedPin& pin : pins_) held += pin.cell != kNoCell ? pin.depth_cells : 0;
  STEMMA_CHECK(held == held_depth_sum_);
  uint64_t logits = 0;
  for (const LogitsEntry& entry : logits_) logits += entry.bytes;
  STEMMA_CHECK(logits == logits_bytes_ && logits_bytes_ <= options_.logits_bytes);
  for (size_t i = 1; i < tenants_.size(); ++i) {
    STEMMA_CHECK(tenants_[i].draft_bytes <= tenants_[i].used_bytes);
  }
}

}  // namespace stemma::cache
