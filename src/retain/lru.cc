#include "retain/lru.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace stemma::retain {

LruPolicy::LruPolicy(uint32_t cells, uint32_t first_stamp) : cells_(cells), stamp_(first_stamp) {
  ok_ = lists_.create(cells, kMaxQueues);
  queues_.reserve(kMaxQueues);
}

bool LruPolicy::prepare(CellIndex cell) {
  if (cell < covered_) return true;
  // Slabs that are not in use commit nothing.
  if (!lists_.ensure(cell)) return false;
  const uint32_t end = lists_.ensured();
  if (!stamps_.commit(covered_, end) || !queue_of_.commit(covered_, end) ||
      !deadlines_.commit(covered_, end)) {
    return false;
  }
  covered_ = end;
  return true;
}

bool LruPolicy::holds(CellIndex cell) const noexcept { return lists_.linked(cell); }

LruPolicy::Queue LruPolicy::class_of(const Touch& touch) noexcept {
  const auto rank = [](uint32_t priority, SessionPhase phase) {
    return static_cast<uint16_t>(priority * 3 + static_cast<uint32_t>(phase));
  };
  return {touch.tenant, rank(touch.will_return ? kMaxPriority + 1U : touch.priority, touch.phase),
          rank(touch.expired_priority, touch.expired_phase),
          touch.deadline_ns == kNever
              ? kNever
              : touch.deadline_ns - std::min(touch.now_ns, touch.deadline_ns),
          false};
}

bool LruPolicy::matches(uint32_t queue, const Queue& wanted) const noexcept {
  const Queue& q = queues_[queue];
  return q.tenant == wanted.tenant && q.rank == wanted.rank && q.risen == wanted.risen &&
         q.ttl_ns == wanted.ttl_ns && (q.ttl_ns == kNever || q.expired_rank == wanted.expired_rank);
}

uint32_t LruPolicy::queue_for(const Queue& wanted) {
  if (last_queue_ < queues_.size() && matches(last_queue_, wanted)) return last_queue_;
  return last_queue_ = find_queue(wanted);
}

uint32_t LruPolicy::find_queue(const Queue& wanted) {
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    if (matches(q, wanted)) return q;
  }
  return add_queue(wanted);
}

void LruPolicy::let_rise(uint32_t queue, uint64_t now_ns) {
  // Where the end of its time makes a cell worth more, it must not hide those behind it that still
  // wait for theirs: it moves to a queue of its own kind, in the same order.
  while (!lists_.empty(queue) && now_ns >= deadlines_[lists_.front(queue)]) {
    Queue risen = queues_[queue];
    risen.risen = true;
    const uint32_t to = find_queue(risen);
    if (!matches(to, risen)) return;  // Out of queues: they wait where they are.
    const CellIndex cell = lists_.front(queue);
    lists_.unlink(cell);
    lists_.push_back(to, cell);
    if (stamps_) queue_of_[cell] = static_cast<uint8_t>(to);
  }
}

uint32_t LruPolicy::add_queue(const Queue& wanted) {
  bool tenant_known = false;
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    if (lists_.empty(q)) {
      queues_[q] = wanted;
      return q;
    }
    tenant_known = tenant_known || queues_[q].tenant == wanted.tenant;
  }
  // The last queues are kept for tenants that have none yet: a tenant's cells are never in another
  // tenant's queue.
  if (queues_.size() < (tenant_known ? kMaxQueues - kMaxTenants : kMaxQueues)) {
    const auto q = static_cast<uint32_t>(queues_.size());
    queues_.push_back(wanted);
    if (q == 1) (void)start_stamps();
    return q;
  }
  // Full: share a queue of the tenant, of the nearest rank, then of the nearest time to live.
  STEMMA_CHECK(tenant_known);
  const auto distance = [&](const Queue& q) {
    const uint32_t rank = q.rank > wanted.rank ? q.rank - wanted.rank : wanted.rank - q.rank;
    const bool forever = (q.ttl_ns == kNever) != (wanted.ttl_ns == kNever);
    return std::tuple(forever, rank,
                      std::max(q.ttl_ns, wanted.ttl_ns) - std::min(q.ttl_ns, wanted.ttl_ns));
  };
  uint32_t best = kMaxQueues;
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    if (queues_[q].tenant != wanted.tenant) continue;
    if (best == kMaxQueues || distance(queues_[q]) < distance(queues_[best])) best = q;
  }
  return best;
}

bool LruPolicy::start_stamps() {
  base::Slab<uint32_t> stamps;
  base::Slab<uint8_t> queue_of;
  if (!stamps.reserve(cells_) || !stamps.commit(0, covered_) || !queue_of.reserve(cells_) ||
      !queue_of.commit(0, covered_)) {
    return false;
  }
  stamps_ = std::move(stamps);
  queue_of_ = std::move(queue_of);
  // Each queue is already in order; there is more than one only if memory was refused before.
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    for_each(q, [&](CellIndex cell) {
      stamps_[cell] = next_stamp();
      queue_of_[cell] = static_cast<uint8_t>(q);
    });
  }
  return true;
}

bool LruPolicy::start_deadlines() {
  base::Slab<uint64_t> deadlines;
  if (!deadlines.reserve(cells_) || !deadlines.commit(0, covered_)) return false;
  deadlines_ = std::move(deadlines);
  return true;
}

