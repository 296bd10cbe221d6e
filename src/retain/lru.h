// LRU, deepest first: the leaf whose last use is oldest goes first, exactly, within a class.
//
// A class is (tenant, priority, session phase, time to live) of a touch. Each class is a queue, oldest
// first (and so, with one time to live, nearest deadline first), of the leaves and of the inner cells at which some use ended. A path has one entry, however
// long it is: when its leaf goes, the parent takes the leaf's place, because the use that last
// counted for the leaf is also the last that counted for the parent, unless the parent has an entry
// of its own that is better: of a higher class, or later in the same. So what counts for a cell is
// the best of the uses that ended at or below it, the latest of those that ended at one cell.
//
// While there is one class no timestamps are needed and the policy costs 8 bytes a cell. The first
// second class brings a 4-byte stamp and the queue's number per cell, by which queues are compared; the first time to live
// brings an 8-byte deadline per cell. When the system refuses that memory nobody is told no: without
// stamps, classes of equal rank go one after the other instead of by age (until there is memory);
// without deadlines, a time to live counts as over at once.
//
// Threading:  one thread at a time.
// Cost:       touch, replace, remove O(1) (touch: O(classes in use) to find its queue, cached for
//             repeats); victim O(classes in use). At most kMaxQueues classes: beyond that a new class
//             shares the queue of the same tenant that is nearest in rank, then in time to live.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/index_lists.h"
#include "base/slab.h"
#include "stemma/retention.h"

namespace stemma::retain {

class LruPolicy final : public RetentionPolicy {
 public:
  static constexpr uint32_t kMaxQueues = 256;
  static constexpr uint32_t kMaxTenants = 64;  // With quotas, besides "nobody in particular".

  // `first_stamp` lets tests start near the end of the stamps.
  explicit LruPolicy(uint32_t cells, uint32_t first_stamp = 0);
  // False when the system gave no memory; the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  std::string_view name() const noexcept override { return "lru"; }
  bool prepare(CellIndex cell) override;
  void touch(CellIndex cell, const Touch& touch) override;
  void replace(CellIndex child, CellIndex parent) override;
  void remove(CellIndex cell) override;
  bool holds(CellIndex cell) const noexcept override;
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) override;
  bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept override {
    // Without an entry of its own the parent takes the victim's place, which is the first to go.
    lists_.prefetch(ahead);
    return !lists_.linked(parent);
  }
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const override;
  uint64_t bytes() const noexcept override;
  void clear() override;
  void check_invariants() const override;

 private:
  struct Queue {
    TenantId tenant = kNoTenant;
    uint16_t rank = 0;          // Priority and phase in one number; lower goes first.
    uint16_t expired_rank = 0;  // What counts after the deadline.
    uint64_t ttl_ns = kNever;   // With a time to live, each cell has its own deadline.
    bool risen = false;  // Of cells whose time is over, where that is worth more than before.
  };

  template <class Visit>
  void for_each(uint32_t queue, Visit&& visit) const {
    for (uint32_t i = lists_.front(queue); i != base::IndexLists::kNone; i = lists_.after(i))
      visit(i);
  }
  void ensure(CellIndex cell) {
    if (cell >= covered_) [[unlikely]]
      STEMMA_CHECK(prepare(cell));
  }
  uint16_t rank_at(const Queue& queue, CellIndex cell, uint64_t now_ns) const noexcept {
    const bool over = queue.risen || (queue.ttl_ns != kNever && now_ns >= deadlines_[cell]);
    return over ? queue.expired_rank : queue.rank;
  }
  uint32_t queue_for(const Queue& wanted);
  uint32_t find_queue(const Queue& wanted);
  uint32_t add_queue(const Queue& wanted);
  void let_rise(uint32_t queue, uint64_t now_ns);
  bool matches(uint32_t queue, const Queue& wanted) const noexcept;
  bool start_stamps();
  bool start_deadlines();
  void renumber();
  uint32_t next_stamp();
  static Queue class_of(const Touch& touch) noexcept;

  uint32_t cells_;
  uint32_t covered_ = 0;  // Cells below have all the memory that is in use.
  bool ok_ = false;
  base::IndexLists lists_;          // One list per queue, oldest first.
  base::Slab<uint32_t> stamps_;     // Not reserved while there is one class.
  base::Slab<uint8_t> queue_of_;    // With stamps_.
  base::Slab<uint64_t> deadlines_;  // Not reserved while nothing has a time to live.
  std::vector<Queue> queues_;       // Never more than it has room for from the start.
  uint32_t last_queue_ = 0;
  uint32_t touches_without_stamps_ = 0;
  uint64_t now_ns_ = 0;  // Of the last victim().
  uint32_t stamp_;
};

}  // namespace stemma::retain
