// What a lease holds. Owned by the lease while it lives, then pooled: its vectors keep their
// capacity, so that a lease costs no allocation in steady state.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "key/words.h"
#include "stemma/block_io.h"
#include "stemma/key.h"
#include "stemma/lease.h"
#include "stemma/retention.h"
#include "stemma/stats.h"

namespace stemma::cache {

// Entries of LeaseRecord::cells and ::pages: a number and whose it is.
inline constexpr uint32_t kOwn = 0x8000'0000U;     // This lease's alone: a draft or a duplicate.
inline constexpr uint32_t kPinned = 0x4000'0000U;  // Cached, and held by this lease by itself.
inline constexpr uint32_t kPageMask = 0x0FFF'FFFFU;

using Logits = std::shared_ptr<const std::vector<float>>;

// Something a pending copy reads: held until the copy is done.
struct CopySource {
  GroupIndex group = 0;
  uint32_t page = kPageMask;  // Held in the group's pool; kPageMask: nothing (the cell is it).
  CellIndex cell = kNoCell;   // Held too: the cell that is used by the copy, kNoCell: none.
  uint32_t depth_cells = 0;   // Of `cell` in the tree; 0: not in the tree (another lease's draft).
  uint32_t block = 0;         // Of the target, on the group's grid.
};

struct LeaseRecord {
  // ---- Where ----
  CellIndex root = kNoCell;
  TenantId tenant = kNoTenant;
  uint32_t tenant_index = 0;
  CellIndex tip = kNoCell;  // The deepest findable cell of this lease's path, held; or the root.
  uint32_t published = 0;   // Its depth in cells.
  // Per cell of the path, from 0: whose block the engine uses there. Equal to the tree's own cells
  // except for drafts and duplicates (kOwn). Only the first `cell_count` count: lookups walk into
  // the vector, so it is never shrunk.
  std::vector<uint32_t> cells;
  uint32_t cell_count = 0;
  uint32_t own_from = 0;  // No cell before this one is the lease's own.
  // Per block of each other paged group, from block 0.
  std::array<std::vector<uint32_t>, kMaxGroups> pages;
  std::array<uint32_t, kMaxGroups> window_low{};  // First block not yet passed, window groups.
  std::array<uint32_t, kMaxGroups> checkpoint{};  // Drafted slot, kPageMask = none.
  std::array<uint32_t, kMaxGroups> held_slot{};   // By hold_checkpoint(), kPageMask = none.
  std::array<uint32_t, kMaxGroups> held_depth{};  // Where that one is.
  uint32_t filling = 0;                           // LeaseOptions::fill_to, until it is committed.

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
  Logits past_logits;  // Of before a rewind: the caller may still look at them.

  // ---- Pending: there is room for kMaxGroups, always ----
  std::vector<BlockCopy> copies;
  std::vector<CopySource> sources;

  // ---- How it ends ----
  bool write = true;
  bool counted = false;
  bool publish_tail = true;
  Retain retain;                      // Its ranges are in `ranges`.
  std::vector<PriorityRange> ranges;  // Room for kMaxPriorityRanges, always.
  Fence* fence = nullptr;
  Report report;
  uint32_t computed = 0;  // Positions committed beyond what was reused.

  // ---- Books ----
  uint32_t live_index = 0;               // Its place among the live leases.
  uint64_t counted_bytes = 0;            // What it adds to the cache's memory report.
  uint32_t record_index = 0;             // Its place among all records.
  std::vector<uint32_t> query;           // Scratch: a prompt's words, when it has media.
  std::vector<CopySource> next_sources;  // Scratch of take_stand().
  std::array<std::vector<uint32_t>, kMaxGroups> next_pages;
  std::vector<uint32_t> spare_cells;   // Scratch of take_stand(), too.
  LeaseRecord* next_fenced = nullptr;  // The next of those that wait for a fence.
  std::vector<CellIndex> path;         // Scratch: the tree's own cells of this lease's path.
  std::vector<ContentKey> keys;        // Scratch of commits.

  // The words of positions [begin, end). Requires words_begin <= begin <= end <= length.
  std::span<const uint32_t> words_of(uint32_t begin, uint32_t end) const {
    return std::span<const uint32_t>(words).subspan(begin - words_begin, end - begin);
  }
};

}  // namespace stemma::cache
