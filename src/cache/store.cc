#include "cache/store.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/vectors.h"
#include "key/content_key.h"
#include "retain/touch.h"

namespace stemma::cache {

Store::Store(const Options& options)
    : options_(options),
      counters_(options.stats_window_ns, options.groups.front().capacity_blocks),
      events_(options.event_capacity) {}

uint64_t chosen_cells(const Options& options, uint32_t cell_tokens) {
  if (options.index_cells != 0) return options.index_cells;
  uint64_t widest = 0;  // Cells that the largest group's blocks cover.
  uint64_t slots = 0;
  for (const GroupOptions& group : options.groups) {
    slots = std::max<uint64_t>(slots, group.capacity_blocks);
    if (group.attention == Attention::recurrent) continue;
    widest = std::max(widest, uint64_t{group.capacity_blocks} * (group.block_tokens / cell_tokens));
  }
  // A window needs its ancestors as cells though their blocks are gone, and checkpoints say nothing
  // about how long the paths to them are. So prompts may be much longer than what blocks cover: there
  // are cells for 2^20 positions in blocks of 16, or for as many as an eighth of a budget pays.
  constexpr uint64_t kLongPrompts = 65'536;
  constexpr uint64_t kCellBytes = 256;  // About.
  const uint64_t least = options.budget_bytes == 0
                             ? kLongPrompts
                             : std::min(kLongPrompts, options.budget_bytes / 8 / kCellBytes);
  return std::max(least, widest != 0 ? 2 * widest : 64 * slots);
}

bool Store::create(const Options& options) {
  cell_tokens_ = 0;
  uint64_t states = 0;
  for (const GroupOptions& g : options.groups) {
    if (g.attention == Attention::recurrent) {
      states += g.capacity_blocks;
      continue;
    }
    if (cell_tokens_ == 0 || g.block_tokens < cell_tokens_) cell_tokens_ = g.block_tokens;
  }
  if (cell_tokens_ == 0) cell_tokens_ = 16;
  for (const GroupOptions& g : options.groups) {
    if (g.attention == Attention::recurrent) continue;
    cell_bytes_ += g.block_bytes;
  }
  const GroupOptions& front = options.groups.front();
  numbered_ = front.attention == Attention::full && front.block_tokens == cell_tokens_;
  keyed_ = options.content_keys || options.event_capacity != 0;
  first_cells_ = numbered_ ? front.capacity_blocks : 0;

  // Roots and anchors inside blocks have cells of their own: a root for every block, a cell for every
  // state, and some to spare; and, where no group numbers the cells, those of the prompts.
  constexpr uint32_t kSpare = 4096;
  uint64_t extra =
      numbered_ ? first_cells_ + states + kSpare : chosen_cells(options, cell_tokens_) + kSpare;
  extra = std::min<uint64_t>(extra, tree::kIndexMask - 2 - first_cells_);

  tree::PrefixTree::Shape shape;
  shape.cell_tokens = cell_tokens_;
  shape.first_cells = first_cells_;
  shape.extra_cells = static_cast<uint32_t>(extra);
  shape.keys = keyed_;
  if (!tree_.create(shape) || !cells_.create(first_cells_) || !extra_.create(shape.extra_cells)) {
    return false;
  }
  for (size_t i = 0; i < options.groups.size(); ++i) {
    groups_.push_back(std::make_unique<Group>());
    if (!groups_.back()->create(options.groups[i], cell_tokens_, i == 0 && numbered_,
                                tree_.total_cells())) {
      return false;
    }
    reaches_.push_back(groups_.back()->reach());
    has_loose_groups_ = has_loose_groups_ || groups_.back()->loose();
  }
  policy_ = make_policy(options.policy, numbered_ ? first_cells_ : tree_.total_cells());
  if (policy_ == nullptr) return false;
  tracks_contents_ = policy_->tracks_contents();
  scratch_.reserve(cell_tokens_);
  plain_ = numbered_ && groups_.size() == 1;
  tenants_.emplace_back();
  for (const TenantQuota& quota : options.quotas) {
    Tenant tenant;
    tenant.id = quota.tenant;
    tenant.quota_bytes = quota.bytes;
    tenants_.push_back(tenant);
  }
  return true;
}

// ---- Roots -------------------------------------------------------------------------------------

uint32_t Store::tenant_index_of(TenantId tenant) const noexcept {
  for (uint32_t i = 1; i < tenants_.size(); ++i) {
    if (tenants_[i].id == tenant) return i;
  }
  return 0;
}

Tenant* Store::find_tenant(TenantId tenant) noexcept {
  const uint32_t index = tenant_index_of(tenant);
  return index == 0 ? nullptr : &tenants_[index];
}

uint32_t Store::tenant_of(CellIndex cell) const noexcept {
  if (tenants_.size() == 1) return 0;
  while (!tree_.is_root(cell)) {
    const CellIndex up = tree_.is_inner(cell) ? tree_.sentinel() : tree_.up(cell);
    cell = up != tree_.sentinel() ? up : tree_.parent(cell);
  }
  const ScopeTable::Root* root = scopes_.find(cell);
  return root == nullptr ? 0 : root->tenant_index;
}

Result<const ScopeTable::Root*> Store::open_root(const Scope& scope, TenantId tenant, Need need) {
  if (const ScopeTable::Root* root = scopes_.find(scope)) {
    if (root->tenant != tenant) {
      return Error(Errc::invalid_argument, "this scope belongs to another tenant",
                   static_cast<uint32_t>(root->tenant));
    }
    return root;
  }
  if (extra_.free_blocks() == 0) {
    ++need.cells;
    STEMMA_TRY_VOID(make_room(need, tenant_index_of(tenant)));
    if (!make_spare_cell()) {
      return Error(Errc::out_of_blocks, "every cell of the index is in use (index_cells)");
    }
  }
  const uint32_t place = extra_.draft();
  const CellIndex cell = place + first_cells_ + 1;
  if (place == kNoPage || !tree_.ensure(cell)) {
    if (place != kNoPage) extra_.release(place);
    return Error(Errc::out_of_memory, "no memory for another scope");
  }
  extra_.publish(place);
  tree_.make_root(cell, keyed_ ? key::root_key(scope) : ContentKey{});
  ++roots_;
  try {
    scopes_.add({scope, cell, tenant, tenant_index_of(tenant), false});
  } catch (const std::bad_alloc&) {
    tree_.remove(cell);
    extra_.release(place);
    --roots_;
    return Error(Errc::out_of_memory, "no memory for another scope");
  }
  return scopes_.find(scope);
}

void Store::close_root(CellIndex root) {
  if (!bare(root)) return;
  drop_anchors(root, scopes_.find(root)->tenant_index);
  scopes_.remove(root);
  tree_.remove(root);
  extra_.release(place(root));
  --roots_;
}

// ---- Holding -----------------------------------------------------------------------------------

void Store::hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  books(cell).pin(place(cell));
  held_depth_sum_ += depth_cells;
  if (tenant_index != 0) tenants_[tenant_index].held_cells += depth_cells;
  known_evictable_ -= std::min<uint64_t>(known_evictable_, depth_cells);
}

