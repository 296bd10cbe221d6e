#include "sequence/state_index.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/check.h"
#include "base/vectors.h"
#include "tree/words.h"

namespace stemma::sequence {

bool StateIndex::create(uint64_t positions, uint32_t entries) {
  // Every entry may need a root and a partly filled cell of its own.
  const uint64_t cells = positions / kCellTokens + 2 * uint64_t{entries};
  if (cells >= tree::kIndexMask - 1) return false;
  tree::PrefixTree::Shape shape;
  shape.cell_tokens = kCellTokens;
  shape.extra_cells = static_cast<uint32_t>(cells);
  shorts_.reserve(kCellTokens);
  return tree_.create(shape) && cells_.create(shape.extra_cells);
}

// ---- Looking ------------------------------------------------------------------------------------

StateIndex::Walked StateIndex::walk(CellIndex root,
                                    std::span<const uint32_t> words) const noexcept {
  // In pieces, so that a lookup needs no memory.
  std::array<CellIndex, 256> path;
  const auto whole = static_cast<uint32_t>(words.size() / kCellTokens);
  Walked at{root, 0};
  while (at.cells < whole) {
    const uint32_t wanted = std::min<uint32_t>(path.size(), whole - at.cells);
    const uint32_t* from = words.data() + size_t{at.cells} * kCellTokens;
    const uint32_t found = tree_.walk(at.tip, from, wanted, path.data()).cells;
    if (found != 0) at.tip = path[found - 1];
    at.cells += found;
    if (found != wanted) break;
  }
  return at;
}

CellIndex StateIndex::longest_short(CellIndex cell, std::span<const uint32_t> words) noexcept {
  if (words.empty()) return kNoCell;
  if (words.size() < kCellTokens) {
    const CellIndex same = tree_.find_child(cell, words);
    if (same != kNoCell) return same;
  }
  shorts_.clear();
  tree_.short_prefixes(cell, words, shorts_);  // Shortest first; fewer than there is room for.
  return shorts_.empty() ? kNoCell : shorts_.back();
}

uint32_t StateIndex::any_at_or_below(CellIndex cell) const noexcept {
  while (entry_of(cell) == kNone) cell = tree_.first_child(cell);
  return entry_of(cell);
}

StateIndex::Found StateIndex::find(const Scope& scope, std::span<const uint32_t> words) noexcept {
  Found found;
  const auto home = roots_.find(scope);
  if (home == roots_.end()) return found;
  const Walked walked = walk(home->second.cell, words);

  CellIndex cell = walked.tip;
  for (uint32_t level = walked.cells;; --level, cell = tree_.parent(cell)) {
    if (const CellIndex inside = longest_short(cell, cell_words(words, level)); inside != kNoCell) {
      found.exact = entry_of(inside);
      found.depth = level * kCellTokens + tree_.word_count(inside);
      break;
    }
    if (level == 0) break;
    if (entry_of(cell) != kNone) {
      found.exact = entry_of(cell);
      found.depth = level * kCellTokens;
      break;
    }
  }

  const auto partial = tree_.best_child(walked.tip, cell_words(words, walked.cells));
  found.common = walked.cells * kCellTokens + partial.words;
  if (found.common == 0) return found;
  const bool ends_there = found.exact != kNone && found.depth == found.common;
  found.longest = ends_there ? found.exact
                             : any_at_or_below(partial.cell != kNoCell ? partial.cell : walked.tip);
  return found;
}

uint32_t StateIndex::at(const Scope& scope, std::span<const uint32_t> words) const noexcept {
  const auto home = roots_.find(scope);
  if (home == roots_.end() || words.empty()) return kNone;
  const Walked walked = walk(home->second.cell, words);
  if (walked.cells != words.size() / kCellTokens) return kNone;
  const std::span<const uint32_t> rest = cell_words(words, walked.cells);
  if (rest.empty()) return entry_of(walked.tip);
  const CellIndex tail = tree_.find_child(walked.tip, rest);
  return tail == kNoCell ? kNone : entry_of(tail);
}

void StateIndex::beginning_with(const Scope& scope, std::span<const uint32_t> words,
                                std::vector<uint32_t>& out) const {
  const auto home = roots_.find(scope);
  if (home == roots_.end()) return;
  const Walked walked = walk(home->second.cell, words);
  if (walked.cells != words.size() / kCellTokens) return;
  const std::span<const uint32_t> rest = cell_words(words, walked.cells);
  const auto add = [&](CellIndex cell) {
    if (entry_of(cell) != kNone) out.push_back(entry_of(cell));
  };
  if (rest.empty()) add(walked.tip);
  std::vector<CellIndex> children;
  tree_.children(walked.tip, children);
  for (CellIndex child : children) {
    const auto wanted = static_cast<uint32_t>(rest.size());
    if (tree_.word_count(child) < wanted ||
        tree::common_words(tree_.words(child), rest.data(), wanted) != wanted) {
      continue;
    }
    add(child);
    for (CellIndex cell = tree_.next_below(child, child); cell != kNoCell;
         cell = tree_.next_below(child, cell)) {
      add(cell);
    }
  }
}

void StateIndex::read(Place at, std::vector<uint32_t>& out) const {
  std::vector<CellIndex> path;
  for (CellIndex cell = at.cell; !tree_.is_root(cell); cell = tree_.parent(cell)) {
    path.push_back(cell);
  }
  for (auto cell = path.rbegin(); cell != path.rend(); ++cell) {
    const uint32_t* words = tree_.words(*cell);
    out.insert(out.end(), words, words + tree_.word_count(*cell));
  }
}

// ---- Changing -----------------------------------------------------------------------------------

uint64_t StateIndex::cells_needed(const Scope& scope, uint32_t depth) const noexcept {
  return cells_for(depth) + (roots_.contains(scope) ? 0 : 1);
}

bool StateIndex::fits_beside(std::span<const Place> entries, const Scope& scope,
                             uint32_t depth) const {
  std::vector<CellIndex> held;
  const auto hold_up = [&](CellIndex cell) {
    for (; cell != tree_.sentinel(); cell = tree_.parent(cell)) held.push_back(cell);
  };
  bool has_root = false;
  for (const Place& entry : entries) {
    hold_up(entry.cell);
    has_root = has_root || entry.home->first == scope;
  }
  for (const auto& [key, root] : roots_) {
    if (root.promises == 0) continue;
    hold_up(root.cell);
    has_root = has_root || key == scope;
  }
  std::sort(held.begin(), held.end());
  held.erase(std::unique(held.begin(), held.end()), held.end());
  return held.size() + promised_ + cells_for(depth) + (has_root ? 0 : 1) <= cells_.capacity();
}

CellIndex StateIndex::new_cell() noexcept {
  const uint32_t drafted = cells_.draft();
  STEMMA_CHECK(drafted != pool::BlockPool::kNone);
  cells_.publish(drafted);
  entries_[drafted] = kNone;
  return tree_.first_extra() + drafted;
}

Result<StateIndex::Home*> StateIndex::promise(const Scope& scope, uint32_t depth) try {
  const uint64_t needed = cells_needed(scope, depth);
  STEMMA_CHECK(needed <= free_cells());
  const auto all = static_cast<uint32_t>(promised_ + needed);
  const uint32_t end = cells_.fresh_after(all);
  if (!cells_.prepare(all) || (end != 0 && !tree_.ensure(tree_.first_extra() + end - 1))) {
    return Error(Errc::out_of_memory, "no memory for the index of saved states");
  }
  if (end > entries_.size()) {
    base::make_room(entries_, end - entries_.size());
    entries_.resize(end, kNone);
  }
  const auto [home, fresh] = roots_.try_emplace(scope);
  if (fresh) {
    home->second.cell = new_cell();
    tree_.make_root(home->second.cell, {});
  }
  ++home->second.promises;
  promised_ += cells_for(depth);
  return &*home;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for the index of saved states");
}

void StateIndex::give_back(Home* home, uint32_t depth) noexcept {
  promised_ -= cells_for(depth);
  --home->second.promises;
  let_go(home);
}

void StateIndex::let_go(Home* home) noexcept {
  if (home->second.entries != 0 || home->second.promises != 0) return;
  const CellIndex root = home->second.cell;
  tree_.remove(root);
  cells_.release(place(root));
  const Scope scope = home->first;
  roots_.erase(scope);
}

StateIndex::Put StateIndex::put(Home* home, std::span<const uint32_t> words,
                                uint32_t entry) noexcept {
  promised_ -= cells_for(words.size());
  --home->second.promises;
  Walked at = walk(home->second.cell, words);
  // The last kHintDistance cells of the path, by level: a new cell needs the one that many levels
  // up.
  std::array<CellIndex, tree::kHintDistance> recent;
  recent.fill(tree_.sentinel());
  CellIndex above = at.tip;
  for (uint32_t i = 0; i < std::min<uint32_t>(at.cells, recent.size()); ++i) {
    recent[(at.cells - 1 - i) % recent.size()] = above;
    above = tree_.parent(above);
  }
  while (size_t{at.cells} * kCellTokens < words.size()) {
    const std::span<const uint32_t> next = cell_words(words, at.cells);
    CellIndex cell = next.size() < kCellTokens ? tree_.find_child(at.tip, next) : kNoCell;
    if (cell == kNoCell) {
      cell = new_cell();
      tree_.publish(cell, at.tip, recent[at.cells % recent.size()], next, false, nullptr);
    }
    recent[at.cells % recent.size()] = cell;
    at = {cell, at.cells + 1};
  }
  const Put put{at.tip, entry_of(at.tip)};
  entry_of(at.tip) = entry;
  if (put.before == kNone) ++home->second.entries;
  return put;
}

void StateIndex::remove(Place at) noexcept {
  entry_of(at.cell) = kNone;
  CellIndex cell = at.cell;
  while (cell != at.home->second.cell && !tree_.has_child(cell) && entry_of(cell) == kNone) {
    const CellIndex above = tree_.parent(cell);
    tree_.remove(cell);
    cells_.release(place(cell));
    cell = above;
  }
  --at.home->second.entries;
  let_go(at.home);
}

uint64_t StateIndex::bytes() const noexcept {
  return tree_.bytes() + cells_.bytes() + entries_.capacity() * sizeof(uint32_t) +
         roots_.size() * (sizeof(Home) + 2 * sizeof(void*)) + roots_.bucket_count() * sizeof(void*);
}

void StateIndex::check_invariants() const {
  cells_.check_invariants();
  uint64_t cells = 0;
  uint64_t promises = 0;
  for (const auto& [scope, root] : roots_) {
    tree_.check_invariants(root.cell);
    STEMMA_CHECK(root.entries + root.promises != 0 && entry_of(root.cell) == kNone);
    promises += root.promises;
    uint32_t entries = 0;
    std::vector<CellIndex> below;
    tree_.descendants(root.cell, below);
    cells += 1 + below.size();
    for (CellIndex cell : below) {
      STEMMA_CHECK(tree_.has_child(cell) || entry_of(cell) != kNone);
      entries += entry_of(cell) != kNone ? 1 : 0;
    }
    STEMMA_CHECK(entries == root.entries);
  }
  STEMMA_CHECK(cells == cells_.cached_blocks());
  STEMMA_CHECK(promises <= promised_ && promised_ <= cells_.free_blocks());
}

}  // namespace stemma::sequence
