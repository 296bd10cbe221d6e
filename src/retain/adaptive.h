// Adaptive: learns when conversations come back, and first evicts those whose blocks are expected
// to be used least per unit of time they are held.
//
// Conversations. A new use follows a known path up to some point. If it shares at least half of the
// path of the last use of that point, it is the next turn of the same conversation; callers need
// not say so. Each conversation has a slot with its length, number of uses, last use and gaps. A
// HazardModel learns from all slots when such conversations are used again. A slot may outlive its
// blocks as a ghost: the fingerprint of the last block, or of one further up, identifies a
// conversation that comes back. So the model also learns from evicted conversations. Ghosts are
// forgotten in the order of eviction. If a conversation goes on from the middle of its path, the
// rest of the old path gets its own slot. If callers name sessions, a conversation whose session
// went to another path (a sub-agent's, a shortened context) counts as left, and the model learns
// what that means.
//
// Owners. A block belongs to the conversation that used it last. The policy knows the owner where
// it matters, at leaves, without walking paths: a use is noted only at the end of its path. When a
// leaf is evicted, its parent goes to the leaf's user or to the one noted at the parent, whichever
// used it later.
//
// Choosing. Priority, session phase, time to live and tenant decide first, by an LruPolicy inside
// this policy. Only if LRU would evict a conversation without any such hint, this policy evicts the
// one with the lowest index among those instead. Everything else (conversations with hints, a
// tenant's choice for its own quota, those that lost their slots) follows LRU. So does everything
// while the index does worse than LRU on this traffic (Rivals). Decisions depend only on earlier
// calls and the times given with them.
//
// Threading:  one thread at a time.
// Cost:       8 to 44 bytes a cell as LruPolicy, 12 for its owner, fingerprint and parent, 22 for
//             slots; about 1 MiB besides. touch O(cells inserted since), O(1) if there are none; a
//             slot is judged again each time its age has grown about 1.25-fold. No allocation after
//             prepare().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/index_lists.h"
#include "base/slab.h"
#include "retain/hazard.h"
#include "retain/lru.h"
#include "retain/rivals.h"
#include "stemma/retention.h"

namespace stemma::retain {

class AdaptivePolicy final : public RetentionPolicy {
 public:
  explicit AdaptivePolicy(uint32_t cells);
  // False when the system gave no memory; the policy must not be used then.
  bool ok() const noexcept { return ok_; }

  std::string_view name() const noexcept override { return "adaptive"; }
  bool prepare(CellIndex cell) override;
  void touch(CellIndex cell, const Touch& touch) override;
  void replace(CellIndex child, CellIndex parent) override;
  void remove(CellIndex cell) override;
  void set_aside(CellIndex cell) override;
  bool holds(CellIndex cell) const noexcept override { return lru_.holds(cell); }
  Victim victim(uint64_t now_ns, bool only_tenant, TenantId tenant) override;
  bool parent_follows(CellIndex parent, CellIndex ahead) const noexcept override;
  void order(uint64_t now_ns, std::vector<CellIndex>& out) const override;
  bool tracks_contents() const noexcept override { return true; }
  void inserted(CellIndex cell, CellIndex parent, std::span<const uint32_t> words) override;
  void evicted(CellIndex cell) override;
  void forgotten(CellIndex cell) override;
  uint64_t bytes() const noexcept override;
  void clear() override;
  void check_invariants() const override;

 private:
  // The common part of remove() and set_aside().
  void leave_out(uint32_t slot);
  enum Mark : uint8_t { kEnd, kUpper, kSession, kMarks };
  // A conversation, or the rest of a path that a conversation has left.
  struct Slot {
    uint64_t time_ns;  // Of its last use.
    CellIndex cell;    // The cell of its entry; kNoCell for a ghost.
    // Fingerprints that identify it later: of its last block, of a block further up (in case it
    // goes on from before its end), and of its session while that has used nothing else since.
    std::array<uint32_t, kMarks> prints;          // 0 = not known.
    std::array<uint32_t, kMarks> next_same_hash;  // A mark (slot x kMarks + kind of mark) + 1.
    uint32_t depth_tokens;
    uint32_t upper_tokens;  // Depth at which the upper block ends.
    float usual_gap;        // Mean logarithm of its gaps, weighted to the latest.
    std::array<float, HazardModel::kFinishes> usual_after;  // The same for each finish reason.
    uint32_t turn;                                          // 0 = not used yet.
    TenantId tenant;
    uint16_t generation;
    uint16_t level;     // The list of its entry; kGhosts for others.
    uint32_t interval;  // The age interval up to which the model has learnt.
    Traits traits;
  };
  static uint32_t mark_of(uint32_t slot, Mark which) noexcept { return slot * kMarks + which; }
  // Lists: levels of the index, lowest first, then ghosts and unused ones.
  static constexpr uint32_t kLevels = Rivals::kLevels;
  static constexpr uint32_t kGhosts = kLevels;
  static constexpr uint32_t kFree = kLevels + 1;
  static constexpr uint32_t kNoSlot = 0xFFFF'FFFFU;
  static constexpr uint32_t kMaxSlots = 1U << 20U;
  static constexpr uint32_t kCellsPerSlot = 8;
  static constexpr uint32_t kSpareSlots = 1024;
  static uint32_t slots_for(uint32_t cells) noexcept {
    return std::min(cells / kCellsPerSlot + kSpareSlots, kMaxSlots);
  }