void Store::unhold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  books(cell).unpin(place(cell));
  held_depth_sum_ -= depth_cells;
  if (tenant_index != 0) tenants_[tenant_index].held_cells -= depth_cells;
}

void Store::undo_hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index) {
  unhold(cell, depth_cells, tenant_index);
  if (tree_.is_orphan(cell) && !tree_.is_root(cell)) free_orphans(cell, tenant_index);
}

void Store::let_go(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  unhold(cell, depth_cells, who.tenant_index);
  end_use(cell, depth_cells, who);
}

void Store::end_use(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  if (tree_.is_root(cell)) {
    close_root(cell);
    return;
  }
  if (tree_.is_orphan(cell)) {
    CellIndex above = cell;
    uint32_t depth = depth_cells;
    while (tree_.is_orphan(above) && !tree_.is_root(above)) {
      above = tree_.parent(above);
      --depth;
    }
    free_orphans(cell, who.tenant_index);
    if (depth == 0 || !tree_.is_live(above)) return;
    cell = above;
    depth_cells = depth;
  }
  touch(cell, depth_cells, who);
}

void Store::pin_draft_cell(CellIndex cell) {
  books(cell).pin(place(cell));
  ++forked_drafts_;
}

void Store::unpin_draft_cell(CellIndex cell, const LeaseRecord& who) {
  // Read before letting go: a draft given back meanwhile is free from then on.
  const bool cached = books(cell).is_cached(place(cell));
  books(cell).unpin(place(cell));
  --forked_drafts_;
  if (!cached) return;
  // It became a cell while it was copied from.
  uint32_t depth = 0;
  for (CellIndex c = cell; !tree_.is_root(c); c = tree_.parent(c)) ++depth;
  end_use(cell, depth, who);
}

