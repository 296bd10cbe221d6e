// Anchors, pins with deadlines, forgetting on request, statistics and the checker of the Store.
#include <algorithm>
#include <atomic>
#include <iterator>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/vectors.h"
#include "cache/store.h"

namespace stemma::cache {

// ---- Anchors -----------------------------------------------------------------------------------

CellIndex Store::inner_cell(CellIndex parent, std::span<const uint32_t> words, bool make) {
  const CellIndex found = tree_.find_inner(parent, words);
  if (found != kNoCell || !make) return found;
  if (!make_spare_cell()) return kNoCell;
  if (!extra_.prepare(1) || !tree_.ensure(extra_.fresh_after(1) + first_cells_)) {
    throw std::bad_alloc();
  }
  bool media = false;
  for (uint32_t word : words) media = media || key::is_media_word(word);
  const uint32_t free_place = extra_.draft();
  const CellIndex cell = free_place + first_cells_ + 1;
  try {
    tree_.publish_inner(cell, parent, words, media);
  } catch (const std::bad_alloc&) {
    extra_.release(free_place);
    throw;
  }
  if (media) hold_media(words, true);
  extra_.publish(free_place);
  tree_.set_anchored(parent, true);
  ++inner_cells_;
  return cell;
}

bool Store::make_spare_cell() {
  while (extra_.free_blocks() == 0) {
    // Where blocks number the other cells, evicting those frees none of these.
    if (!numbered_ && evict_some(1, false, kNoTenant) != 0) continue;
    if (!drop_oldest_inner_logits()) return false;
  }
  events_.seal();
  return true;
}

bool Store::drop_oldest_inner_logits() {
  for (const LogitsEntry& entry : logits_) {
    const CellIndex cell = entry.cell;
    if (!tree_.is_inner(cell)) continue;
    logits_bytes_ -= entry.bytes;
    const auto it = logits_at_.find(cell);
    logits_.erase(it->second);
    logits_at_.erase(it);
    drop_inner_if_bare(cell);
    return true;
  }
  return false;
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

void Store::attach_checkpoint(GroupIndex g, CellIndex cell, uint32_t slot, const LeaseRecord& who,
                              uint32_t depth) {
  Group& group = *groups_[g];
  const uint32_t old = group.at(cell);
  group.enter(cell, slot);  // All that needs memory.
  if (old != kNoPage) {
    // Replace; the cell keeps its place even if it carried nothing else.
    group.forget(old);
    refund(who.tenant_index, g, false);
    group.pool().release(old);
  }
  group.pool().publish(slot);
  draft_became_cached(who.tenant_index, g);
  group.set_home(slot, cell);
  group.wait(slot, touch_at(who, depth - 1));
  if (!tree_.is_inner(cell)) tree_.set_anchored(cell, true);
  if (old == kNoPage) tell_stored(g, cell, false);
}

Result<void> Store::attach_logits(CellIndex cell, std::span<const float> values) {
  const uint64_t bytes = values.size() * sizeof(float) + sizeof(LogitsEntry);
  std::list<LogitsEntry> fresh;
  fresh.push_back(
      {cell, std::make_shared<const std::vector<float>>(values.begin(), values.end()), bytes});
  const auto [at, added] = logits_at_.try_emplace(cell, fresh.begin());
  if (!added) {
    logits_bytes_ -= at->second->bytes;
    logits_.erase(at->second);
    at->second = fresh.begin();
  }
  while (logits_bytes_ + bytes > options_.logits_bytes && !logits_.empty()) {
    const CellIndex oldest = logits_.front().cell;
    logits_bytes_ -= logits_.front().bytes;
    logits_.pop_front();
    logits_at_.erase(oldest);
    drop_inner_if_bare(oldest);
  }
  logits_.splice(logits_.end(), fresh);
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

void Store::drop_anchors_at(CellIndex cell, uint32_t tenant_index) {
  if (const auto it = logits_at_.find(cell); it != logits_at_.end()) {
    logits_bytes_ -= it->second->bytes;
    logits_.erase(it->second);
    logits_at_.erase(it);
  }
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (!groups_[g]->recurrent()) continue;
    const uint32_t slot = groups_[g]->at(cell);
    if (slot != kNoPage) detach_page(g, slot, tenant_index);
  }
}

void Store::drop_anchors(CellIndex cell, uint32_t tenant_index) {
  drop_anchors_at(cell, tenant_index);
  drop_inner_anchors(cell, {}, tenant_index);
}

void Store::drop_inner_anchors(CellIndex parent, std::span<const uint32_t> words,
                               uint32_t tenant_index) {
  for (CellIndex cell = tree_.first_inner(parent); cell != kNoCell;) {
    const CellIndex next = tree_.next_inner(cell);
    const auto shared = std::min(tree_.word_count(cell), static_cast<uint32_t>(words.size()));
    if (tree::common_words(tree_.words(cell), words.data(), shared) == shared) {
      drop_anchors_at(cell, tenant_index);
      drop_inner_if_bare(cell);
    }
    cell = next;
  }
}

// ---- Forgetting --------------------------------------------------------------------------------

void Store::tell_forgotten(CellIndex cell) noexcept {
  if (!events_.on()) return;
  events_.removed(tree_.key(cell), index_group());
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    if (group.numbers_cells()) continue;
    const uint32_t page = group.at(cell);
    if (page != kNoPage && group.home(page) == cell) events_.removed(tree_.key(cell), g);
  }
}

uint32_t Store::let_go_below(CellIndex top, bool with_top, uint32_t tenant_index) {
  known_evictable_ = 0;
  uint32_t count = 0;
  for (CellIndex cell = with_top ? top : tree_.next_below(top, top); cell != kNoCell;
       cell = tree_.next_below(top, cell)) {
    policy_->remove(cell);
    if (keyed_) tell_forgotten(cell);
    ++count;
  }
  for (CellIndex cell = pin_at_.empty() ? kNoCell : top; cell != kNoCell;) {
    // What only pins held goes with them: cells at or above this one, so the next one stays.
    const CellIndex next = tree_.next_below(top, cell);
    end_pins_at(cell);
    cell = next;
  }
  for (CellIndex cell = tree_.is_live(top) ? top : kNoCell; cell != kNoCell;) {
    const CellIndex next = tree_.next_below(top, cell);
    if (bare(cell)) free_orphans(cell, tenant_index);
    cell = next;
  }
  // If the top is gone, so is everything below it.
  for (CellIndex cell = tree_.is_live(top) ? top : kNoCell; cell != kNoCell;
       cell = tree_.next_below(top, cell)) {
    tally.orphaned += with_top || cell != top ? 1U : 0U;
  }
  events_.seal();
  return count;
}

uint32_t Store::cut(CellIndex top, uint32_t tenant_index) {
  const CellIndex parent = tree_.parent(top);
  tree_.orphan(top);
  books(parent).pin(place(parent));  // The cut-off top holds its parent until it goes.
  return let_go_below(top, true, tenant_index);
}

uint32_t Store::drop_root(CellIndex root) {
  const uint32_t tenant_index = scopes_.find(root)->tenant_index;
  tree_.orphan(root);
  scopes_.hide(root);
  return let_go_below(root, false, tenant_index);
}

void Store::drop_all() {
  end_all_pins();
  // Roots that go leave their place behind: by index.
  for (size_t i = 0; i < scopes_.roots().size(); ++i) {
    const ScopeTable::Root& root = scopes_.roots()[i];
    if (root.cell != kNoCell && !root.hidden) drop_root(root.cell);
  }
}

// ---- Pins with deadlines -----------------------------------------------------------------------

bool Store::pins_within_share(CellIndex cell, uint32_t depth_cells,
                              std::span<const LooseBlock> blocks) {
  // Added up first; only when that is too much is what several pins share counted once.
  const auto share_of = [&](uint32_t supply) {
    return static_cast<uint64_t>(options_.pin_share * supply);
  };
  const uint64_t cells_share = share_of(numbered_ ? cells_.capacity() : extra_.capacity());
  if (pinned_cells_ + depth_cells > cells_share) {
    marks_.assign(tree_.total_cells() / 64 + 1, 0);
    Evictable held;
    mark_path(cell, 0, held);
    for (const TimedPin& pin : pins_) {
      if (pin.cell != kNoCell) mark_path(pin.cell, 0, held);
    }
    if (held.cells > cells_share) return false;
  }
  if (blocks.empty()) return true;
  std::vector<LooseBlock> all(blocks.begin(), blocks.end());
  for (const TimedPin& pin : pins_) all.insert(all.end(), pin.blocks.begin(), pin.blocks.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::array<uint64_t, kMaxGroups> held{};
  for (const LooseBlock& block : all) ++held[block.group];
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    if (held[g] > share_of(groups_[g]->options().capacity_blocks)) return false;
  }
  return true;
}

Result<PinId> Store::add_pin(CellIndex cell, uint32_t depth_cells, std::vector<LooseBlock> blocks,
                             uint64_t deadline_ns) {
  if (!pins_within_share(cell, depth_cells, blocks)) {
    return Error(Errc::over_pin_share, "pins may not hold this much of the pool", depth_cells);
  }
  base::make_room(deadlines_, 1);
  base::make_room(pins_, 1);
  base::make_room(free_pins_, pins_.size() + 1 - free_pins_.size());
  const auto first = pin_at_.try_emplace(cell, kNoPin).first;
  uint32_t slot;
  if (free_pins_.empty()) {
    slot = static_cast<uint32_t>(pins_.size());
    pins_.emplace_back();
  } else {
    slot = free_pins_.back();
    free_pins_.pop_back();
  }
  TimedPin& pin = pins_[slot];
  pin.before_here = kNoPin;
  pin.next_here = std::exchange(first->second, slot);
  if (pin.next_here != kNoPin) pins_[pin.next_here].before_here = slot;
  pin.cell = cell;
  pin.depth_cells = depth_cells;
  pin.deadline_ns = deadline_ns;
  pin.blocks = std::move(blocks);
  // One count for all caches: a pin of one is none of another's.
  static std::atomic<uint32_t> pins_so_far{0};
  pin.generation = 1 + pins_so_far.fetch_add(1, std::memory_order_relaxed);
  hold(cell, depth_cells, tenant_of(cell));
  for (const LooseBlock& block : pin.blocks) pin_page(block.group, block.page);
  pinned_cells_ += depth_cells;
  if (deadline_ns != kNever) {
    deadlines_.push_back({deadline_ns, slot, pin.generation});
    std::push_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
  }
  return PinId{uint64_t{pin.generation} << 32U | slot};
}

void Store::end_timed_pin(uint32_t slot, bool forgotten) {
  TimedPin& pin = pins_[slot];
  const CellIndex cell = pin.cell;
  pinned_cells_ -= pin.depth_cells;
  unlink_pin(slot);
  pin.cell = kNoCell;
  free_pins_.push_back(slot);
  LeaseRecord nobody;
  nobody.tenant_index = tenant_of(cell);
  for (const LooseBlock& block : pin.blocks) unpin_page(block.group, block.page, nobody, 0);
  pin.blocks.clear();
  if (forgotten) {
    undo_hold(cell, pin.depth_cells, nobody.tenant_index);
  } else {
    let_go(cell, pin.depth_cells, nobody);
  }
  if (deadlines_.size() <= 2 * (pins_.size() - free_pins_.size()) + 64) return;
  std::erase_if(deadlines_, [&](const Deadline& due) {
    return pins_[due.slot].cell == kNoCell || pins_[due.slot].generation != due.generation;
  });
  std::make_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
}

void Store::unlink_pin(uint32_t slot) noexcept {
  const TimedPin& pin = pins_[slot];
  if (pin.next_here != kNoPin) pins_[pin.next_here].before_here = pin.before_here;
  if (pin.before_here != kNoPin) {
    pins_[pin.before_here].next_here = pin.next_here;
  } else if (pin.next_here != kNoPin) {
    pin_at_.find(pin.cell)->second = pin.next_here;
  } else {
    pin_at_.erase(pin.cell);
  }
}

void Store::end_pins_at(CellIndex cell) {
  for (auto at = pin_at_.find(cell); at != pin_at_.end(); at = pin_at_.find(cell)) {
    end_timed_pin(at->second, true);
  }
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
  while (!deadlines_.empty() && deadlines_.front().at_ns <= now_) {
    const Deadline due = deadlines_.front();
    std::pop_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
    deadlines_.pop_back();
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
                   pins_.capacity() * sizeof(TimedPin) + deadlines_.capacity() * sizeof(Deadline) +
                   (sessions_.size() + session_at_.size()) * 32 +
                   (sessions_.bucket_count() + session_at_.bucket_count()) * sizeof(void*);
  for (const auto& group : groups_) total += group->bytes();
  total += pin_at_.size() * 32 + pin_at_.bucket_count() * sizeof(void*);
  return total;
}

void Store::fill_evictable(Stats& stats) {
  // A bound that is cheap and never too high; exact where nothing is held.
  Evictable evictable;
  bool exact = true;
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const uint64_t cached = stats.groups[g].cached_blocks;
    const uint64_t held = held_depth_sum_ + full_pins_[g] + forked_drafts_;
    evictable.blocks[g] = cached - std::min(cached, held);
    exact = exact && held == 0;
  }
  if (!exact) {
    const uint64_t known = known_evictable_;
    const uint64_t counts = tally.exact_counts;
    try {
      evictable = count_exactly({}, 0);
    } catch (const std::bad_alloc&) {
    }
    known_evictable_ = known;
    tally.exact_counts = counts;
  }
  for (GroupIndex g = 0; g < groups_.size(); ++g) {
    const Group& group = *groups_[g];
    stats.groups[g].evictable_blocks =
        group.loose() ? group.waiting_blocks() : static_cast<uint32_t>(evictable.blocks[g]);
  }
}

void Store::fill_stats(Stats& stats) {
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
  fill_evictable(stats);
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
  stats.event_bytes = events_.bytes();
  const uint64_t now = now_ns();
  stats.total = counters_.total();
  stats.window = counters_.window(now);
  stats.window_ns = options_.stats_window_ns;
  stats.match_tokens = counters_.match_tokens();
  stats.eviction_age_us = counters_.eviction_age_us();
}

bool Store::empty() const noexcept {
  // What was reclaimed is in no cell, and still somebody's.
  const auto held = [](const auto& group) { return group->pool().used_blocks() != 0; };
  return cells_.used_blocks() == 0 && extra_.used_blocks() == 0 && live_.empty() &&
         std::none_of(groups_.begin(), groups_.end(), held);
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
  for (const TimedPin& pin : pins_) {
    if (pin.cell == kNoCell) continue;
    held += pin.depth_cells;
    STEMMA_CHECK(pin_at_.count(pin.cell) != 0);
  }
  STEMMA_CHECK(held == held_depth_sum_);
  uint64_t logits = 0;
  for (const LogitsEntry& entry : logits_) logits += entry.bytes;
  STEMMA_CHECK(logits == logits_bytes_ && logits_bytes_ <= options_.logits_bytes);
  for (size_t i = 1; i < tenants_.size(); ++i) {
    STEMMA_CHECK(tenants_[i].draft_bytes <= tenants_[i].used_bytes);
  }
}

}  // namespace stemma::cache
