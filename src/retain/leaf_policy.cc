#include "retain/leaf_policy.h"

#include <algorithm>

#include "base/check.h"
#include "base/slab.h"

namespace stemma::retain {
namespace {

constexpr uint16_t rank_of(uint32_t priority, SessionPhase phase) {
  return static_cast<uint16_t>(priority * 3 + static_cast<uint32_t>(phase));
}

uint32_t mix(uint32_t print, uint32_t word) {
  uint64_t mixed = (uint64_t{print} << 32U | word) * 0xFF51'AFD7'ED55'8CCDU;
  mixed ^= mixed >> 33U;
  mixed *= 0xC4CE'B9FE'1A85'EC53U;
  return static_cast<uint32_t>(mixed >> 32U);
}

}  // namespace

LeafPolicy::LeafPolicy(uint32_t cells, uint32_t segments) : cells_(cells), segments_(segments) {
  tenants_.reserve(kMaxTenants + 1);
  // Reserving takes no memory yet.
  ok_ = blocks_.reserve(cells) && held_.create(cells, (kMaxTenants + 1) * sets_a_slot()) &&
        deadlines_.create(cells, 1) && expired_ranks_.reserve(cells);
}

bool LeafPolicy::prepare(CellIndex cell) {
  if (cell < covered_) return true;
  base::Growth growth(0, cells_);
  growth.advance(covered_);
  const size_t end = growth.next(cell);
  if (!blocks_.commit(end) || !held_.commit(end)) return false;
  if (timed_ && (!deadlines_.commit(end) || !expired_ranks_.commit(end))) return false;
  covered_ = end;
  return true;
}

// ---- Histories ---------------------------------------------------------------------------------

void LeafPolicy::inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) {
  if (cell >= covered_) STEMMA_CHECK(prepare(cell));
  Block& b = blocks_[cell];
  const bool below_a_block = parent < covered_ && blocks_[parent].cached;
  b = {};
  b.born = next_time();
  b.parent = below_a_block ? parent : kNoCell;
  b.depth = below_a_block ? blocks_[parent].depth + 1 : 1;
  b.print = below_a_block ? blocks_[parent].print : parent;
  for (const uint32_t word : words) b.print = mix(b.print, word);
  b.cached = true;
  b.fresh = true;
  if (below_a_block && ++blocks_[parent].children == 1) settle(parent);
  on_inserted(cell);
}

void LeafPolicy::evicted(CellIndex cell) {
  if (cell >= covered_ || !blocks_[cell].cached) return;
  on_evicted(cell);
  on_gone(cell);
  if (blocks_[cell].parent != kNoCell) {
    leave_history(cell, blocks_[cell].parent);
    left_ = cell;
  }
  leave_parent(cell);
}

void LeafPolicy::forgotten(CellIndex cell) {
  if (cell >= covered_ || !blocks_[cell].cached) return;
  on_gone(cell);
  leave_parent(cell);
}

void LeafPolicy::leave_parent(CellIndex cell) noexcept {
  blocks_[cell].cached = false;
  const CellIndex parent = blocks_[cell].parent;
  if (parent == kNoCell || blocks_[parent].children == 0) return;
  --blocks_[parent].children;
  if (blocks_[parent].children == 0) settle(parent);
}

// A held cell became a leaf, or stopped being one.
void LeafPolicy::settle(CellIndex cell) noexcept {
  if (held_.contains(cell) && !is_aside(cell)) hold(cell, class_of(cell));
}

void LeafPolicy::leave_history(CellIndex child, CellIndex parent) noexcept {
  const Block& from = blocks_[child];
  Block& to = blocks_[parent];
  to.previous = std::max({std::min(from.last, to.last), from.previous, to.previous});
  to.last = std::max(from.last, to.last);
  to.uses = static_cast<uint16_t>(std::min<uint32_t>(kManyUses, uint32_t{from.uses} + to.uses));
}

