// The Store is everything a PagedCache keeps, without its lock: the tree, the books of all groups,
// the retention policy, anchors, quotas, pins, counters and events. PagedCache and Lease decide
// under the lock what to do and do it through these calls.
//
// Cells and blocks: `cell` numbers are the tree's. When `numbered`, group 0's block ids number the
// first cells, and its books are cells_; otherwise all cells come from extra_.
//
// Invariants: a cell is live in the tree iff its place is `cached` in its books; every live,
//             childless, unheld cell that is no root, no orphan is held by the policy; an orphan
//             that nobody holds does not exist; the parent of a cut cell is held by it.
// Memory:     check_room() takes what the blocks it grants will ever need; calls that may throw
//             std::bad_alloc say so; all others need none. What only ends or forgets needs none.
// Threading:  one thread at a time (PagedCache's mutex). tree() walks and scopes().guess() on any.
// Cost:       make_room O(blocks evicted), and O(leased blocks) when most of the pool is leased and
//             the running lower bound of what is evictable has run out.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/vectors.h"
#include "cache/counters.h"
#include "cache/event_log.h"
#include "cache/group.h"
#include "cache/lease_record.h"
#include "cache/reclaim.h"
#include "cache/scope_table.h"
#include "key/media_table.h"
#include "pool/block_pool.h"
#include "stemma/cache.h"
#include "stemma/options.h"
#include "tree/prefix_tree.h"

namespace stemma::cache {

// Blocks asked for, per group; `cells` where cells have their own supply.
struct Need {
  std::array<uint32_t, kMaxGroups> blocks{};
  uint32_t cells = 0;
  // Loose blocks that wait in their lists now and will be pinned before room is made.
  std::array<uint32_t, kMaxGroups> reserved{};
  // What who asks has already and keeps until it ends: by these is known what can never fit.
  std::array<uint32_t, kMaxGroups> kept{};
  uint32_t kept_cells = 0;
  // Cells held by who asks, beyond what live leases hold.
  std::array<CellIndex, 2> held{kNoCell, kNoCell};
  const std::vector<CopySource>* sources = nullptr;  // Pages it will pin.
  // It takes over a cached block as a draft of its own: it wants room even where `blocks` are 0.
  bool takes_over = false;
};

struct Tenant {
  TenantId id = kNoTenant;
  uint64_t quota_bytes = ~uint64_t{0};
  uint64_t used_bytes = 0;       // Drafts and cached blocks, checkpoints included.
  uint64_t draft_bytes = 0;      // Of these, drafts.
  uint64_t recurrent_bytes = 0;  // Of these, cached checkpoints.
  uint64_t held_cells = 0;       // Depths of everything held, added up.
};

// How many cells the index gets for prompts where the first group does not number them: as given, or
// chosen. Never fewer for larger groups.
uint64_t chosen_cells(const Options& options, uint32_t cell_tokens);

class Store {
 public:
  // Requires checked options. False when the system gives no memory.
  [[nodiscard]] bool create(const Options& options);
  explicit Store(const Options& options);

  const tree::PrefixTree& tree() const noexcept { return tree_; }
  tree::PrefixTree& tree() noexcept { return tree_; }
  ScopeTable& scopes() noexcept { return scopes_; }
  const ScopeTable& scopes() const noexcept { return scopes_; }
  uint32_t cell_tokens() const noexcept { return cell_tokens_; }
  bool numbered() const noexcept { return numbered_; }
  // Whose blocks the events call those of the index.
  GroupIndex index_group() const noexcept { return numbered_ ? 0 : kMaxGroups; }
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }
  Group& group(GroupIndex g) noexcept { return *groups_[g]; }
  const Group& group(GroupIndex g) const noexcept { return *groups_[g]; }
  std::span<const tree::GroupReach> reaches() const noexcept { return reaches_; }
  bool has_loose_groups() const noexcept { return has_loose_groups_; }
  // The time of the current section. Time does not run backwards, whatever order threads come in.
  uint64_t now_ns() const noexcept { return now_; }
  // A new section: its time, and the end of pins whose deadline has come.
  void begin_section(uint64_t now_ns) {
    now_ = std::max(now_, now_ns);
    if (!deadlines_.empty() && deadlines_.front().at_ns <= now_) expire_pins();
  }
  key::MediaTable& media() noexcept { return media_; }
  EventLog& events() noexcept { return events_; }
  Counters& counters() noexcept { return counters_; }
  bool keyed() const noexcept { return keyed_; }

