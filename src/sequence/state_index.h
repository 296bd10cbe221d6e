// StateIndex: which words have a saved state, at exact depths, in one more instance of the tree.
//
// An entry is a number that the caller chooses. It is attached where its words end: to the cell
// that ends there, or to a short cell with the words after the last cell border. Depths are not
// rounded, so a state is found at exactly the position it was saved at.
//
// Adding an entry has two steps, so that the second cannot fail:
//
//   promise(scope, depth) --put(words, entry)--> found from now on --remove()--> gone
//            '----------- give_back() ----------> as before
//
// Invariant:  every cell but a root lies at or above an entry; a scope has a root exactly as long
//             as it has entries or promises; promised cells are free.
// Threading:  one thread at a time; find() and at() change nothing but scratch memory.
// Cost:       find(): one walk down the words, one up, and one down again, at most as deep as the
//             returned entry; however many entries there are. put and remove: O(words). 36 bytes
//             and 4 a word for each distinct cell of 16 words. A promise takes cells as if nothing
//             were shared, until it is kept or given back.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pool/block_pool.h"
#include "stemma/result.h"
#include "stemma/scope.h"
#include "tree/prefix_tree.h"

namespace stemma::sequence {

class StateIndex {
 public:
  static constexpr uint32_t kCellTokens = 16;
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;

  struct Root {
    CellIndex cell = kNoCell;
    uint32_t entries = 0;
    uint32_t promises = 0;
  };
  using Home = std::pair<const Scope, Root>;
  struct Place {
    Home* home = nullptr;
    CellIndex cell = kNoCell;
  };

  // Makes room for `entries` entries and promises at a time, with `positions` positions in total,
  // where shared ones count once. Returns false if there is no memory.
  [[nodiscard]] bool create(uint64_t positions, uint32_t entries);

  struct Found {
    uint32_t exact = kNone;  // The deepest entry whose words are a prefix of `words`.
    uint32_t depth = 0;      // The depth of `exact`.
    // An entry with the longest prefix in common with `words`; `exact` if that is one of these.
    uint32_t longest = kNone;
    uint32_t common = 0;  // The length of that common prefix. The entry may be deeper.
  };
  Found find(const Scope& scope, std::span<const uint32_t> words) noexcept;
  // The entry of exactly these words, or kNone.
  uint32_t at(const Scope& scope, std::span<const uint32_t> words) const noexcept;

  // Adds the entries of all words that begin with these to `out`. May throw std::bad_alloc.
  // O(words + cells below them).
  void beginning_with(const Scope& scope, std::span<const uint32_t> words,
                      std::vector<uint32_t>& out) const;

  // Cells that a promise of this depth takes.
  uint64_t cells_needed(const Scope& scope, uint32_t depth) const noexcept;
  bool could_hold(uint32_t depth) const noexcept { return cells_for(depth) < cells_.capacity(); }
  uint64_t free_cells() const noexcept { return cells_.free_blocks() - promised_; }
  // Whether a promise of this depth would find room if only these entries were left. May throw
  // std::bad_alloc. O(their depths + scopes).
  bool fits_beside(std::span<const Place> entries, const Scope& scope, uint32_t depth) const;

  // Requires cells_needed() <= free_cells(), depth >= 1. Error: out_of_memory; nothing changed.
  Result<Home*> promise(const Scope& scope, uint32_t depth);
  void give_back(Home* home, uint32_t depth) noexcept;
  struct Put {
    CellIndex cell = kNoCell;
    uint32_t before = kNone;  // The entry of the same words that it replaced.
  };
  // Keeps a promise of words.size() positions.
  Put put(Home* home, std::span<const uint32_t> words, uint32_t entry) noexcept;
  void remove(Place place) noexcept;
  uint32_t entry_at(Place at) const noexcept { return entry_of(at.cell); }
  // Reads all words up to the place into `out`. May throw std::bad_alloc.
  void read(Place place, std::vector<uint32_t>& out) const;

  uint64_t scopes() const noexcept { return roots_.size(); }
  uint64_t bytes() const noexcept;
  // Stops the process with a description when the books do not balance.
  void check_invariants() const;

 private:
  struct Walked {
    CellIndex tip = kNoCell;
    uint32_t cells = 0;
  };

  static uint64_t cells_for(uint64_t depth) noexcept {
    return (depth + kCellTokens - 1) / kCellTokens;
  }
  static std::span<const uint32_t> cell_words(std::span<const uint32_t> words, uint32_t level) {
    const std::span<const uint32_t> rest = words.subspan(size_t{level} * kCellTokens);
    return rest.size() > kCellTokens ? rest.first(kCellTokens) : rest;
  }
  uint32_t place(CellIndex cell) const noexcept { return cell - tree_.first_extra(); }
  uint32_t& entry_of(CellIndex cell) noexcept { return entries_[place(cell)]; }
  uint32_t entry_of(CellIndex cell) const noexcept { return entries_[place(cell)]; }
  Walked walk(CellIndex root, std::span<const uint32_t> words) const noexcept;
  // The longest short child of `cell` that is a prefix of `words`, or kNoCell.
  CellIndex longest_short(CellIndex cell, std::span<const uint32_t> words) noexcept;
  uint32_t any_at_or_below(CellIndex cell) const noexcept;
  CellIndex new_cell() noexcept;
  void let_go(Home* home) noexcept;  // Unless it is still needed.

  tree::PrefixTree tree_;
  pool::BlockPool cells_;
  std::vector<uint32_t> entries_;  // By place of the cell.
  std::unordered_map<Scope, Root> roots_;
  std::vector<CellIndex> shorts_;  // Scratch; never grows.
  uint64_t promised_ = 0;          // Cells.
};

}  // namespace stemma::sequence
