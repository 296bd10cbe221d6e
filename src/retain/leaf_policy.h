// A LeafPolicy is the common part of the classical policies. They judge single blocks by when and
// how often these were used, but here only leaves can be evicted.
//
// Uses. A lease uses every block of its path, but the policy gets one touch, at the path's end. So
// a block's own history counts only uses that ended at it, and an evicted block passes its history
// to its parent: when a block becomes a leaf, it has received the uses of all blocks that stood
// below it, so its history is exact. Whether a block was used again after it was inserted is always
// known: a touch walks up over new blocks and then over blocks that it marks, until it meets a
// marked one. Each step is paid for by an insertion (or by the removal of a mark).
//
// Leaves. Cells at which a use ended stay held when others are inserted behind them, because their
// class counts again when they become leaves again. Until then they are chosen only if nothing else
// is left. A cell that was set aside keeps its class and its time to live, and is not chosen until
// a touch() or replace() names it.
//
// Classes. Held leaves of the lowest rank (priority, then session phase) are evicted first; a
// policy chooses among them. A cell whose time to live is over moves to its expired rank. If the
// system refuses the memory for that, a time to live counts as over at once.
//
// A policy defines how many segments it has, where a cell stands (segment and key), and from which
// segment the next cell is evicted.
//
// Threading:  one thread at a time.
// Cost:       72 bytes a cell, 26 more with the first time to live. touch, replace, remove and
//             victim are O(log cells), touch amortised over insertions; no allocation after
//             prepare().
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "retain/cell_array.h"
#include "retain/ordered_cells.h"
#include "stemma/retention.h"

namespace stemma::retain {

class LeafPolicy : public RetentionPolicy {
 public:
  static constexpr uint32_t kMaxTenants = 64;  // With quotas, besides "nobody in particular".

