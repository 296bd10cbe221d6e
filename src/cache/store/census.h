// The Census counts what could be evicted: first by bounds that cost nothing, and exactly, by
// marking all that is held, only if those do not decide.
//
// Invariant:  at_least() never exceeds exactly().
// Threading:  one thread at a time.
// Cost:       at_least() O(groups); the others O(held cells) and one bit a cell, kept for later.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/store/holds.h"
#include "cache/store/need.h"

namespace stemma::cache {

// Cells, blocks of full groups and one tenant's bytes: either those held, or those that evicting
// everything unheld would free.
struct Evictable {
  uint64_t cells = 0;
  std::array<uint64_t, kMaxGroups> blocks{};
  uint64_t tenant_bytes = 0;
};

class Census {
 public:
  Census(Books& books, const Blocks& blocks, const Holds& holds) noexcept
      : books_(books), blocks_(blocks), holds_(holds) {}

  // Whether drafts that forks still copy from may have become cells held at an unknown depth. Then
  // only exactly() is right.
  bool only_exact() const noexcept { return holds_.forked_drafts() != 0; }
  Evictable at_least(const Need& need, uint32_t tenant_index) const noexcept;
  // May throw std::bad_alloc before anything changes.
  Evictable exactly(const Need& need, uint32_t tenant_index);
  // The evictable blocks of each full group, for statistics: changes nothing that affects
  // decisions. Less exact if memory runs out.
  std::array<uint64_t, kMaxGroups> evictable_blocks();

  // Whether the pins that exist and one more would hold at most their share of every pool. May
  // throw std::bad_alloc.
  bool pins_within_share(CellIndex cell, uint32_t depth_cells, std::span<const LooseBlock> blocks);
  uint64_t bytes() const noexcept { return marks_.capacity() * sizeof(uint64_t); }

 private:
  enum class Bytes : uint8_t { count, ignore };  // Of the tenant.
  void clear_marks() { marks_.assign(books_.tree.total_cells() / 64 + 1, 0); }
  void mark_path(CellIndex cell, Bytes bytes, Evictable& held);
  Evictable held_for(const Need& need, uint32_t tenant_index);

  Books& books_;
  const Blocks& blocks_;
  const Holds& holds_;
  std::vector<uint64_t> marks_;  // One bit a cell.
};

}  // namespace stemma::cache
