// Books is what a cache knows: its cells and their places, its groups' blocks, scopes, media
// numbers, quotas, sessions, logits, counters and events. It only keeps all this together and
// answers questions about it; the other parts of the Store change it.
//
// Cells and blocks: `cell` numbers are the tree's. If `numbered`, group 0's block ids number the
// first cells, and `first` has their places; otherwise all cells come from `extra`.
//
// Invariant:  a cell is live in the tree iff its place is `cached` in its pool.
// Threading:  one thread at a time (the lock of Core). The shape, tree.walk() and scopes.guess() on
//             any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/books/counters.h"
#include "cache/books/event_log.h"
#include "cache/books/group.h"
#include "cache/books/last_uses.h"
#include "cache/books/logits_shelf.h"
#include "cache/books/pin_table.h"
#include "cache/books/quotas.h"
#include "cache/books/scope_table.h"
#include "key/media_table.h"
#include "pool/block_pool.h"
#include "stemma/cache.h"
#include "stemma/options.h"
#include "tree/prefix_tree.h"

namespace stemma::cache {

class Books {
 public:
  explicit Books(const Options& options);
  // Requires checked options. Returns false if out of memory.
  [[nodiscard]] bool create();
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  // ---- The shape: fixed by create() ----
  uint32_t cell_tokens() const noexcept { return cell_tokens_; }
  bool numbered() const noexcept { return numbered_; }
  bool keyed() const noexcept { return keyed_; }
  // Whether the policy wants to hear of every cell that comes or goes.
  bool tracks_contents() const noexcept { return tracks_contents_; }
  // Whether there is one group, and it numbers the cells.
  bool plain() const noexcept { return plain_; }
  bool has_loose_groups() const noexcept { return has_loose_groups_; }
  uint32_t first_cells() const noexcept { return first_cells_; }
  // The most KV bytes that one cell can stand for.
  uint64_t cell_bytes() const noexcept { return cell_bytes_; }
  // The group that events name for blocks of the index.
  GroupIndex index_group() const noexcept { return numbered_ ? 0 : kMaxGroups; }
  uint32_t group_count() const noexcept { return static_cast<uint32_t>(groups_.size()); }
  Group& group(GroupIndex g) noexcept { return *groups_[g]; }
  const Group& group(GroupIndex g) const noexcept { return *groups_[g]; }
  std::span<const tree::GroupReach> reaches() const noexcept { return reaches_; }
  // The largest block of all groups: all of them can end at its multiples.
  uint32_t unit_tokens() const noexcept;
  const Options& options() const noexcept { return options_; }

  // ---- Places ----
  pool::BlockPool& pool_of(CellIndex cell) noexcept { return cell < first_cells_ ? first : extra; }
  const pool::BlockPool& pool_of(CellIndex cell) const noexcept {
    return cell < first_cells_ ? first : extra;
  }
  uint32_t place_of(CellIndex cell) const noexcept {
    return cell < first_cells_ ? cell : cell - first_cells_ - 1;
  }
  CellIndex extra_cell(uint32_t place) const noexcept { return place + first_cells_ + 1; }
  const pool::BlockPool& pool_of_group(GroupIndex g) const noexcept {
    return groups_[g]->numbers_cells() ? first : groups_[g]->pool();
  }
  uint32_t holds(CellIndex cell) const noexcept { return pool_of(cell).pins(place_of(cell)); }
  // Nothing is below the cell, and nobody holds it.
  bool bare(CellIndex cell) const noexcept { return !tree.has_child(cell) && holds(cell) == 0; }
  // Whether a lookup can find a cell of the first group.
  bool is_found(CellIndex cell) const noexcept {
    return cell < ready_cells_ && tree.is_live(cell) && !tree.is_orphan(cell);
  }
  // Cached cells that are neither roots nor inner cells.
  uint64_t cached_cells() const noexcept {
    return numbered_ ? first.cached_blocks() : extra.cached_blocks() - roots - inner_cells;
  }
  // Allocates all memory that cells [0, last] need (those of `extra` if no group numbers them).
  [[nodiscard]] bool ensure_cells(CellIndex last);
  // Prefetches what publishing a draft will write.
  void prefetch_draft(CellIndex cell) const noexcept {
    tree.prefetch_cell(cell);
    pool_of(cell).prefetch(place_of(cell));
  }

  // ---- Whose it is ----
  // The index of the tenant whose scope the cell is in. O(depth / 16).
  uint32_t tenant_of(CellIndex cell) const noexcept;
  // Adds or drops a reference to each media item in these words.
  void refer_to_media(std::span<const uint32_t> words);
  void forget_media(std::span<const uint32_t> words);
  std::span<const uint32_t> words_of(CellIndex cell) const noexcept {
    return {tree.words(cell), tree.word_count(cell)};
  }
  // Up to `count` of the evictable cells that were counted last are no longer evictable.
  void lose_evictable(uint64_t count) noexcept {
    known_evictable -= std::min(known_evictable, count);
  }
  // Tells observers that a cell's block can no longer be found.
  void tell_removed(CellIndex cell) noexcept {
    if (keyed_) events.removed(tree.key(cell), index_group());
  }
  // Counts a refusal on its way to the caller.
  Error refused(const Error& error) noexcept {
    if (error.code() == Errc::over_quota) ++tally.quota_refusals;
    return error;
  }
  // True if nothing is cached or drafted. (Reclaimed blocks are in no cell, but still in use.)
  bool empty() const noexcept;
  uint64_t bytes() const noexcept;

  struct Tally {
    uint64_t evicted = 0, duplicates = 0, tails = 0, forks = 0, rewinds = 0, pin_expiries = 0,
             quota_refusals = 0, orphaned = 0, stale_walks = 0, hint_repairs = 0, markers = 0,
             exact_counts = 0;
  };

 private:
  const Options options_;
  uint32_t cell_tokens_ = 16;
  bool numbered_ = true;
  bool keyed_ = false;
  bool has_loose_groups_ = false;
  bool tracks_contents_ = false;
  bool plain_ = false;
  uint32_t first_cells_ = 0;
  CellIndex ready_cells_ = 0;  // See ensure_cells().
  uint64_t cell_bytes_ = 0;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<tree::GroupReach> reaches_;

 public:
  tree::PrefixTree tree;
  pool::BlockPool first;
  pool::BlockPool extra;
  ScopeTable scopes;
  key::MediaTable media{key::kMediaNumberLimit - 1};  // The highest word is in no cell.
  std::unique_ptr<RetentionPolicy> policy;
  Quotas quotas;
  Counters counters;
  EventLog events;
  LogitsShelf logits;
  LastUses last_uses{tree};
  PinTable pins;
  std::array<uint32_t, kMaxGroups> reclaimed{};  // Evicted blocks that are still held.
  uint32_t roots = 0;
  uint32_t inner_cells = 0;

  // Fields that every lease and release writes, kept together.
  // The time of the current section. It never runs backwards, in whatever order threads arrive.
  alignas(64) uint64_t now_ns = 0;
  // A lower bound of the cells that could be evicted, from the last exact count.
  uint64_t known_evictable = 0;
  Tally tally;
};

// The number of cells in the index if the first group does not number them: as given, or chosen.
// Larger groups never get fewer.
uint64_t chosen_cells(const Options& options, uint32_t cell_tokens);

}  // namespace stemma::cache