void Store::move_tip(LeaseRecord& record, CellIndex tip, uint32_t depth_cells) {
  // Cells of others on the way down may have been evictable until now.
  known_evictable_ -= std::min<uint64_t>(known_evictable_, depth_cells - record.published);
  books(tip).pin(place(tip));
  books(record.tip).unpin(place(record.tip));
  held_depth_sum_ += depth_cells - record.published;
  if (record.tenant_index != 0) {
    tenants_[record.tenant_index].held_cells += depth_cells - record.published;
  }
  record.tip = tip;
  record.published = depth_cells;
}

void Store::make_touch(Touch& touch, const LeaseRecord& who, Priority priority, uint64_t ttl_ns,
                       uint64_t now) const {
  touch = retain::touch_of(who.retain, priority, ttl_ns, now);
  touch.tenant = tenants_[who.tenant_index].id;
  touch.reused_tokens = who.report.reused_tokens;
}

void Store::touch(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who) {
  const uint64_t now = now_ns();
  Touch touch;
  const auto class_at = [&](uint32_t index, Priority& priority, uint64_t& ttl) {
    priority = who.retain.priority;
    ttl = who.retain.ttl_ns;
    const uint32_t position = index * cell_tokens_;
    for (const PriorityRange& range : who.ranges) {
      if (position >= range.begin && position < range.end) {
        priority = range.priority;
        ttl = range.ttl_ns;
      }
    }
  };
  Priority priority;
  uint64_t ttl;
  class_at(depth_cells - 1, priority, ttl);
  make_touch(touch, who, priority, ttl, now);
  touch.depth_tokens = depth_cells * cell_tokens_;
  policy_->touch(cell, touch);
  remember_session(who, cell);
  if (who.ranges.empty()) return;
  // A prefix is worth at least what its continuation is, so classes only rise towards the root: one
  // more entry at each rise keeps every cell in its class.
  CellIndex above = tree_.parent(cell);
  for (uint32_t i = depth_cells - 1; i > 0; --i, above = tree_.parent(above)) {
    Priority p;
    uint64_t t;
    class_at(i - 1, p, t);
    if (p <= priority) continue;
    priority = p;
    make_touch(touch, who, p, t, now);
    touch.depth_tokens = i * cell_tokens_;
    policy_->touch(above, touch);
  }
}

// ---- Sessions ----------------------------------------------------------------------------------

