#include "retain/lru.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace stemma::retain {

LruPolicy::LruPolicy(uint32_t cells) : cells_(cells) {
  tenants_.reserve(kMaxTenants + 1);
  // Reserving takes no memory yet.
  ok_ = lists_.create(cells, (kMaxTenants + 1) * kRanks, 0) &&
        timed_.create(cells, kExpired + kMaxTenants + 1) && expired_ranks_.reserve(cells) &&
        aside_.reserve(cells / 64 + 1);
}

bool LruPolicy::prepare(CellIndex cell) {
  if (cell < covered_) return true;
  // Unused slabs commit no memory.
  if (!lists_.ensure(cell)) return false;
  const uint32_t end = lists_.ensured();
  if (!stamps_.commit(covered_, end) || !classes_.commit(covered_, end)) return false;
  constexpr size_t kPage = 512;  // Words; whole pages are counted once.
  if (!aside_.commit(std::min<size_t>(cells_ / 64 + 1, (end / 64 / kPage + 1) * kPage))) {
    return false;
  }
  if (has_deadlines_ && (!timed_.commit(end) || !expired_ranks_.commit(end))) return false;
  covered_ = end;
  return true;
}

// ---- Classes -----------------------------------------------------------------------------------

uint32_t LruPolicy::rank_of(uint32_t priority, SessionPhase phase) noexcept {
  priority = std::min(priority, kMaxPriority + 1U);
  return std::min(priority * 3 + static_cast<uint32_t>(phase), kRanks - 1);
}

bool LruPolicy::is_empty(uint32_t slot) const noexcept {
  if (tenants_[slot].aside != 0 || timed_.first(kExpired + slot) != kNoCell) return false;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    if (!lists_.empty(queue_of(slot, rank))) return false;
  }
  return true;
}

uint32_t LruPolicy::slot_for(TenantId tenant) {
  if (last_slot_ < tenants_.size() && tenants_[last_slot_].id == tenant) return last_slot_;
  const auto it = std::ranges::find(tenants_, tenant, &Tenant::id);
  last_slot_ = static_cast<uint32_t>(it - tenants_.begin());
  if (it != tenants_.end()) return last_slot_;
  if (tenants_.size() <= kMaxTenants) {
    tenants_.push_back({tenant, {}});
    lists_.open(queue_of(last_slot_ + 1, 0));
    return last_slot_;
  }
  for (last_slot_ = 0; !is_empty(last_slot_); ++last_slot_) {
    STEMMA_CHECK(last_slot_ < kMaxTenants);  // A cache has no more tenants with quotas than that.
  }
  tenants_[last_slot_] = {tenant, {}};
  return last_slot_;
}

uint32_t LruPolicy::lowest_queue(uint32_t slot) noexcept {
  auto& filled = tenants_[slot].filled;
  for (uint32_t word = 0; word < filled.size(); ++word) {
    for (; filled[word] != 0; filled[word] &= filled[word] - 1) {
      const uint32_t rank = word * 64 + static_cast<uint32_t>(std::countr_zero(filled[word]));
      if (!lists_.empty(queue_of(slot, rank))) return queue_of(slot, rank);
    }
  }
  return kNoQueue;
}

bool LruPolicy::start_stamps() {
  base::Slab<uint64_t> stamps;
  base::Slab<uint16_t> classes;
  if (!stamps.reserve(cells_) || !stamps.commit(0, covered_) || !classes.reserve(cells_) ||
      !classes.commit(0, covered_)) {
    return false;
  }
  // Cells that were set aside came up before all cells in a queue.
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    if (!is_aside(cell)) continue;
    stamps[cell] = ++stamp_;
    classes[cell] = static_cast<uint16_t>(only_queue_);
  }
  stamps_ = std::move(stamps);
  classes_ = std::move(classes);
  // Each queue is in order; there is more than one only if memory was refused before.
  for (uint32_t q = 0; q < lists_.opened(); ++q) {
    lists_.for_each(q, [&](CellIndex cell) {
      stamps_[cell] = ++stamp_;
      classes_[cell] = static_cast<uint16_t>(q);
    });
  }
  return true;
}