  // The name of a cell's owner: a slot and its generation, so that a reused slot is noticed.
  // Without kPassedBy it is the cell's last user, otherwise a conversation whose use went on below
  // the cell.
  static constexpr uint32_t kSlotBits = 21;  // Bits of slot + 1; ten generation bits follow.
  static constexpr uint32_t kPassedBy = 0x8000'0000U;
  static constexpr uint32_t kNobody = 0;
  static constexpr uint32_t kFresh = 0xFFFF'FFFFU;  // Inserted but not yet used.
  uint32_t name_of(uint32_t slot) const noexcept {
    return (slot + 1) | static_cast<uint32_t>(slots_[slot].generation) << kSlotBits;
  }
  uint32_t slot_named(uint32_t name) const noexcept;
  // The slot whose entry is at `cell`.
  uint32_t entry_at(CellIndex cell) const noexcept;
  // The last user of a cell that has become a leaf.
  uint32_t last_user(CellIndex cell) const noexcept;

  uint32_t take_slot();
  void become_ghost(uint32_t slot) noexcept;
  void hash(uint32_t mark, uint32_t print) noexcept;     // print 0: removes it.
  uint32_t find_block(uint32_t print) const noexcept;    // A mark of a block, or kNoSlot.
  uint32_t find_session(uint32_t print) const noexcept;  // A slot, or kNoSlot.
  void list(uint32_t slot, uint32_t list) noexcept;
  void unlist(uint32_t slot) noexcept;
  void judge(uint32_t slot) noexcept;
  float weight_of(const Slot& slot) const noexcept;
  void learn_return(Slot& slot) noexcept;
  void advance(uint64_t now_ns) noexcept;
  void measure_turnover() noexcept;
  // What is known about a path before a use of it.
  struct Known {
    uint32_t slot = kNoSlot;   // Its last user.
    CellIndex cell = kNoCell;  // Its deepest known cell.
    uint32_t tokens = 0;
    uint32_t fresh = 0;    // Number of its new cells.
    bool evicted = false;  // A part of it belongs to a ghost.
  };
  Known look_back(CellIndex cell, const Touch& touch) const noexcept;
  void mark_upper(uint32_t slot, CellIndex cell, const Known& known) noexcept;
  void note_session(uint32_t slot, const Touch& touch) noexcept;
  void start_age(uint32_t slot) noexcept;
  uint32_t leave_rest(uint32_t slot) noexcept;
  void note_use(uint32_t slot, const Touch& touch, const Known& known, bool goes_on) noexcept;
  // Whether the index chooses instead of LRU.
  bool choosing() const noexcept { return rivals_.index_is_ahead(); }

  uint32_t cells_;
  bool ok_ = false;
  uint32_t covered_ = 0;
  LruPolicy lru_;
  HazardModel model_;
  base::Slab<uint32_t> names_;     // Per cell: its owner.
  base::Slab<uint32_t> prints_;    // Per cell: fingerprint of the path up to it; 0 = unknown.
  base::Slab<CellIndex> parents_;  // Per cell.
  base::Slab<Slot> slots_;
  base::Slab<uint32_t> heads_;  // By print: a mark + 1.
  base::IndexLists lists_;      // By level; ghosts; free.
  base::IndexLists ages_;       // By interval, oldest use first: slots the model still learns from.
  uint32_t max_slots_;
  uint32_t slots_ready_ = 0;  // Slots below have memory.
  uint32_t hash_mask_;
  std::array<uint64_t, kLevels / 64> filled_ = {};  // Levels that have an entry.
  uint64_t now_ns_ = 0;
  uint32_t chosen_ = kNoSlot;  // The last victim's slot.
  CellIndex left_ = kNoCell;   // The last evicted cell, until the cache reports its parent.
  // The turnover: the recent time to insert as many blocks as the cache has.
  uint64_t inserted_ = 0;
  uint64_t last_touch_ns_ = 0;
  double recent_blocks_ = 0;
  double recent_s_ = 0;
  double turnover_s_ = 30;
  double usual_depth_ = 1;
  Rivals rivals_;
  uint32_t cell_tokens_ = 1;
};

}  // namespace stemma::retain