uint32_t LruPolicy::next_stamp() {
  if (stamp_ == 0xFFFF'FFFFU) renumber();
  return stamp_++;
}

void LruPolicy::renumber() {
  // Once in four billion touches: all cells, in the order of their stamps, get small new ones. Every
  // queue is in that order, so they are merged; a touch may not need memory.
  std::array<CellIndex, kMaxQueues> next;
  for (uint32_t q = 0; q < queues_.size(); ++q) next[q] = lists_.front(q);
  for (stamp_ = 0;; ++stamp_) {
    uint32_t oldest = kMaxQueues;
    for (uint32_t q = 0; q < queues_.size(); ++q) {
      if (next[q] == base::IndexLists::kNone) continue;
      if (oldest == kMaxQueues || stamps_[next[q]] < stamps_[next[oldest]]) oldest = q;
    }
    if (oldest == kMaxQueues) return;
    const CellIndex cell = next[oldest];
    next[oldest] = lists_.after(cell);
    stamps_[cell] = stamp_;
  }
}

void LruPolicy::touch(CellIndex cell, const Touch& touch) {
  ensure(cell);
  Queue wanted = class_of(touch);
  if (wanted.ttl_ns != kNever && !deadlines_ && !start_deadlines()) {
    wanted.rank = wanted.expired_rank;
    wanted.ttl_ns = kNever;
  }
  if (!stamps_ && queues_.size() > 1 && ++touches_without_stamps_ % 256 == 0) (void)start_stamps();
  const uint32_t q = queue_for(wanted);
  if (lists_.linked(cell)) lists_.unlink(cell);
  const uint32_t stamp = stamps_ ? next_stamp() : 0;
  lists_.push_back(q, cell);
  if (stamps_) {
    stamps_[cell] = stamp;
    queue_of_[cell] = static_cast<uint8_t>(q);
  }
  if (queues_[q].ttl_ns != kNever) deadlines_[cell] = touch.deadline_ns;
}

void LruPolicy::replace(CellIndex child, CellIndex parent) {
  if (!lists_.linked(child)) return;
  ensure(parent);
  const bool held = lists_.linked(parent);
  if (held) {
    // With one class the child is the oldest entry of all when it is evicted: the parent's is later.
    const auto value = [&](CellIndex cell) {
      return std::pair(rank_at(queues_[queue_of_[cell]], cell, now_ns_), stamps_[cell]);
    };
    if (!stamps_ || value(parent) >= value(child)) {
      lists_.unlink(child);
      return;
    }
  }
  if (held) lists_.unlink(parent);
  lists_.take_place(child, parent);
  if (stamps_) {
    stamps_[parent] = stamps_[child];
    queue_of_[parent] = queue_of_[child];
  }
  if (deadlines_) deadlines_[parent] = deadlines_[child];
}

void LruPolicy::remove(CellIndex cell) {
  if (lists_.linked(cell)) lists_.unlink(cell);
}

Victim LruPolicy::victim(uint64_t now_ns, bool only_tenant, TenantId tenant) {
  now_ns_ = now_ns;
  if (queues_.size() == 1 && !only_tenant && queues_[0].ttl_ns == kNever) {
    const CellIndex cell = lists_.front(0);
    if (cell == base::IndexLists::kNone) return {};
    const uint32_t following = lists_.after(cell);
    if (following == base::IndexLists::kNone) return {cell, queues_[0].tenant};
    lists_.prefetch(following);
    return {cell, queues_[0].tenant, following};
  }
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    const Queue& queue = queues_[q];
    if (queue.ttl_ns != kNever && !queue.risen && queue.expired_rank > queue.rank)
      let_rise(q, now_ns);
  }
  uint32_t best = kMaxQueues;
  uint32_t best_rank = 0;
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    const Queue& queue = queues_[q];
    if (lists_.empty(q) || (only_tenant && queue.tenant != tenant)) continue;
    const uint32_t rank = rank_at(queue, lists_.front(q), now_ns);
    if (best == kMaxQueues || rank < best_rank ||
        (rank == best_rank && stamps_ && stamps_[lists_.front(q)] < stamps_[lists_.front(best)])) {
      best = q;
      best_rank = rank;
    }
  }
  if (best == kMaxQueues) return {};
  const CellIndex cell = lists_.front(best);
  const uint32_t following = lists_.after(cell);
  if (following != base::IndexLists::kNone) lists_.prefetch(following);
  return {cell, queues_[best].tenant};
}

void LruPolicy::order(uint64_t now_ns, std::vector<CellIndex>& out) const {
  struct Entry {
    uint16_t rank;
    uint32_t stamp;
    size_t place;  // In its queue; with one class there are no stamps.
    CellIndex cell;
  };
  std::vector<Entry> entries;
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    for_each(q, [&](CellIndex cell) {
      entries.push_back(
          {rank_at(queues_[q], cell, now_ns), stamps_ ? stamps_[cell] : 0, entries.size(), cell});
    });
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.rank, a.stamp, a.place) < std::tuple(b.rank, b.stamp, b.place);
  });
  for (const Entry& entry : entries) out.push_back(entry.cell);
}

uint64_t LruPolicy::bytes() const noexcept {
  return lists_.bytes() + stamps_.bytes() + queue_of_.bytes() + deadlines_.bytes() +
         queues_.capacity() * sizeof(Queue) + sizeof(*this);
}

void LruPolicy::clear() {
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    while (!lists_.empty(q)) lists_.unlink(lists_.front(q));
  }
}

void LruPolicy::check_invariants() const {
  lists_.check_invariants();
  if (!stamps_) return;
  for (uint32_t q = 0; q < queues_.size(); ++q) {
    uint32_t last = 0;
    for_each(q, [&](CellIndex cell) {
      STEMMA_CHECK(stamps_[cell] >= last);
      last = stamps_[cell];
    });
  }
}

}  // namespace stemma::retain
