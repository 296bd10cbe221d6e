// Adaptive: learns when conversations come back, and lets those go first whose blocks can be expected to
// give least per unit of time that they are held.
//
// Conversations. A use that shares at least half of a path with the last use of where it leaves that path is
// the next turn of the same conversation; nobody has to say so. A slot per conversation keeps when it was
// used, how often, after which gaps, how long it is; a HazardModel learns from every slot when such
// conversations are used again. Slots outlive what they describe (ghosts: a conversation that comes back
// after its blocks are gone is known by the fingerprint of its last block, or of one further up), so the
// model learns from what was evicted too; the ghost evicted first is forgotten first. Where a conversation
// goes on from the middle of its path, what it leaves behind gets a slot of its own. Where callers name
// sessions, a conversation whose session went to another path (a sub-agent's, a context made shorter) is known
// to be left, and the model learns what that means.
//
// Whose a block is. A block counts for whoever used it last. That is known where it matters, at leaves, without
// walking paths: a use is noted at its end only, and when a leaf goes, its parent becomes the later one of who
// used the leaf and who else was noted there.
//
// Choosing. What priority, session phase, time to live and tenant say counts first, as in LruPolicy, which
// this policy keeps for that. Only where LRU's choice is a conversation of which nothing was said does
// this policy take, instead, the one with the lowest index among those. Everything else (what was said
// something about, a tenant's choice for its own quota, what lost its slot) goes as in LRU; and so does
// everything while choosing by the index is behind LRU on this traffic (Rivals). Decisions depend on calls made before, and on times given with them, alone.
//
// Threading:  one thread at a time.
// Cost:       8 to 44 bytes a cell as LruPolicy, 12 for whose it is, its fingerprint and its parent, 22 for slots;
//             about 1 MiB besides. touch O(cells inserted since), O(1) when everything was there; a slot is
//             judged anew about every 1.25-fold of its age. No allocation after prepare().
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
  // What remove() and set_aside() have in common.
  void leave_out(uint32_t slot);
  enum Mark : uint8_t { kEnd, kUpper, kSession, kMarks };
  // A conversation, or what is left of a path that one has turned away from.
  struct Slot {
    uint64_t time_ns;  // Of its last use.
    CellIndex cell;    // Where its entry is; kNoCell for a ghost.
    // It is known again by its last block, and by one further up in case it goes on from before its end.
    // While its session has used nothing else since, by that too.
    std::array<uint32_t, kMarks> prints;          // 0 = not known.
    std::array<uint32_t, kMarks> next_same_hash;  // A mark (slot x kMarks + which of them) + 1.
    uint32_t depth_tokens;
    uint32_t upper_tokens;  // Where the upper one of the two ends.
    float usual_gap;        // The mean of logarithms of its gaps, the last ones most.
    std::array<float, HazardModel::kFinishes> usual_after;  // The same after each way to finish.
    uint32_t turn;                                          // 0 = not used yet.
    TenantId tenant;
    uint16_t generation;
    uint16_t level;     // Where its entry is listed; kGhosts for others.
    uint32_t interval;  // Of its age, up to which the model has learnt from it.
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

  // Whose a cell is: a slot and its generation, so that one that was given to another is noticed. It is
  // its last user where kPassedBy is not set, and otherwise somebody whose use went on below it.
  static constexpr uint32_t kSlotBits = 21;  // Of slot + 1; ten of the generation follow.
  static constexpr uint32_t kPassedBy = 0x8000'0000U;
  static constexpr uint32_t kNobody = 0;
  static constexpr uint32_t kFresh = 0xFFFF'FFFFU;  // Inserted, and not used yet.
  uint32_t name_of(uint32_t slot) const noexcept {
    return (slot + 1) | static_cast<uint32_t>(slots_[slot].generation) << kSlotBits;
  }
  uint32_t slot_named(uint32_t name) const noexcept;
  // The slot whose entry is at `cell`.
  uint32_t entry_at(CellIndex cell) const noexcept;
  // The last user of a cell below which nobody is left.
  uint32_t last_user(CellIndex cell) const noexcept;

  uint32_t take_slot();
  void become_ghost(uint32_t slot) noexcept;
  void hash(uint32_t mark, uint32_t print) noexcept;     // 0: by none.
  uint32_t find_block(uint32_t print) const noexcept;    // A mark of a block, or kNoSlot.
  uint32_t find_session(uint32_t print) const noexcept;  // A slot, or kNoSlot.
  void list(uint32_t slot, uint32_t list) noexcept;
  void unlist(uint32_t slot) noexcept;
  void judge(uint32_t slot) noexcept;
  float weight_of(const Slot& slot) const noexcept;
  void learn_return(Slot& slot) noexcept;
  void advance(uint64_t now_ns) noexcept;
  void measure_turnover() noexcept;
  // What was known of a path before a use of it.
  struct Known {
    uint32_t slot = kNoSlot;   // Who used it last.
    CellIndex cell = kNoCell;  // The last cell of it that was there.
    uint32_t tokens = 0;
    uint32_t fresh = 0;    // Cells of it that are new.
    bool evicted = false;  // Some of it is a ghost's.
  };
  Known look_back(CellIndex cell, const Touch& touch) const noexcept;
  void mark_upper(uint32_t slot, CellIndex cell, const Known& known) noexcept;
  void note_session(uint32_t slot, const Touch& touch) noexcept;
  void start_age(uint32_t slot) noexcept;
  uint32_t leave_rest(uint32_t slot) noexcept;
  void note_use(uint32_t slot, const Touch& touch, const Known& known, bool goes_on) noexcept;
  // Whether the index decides, not LRU.
  bool choosing() const noexcept { return rivals_.index_is_ahead(); }

  uint32_t cells_;
  bool ok_ = false;
  uint32_t covered_ = 0;
  LruPolicy lru_;
  HazardModel model_;
  base::Slab<uint32_t> names_;   // Per cell: whose it is.
  base::Slab<uint32_t> prints_;  // Per cell: a fingerprint of it and all before it; 0 = not known.
  base::Slab<CellIndex> parents_;  // Per cell.
  base::Slab<Slot> slots_;
  base::Slab<uint32_t> heads_;  // By print: a mark + 1.
  base::IndexLists lists_;      // By level; ghosts; free.
  base::IndexLists ages_;       // By interval, oldest use first: whom the model still learns from.
  uint32_t max_slots_;
  uint32_t slots_ready_ = 0;  // Slots below have memory.
  uint32_t hash_mask_;
  std::array<uint64_t, kLevels / 64> filled_ = {};  // Levels that have an entry.
  uint64_t now_ns_ = 0;
  uint32_t chosen_ = kNoSlot;  // Of the last victim.
  CellIndex left_ = kNoCell;   // Who was evicted last, until the cache says what that leaves.
  // The turnover: how long it takes to insert as many blocks as there are, of late.
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