void Store::remember_session(const LeaseRecord& who, CellIndex cell) {
  if (who.retain.session == kNoSession) {
    if (!session_at_.empty()) session_at_.erase(cell);
    return;
  }
  const auto session = static_cast<uint64_t>(who.retain.session);
  try {
    session_at_[cell] = session;
    sessions_[session] = {cell, tree_.birth(cell)};
  } catch (const std::bad_alloc&) {
    // Only a hint, and older ones would be wrong: the session is forgotten.
    session_at_.erase(cell);
    sessions_.erase(session);
    return;
  }
  const uint64_t cells = numbered_ ? first_cells_ : extra_.capacity();
  if (sessions_.size() <= cells + cells / 4 + kSpareSessions) return;
  // Forget sessions whose last use is gone, or another's by now: at most as many stay as there are
  // cells, so the next time is far off.
  std::erase_if(sessions_, [&](const auto& entry) {
    const LastUse& use = entry.second;
    if (!tree_.is_live(use.cell) || tree_.birth(use.cell) != use.birth) return true;
    const auto last = session_at_.find(use.cell);
    return last == session_at_.end() || last->second != entry.first;
  });
}

void Store::end_session(SessionId session) {
  const auto it = sessions_.find(static_cast<uint64_t>(session));
  if (it == sessions_.end()) return;
  const LastUse use = it->second;
  sessions_.erase(it);
  const auto last = session_at_.find(use.cell);
  if (last == session_at_.end() || last->second != static_cast<uint64_t>(session)) return;
  session_at_.erase(last);
  if (!tree_.is_live(use.cell) || tree_.birth(use.cell) != use.birth || !policy_->holds(use.cell)) {
    return;
  }
  Touch touch;
  touch.now_ns = now_ns();
  touch.tenant = tenants_[tenant_of(use.cell)].id;
  touch.session = session;
  touch.phase = SessionPhase::ended;
  touch.expired_phase = SessionPhase::ended;
  policy_->touch(use.cell, touch);
}

// ---- Live leases -------------------------------------------------------------------------------

void Store::prepare_live() { base::make_room(live_, 1); }

void Store::add_live(LeaseRecord* record) noexcept {
  record->live_index = static_cast<uint32_t>(live_.size());
  live_.push_back(record);
}

void Store::remove_live(LeaseRecord* record) {
  live_.back()->live_index = record->live_index;
  live_[record->live_index] = live_.back();
  live_.pop_back();
}

// ---- Contents ----------------------------------------------------------------------------------

void Store::hold_media(std::span<const uint32_t> words, bool add) {
  uint32_t last = key::kPadWord;
  for (uint32_t word : words) {
    if (!key::is_media_word(word) || word == last) continue;
    last = word;
    if (add) {
      media_.add_reference(key::media_number(word));
    } else {
      media_.drop_reference(key::media_number(word));
    }
  }
}

void Store::publish_cell(CellIndex cell, CellIndex parent, CellIndex up,
                         std::span<const uint32_t> words, const ContentKey* key,
                         uint32_t tenant_index) {
  bool media = false;
  if (media_.size() != 0) {
    for (uint32_t word : words) media = media || key::is_media_word(word);
  }
  if (media) hold_media(words, true);
  books(cell).publish(place(cell));
  if (numbered_) draft_became_cached(tenant_index, 0);
  tree_.publish(cell, parent, up, words, media, key);
  if (tracks_contents_) policy_->inserted(cell, tree_.is_root(parent) ? kNoCell : parent, words);
  if (key != nullptr && !tree_.is_orphan(cell)) {
    events_.stored(tree_.key(parent), *key, words, cell_tokens_, index_group(),
                   words.size() < cell_tokens_);
  }
}

void Store::tell_stored(GroupIndex g, CellIndex home, bool tail) noexcept {
  if (!events_.on() || tree_.is_inner(home) || tree_.is_orphan(home)) return;
  const Group& group = *groups_[g];
  events_.stored({}, tree_.key(home), {}, group.paged() ? group.options().block_tokens : 0, g,
                 tail);
}

void Store::tell_removed(GroupIndex g, CellIndex home) noexcept {
  if (!events_.on() || tree_.is_inner(home) || tree_.is_orphan(home)) return;
  events_.removed(tree_.key(home), g);
}

