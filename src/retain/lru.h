// LRU, deepest first: the leaf whose last use is oldest goes first, exactly, within a class.
//
// A class is the tenant and the rank (priority and session phase) of a touch. Each class is a queue,
// oldest first, of the leaves and of the inner cells at which some use ended. A path has one entry,
// however long it is: when its leaf goes, the parent takes the leaf's place, because the use that
// last counted for the leaf is also the last that counted for the parent, unless the parent has an
// entry of its own that is better: of a higher rank, or later in the same. So what counts for a cell
// is the best of the uses that ended at or below it, the latest of those that ended at one cell.
//
// A cell that came up and could not be evicted is set aside: it is in no queue, and what was said of it
// counts again when all below it is gone.
//
// There is a queue for every class there can be, so classes are never merged, and no history of calls
// can use them up. Times to live make no classes: a cell with one waits in its queue and, by its
// deadline, in a sorted set. When victim() sees that the deadline has passed, the cell leaves its
// queue for the sorted set of its tenant's expired cells, where it stands by its new rank and its last
// use. A deadline that has passed stays so if a later call names an earlier time.
//
// While there is one class no stamps are needed and the policy costs 8 bytes a cell. A second class
// brings an 8-byte stamp and the class of each cell, by which queues are compared; the first time to
// live brings the sorted sets. When the system refuses that memory no call fails: without stamps,
// classes of equal rank go one after the other instead of by age (until there is memory); without
// sorted sets, a time to live counts as over at once.
//
// Threading:  one thread at a time.
// Cost:       8 bytes and a bit a cell; 10 more with a second class, 26 more with a time to live; 2.4 KiB a
//             tenant. touch, replace and remove are O(1), and O(log cells) where a time to live is
//             involved (what comes back from aside passes others that did before it); victim is O(tenants), and O(log cells) for each deadline that has passed.
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
  // False when the system gave no memory; the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  std::string_view name() const noexcept override { return "lru"; }
  bool prepare(CellIndex cell) override;
  void touch(CellIndex cell, const Touch& touch) override;
  void replace(CellIndex child, CellIndex parent) override;
  void remove(CellIndex cell) override;
  void set_aside(CellIndex cell) override;
  // For what many paths use at once (blocks of window groups, states), where a use is not the end of its
  // path: as touch(), but a higher priority that counts now still counts.
  void touch_shared(CellIndex cell, const Touch& touch);
  // Held, and not set aside.
  bool is_queued(CellIndex cell) const noexcept {
    return lists_.linked(cell) || (timed_.contains(cell) && timed_.set_of(cell) != kWaitingAside);
  }
  // What counts for a cell it holds; unknown when there was no memory to note it.
  SessionPhase phase_of(CellIndex cell) const noexcept {
    if (!stamps_ && touches_without_stamps_ != 0) return SessionPhase::unknown;
    return static_cast<SessionPhase>(class_of(cell) % kRanks % 3);
  }
  bool holds(CellIndex cell) const noexcept override { return is_queued(cell) || is_aside(cell); }
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) override;
  bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept override {
    // Without an entry of its own the parent takes the victim's place, which is the first to go.
    lists_.prefetch(ahead);
    return !holds(parent);
  }
  uint32_t following(CellIndex cell, std::span<CellIndex> out) const noexcept override;
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const override;
  uint64_t bytes() const noexcept override;
  void clear() override;
  void check_invariants() const override;

 private:
  // A rank is a priority (one more than the highest for what will return) and a phase.
  static constexpr uint32_t kRanks = (kMaxPriority + 2U) * 3;
  static constexpr uint32_t kNoQueue = 0xFFFF'FFFFU;
  // Sets of timed_: cells that wait for their deadlines, in a queue or set aside, then the cells of each
  // tenant that are sorted because they expired or came back late.
  static constexpr uint32_t kWaiting = 0;
  static constexpr uint32_t kWaitingAside = 1;
  static constexpr uint32_t kExpired = 2;

  struct Tenant {
    TenantId id = kNoTenant;
    // By rank: whether its queue may have an entry. Bits of empty queues are cleared when found.
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
  // The queue of a tenant that has an entry and the lowest rank, or kNoQueue.
  uint32_t lowest_queue(uint32_t slot) noexcept;
  // What counts for a held cell. Requires stamps_.
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
  uint32_t covered_ = 0;  // Cells below have all the memory that is in use.
  bool ok_ = false;
  base::IndexLists lists_;        // The queues: of each tenant one for every rank.
  base::Slab<uint64_t> stamps_;   // When a cell was used. Not reserved while there is one class.
  base::Slab<uint16_t> classes_;  // The queue a cell is or, if it is sorted or aside, would be in.
  CellArray<uint64_t> aside_;     // A bit a cell.
  bool has_deadlines_ = false;    // Whether there is memory for the next two.
  OrderedCells timed_;            // By deadline, or by rank and stamp.
  CellArray<uint16_t> expired_ranks_;   // Of those that wait: their ranks after the deadline.
  uint64_t next_deadline_ns_ = kNever;  // No cell's deadline is earlier.
  std::vector<Tenant> tenants_;         // By slot; never more than it has room for from the start.
  uint32_t last_slot_ = 0;
  uint32_t only_queue_ = kNoQueue;  // The one that was ever used, while there are no stamps.
  uint64_t touches_without_stamps_ = 0;
  uint64_t stamp_ = 0;
};

}  // namespace stemma::retain
