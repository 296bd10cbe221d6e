#include "retain/ordered_cells.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace stemma::retain {

bool OrderedCells::create(uint32_t cells, uint32_t sets) {
  roots_.assign(sets, 0);
  return nodes_.reserve(cells);
}

bool OrderedCells::commit(size_t end) {
  if (!nodes_.commit(end)) return false;
  committed_ = std::max(committed_, end);
  return true;
}

bool OrderedCells::before(CellIndex a, CellIndex b) const noexcept {
  const Node& x = nodes_[a];
  const Node& y = nodes_[b];
  return std::tuple(x.rank, x.key, a) < std::tuple(y.rank, y.key, b);
}

// The link to a cell: in its parent, or the root of its set.
uint32_t& OrderedCells::link_to(CellIndex cell) noexcept {
  const Node& node = nodes_[cell];
  if (node.parent_plus_1 == 0) return roots_[node.set_plus_1 - 1U];
  Node& parent = nodes_[node.parent_plus_1 - 1];
  return parent.left_plus_1 == cell + 1 ? parent.left_plus_1 : parent.right_plus_1;
}

void OrderedCells::rotate_up(CellIndex cell) noexcept {
  Node& node = nodes_[cell];
  const CellIndex above = node.parent_plus_1 - 1;
  Node& parent = nodes_[above];
  link_to(above) = cell + 1;
  const bool left = parent.left_plus_1 == cell + 1;
  uint32_t& inner = left ? node.right_plus_1 : node.left_plus_1;
  (left ? parent.left_plus_1 : parent.right_plus_1) = inner;
  if (inner != 0) nodes_[inner - 1].parent_plus_1 = above + 1;
  inner = above + 1;
  node.parent_plus_1 = parent.parent_plus_1;
  parent.parent_plus_1 = cell + 1;
}

void OrderedCells::insert(uint32_t set, CellIndex cell, uint16_t rank, uint64_t key) noexcept {
  Node& node = nodes_[cell];
  node = {0, 0, 0, rank, static_cast<uint16_t>(set + 1), key};
  uint32_t* link = &roots_[set];
  while (*link != 0) {
    const CellIndex at = *link - 1;
    node.parent_plus_1 = at + 1;
    link = before(cell, at) ? &nodes_[at].left_plus_1 : &nodes_[at].right_plus_1;
  }
  *link = cell + 1;
  while (node.parent_plus_1 != 0 && weight(node.parent_plus_1 - 1) < weight(cell)) rotate_up(cell);
}

void OrderedCells::erase(CellIndex cell) noexcept {
  Node& node = nodes_[cell];
  while (node.left_plus_1 != 0 && node.right_plus_1 != 0) {
    const CellIndex left = node.left_plus_1 - 1;
    const CellIndex right = node.right_plus_1 - 1;
    rotate_up(weight(left) > weight(right) ? left : right);
  }
  const uint32_t child = node.left_plus_1 != 0 ? node.left_plus_1 : node.right_plus_1;
  if (child != 0) nodes_[child - 1].parent_plus_1 = node.parent_plus_1;
  link_to(cell) = child;
  node = {};
}

CellIndex OrderedCells::first(uint32_t set) const noexcept {
  uint32_t at = roots_[set];
  if (at == 0) return kNoCell;
  while (nodes_[at - 1].left_plus_1 != 0) at = nodes_[at - 1].left_plus_1;
  return at - 1;
}

CellIndex OrderedCells::first_from(uint32_t set, uint16_t rank, uint64_t key) const noexcept {
  CellIndex best = kNoCell;
  for (uint32_t at = roots_[set]; at != 0;) {
    const Node& node = nodes_[at - 1];
    if (std::tuple(node.rank, node.key) >= std::tuple(rank, key)) {
      best = at - 1;
      at = node.left_plus_1;
    } else {
      at = node.right_plus_1;
    }
  }
  return best;
}

void OrderedCells::clear() noexcept {
  for (CellIndex cell = 0; cell < committed_; ++cell) nodes_[cell] = {};
  for (uint32_t& root : roots_) root = 0;
}

uint64_t OrderedCells::check_below(CellIndex cell, uint32_t set) const {
  const Node& node = nodes_[cell];
  STEMMA_CHECK(node.set_plus_1 == set + 1);
  uint64_t cells = 1;
  for (const uint32_t child : {node.left_plus_1, node.right_plus_1}) {
    if (child == 0) continue;
    STEMMA_CHECK(nodes_[child - 1].parent_plus_1 == cell + 1 && weight(child - 1) <= weight(cell));
    STEMMA_CHECK(child == node.left_plus_1 ? before(child - 1, cell) : before(cell, child - 1));
    cells += check_below(child - 1, set);
  }
  return cells;
}

uint64_t OrderedCells::check_invariants() const {
  uint64_t cells = 0;
  for (uint32_t set = 0; set < roots_.size(); ++set) {
    if (roots_[set] == 0) continue;
    STEMMA_CHECK(nodes_[roots_[set] - 1].parent_plus_1 == 0);
    cells += check_below(roots_[set] - 1, set);
  }
  uint64_t contained = 0;
  for (CellIndex cell = 0; cell < committed_; ++cell) contained += contains(cell) ? 1U : 0U;
  STEMMA_CHECK(contained == cells);
  return cells;
}

}  // namespace stemma::retain