void Store::absorb_tails(CellIndex cell, uint32_t tenant_index) {
  const CellIndex parent = tree_.parent(cell);
  if (!tree_.branches(parent)) return;
  scratch_.clear();
  tree_.short_prefixes(parent, {tree_.words(cell), tree_.word_count(cell)}, scratch_);
  for (size_t i = 0; i < scratch_.size(); ++i) {
    const CellIndex tail = scratch_[i];
    if (tail != cell && holds(tail) == 0) {
      known_evictable_ -= std::min<uint64_t>(known_evictable_, 1);
      policy_->remove(tail);
      if (tracks_contents_) policy_->forgotten(tail);
      free_cell(tail, tenant_index);
    }
  }
}

void Store::attach_page(GroupIndex g, CellIndex home, uint32_t page, uint32_t cells_in_block,
                        uint32_t tenant_index, Lesser lesser) {
  Group& group = *groups_[g];
  group.pool().publish(page);
  draft_became_cached(tenant_index, g);
  group.set_home(page, home);
  group.enter(home, page);
  CellIndex cell = home;
  for (uint32_t i = 1; i < cells_in_block; ++i) {
    cell = tree_.parent(cell);
    const uint32_t there = group.at(cell);
    if (there != kNoPage) {
      // A lesser part-block whose cells this one covers too.
      if (lesser == Lesser::keep || group.home(there) != cell || group.pool().pins(there) != 0) {
        continue;
      }
      detach_page(g, there, tenant_index);
    }
    group.enter(cell, page);
  }
  tell_stored(g, home, cells_in_block != group.ratio() || tree_.is_short(home));
}

void Store::detach_page(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  Group& group = *groups_[g];
  if (group.loose()) group.forget(page);
  const CellIndex home = group.home(page);
  tell_removed(g, home);
  group.erase(home);
  if (group.paged()) {
    CellIndex cell = home;
    for (uint32_t i = 1; i < group.ratio(); ++i) {
      cell = tree_.parent(cell);
      if (tree_.is_root(cell) || cell == tree_.sentinel()) break;
      if (group.at(cell) == page) refill_entry(group, cell);
    }
  }
  refund(tenant_index, g, false);
  group.pool().release(page);
  if (group.recurrent()) drop_inner_if_bare(home);
}

void Store::refill_entry(Group& group, CellIndex cell) {
  // Another block of the same span, further down another branch, covers this cell as well.
  group.erase(cell);
  for (CellIndex child = tree_.first_child(cell); child != kNoCell;
       child = tree_.next_child(child)) {
    const uint32_t page = group.at(child);
    if (page != kNoPage) {
      group.enter(cell, page);
      return;
    }
  }
}

void Store::pin_page(GroupIndex g, uint32_t page) {
  Group& group = *groups_[g];
  group.pool().pin(page);
  if (group.loose()) {
    group.stop_waiting(page);
  } else {
    ++full_pins_[g];
  }
}

void Store::unpin_page(GroupIndex g, uint32_t page, const LeaseRecord& who, uint32_t position,
                       Leaving how) {
  Group& group = *groups_[g];
  if (group.full()) --full_pins_[g];
  if (!group.loose()) {
    group.pool().unpin(page);
    return;
  }
  // What others still hold is used now, too.
  const bool cached = group.pool().is_cached(page);
  const bool last = group.pool().unpin(page);
  if (!cached) return;
  group.wait(page, touch_at(who, position, how));
  if (!last) group.stop_waiting(page);
}

Touch Store::touch_at(const LeaseRecord& who, uint32_t position, Leaving how) const {
  Retain retain = who.retain;
  retain.ranges = who.ranges;
  if (how == Leaving::passed) {
    retain.phase = SessionPhase::ended;
    retain.will_return = false;
  }
  Touch touch = retain::touch_of(retain, position, now_);
  touch.tenant = tenants_[who.tenant_index].id;
  return touch;
}

}  // namespace stemma::cache
