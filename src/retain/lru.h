// LRU, deepest first: within a class, the leaf whose last use is oldest is evicted first, exactly.
//
// A class is the tenant and the rank (priority and session phase) of a touch. Each class is a
// queue, oldest first, of the leaves and of the inner cells at which some use ended. A path has one
// entry, however long it is: when its leaf is evicted, the parent takes the leaf's place, because
// the leaf's last use was also a use of the parent. The parent keeps its own entry if that is
// better: of a higher rank, or later in the same rank. So a cell counts by the best of the uses
// that ended at or below it; of several that ended at one cell, by the latest.
//
// A cell that came up and could not be evicted is set aside: it is in no queue. Its class and last
// use count again when everything below it is gone.
//
// There is a queue for every possible class, so classes are never merged and never run out. Times
// to live make no classes: a cell with one is in its queue and also, by deadline, in a sorted set.
// When victim() sees that the deadline has passed, the cell moves from its queue to the sorted set
// of its tenant's expired cells, ordered by new rank and last use. A deadline that has passed stays
// passed, even if a later call gives an earlier time.
//
// With only one class, no stamps are needed and the policy costs 8 bytes a cell. The second class
// adds an 8-byte stamp and a class to each cell, to compare queues; the first time to live adds the
// sorted sets. If the system refuses that memory, no call fails: without stamps, classes of equal
// rank are evicted one after the other instead of by age (until there is memory); without sorted
// sets, a time to live counts as over at once.
//
// Threading:  one thread at a time.
// Cost:       8 bytes and a bit a cell; 10 more with a second class, 26 more with a time to live;
//             2.4 KiB a tenant. touch, replace and remove are O(1), or O(log cells) if a time to
//             live is involved (a cell that comes back from aside passes those that came back
//             before it); victim is O(tenants), plus O(log cells) for each deadline that has
//             passed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/index_lists.h"
#include "base/slab.h"
#include "retain/cell_array.h"
#include "retain/ordered_cells.h"
#include "stemma/retention.h"

namespace stemma::retain {

class LruPolicy final : public RetentionPolicy {
 public:
  static constexpr uint32_t kMaxTenants = 64;  // With quotas, besides "nobody in particular".

  explicit LruPolicy(uint32_t cells);
  // False if out of memory: the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  std::string_view name() const noexcept override { return "lru"; }
  bool prepare(CellIndex cell) override;
  void touch(CellIndex cell, const Touch& touch) override;
  void replace(CellIndex child, CellIndex parent) override;
  void remove(CellIndex cell) override;
  void set_aside(CellIndex cell) override;
  // For items that many paths share (blocks of window groups, states), where a use need not end its
  // path: like touch(), but a higher priority that counts now is kept.
  void touch_shared(CellIndex cell, const Touch& touch);
  // Held and not set aside.
  bool is_queued(CellIndex cell) const noexcept {
    return lists_.linked(cell) || (timed_.contains(cell) && timed_.set_of(cell) != kWaitingAside);
  }
  // The phase that counts for a held cell; unknown if there was no memory to store it.
  SessionPhase phase_of(CellIndex cell) const noexcept {
    if (!stamps_ && touches_without_stamps_ != 0) return SessionPhase::unknown;
    return static_cast<SessionPhase>(class_of(cell) % kRanks % 3);
  }
  bool holds(CellIndex cell) const noexcept override { return is_queued(cell) || is_aside(cell); }
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) override;
  bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept override {
    // Without its own entry the parent takes the victim's place, which is first in order.
    lists_.prefetch(ahead);
    return !holds(parent);
  }
  uint32_t following(CellIndex cell, std::span<CellIndex> out) const noexcept override;
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const override;
  uint64_t bytes() const noexcept override;
  void clear() override;
  void check_invariants() const override;

 private:
  // A rank combines a priority (one above the highest for cells that will return) and a phase.
  static constexpr uint32_t kRanks = (kMaxPriority + 2U) * 3;
  static constexpr uint32_t kNoQueue = 0xFFFF'FFFFU;
  // Sets of timed_: cells with a deadline that are in a queue, those that are set aside, then each
  // tenant's cells that are sorted because they expired or came back late.
  static constexpr uint32_t kWaiting = 0;
  static constexpr uint32_t kWaitingAside = 1;
  static constexpr uint32_t kExpired = 2;

  struct Tenant {
    TenantId id = kNoTenant;
    // By rank: whether its queue may have an entry. The bit of an empty queue is cleared when seen.
    std::array<uint64_t, (kRanks + 63) / 64> filled = {};
    uint32_t aside = 0;  // How many of its cells are set aside.
  };
  // Lower goes first.
  struct Value {
    uint32_t rank;
    uint64_t stamp;
    auto operator<=>(const Value&) const = default;
  };

  static uint32_t rank_of(uint32_t priority, SessionPhase phase) noexcept;
  static uint32_t queue_of(uint32_t slot, uint32_t rank) noexcept { return slot * kRanks + rank; }
  void ensure(CellIndex cell) {
    if (cell >= covered_) [[unlikely]]
      STEMMA_CHECK(prepare(cell));
  }
  uint32_t slot_for(TenantId tenant);
  bool is_empty(uint32_t slot) const noexcept;
  // A tenant's non-empty queue of the lowest rank, or kNoQueue.
  uint32_t lowest_queue(uint32_t slot) noexcept;
  // The value of a held cell. Requires stamps_.
  Value value_of(CellIndex cell) const noexcept { return {classes_[cell] % kRanks, stamps_[cell]}; }
  // Whether every cell that is in a queue is in only_queue_.
  bool one_class() const noexcept { return !stamps_ && touches_without_stamps_ == 0; }
  // A victim from a queue, and the one after it.
  Victim front_of(CellIndex cell, TenantId tenant) const noexcept;
  bool is_aside(CellIndex cell) const noexcept {
    return cell < covered_ && (aside_[cell / 64] >> (cell % 64) & 1U) != 0;
  }
  uint32_t class_of(CellIndex cell) const noexcept {
    return stamps_ ? classes_[cell] : only_queue_;
  }
  void flip_aside(CellIndex cell) noexcept { aside_[cell / 64] ^= uint64_t{1} << (cell % 64); }
  void bring_back(CellIndex cell) noexcept;
  void link_by_stamp(CellIndex cell) noexcept;
  void take_out(CellIndex cell) noexcept;
  void expire(uint64_t now_ns) noexcept;
  bool start_stamps();
  bool start_deadlines();

  uint32_t cells_;
  uint32_t covered_ = 0;  // Cells below this have all the memory in use.
  bool ok_ = false;
  base::IndexLists lists_;        // The queues: one per tenant and rank.
  base::Slab<uint64_t> stamps_;   // Per cell: its last use. Not reserved while there is one class.
  base::Slab<uint16_t> classes_;  // Per cell: its queue, or the one it would be in.
  CellArray<uint64_t> aside_;     // A bit a cell.
  bool has_deadlines_ = false;    // Whether there is memory for the next two.
  OrderedCells timed_;            // By deadline, or by rank and stamp.
  CellArray<uint16_t> expired_ranks_;   // Ranks after the deadline, of cells that have one.
  uint64_t next_deadline_ns_ = kNever;  // No cell's deadline is earlier.
  std::vector<Tenant> tenants_;         // By slot; never exceeds its initial capacity.
  uint32_t last_slot_ = 0;
  uint32_t only_queue_ = kNoQueue;  // The only one ever used, while there are no stamps.
  uint64_t touches_without_stamps_ = 0;
  uint64_t stamp_ = 0;
};

}  // namespace stemma::retain