void LeafPolicy::use(CellIndex cell) noexcept {
  Block& end = blocks_[cell];
  if (!end.cached && !held_.contains(cell)) end = {};  // Its insertion was never reported.
  if (!end.cached && end.uses == 0) {
    end.fresh = true;
    end.parent = kNoCell;
    end.born = next_time();
  }
  end.previous = end.last;
  end.last = next_time();
  end.uses = static_cast<uint16_t>(std::min<uint32_t>(kManyUses, end.uses + 1U));
  CellIndex at = cell;
  for (; at != kNoCell && blocks_[at].fresh; at = blocks_[at].parent) blocks_[at].fresh = false;
  for (; at != kNoCell && !blocks_[at].again; at = blocks_[at].parent) {
    blocks_[at].again = true;
    on_reused(at);
  }
  on_used(cell);
}

// ---- Classes -----------------------------------------------------------------------------------

uint32_t LeafPolicy::slot_for(TenantId tenant) noexcept {
  uint32_t empty = kMaxTenants + 1;
  for (uint32_t slot = 0; slot < tenants_.size(); ++slot) {
    if (tenants_[slot] == tenant) return slot;
    bool used = false;
    for (uint32_t s = 0; s < sets_a_slot(); ++s) {
      used = used || held_.first(set_of(slot, s)) != kNoCell;
    }
    if (!used) empty = slot;
  }
  if (tenants_.size() < kMaxTenants + 1) {
    tenants_.push_back(tenant);
    return static_cast<uint32_t>(tenants_.size() - 1);
  }
  STEMMA_CHECK(empty <= kMaxTenants);  // A cache has no more tenants with quotas than that.
  tenants_[empty] = tenant;
  return empty;
}

bool LeafPolicy::start_deadlines() {
  timed_ = timed_ || (deadlines_.commit(covered_) && expired_ranks_.commit(covered_));
  return timed_;
}

LeafPolicy::Class LeafPolicy::class_of(CellIndex cell) const noexcept {
  const bool timed = deadlines_.contains(cell);
  return {held_.rank(cell), timed ? expired_ranks_[cell] : held_.rank(cell), slot_of(cell),
          timed ? deadlines_.key(cell) : kNever};
}

void LeafPolicy::hold(CellIndex cell, Class which) noexcept {
  let_go(cell);
  if (which.deadline_ns != kNever && which.expired_rank != which.rank) {
    if (start_deadlines()) {
      expired_ranks_[cell] = which.expired_rank;
      deadlines_.insert(0, cell, 0, which.deadline_ns);
    } else {
      which.rank = which.expired_rank;
    }
  }
  const Place where = blocks_[cell].children == 0 ? place(cell) : Place{segments_, 0};
  held_.insert(set_of(which.slot, where.segment), cell, which.rank, where.key);
}

void LeafPolicy::let_go(CellIndex cell) noexcept {
  if (!held_.contains(cell)) return;
  held_.erase(cell);
  if (deadlines_.contains(cell)) deadlines_.erase(cell);
}

void LeafPolicy::put(CellIndex cell, const Place& where) noexcept {
  if (is_aside(cell)) return;
  const uint32_t slot = slot_of(cell);
  const uint16_t rank = held_.rank(cell);
  held_.erase(cell);
  held_.insert(set_of(slot, where.segment), cell, rank, where.key);
}

void LeafPolicy::expire(uint64_t now_ns) noexcept {
  for (;;) {
    const CellIndex cell = deadlines_.first(0);
    if (cell == kNoCell || deadlines_.key(cell) > now_ns) return;
    deadlines_.erase(cell);
    const uint32_t set = held_.set_of(cell);
    const uint64_t key = held_.key(cell);
    held_.erase(cell);
    held_.insert(set, cell, expired_ranks_[cell], key);
  }
}

// ---- What the cache calls ----------------------------------------------------------------------

void LeafPolicy::touch(CellIndex cell, const Touch& touch) {
  if (cell >= covered_) STEMMA_CHECK(prepare(cell));
  use(cell);
  hold(cell, {rank_of(touch.will_return ? kMaxPriority + 1U : touch.priority, touch.phase),
              rank_of(touch.expired_priority, touch.expired_phase), slot_for(touch.tenant),
              touch.deadline_ns});
}