bool LruPolicy::start_deadlines() {
  if (has_deadlines_) return true;
  if (!stamps_ && !start_stamps()) return false;
  has_deadlines_ = timed_.commit(covered_) && expired_ranks_.commit(covered_);
  return has_deadlines_;
}

void LruPolicy::expire(uint64_t now_ns) noexcept {
  if (now_ns < next_deadline_ns_) return;
  next_deadline_ns_ = kNever;
  for (const uint32_t set : {kWaiting, kWaitingAside}) {
    for (;;) {
      const CellIndex cell = timed_.first(set);
      if (cell == kNoCell) break;
      if (now_ns < timed_.key(cell)) {
        next_deadline_ns_ = std::min(next_deadline_ns_, timed_.key(cell));
        break;
      }
      const uint32_t slot = classes_[cell] / kRanks;
      classes_[cell] = static_cast<uint16_t>(queue_of(slot, expired_ranks_[cell]));
      timed_.erase(cell);
      if (set == kWaitingAside) continue;
      lists_.unlink(cell);
      timed_.insert(kExpired + slot, cell, expired_ranks_[cell], stamps_[cell]);
    }
  }
}

// ---- What the cache calls ----------------------------------------------------------------------

void LruPolicy::take_out(CellIndex cell) noexcept {
  if (lists_.linked(cell)) lists_.unlink(cell);
  if (timed_.contains(cell)) timed_.erase(cell);
  if (!is_aside(cell)) return;
  flip_aside(cell);
  --tenants_[class_of(cell) / kRanks].aside;
}

void LruPolicy::set_aside(CellIndex cell) {
  if (!is_queued(cell)) return;
  const bool waits = timed_.contains(cell) && timed_.set_of(cell) == kWaiting;
  const uint64_t deadline_ns = waits ? timed_.key(cell) : kNever;
  take_out(cell);
  // Without memory for stamps, nobody knows which of several queues it was in.
  if (!stamps_ && touches_without_stamps_ != 0) return;
  flip_aside(cell);
  ++tenants_[class_of(cell) / kRanks].aside;
  if (waits) timed_.insert(kWaitingAside, cell, 0, deadline_ns);
}

// Puts a cell that was set aside back in its place. Requires stamps_.
void LruPolicy::bring_back(CellIndex cell) noexcept {
  const bool waits = timed_.contains(cell);
  const uint64_t deadline_ns = waits ? timed_.key(cell) : kNever;
  take_out(cell);
  const uint32_t slot = classes_[cell] / kRanks;
  const uint32_t rank = classes_[cell] % kRanks;
  if (!waits && has_deadlines_) {
    timed_.insert(kExpired + slot, cell, static_cast<uint16_t>(rank), stamps_[cell]);
    return;
  }
  link_by_stamp(cell);
  if (waits) timed_.insert(kWaiting, cell, 0, deadline_ns);
}

void LruPolicy::link_by_stamp(CellIndex cell) noexcept {
  // It was the oldest of its queue when set aside: only others that came back are before it.
  const uint32_t q = classes_[cell];
  const uint32_t rank = q % kRanks;
  tenants_[q / kRanks].filled[rank / 64] |= uint64_t{1} << (rank % 64);
  uint32_t at = lists_.front(q);
  while (at != base::IndexLists::kNone && stamps_[at] < stamps_[cell]) at = lists_.after(at);
  if (at == base::IndexLists::kNone) {
    lists_.push_back(q, cell);
  } else {
    lists_.insert_before(at, cell);
  }
}

void LruPolicy::touch(CellIndex cell, const Touch& touch) {
  ensure(cell);
  uint32_t rank = rank_of(touch.will_return ? kMaxPriority + 1U : touch.priority, touch.phase);
  const uint32_t expired_rank = rank_of(touch.expired_priority, touch.expired_phase);
  bool timed = touch.deadline_ns != kNever && expired_rank != rank;
  if (timed && !start_deadlines()) {
    rank = expired_rank;
    timed = false;
  }
  const uint32_t slot = slot_for(touch.tenant);
  const uint32_t q = queue_of(slot, rank);
  if (!stamps_) {
    if (only_queue_ == kNoQueue) only_queue_ = q;
    if (q != only_queue_ && touches_without_stamps_++ % 256 == 0) (void)start_stamps();
  }
  take_out(cell);
  lists_.push_back(q, cell);
  tenants_[slot].filled[rank / 64] |= uint64_t{1} << (rank % 64);
  if (stamps_) {
    stamps_[cell] = ++stamp_;
    classes_[cell] = static_cast<uint16_t>(q);
  }
  if (!timed) return;
  expired_ranks_[cell] = static_cast<uint16_t>(expired_rank);
  timed_.insert(kWaiting, cell, 0, touch.deadline_ns);
  next_deadline_ns_ = std::min(next_deadline_ns_, touch.deadline_ns);
}