  // False if out of memory: the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  bool prepare(CellIndex cell) final;
  void touch(CellIndex cell, const Touch& touch) final;
  void replace(CellIndex child, CellIndex parent) final;
  void remove(CellIndex cell) final;
  void set_aside(CellIndex cell) final;
  bool holds(CellIndex cell) const noexcept final { return held_.contains(cell); }
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) final;
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const final;
  bool tracks_contents() const noexcept final { return true; }
  void inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) final;
  void evicted(CellIndex cell) final;
  void forgotten(CellIndex cell) final;
  uint64_t bytes() const noexcept override;
  void clear() override;
  void check_invariants() const override;

 protected:
  LeafPolicy(uint32_t cells, uint32_t segments);
  LeafPolicy(const LeafPolicy&) = default;

  // What is known about a block. Times count touches and insertions, from 1.
  struct Block {
    uint64_t born;
    uint64_t last;      // Its last use; 0 = none.
    uint64_t previous;  // The one before.
    uint32_t parent;    // The cell it was inserted behind; kNoCell = none that counts.
    uint32_t print;     // A fingerprint of the path up to it.
    uint32_t depth;     // In blocks, 1 for the first; 0 = not known.
    uint32_t children;  // Cells inserted behind it and still cached.
    uint16_t uses;      // At most kManyUses.
    bool cached : 1;    // Inserted, and neither evicted nor forgotten.
    bool fresh : 1;     // Inserted, and not used yet.
    bool again : 1;     // Used after the request that inserted it.
    uint8_t own;        // The policy's own data, like the next one.
    uint32_t own_count;
  };
  static_assert(sizeof(Block) == 48);
  static constexpr uint16_t kManyUses = 0xFFFF;
  struct Place {
    uint32_t segment = 0;
    uint64_t key = 0;  // Lower goes first.
  };

  // Cells of the rank to evict from, of one tenant or of all.
  class Choice {
   public:
    // Lowest key of a segment, at or after `from`; kNoCell = there is none.
    CellIndex first(uint32_t segment, uint64_t from = 0) const noexcept;

   private:
    friend class LeafPolicy;
    Choice(const LeafPolicy& policy, uint32_t first_slot, uint32_t end_slot)
        : policy_(policy), first_slot_(first_slot), end_slot_(end_slot) {}
    const LeafPolicy& policy_;
    uint32_t first_slot_;
    uint32_t end_slot_;
    uint16_t rank_ = 0;
  };

  // Where a leaf with this history stands.
  virtual Place place(CellIndex cell) const noexcept = 0;
  // The next of these to evict; there is at least one. A second call returns the same cell. May
  // move cells by put().
  virtual CellIndex choose(const Choice& choice) noexcept = 0;
  virtual std::unique_ptr<LeafPolicy> copy() const = 0;  // Throws std::bad_alloc.
  // Events for a policy's books. on_inserted: a block was inserted. on_used: a path was used up to
  // `end`. on_reused: a block was used again, for the first time since it was inserted or unmarked.
  // on_gone: a block left, for any reason. on_evicted: it is about to leave, to make room.
  virtual void on_inserted(CellIndex cell) noexcept { (void)cell; }
  virtual void on_used(CellIndex end) noexcept { (void)end; }
  virtual void on_reused(CellIndex cell) noexcept { (void)cell; }
  virtual void on_gone(CellIndex cell) noexcept { (void)cell; }
  virtual void on_evicted(CellIndex cell) noexcept { (void)cell; }

  // Moves a leaf.
  void put(CellIndex cell, const Place& where) noexcept;
  Block& block(CellIndex cell) noexcept { return blocks_[cell]; }
  const Block& block(CellIndex cell) const noexcept { return blocks_[cell]; }
  uint32_t cells() const noexcept { return cells_; }
  uint64_t next_time() noexcept { return ++time_; }
  void fail() noexcept { ok_ = false; }
  uint64_t key(CellIndex cell) const noexcept { return held_.key(cell); }  // Requires: held.

 private:
  struct Class {
    uint16_t rank;
    uint16_t expired_rank;
    uint32_t slot;  // The tenant's.
    uint64_t deadline_ns;
  };
  void use(CellIndex cell) noexcept;
  void leave_history(CellIndex child, CellIndex parent) noexcept;
  void leave_parent(CellIndex cell) noexcept;
  void hold(CellIndex cell, Class which) noexcept;
  void let_go(CellIndex cell) noexcept;
  Class class_of(CellIndex cell) const noexcept;
  bool start_deadlines();
  void expire(uint64_t now_ns) noexcept;
  uint32_t slot_for(TenantId tenant) noexcept;
  uint32_t sets_a_slot() const noexcept { return segments_ + 2; }
  uint32_t slot_of(CellIndex cell) const noexcept { return held_.set_of(cell) / sets_a_slot(); }
  uint32_t segment_of(CellIndex cell) const noexcept { return held_.set_of(cell) % sets_a_slot(); }
  bool is_inner(CellIndex cell) const noexcept { return segment_of(cell) == segments_; }
  bool is_aside(CellIndex cell) const noexcept { return segment_of(cell) == segments_ + 1; }
  void settle(CellIndex cell) noexcept;
  uint32_t set_of(uint32_t slot, uint32_t segment) const noexcept {
    return slot * sets_a_slot() + segment;
  }

  uint32_t cells_;
  uint32_t segments_;
  bool ok_ = false;
  size_t covered_ = 0;
  uint64_t time_ = 0;
  CellIndex left_ = kNoCell;  // The last evicted cell: its parent has its history.
  CellArray<Block> blocks_;
  OrderedCells held_;  // Per tenant: a set per segment, one of inner cells, one of those set aside.
  bool timed_ = false;                 // Whether there is memory for the next two.
  OrderedCells deadlines_;             // One set.
  CellArray<uint16_t> expired_ranks_;  // Of the cells in deadlines_.
  std::vector<TenantId> tenants_;      // By slot; never exceeds its initial capacity.
};

}  // namespace stemma::retain