  // ---- Roots ----
  // The scope's root, made if there is none. When it must evict to make one, it evicts for `need` as
  // well, or for nothing: `need` is what the first lease below it needs. Error: out_of_blocks,
  // over_quota, out_of_memory, invalid_argument (another tenant's scope).
  Result<const ScopeTable::Root*> open_root(const Scope& scope, TenantId tenant, Need need);
  // Removes a root that nobody holds and that has nothing below it.
  void close_root(CellIndex root);

  // ---- Holding cells ----
  void hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  // Lets go, and touches the cell for the policy; frees orphans nobody holds.
  void let_go(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  // Lets go of what was held a moment ago and not evicted around; nothing is touched, and a root
  // stays even if nobody else holds it: close_root() is the caller's affair.
  void undo_hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  uint32_t holds(CellIndex cell) const noexcept { return books(cell).pins(place(cell)); }
  // Holds a draft that another lease's copy reads; not in the tree, so no path is held.
  void pin_draft_cell(CellIndex cell);
  void unpin_draft_cell(CellIndex cell, const LeaseRecord& who);
  // A lease's tip went from one cell to a deeper one that is new below it.
  void move_tip(LeaseRecord& record, CellIndex tip, uint32_t depth_cells);

  // ---- Room ----
  // Whether `need` would fit an empty cache. Lock-free: capacities never change.
  bool could_fit(const Need& need) const noexcept;
  // Whether evict_for() can succeed; nothing is changed. Error: out_of_blocks, over_quota,
  // out_of_memory.
  Result<void> check_room(const Need& need, uint32_t tenant_index);
  // Evicts until `need` can be drafted. Requires check_room() with nothing held since but what it
  // was told to be reserved.
  void evict_for(const Need& need, uint32_t tenant_index);
  // Both.
  Result<void> make_room(const Need& need, uint32_t tenant_index);
  // Takes one block for writing. Requires room.
  uint32_t draft(GroupIndex g, uint32_t tenant_index);
  uint32_t draft_cell(uint32_t tenant_index);  // Numbered: a block of group 0 with it.
  // Gives a draft or duplicate back.
  void discard(GroupIndex g, uint32_t page, uint32_t tenant_index);
  void discard_cell(CellIndex cell, uint32_t tenant_index);
  // Evicts the policy's choice and what follows it, at most `most` cells. Returns how many; 0: none
  // is left.
  // With a list, what goes is held for it; throws std::bad_alloc then, with nothing gone.
  uint32_t evict_some(uint32_t most, bool only_tenant, TenantId tenant,
                      ReclaimList* list = nullptr);
  uint32_t evict_blocks(uint32_t blocks);
  // Evicts this cell, which nobody holds and nothing is below. Its parent is held.
  void evict_leaf(CellIndex cell, uint32_t tenant_index);
  // Evicts until so many more positions could be drafted at once, at most `most` cells and loose blocks, and
  // holds what went until end_reclaim(). Stops early without memory. Returns how many went.
  uint32_t reclaim(uint32_t positions, uint32_t most, ReclaimList& out);
  void end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept;
  // Holds the whole block that belongs to a cell about to go, which ends at position `end`; kNoPage:
  // there is none.
  uint32_t hold_for_reclaim(GroupIndex g, CellIndex cell, uint32_t end) noexcept;
  // The largest block of all groups: where all of them can end.
  uint32_t unit_tokens() const noexcept;
  // Cells that evict_some() evicts from now on are added, while there is capacity; null: no more.
  // Requires numbered().
  void note_evicted(std::vector<BlockId>* into) noexcept { evicted_ = into; }
  // Whether a cell of the first group can be found.
  bool is_found(CellIndex cell) const noexcept {
    return cell < ready_cells_ && tree_.is_live(cell) && !tree_.is_orphan(cell);
  }

  // ---- Contents ----
  // Makes `cell` findable below `parent`. Requires no equal child.
  void publish_cell(CellIndex cell, CellIndex parent, CellIndex up, std::span<const uint32_t> words,
                    const ContentKey* key, uint32_t tenant_index);
  // Frees the tails beside `cell` that it covers and nobody uses.
  void absorb_tails(CellIndex cell, uint32_t tenant_index);
  // Enters a lease's block at its home and at the cells above it in the same block that have none
  // (or a lesser one nobody uses). `cells_in_block`: how many cells of the block the home's path
  // has, the home included.
  enum class Lesser : uint8_t { replace, keep };
  void attach_page(GroupIndex g, CellIndex home, uint32_t page, uint32_t cells_in_block,
                   uint32_t tenant_index, Lesser lesser = Lesser::replace);
  // Takes a cached block of a non-numbering group out of the index and frees it.
  void detach_page(GroupIndex g, uint32_t page, uint32_t tenant_index);
  void pin_page(GroupIndex g, uint32_t page);
  // Lets go of a block of the lease's path, the one that holds `position`. `passed`: the lease has
  // advanced past it, so it is worth less than what others of the same priority may go on from.
  enum class Leaving : uint8_t { used, passed };
  void unpin_page(GroupIndex g, uint32_t page, const LeaseRecord& who, uint32_t position,
                  Leaving how = Leaving::used);
  // A use of what holds `position` of a lease's path, in the class that the lease said for it.
  Touch touch_at(const LeaseRecord& who, uint32_t position, Leaving how = Leaving::used) const;
  void touch(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  // Starts to load what publishing a draft will write.
  void prefetch_draft(CellIndex cell) const noexcept {
    tree_.prefetch_cell(cell);
    books(cell).prefetch(place(cell));
  }

  // ---- Anchors ----
  // These three throw std::bad_alloc; nothing has changed then.
  // The cell that carries anchors at a depth inside a cell; made if asked, and others evicted for it.
  // kNoCell: there is none, or all cells are in use.
  CellIndex inner_cell(CellIndex parent, std::span<const uint32_t> words, bool make);
  void attach_checkpoint(GroupIndex g, CellIndex cell, uint32_t slot, const LeaseRecord& who,
                         uint32_t depth);
  Result<void> attach_logits(CellIndex cell, std::span<const float> logits);
  bool logits_fit(size_t count) const noexcept {
    return count <= options_.logits_bytes / sizeof(float) &&
           count * sizeof(float) + sizeof(LogitsEntry) <= options_.logits_bytes;
  }
  Logits find_logits(CellIndex cell);
  void drop_anchors(CellIndex cell, uint32_t tenant_index);
  // Drops what hangs inside the cells below `parent` that begin like `words`, or as they do.
  void drop_inner_anchors(CellIndex parent, std::span<const uint32_t> words, uint32_t tenant_index);
  void drop_inner_if_bare(CellIndex cell);

  // ---- Forgetting ----
  uint32_t cut(CellIndex top, uint32_t tenant_index);  // Returns cells no longer findable.
  uint32_t drop_root(CellIndex root);
  void drop_all();

  // ---- Pins with deadlines ----
  // Holds the path to a cell and, besides, blocks of loose groups. Error: over_pin_share. Throws
  // std::bad_alloc; nothing has changed then.
  struct LooseBlock {
    GroupIndex group;
    uint32_t page;
    auto operator<=>(const LooseBlock&) const = default;
  };
  Result<PinId> add_pin(CellIndex cell, uint32_t depth_cells, std::vector<LooseBlock> blocks,
                        uint64_t deadline_ns);
  bool end_pin(PinId id);
  void expire_pins();
  void end_all_pins();

  // ---- Sessions ----
  void end_session(SessionId session);

  // ---- Live leases ----
  // Takes the memory that add_live() needs; throws std::bad_alloc.
  void prepare_live();
  void add_live(LeaseRecord* record) noexcept;
  void remove_live(LeaseRecord* record);
  std::span<LeaseRecord* const> live() const noexcept { return live_; }

  Tenant* find_tenant(TenantId tenant) noexcept;
  Tenant& tenant(uint32_t index) noexcept { return tenants_[index]; }
  void fill_stats(Stats& stats);
  uint64_t bytes() const noexcept;
  // Nothing cached, leased or pinned.
  bool empty() const noexcept;
  void check_invariants() const;
  // For loading a dump: takes exactly this cell (and block). These three throw std::bad_alloc.
  bool draft_cell_exactly(CellIndex cell, uint32_t tenant_index);
  bool draft_exactly(GroupIndex g, uint32_t page, uint32_t tenant_index);
  // A cell where cells have their own supply, if one is free: nothing is evicted for it.
  CellIndex draft_free_cell();
  void touch_loaded(CellIndex cell);
  // A leaf that the order did not name, if it could be evicted.
  void touch_if_forgotten(CellIndex cell) {
    if (bare(cell) && !policy_->holds(cell)) touch_loaded(cell);
  }
  void relist();
  Logits peek_logits(CellIndex cell) const;
  RetentionPolicy& policy() noexcept { return *policy_; }
  const RetentionPolicy& policy() const noexcept { return *policy_; }
  uint64_t logits_budget() const noexcept { return options_.logits_bytes; }

  struct Tally {
    uint64_t evicted = 0, duplicates = 0, tails = 0, forks = 0, rewinds = 0, pin_expiries = 0,
             quota_refusals = 0, orphaned = 0, stale_walks = 0, hint_repairs = 0, markers = 0,
             exact_counts = 0;
  };
  Tally tally;

 private:
  struct LogitsEntry {
    CellIndex cell;
    Logits logits;
    uint64_t bytes;
  };
  static constexpr uint32_t kNoPin = 0xFFFF'FFFFU;
  struct TimedPin {
    CellIndex cell = kNoCell;
    uint32_t depth_cells = 0;
    uint32_t generation = 0;
    uint64_t deadline_ns = 0;
    std::vector<LooseBlock> blocks;
    // The other pins of the same cell.
    uint32_t next_here = kNoPin;
    uint32_t before_here = kNoPin;
  };
  struct Deadline {
    uint64_t at_ns;
    uint32_t slot;
    uint32_t generation;
    bool operator>(const Deadline& other) const noexcept { return at_ns > other.at_ns; }
  };
  // Cells, blocks of full groups and one tenant's bytes: what is held, or what could be evicted,
  // were everything unheld to go.
  struct Evictable {
    uint64_t cells = 0;
    std::array<uint64_t, kMaxGroups> blocks{};
    uint64_t tenant_bytes = 0;
  };

  pool::BlockPool& books(CellIndex cell) noexcept { return cell < first_cells_ ? cells_ : extra_; }
  const pool::BlockPool& books(CellIndex cell) const noexcept {
    return cell < first_cells_ ? cells_ : extra_;
  }
  uint32_t place(CellIndex cell) const noexcept {
    return cell < first_cells_ ? cell : cell - first_cells_ - 1;
  }
  // Tenant 0, nobody in particular, has no quota and is not counted.
  void charge_draft(uint32_t tenant_index, GroupIndex g) noexcept {
    if (tenant_index != 0) charge_draft_to(tenants_[tenant_index], g);
  }
  void draft_became_cached(uint32_t tenant_index, GroupIndex g) noexcept {
    if (tenant_index != 0) draft_became_cached_of(tenants_[tenant_index], g);
  }
  void refund(uint32_t tenant_index, GroupIndex g, bool draft) noexcept {
    if (tenant_index != 0) refund_to(tenants_[tenant_index], g, draft);
  }
  void charge_draft_to(Tenant& tenant, GroupIndex g) noexcept;
  void draft_became_cached_of(Tenant& tenant, GroupIndex g) noexcept;
  void refund_to(Tenant& tenant, GroupIndex g, bool draft) noexcept;
  void unhold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  bool bare(CellIndex cell) const noexcept { return !tree_.has_child(cell) && holds(cell) == 0; }
  void mark_path(CellIndex cell, uint32_t tenant_index, Evictable& held);
  uint64_t tenant_quick_bytes(uint32_t tenant_index) const noexcept;
  uint64_t over_quota(const Need& need, uint32_t tenant_index) const noexcept;
  Error short_of(const Need& need, const Evictable& evictable) const;
  // Refuses `need` for want of `missing` blocks of a group; kMaxGroups: of cells.
  Error no_room(const Need& need, GroupIndex g, uint64_t missing) const;
  // Of a tenant's checkpoints that nobody uses, but for what `need` reserves.
  uint64_t idle_checkpoint_bytes(const Need& need, uint32_t tenant_index) const;
  // Drops a tenant's next block to go of the groups of one kind. False: it has none that nobody uses.
  bool drop_idle(Attention kind, uint32_t tenant_index);
  // The same where that block is one of a window and was passed, or its session has ended.
  bool drop_passed(uint32_t tenant_index);
  // Evicts until the tenant may have `need`.
  void evict_within_quota(const Need& need, uint32_t tenant_index);
  // Sees to it that a cell is free for a root or for an anchor inside a block. False: all are in use.
  bool make_spare_cell();
  bool drop_oldest_inner_logits();
  [[nodiscard]] bool take_memory(const Need& need);
  // Takes all memory for cells [0, last] (of extra_ where no group numbers them) to come into use.
  [[nodiscard]] bool ensure_cells(CellIndex last);
  // Frees a childless cell that nobody holds and the policy no longer counts.
  void free_cell(CellIndex cell, uint32_t tenant_index);
  void free_orphans(CellIndex cell, uint32_t tenant_index);
  // What was just cut off at `top`: tells the policy and observers, and frees what nobody holds.
  // Returns how many cells they were.
  uint32_t let_go_below(CellIndex top, bool with_top, uint32_t tenant_index);
  void drop_anchors_at(CellIndex cell, uint32_t tenant_index);
  // A use of the path to `cell` ended: touches the deepest cell of it that can still be found.
  void end_use(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  void free_cell_contents(CellIndex cell, uint32_t tenant_index);
  void hold_media(std::span<const uint32_t> words, bool add);
  // Tells observers of a block or state of a group beside the index, at its home.
  void tell_stored(GroupIndex g, CellIndex home, bool tail) noexcept;
  void tell_removed(GroupIndex g, CellIndex home) noexcept;
  // That nothing of a cell is found any more.
  void tell_forgotten(CellIndex cell) noexcept;
  uint32_t tenant_of(CellIndex cell) const noexcept;
  void load_ahead(CellIndex victim, uint32_t most) noexcept;
  uint32_t tenant_index_of(TenantId tenant) const noexcept;
  Evictable count_exactly(const Need& need, uint32_t tenant_index);
  // For statistics: changes nothing that decides.
  void fill_evictable(Stats& stats);
  void refill_entry(Group& group, CellIndex cell);
  bool enough(const Need& need, const Evictable& evictable) const noexcept;
  // How many cells must go, at least, before so many positions can be drafted in all full groups.
  uint32_t cells_short_of(uint32_t positions) const noexcept;
  // Of window groups a window's room, of recurrent ones a slot.
  uint32_t reclaim_loose(uint32_t positions, uint32_t most, ReclaimList& out);
  void make_touch(Touch& touch, const LeaseRecord& who, Priority priority, uint64_t ttl_ns,
                  uint64_t now) const;
  bool pins_within_share(CellIndex cell, uint32_t depth_cells, std::span<const LooseBlock> blocks);
  // Unless it was forgotten, what was pinned counts as used now.
  void end_timed_pin(uint32_t slot, bool forgotten = false);
  // Of a cell that was forgotten. O(its pins).
  void end_pins_at(CellIndex cell);
  void unlink_pin(uint32_t slot) noexcept;
  void remember_session(const LeaseRecord& who, CellIndex cell);

  Options options_;
  uint32_t cell_tokens_ = 16;
  bool numbered_ = true;
  bool keyed_ = false;
  bool has_loose_groups_ = false;
  bool tracks_contents_ = false;
  bool plain_ = false;  // One group, and it numbers the cells.
  uint32_t first_cells_ = 0;
  tree::PrefixTree tree_;
  pool::BlockPool cells_;
  pool::BlockPool extra_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<tree::GroupReach> reaches_;
  ScopeTable scopes_;
  key::MediaTable media_{key::kMediaNumberLimit - 1};  // The highest word is in no cell.
  std::unique_ptr<RetentionPolicy> policy_;
  std::vector<BlockId>* evicted_ = nullptr;  // Who wants to know.
  std::vector<Tenant> tenants_;              // [0]: everybody without a quota.
  Counters counters_;
  EventLog events_;

  // What every lease and release writes, together.
  alignas(64) uint64_t now_ = 0;
  uint64_t held_depth_sum_ = 0;   // Over all holds, in cells: an upper bound of what is held.
  uint64_t known_evictable_ = 0;  // A lower bound, from the last exact count.
  uint32_t loaded_ahead_ = 0;     // Victims to come whose memory was loaded.
  bool one_by_one_ = false;       // The last victim's parent did not go with it.
  std::vector<LeaseRecord*> live_;

  alignas(64) uint32_t forked_drafts_ = 0;        // Holds by pin_draft_cell().
  std::array<uint32_t, kMaxGroups> full_pins_{};  // Pins of blocks of full groups: copy sources.
  std::array<uint32_t, kMaxGroups> reclaimed_{};  // Blocks that went and are held.
  std::vector<uint64_t> marks_;                   // One bit a cell, scratch of exact counts.

  std::list<LogitsEntry> logits_;  // Least recently used first.
  std::unordered_map<CellIndex, std::list<LogitsEntry>::iterator> logits_at_;
  uint64_t logits_bytes_ = 0;

  std::vector<TimedPin> pins_;
  std::vector<uint32_t> free_pins_;
  std::unordered_map<CellIndex, uint32_t> pin_at_;  // The first of a cell's pins.
  std::vector<Deadline>
      deadlines_;  // A heap, the earliest on top; those of ended pins stay a while.
  uint64_t pinned_cells_ = 0;

  struct LastUse {
    CellIndex cell;
    uint32_t birth;
  };
  static constexpr uint64_t kSpareSessions = 64;
  std::unordered_map<uint64_t, LastUse> sessions_;
  std::unordered_map<CellIndex, uint64_t> session_at_;  // Whose use of a cell was the last.
  std::vector<CellIndex> scratch_;  // Room for the cells that one cell's words begin with.
  CellIndex ready_cells_ = 0;       // See ensure_cells().
  uint32_t roots_ = 0;
  uint32_t inner_cells_ = 0;
  uint64_t cell_bytes_ = 0;  // KV bytes a cell can stand for, at most.
};

}  // namespace stemma::cache
