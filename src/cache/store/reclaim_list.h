// ReclaimList: records what the Evictor evicts for a caller that wants to save it, path by path.
// Evicted blocks are held until their bytes are saved. The pool calls them dying: released while a
// hold is on them.
//
// Eviction calls begin() when it has chosen a cell and before anything changes, then take() for
// each evicted cell, deepest first.
//
// Threading: under the cache's lock.
// Cost:      O(depth) for each path that is not yet in the list; otherwise O(groups) a cell.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/books/books.h"
#include "key/words.h"
#include "stemma/reclaimed.h"
#include "stemma/scope.h"

namespace stemma::cache {

class ReclaimList {
 public:
  struct Path {
    Scope scope;
    std::vector<uint32_t> words;        // From the beginning to the deepest evicted cell.
    std::vector<key::MediaSpan> media;  // The last one may end beyond the words.
    CellIndex next = kNoCell;           // The cell above the last evicted one.
    uint32_t level = 0;                 // Cells above and including `next`.
  };

  explicit ReclaimList(Books& books) noexcept : books_(books) {}

  // Allocates room for the path that ends with `cell` and for everything on it that may be evicted.
  // May throw std::bad_alloc before anything changes.
  void begin(CellIndex cell);
  // Requires: `cell` is the one given to begin(), or the parent of the last one taken.
  void take(CellIndex cell) noexcept;
  // Takes window blocks or states whose paths stay. The caller detaches them all. May throw
  // std::bad_alloc before anything changes.
  void take_loose(GroupIndex g, std::span<const uint32_t> pages);

  std::vector<Reclaimed::Block>& blocks() noexcept { return blocks_; }
  // Fills in the content keys of the list's blocks. Needs no lock: it reads only the shape of the
  // books. May throw std::bad_alloc.
  void add_keys(std::span<Reclaimed::Block> blocks) const;
  // The words of each path; none for a path with media. Ends the list.
  std::vector<std::vector<uint32_t>> take_words();

 private:
  // Holds the whole block of a cell that is about to be evicted and ends at position `end`. Returns
  // kNoPage if there is none.
  uint32_t hold_block(GroupIndex g, CellIndex cell, uint32_t end) noexcept;
  void hold(GroupIndex g, CellIndex cell, uint32_t end, size_t path) noexcept;
  // Records the path of `level` cells that ends with `cell`. Returns its number.
  size_t add_path(CellIndex cell, uint32_t level);

  Books& books_;
  std::vector<Path> paths_;
  std::vector<Reclaimed::Block> blocks_;
  size_t current_ = 0;
  // By cell, the first path that ends just below it, except the current path.
  std::unordered_map<CellIndex, size_t> below_;
};

}  // namespace stemma::cache
