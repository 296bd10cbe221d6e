// ReclaimList: what goes out of a Store while somebody wants to see it, path by path. Evicting calls it: once
// when it has chosen a cell, before anything has changed, then for each cell that goes, deepest first.
//
// Threading: under the cache's lock.
// Cost:      O(depth) for each path that is not already in the list; the rest O(groups) a cell.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "key/words.h"
#include "pool/block_pool.h"
#include "stemma/reclaimed.h"
#include "stemma/scope.h"
#include "tree/prefix_tree.h"

namespace stemma::cache {

class Store;

class ReclaimList {
 public:
  struct Path {
    Scope scope;
    std::vector<uint32_t> words;        // From the beginning to the deepest cell that went.
    std::vector<key::MediaSpan> media;  // The last one may end beyond the words.
    CellIndex next = kNoCell;           // The cell above the last one that went.
    uint32_t level = 0;                 // Cells above and including `next`.
  };

  // Takes the memory for the path that ends with `cell`, and for all that may go of it. Throws
  // std::bad_alloc; nothing has changed then.
  void begin(Store& store, CellIndex cell);
  // Requires: `cell` is what begin() was told, or the parent of what was taken last.
  void take(Store& store, CellIndex cell) noexcept;
  // Blocks of a window, or states, that go alone; their paths stay. The caller detaches them all.
  // Throws std::bad_alloc; nothing has changed then.
  void take_loose(Store& store, GroupIndex g, std::span<const uint32_t> pages);

  std::vector<Reclaimed::Block>& blocks() noexcept { return blocks_; }
  std::vector<Path>& paths() noexcept { return paths_; }

 private:
  void hold(Store& store, GroupIndex g, CellIndex cell, uint32_t end, size_t path) noexcept;
  // The path that ends with `cell`, `level` cells long, written down. Its number.
  size_t add_path(Store& store, CellIndex cell, uint32_t level);

  std::vector<Path> paths_;
  std::vector<Reclaimed::Block> blocks_;
  size_t current_ = 0;
  // The paths that end below a cell, by that cell: all but the current one. Of several the first.
  std::unordered_map<CellIndex, size_t> below_;
};

}  // namespace stemma::cache
