// A Placement decides which blocks a lease shares, copies and drafts, and then moves it there, all
// or nothing. New leases and forks, shrunk and rewound ones all go this way.
//
//   share_path(), or share_with() for a fork    what will be used is found; cells are held
//   carry_out()                                 room is made, blocks are pinned and drafted, what
//                                               the lease had before is given up
//
// Invariant:  until carry_out() has room, it has changed nothing but holds, and undoes those if it
//             refuses. From then on nothing can fail.
// Threading:  one thread at a time (the lock of Core). The lists live in the lease's record, so a
//             record that has been used allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/lease/lease_record.h"
#include "cache/lease/matcher.h"
#include "cache/store/store.h"

namespace stemma::cache {

class Placement {
 public:
  // Positions [0, n) from `path`, and room for `capacity` positions. If `fill` is not 0: everything
  // that `path` has of [0, fill), and room for the rest.
  struct Target {
    Path path;
    uint32_t n = 0;
    uint32_t capacity = 0;
    uint32_t fill = 0;
  };
  // Whether the lease copies a part of the last block, or evicts that block and takes it over.
  enum class Source : uint8_t { copy, take_over };

  Placement(Store& store, LeaseRecord& lease) noexcept
      : store_(store), books_(store.books), lease_(lease) {}

  // May throw std::bad_alloc before anything changes. The path may be in lease.cells if that has
  // room for one cell more than the words fill.
  void share_path(const Target& target, Source source = Source::copy);
  // For an empty lease: the first n positions of `parent`, whose published cells are `path`. What
  // is not findable is copied from the parent's own blocks. Needs no memory after prepare_fork().
  static void prepare_fork(const Books& books, const LeaseRecord& parent, uint32_t n,
                           LeaseRecord& child);
  void share_with(const LeaseRecord& parent, const Path& path, uint32_t n);

  // The caller must set the lease's words afterwards. Error: out_of_blocks, over_quota,
  // out_of_memory.
  Result<void> carry_out();

 private:
  void share_state(GroupIndex g, const Path& path);
  void share_part_block(GroupIndex g, const Target& target);
  void list_blocks(GroupIndex g, const Target& target);
  void list_parents_blocks(GroupIndex g, const LeaseRecord& parent, const Path& path);
  // An entry for a cached block that will be pinned if its group is loose.
  BlockEntry share(GroupIndex g, uint32_t page);
  void hold_tip(CellIndex tip);
  void undo_holds();
  Need missing() const;
  void pin_all();
  void take_over();
  void give_up_blocks();
  void draft_cells();
  void draft_listed(GroupIndex g);
  void list_copies();
  // The lease can reuse its own blocks, except for drafts that a fork still copies from.
  bool reusable_cell(BlockEntry entry) const {
    return entry.is_own() && books_.holds(entry.block()) == 0;
  }
  bool reusable(GroupIndex g, BlockEntry entry) const {
    return entry.is_own() && books_.group(g).pool().pins(entry.block()) == 0;
  }

  Store& store_;
  Books& books_;
  LeaseRecord& lease_;
  Need need_;
  const CellIndex* shared_cells_ = nullptr;
  CellIndex tip_ = kNoCell;
  CellIndex source_cell_ = kNoCell;  // Part of it is copied; held.
  uint32_t n_ = 0;
  uint32_t keep_ = 0;  // Shared cells.
  uint32_t total_cells_ = 0;
  uint32_t reach_ = 0;  // Windows look back from here.
  Source source_ = Source::copy;
};

// The tree's own cells of a lease's published path, in lease.path.
Path own_path(const Books& books, LeaseRecord& lease);
// Whether the blocks that the last placement would have copied from could be evicted instead.
bool can_take_over(const Books& books, const LeaseRecord& lease, const Placement::Target& target);
// Moves a lease back to n <= published positions, with `length` words and room for `capacity`.
// Error: as carry_out(), and out_of_range if a group can no longer serve n. Counts a refusal.
Result<void> step_back(Store& store, LeaseRecord& lease, uint32_t n, uint32_t length,
                       uint32_t capacity);

}  // namespace stemma::cache
