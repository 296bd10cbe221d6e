// OrderedCells: several sets of cells, each in order of (rank, key), a cell in at most one of them.
//
// Each set is a treap inside one array of nodes. A hash of the cell's number balances it, so equal
// operations give equal shapes. Cells with equal (rank, key) are ordered by number.
// Threading:  one thread at a time.
// Cost:       24 bytes a cell; every call O(log cells) expected; only commit() allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "retain/cell_array.h"
#include "stemma/retention.h"

namespace stemma::retain {

class OrderedCells {
 public:
  // Returns false if out of memory.
  [[nodiscard]] bool create(uint32_t cells, uint32_t sets);
  explicit operator bool() const noexcept { return static_cast<bool>(nodes_); }
  // Allocates the cells [0, end).
  [[nodiscard]] bool commit(size_t end);

  bool contains(CellIndex cell) const noexcept {
    return cell < committed_ && nodes_[cell].set_plus_1 != 0;
  }
  // Requires: the cell is in no set.
  void insert(uint32_t set, CellIndex cell, uint16_t rank, uint64_t key) noexcept;
  // These four require: the cell is in a set.
  void erase(CellIndex cell) noexcept;
  uint32_t set_of(CellIndex cell) const noexcept { return nodes_[cell].set_plus_1 - 1U; }
  uint16_t rank(CellIndex cell) const noexcept { return nodes_[cell].rank; }
  uint64_t key(CellIndex cell) const noexcept { return nodes_[cell].key; }

  // The first cell of a set; first_from() skips cells before (rank, key). kNoCell: there is none.
  CellIndex first(uint32_t set) const noexcept;
  CellIndex first_from(uint32_t set, uint16_t rank, uint64_t key) const noexcept;
  void clear() noexcept;
  uint64_t bytes() const noexcept { return nodes_.bytes() + roots_.capacity() * sizeof(CellIndex); }
  // Stops the process if an order or a link is wrong. Returns how many cells are in a set.
  uint64_t check_invariants() const;

 private:
  struct Node {
    uint32_t left_plus_1, right_plus_1, parent_plus_1;
    uint16_t rank, set_plus_1;
    uint64_t key;
  };
  static_assert(sizeof(Node) == 24);
  static uint32_t weight(CellIndex cell) noexcept {
    uint32_t mixed = (cell + 1) * 0x9E37'79B1U;
    mixed ^= mixed >> 15U;
    mixed *= 0x85EB'CA77U;
    return mixed ^ (mixed >> 13U);
  }
  bool before(CellIndex a, CellIndex b) const noexcept;
  uint32_t& link_to(CellIndex cell) noexcept;
  void rotate_up(CellIndex cell) noexcept;
  uint64_t check_below(CellIndex cell, uint32_t set) const;

  CellArray<Node> nodes_;
  std::vector<uint32_t> roots_;  // Plus 1; 0 = empty.
  size_t committed_ = 0;
};

}  // namespace stemma::retain