void LruPolicy::touch_shared(CellIndex cell, const Touch& use) {
  expire(use.now_ns);
  // Without memory for stamps, nobody knows which of several queues it was in.
  const bool known = holds(cell) && (stamps_ || touches_without_stamps_ == 0);
  const uint32_t q = known ? class_of(cell) : 0;
  const uint32_t priority = q % kRanks / 3;
  // A use that will return does so only once, so its class does not last.
  if (!known || use.will_return || priority > kMaxPriority || priority <= use.priority) {
    touch(cell, use);
    return;
  }
  const bool waits = timed_.contains(cell) && timed_.set_of(cell) <= kWaitingAside;
  const uint64_t deadline_ns = waits ? timed_.key(cell) : kNever;
  take_out(cell);
  lists_.push_back(q, cell);
  tenants_[q / kRanks].filled[q % kRanks / 64] |= uint64_t{1} << (q % kRanks % 64);
  if (stamps_) stamps_[cell] = ++stamp_;
  if (waits) timed_.insert(kWaiting, cell, 0, deadline_ns);
}

void LruPolicy::replace(CellIndex child, CellIndex parent) {
  if (!is_queued(child)) return;
  ensure(parent);
  if (holds(parent)) {
    // With one class the child is the oldest entry of all when it is evicted. The parent's is
    // later, unless it came up before the child and was set aside.
    if (stamps_ ? value_of(parent) >= value_of(child) : !is_aside(parent)) {
      take_out(child);
      if (is_aside(parent)) bring_back(parent);
      return;
    }
    take_out(parent);
  }
  if (lists_.linked(child)) lists_.take_place(child, parent);
  if (stamps_) {
    stamps_[parent] = stamps_[child];
    classes_[parent] = classes_[child];
  }
  if (!timed_.contains(child)) return;
  expired_ranks_[parent] = expired_ranks_[child];
  timed_.insert(timed_.set_of(child), parent, timed_.rank(child), timed_.key(child));
  timed_.erase(child);
}

void LruPolicy::remove(CellIndex cell) { take_out(cell); }

Victim LruPolicy::front_of(CellIndex cell, TenantId tenant) const noexcept {
  const uint32_t following = lists_.after(cell);
  if (following == base::IndexLists::kNone) return {cell, tenant};
  lists_.prefetch(following);
  return {cell, tenant, following};
}

Victim LruPolicy::victim(uint64_t now_ns, bool only_tenant, TenantId tenant) {
  if (one_class()) {
    if (tenants_.empty()) return {};
    const TenantId whose = tenants_[only_queue_ / kRanks].id;
    const uint32_t cell = lists_.front(only_queue_);
    if (cell == base::IndexLists::kNone || (only_tenant && whose != tenant)) return {};
    return front_of(cell, whose);
  }
  expire(now_ns);
  Victim best;
  Value least = {};
  const auto offer = [&](CellIndex cell, uint32_t rank, TenantId whose) {
    const Value value = {rank, stamps_ ? stamps_[cell] : 0};
    if (best.cell != kNoCell && value >= least) return;
    best = {cell, whose};
    least = value;
  };
  for (uint32_t slot = 0; slot < tenants_.size(); ++slot) {
    const TenantId whose = tenants_[slot].id;
    if (only_tenant && whose != tenant) continue;
    const uint32_t q = lowest_queue(slot);
    if (q != kNoQueue) offer(lists_.front(q), q % kRanks, whose);
    const CellIndex expired = timed_.first(kExpired + slot);
    if (expired != kNoCell) offer(expired, timed_.rank(expired), whose);
  }
  if (best.cell == kNoCell || !lists_.linked(best.cell)) return best;
  return front_of(best.cell, best.tenant);
}