void LeafPolicy::replace(CellIndex child, CellIndex parent) {
  if (!held_.contains(child)) return;
  if (parent >= covered_) STEMMA_CHECK(prepare(parent));
  if (left_ != child) {
    if (!blocks_[parent].cached && !held_.contains(parent)) {
      blocks_[parent] = {};
      blocks_[parent].parent = kNoCell;
    }
    leave_history(child, parent);
  }
  left_ = kNoCell;
  blocks_[parent].children = 0;
  Class which = class_of(child);
  if (held_.contains(parent) && held_.rank(parent) >= which.rank) which = class_of(parent);
  let_go(child);
  hold(parent, which);
}

void LeafPolicy::remove(CellIndex cell) {
  if (held_.contains(cell)) let_go(cell);
}

void LeafPolicy::set_aside(CellIndex cell) {
  if (!held_.contains(cell)) return;
  const uint32_t slot = slot_of(cell);
  const uint16_t rank = held_.rank(cell);
  held_.erase(cell);
  held_.insert(set_of(slot, segments_ + 1), cell, rank, 0);
}

CellIndex LeafPolicy::Choice::first(uint32_t segment, uint64_t from) const noexcept {
  CellIndex best = kNoCell;
  const OrderedCells& held = policy_.held_;
  for (uint32_t slot = first_slot_; slot < end_slot_; ++slot) {
    const CellIndex cell = held.first_from(policy_.set_of(slot, segment), rank_, from);
    if (cell == kNoCell || held.rank(cell) != rank_) continue;
    if (best == kNoCell || held.key(cell) < held.key(best)) best = cell;
  }
  return best;
}

Victim LeafPolicy::victim(uint64_t now_ns, bool only_tenant, TenantId tenant) {
  expire(now_ns);
  Choice choice(*this, 0, static_cast<uint32_t>(tenants_.size()));
  if (only_tenant) {
    const auto it = std::find(tenants_.begin(), tenants_.end(), tenant);
    if (it == tenants_.end()) return {};
    choice.first_slot_ = static_cast<uint32_t>(it - tenants_.begin());
    choice.end_slot_ = choice.first_slot_ + 1;
  }
  CellIndex leaf = kNoCell;  // The one of the lowest rank.
  CellIndex inner = kNoCell;
  for (uint32_t set = set_of(choice.first_slot_, 0); set < set_of(choice.end_slot_, 0); ++set) {
    const CellIndex cell = held_.first(set);
    if (cell == kNoCell || is_aside(cell)) continue;
    CellIndex& lowest = is_inner(cell) ? inner : leaf;
    if (lowest == kNoCell || held_.rank(cell) < held_.rank(lowest)) lowest = cell;
  }
  if (leaf == kNoCell && inner == kNoCell) return {};
  if (leaf == kNoCell) return {inner, tenants_[slot_of(inner)]};
  choice.rank_ = held_.rank(leaf);
  const CellIndex cell = choose(choice);
  return {cell, tenants_[slot_of(cell)]};
}

void LeafPolicy::order(uint64_t now_ns, std::vector<CellIndex>& out) const {
  const std::unique_ptr<LeafPolicy> twin = copy();
  for (;;) {
    const CellIndex cell = twin->victim(now_ns, false, kNoTenant).cell;
    if (cell == kNoCell) return;
    out.push_back(cell);
    twin->remove(cell);
  }
}

uint64_t LeafPolicy::bytes() const noexcept {
  return blocks_.bytes() + held_.bytes() + deadlines_.bytes() + expired_ranks_.bytes() +
         tenants_.capacity() * sizeof(TenantId);
}

void LeafPolicy::clear() {
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    if (blocks_[cell].cached) on_gone(cell);
    blocks_[cell] = {};
  }
  held_.clear();
  deadlines_.clear();
}

void LeafPolicy::check_invariants() const {
  held_.check_invariants();
  deadlines_.check_invariants();
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    if (deadlines_.contains(cell)) STEMMA_CHECK(held_.contains(cell));
  }
}

}  // namespace stemma::retain
