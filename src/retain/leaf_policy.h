// A LeafPolicy is what the classical policies have in common: they judge single blocks by when and how
// often these were used, and here only leaves can go.
//
// Uses. A lease uses every block of its path, but the policy is told of one touch, at the path's end. So a
// block's own history counts only uses that ended at it, and whoever is evicted leaves its history to its
// parent: when a block becomes a leaf, the uses of all that stood below it have come up to it, and its
// history is that of the block, exactly. Whether a block was used again after it was inserted is known at
// any time: the touch walks up over what is new and then over what it marks, until somebody was marked
// before; each step is paid for by an insertion (or by whoever takes a mark away).
//
// Leaves. Cells at which a use ended stay held when others are inserted behind them, because what was said
// of them still counts when they are leaves again; until then nothing is chosen from them, unless nothing
// else is left.
//
// Classes. Of the leaves held, those of the lowest rank (priority, then session phase) go first; a policy
// chooses among them. A cell whose time to live is over moves to the rank it falls to; when the system
// refuses the memory for that, a time to live counts as over at once.
//
// A policy says in how many segments it keeps its cells, where a cell stands (segment and key), and from
// which segment the next one goes.
//
// Threading:  one thread at a time.
// Cost:       72 bytes a cell, 26 more with the first time to live. touch, replace, remove and victim are
//             O(log cells), touch amortised over what was inserted; no allocation after prepare().
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

  // False when the system gave no memory; the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  bool prepare(CellIndex cell) final;
  void touch(CellIndex cell, const Touch& touch) final;
  void replace(CellIndex child, CellIndex parent) final;
  void remove(CellIndex cell) final;
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

  // What is known of a block. Times are numbers of touches and insertions, counted from 1.
  struct Block {
    uint64_t born;
    uint64_t last;      // Its last use; 0 = none.
    uint64_t previous;  // The one before.
    uint32_t parent;    // Whom it was inserted behind; kNoCell = nobody that counts.
    uint32_t print;     // A fingerprint of it and all before it.
    uint32_t depth;     // In blocks, 1 for the first; 0 = not known.
    uint32_t children;  // Inserted behind it, and still cached.
    uint16_t uses;      // No more than kManyUses.
    bool cached : 1;    // Inserted, and neither evicted nor forgotten.
    bool fresh : 1;     // Inserted, and not used yet.
    bool again : 1;     // Used after the request that brought it.
    uint8_t own;        // These two are the policy's.
    uint32_t own_count;
  };
  static_assert(sizeof(Block) == 48);
  static constexpr uint16_t kManyUses = 0xFFFF;
  struct Place {
    uint32_t segment = 0;
    uint64_t key = 0;  // Lower goes first.
  };

  // Cells of the rank that is to lose one, of one tenant or of all.
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
  // The next of these to go; there is one. Asked twice, it names the same. May move cells by put().
  virtual CellIndex choose(const Choice& choice) noexcept = 0;
  virtual std::unique_ptr<LeafPolicy> copy() const = 0;  // Throws std::bad_alloc.
  // What a policy keeps books of: a block came; a path was used up to `end`; a block was used again, for
  // the first time since it came or was unmarked; a block left, whyever; it is about to, to make room.
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
    uint32_t slot;  // Of the tenant.
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
  uint32_t slot_of(CellIndex cell) const noexcept { return held_.set_of(cell) / (segments_ + 1); }
  bool is_inner(CellIndex cell) const noexcept {
    return held_.set_of(cell) % (segments_ + 1) == segments_;
  }
  void settle(CellIndex cell) noexcept;
  uint32_t set_of(uint32_t slot, uint32_t segment) const noexcept {
    return slot * (segments_ + 1) + segment;
  }

  uint32_t cells_;
  uint32_t segments_;
  bool ok_ = false;
  size_t covered_ = 0;
  uint64_t time_ = 0;
  CellIndex left_ = kNoCell;  // Who was evicted last: its parent has its history.
  CellArray<Block> blocks_;
  OrderedCells held_;       // For every tenant a set per segment, and one of inner cells.
  bool timed_ = false;      // Whether there is memory for the next two.
  OrderedCells deadlines_;  // One set.
  CellArray<uint16_t> expired_ranks_;  // Of those in it.
  std::vector<TenantId> tenants_;      // By slot; never more than it has room for from the start.
};

}  // namespace stemma::retain