uint32_t LruPolicy::following(CellIndex cell, std::span<CellIndex> out) const noexcept {
  if (!lists_.linked(cell)) return 0;
  uint32_t count = 0;
  for (uint32_t next = lists_.after(cell); count < out.size(); next = lists_.after(next)) {
    if (next == base::IndexLists::kNone) break;
    out[count++] = next;
  }
  return count;
}

// ---- Looking -----------------------------------------------------------------------------------

void LruPolicy::order(uint64_t now_ns, std::vector<CellIndex>& out) const {
  struct Entry {
    Value value;
    size_t place;  // In its queue; with one class there are no stamps.
    CellIndex cell;
  };
  std::vector<Entry> entries;
  const auto add = [&](CellIndex cell, uint32_t rank) {
    entries.push_back({{rank, stamps_ ? stamps_[cell] : 0}, entries.size(), cell});
  };
  for (uint32_t q = 0; q < lists_.opened(); ++q) {
    lists_.for_each(q, [&](CellIndex cell) {
      const bool over = timed_.contains(cell) && now_ns >= timed_.key(cell);
      add(cell, over ? expired_ranks_[cell] : q % kRanks);
    });
  }
  for (CellIndex cell = 0; has_deadlines_ && cell < covered_; ++cell) {
    if (timed_.contains(cell) && !lists_.linked(cell) && !is_aside(cell)) {
      add(cell, timed_.rank(cell));
    }
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::tuple(e.value, e.place); });
  for (const Entry& entry : entries) out.push_back(entry.cell);
}

uint64_t LruPolicy::bytes() const noexcept {
  return lists_.bytes() + stamps_.bytes() + classes_.bytes() + timed_.bytes() +
         expired_ranks_.bytes() + aside_.bytes() + tenants_.capacity() * sizeof(Tenant) +
         sizeof(*this);
}

void LruPolicy::clear() {
  for (uint32_t q = 0; q < lists_.opened(); ++q) {
    while (!lists_.empty(q)) lists_.unlink(lists_.front(q));
  }
  timed_.clear();
  for (CellIndex cell = 0; cell < covered_; ++cell) take_out(cell);
}

void LruPolicy::check_invariants() const {
  const uint64_t listed = lists_.check_invariants();
  const uint64_t timed = timed_.check_invariants();
  uint64_t seen = 0;
  for (uint32_t q = 0; q < lists_.opened(); ++q) {
    const uint32_t rank = q % kRanks;
    const auto& filled = tenants_[q / kRanks].filled;
    STEMMA_CHECK(lists_.empty(q) || (filled[rank / 64] >> (rank % 64) & 1U) != 0);
    uint64_t last = 0;
    lists_.for_each(q, [&](CellIndex cell) {
      ++seen;
      if (timed_.contains(cell)) {
        STEMMA_CHECK(timed_.set_of(cell) == kWaiting && timed_.key(cell) >= next_deadline_ns_);
      }
      if (!stamps_) return;
      STEMMA_CHECK(stamps_[cell] > last && stamps_[cell] <= stamp_ && classes_[cell] == q);
      last = stamps_[cell];
    });
  }
  STEMMA_CHECK(seen == listed);
  uint64_t aside = 0;
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    if (!is_aside(cell)) continue;
    ++aside;
    STEMMA_CHECK(!lists_.linked(cell) && (!timed_.contains(cell) || !is_queued(cell)));
  }
  for (const Tenant& tenant : tenants_) aside -= tenant.aside;
  STEMMA_CHECK(aside == 0);
  if (timed == 0) return;
  for (CellIndex cell = 0; cell < covered_; ++cell) {
    if (!timed_.contains(cell) || lists_.linked(cell) || is_aside(cell)) continue;
    // Expired: in its tenant's set, by its rank and stamp.
    STEMMA_CHECK(timed_.set_of(cell) == kExpired + classes_[cell] / kRanks);
    STEMMA_CHECK(timed_.rank(cell) == classes_[cell] % kRanks && timed_.key(cell) == stamps_[cell]);
  }
}

}  // namespace stemma::retain
