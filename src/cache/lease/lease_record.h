// What a lease holds. The lease owns the record while it lives. Then the record returns to a pool,
// and its vectors keep their capacity, so in steady state a lease allocates nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/books/group.h"
#include "cache/books/logits_shelf.h"
#include "cache/lease/block_entry.h"
#include "key/words.h"
#include "stemma/block_io.h"
#include "stemma/key.h"
#include "stemma/lease.h"
#include "stemma/retention.h"
#include "stemma/stats.h"

namespace stemma::cache {

// What a pending copy reads. It is held until the copy is done.
struct CopySource {
  GroupIndex group = 0;
  uint32_t page = kNoPage;   // Held in the group's pool; kNoPage: none, the source is `cell`.
  CellIndex cell = kNoCell;  // Also held: the cell that the copy uses, or kNoCell.
  uint32_t depth_cells = 0;  // Its depth in the tree; 0: not in it (another lease's draft).
  uint32_t block = 0;        // The target's index on the group's grid.

  bool has_page() const noexcept { return page != kNoPage; }
};

struct LeaseRecord {
  // ---- Where ----
  CellIndex root = kNoCell;
  TenantId tenant = kNoTenant;
  uint32_t tenant_index = 0;
  CellIndex tip = kNoCell;  // The deepest findable cell of this lease's path, held; or the root.
  uint32_t published = 0;   // Its depth in cells.
  // For each cell of the path, the block that the engine uses there, as the bits of a BlockEntry.
  // These are the tree's own cells except for drafts and duplicates. Only the first `cell_count`
  // entries are valid: lookups write into the vector, so it never shrinks.
  std::vector<uint32_t> cells;
  uint32_t cell_count = 0;
  uint32_t own_from = 0;  // All cells before this one are shared.
  // The same for each other paged group, by block.
  std::array<std::vector<BlockEntry>, kMaxGroups> pages;
  std::array<uint32_t, kMaxGroups> window_low{};  // First block not yet passed, window groups.
  std::array<uint32_t, kMaxGroups> checkpoint{};  // Drafted slot, kNoPage = none.
  std::array<uint32_t, kMaxGroups> held_slot{};   // Set by hold_checkpoint(), kNoPage = none.
  std::array<uint32_t, kMaxGroups> held_depth{};  // Depth of the held checkpoint.
  uint32_t filling = 0;                           // LeaseOptions::fill_to, until that is committed.

  // ---- What ----
  std::vector<uint32_t> words;  // Words of positions [words_begin, length).
  uint32_t words_begin = 0;     // At most published * cell tokens.
  uint32_t length = 0;
  uint32_t reused = 0;
  uint32_t committed = 0;
  std::vector<key::MediaSpan> spans;      // Units of the prompt, by position.
  std::vector<uint32_t> media_numbers;    // One reference each, held by this lease.
  std::vector<uint32_t> media_begin_end;  // The prompt's items as given: begin, end, begin, end...
  std::vector<uint32_t> media_to_process;
  Logits logits;
  Logits past_logits;  // From before a rewind: the caller may still read them.

  // ---- Pending: there is always room for kMaxGroups ----
  std::vector<BlockCopy> copies;
  std::vector<CopySource> sources;

  // ---- How it ends ----
  bool write = true;
  bool counted = false;
  bool publish_tail = true;
  Retain retain;                      // Its ranges lie in `ranges`.
  std::vector<PriorityRange> ranges;  // Room for kMaxPriorityRanges, always.
  Fence* fence = nullptr;
  Report report;

  // ---- Books ----
  uint32_t live_index = 0;               // Its place among the live leases.
  uint64_t counted_bytes = 0;            // Its share of the cache's memory report.
  uint32_t record_index = 0;             // Its place among all records.
  std::vector<uint32_t> query;           // Scratch: a prompt's words, when it has media.
  std::vector<CopySource> next_sources;  // Scratch of Placement, and the next two.
  std::array<std::vector<BlockEntry>, kMaxGroups> next_pages;
  std::vector<uint32_t> spare_cells;
  LeaseRecord* next_in_queue = nullptr;  // See LeaseQueue.
  std::vector<CellIndex> path;           // Scratch: the tree's own cells of this lease's path.
  std::vector<ContentKey> keys;          // Scratch of commits.

  // The words of positions [begin, end). Requires words_begin <= begin <= end <= length.
  std::span<const uint32_t> words_of(uint32_t begin, uint32_t end) const {
    return std::span<const uint32_t>(words).subspan(begin - words_begin, end - begin);
  }
  BlockEntry cell_entry(uint32_t index) const { return BlockEntry::from_bits(cells[index]); }
  void set_cell(uint32_t index, BlockEntry entry) { cells[index] = entry.bits(); }
  // How many positions the lease's blocks have room for.
  uint32_t capacity(uint32_t cell_tokens) const noexcept {
    return static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{cell_count} * cell_tokens, 0xFFFF'FFFFU));
  }
  void set_retain(const Retain& given) {
    ranges.assign(given.ranges.begin(), given.ranges.end());
    retain = given;
    retain.ranges = ranges;
  }
  // Finds which of the prompt's media items the engine still has to process.
  void find_media_to_process();
  // Drops the media items that do not end within n positions.
  void forget_media_after(uint32_t n);

  // Resets what a new user could mistake for its own; vectors keep their memory.
  void reset();
  // Memory of the record and its larger vectors, in a cache with so many groups.
  uint64_t bytes(uint32_t group_count) const noexcept;
};

}  // namespace stemma::cache
