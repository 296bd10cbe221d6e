#include "sequence/live_index.h"

#include <algorithm>

#include "base/check.h"
#include "tree/words.h"

namespace stemma::sequence {

bool LiveIndex::create(uint32_t sequences, uint64_t positions) {
  // Every sequence may have a root and a partly filled cell of its own.
  const uint64_t cells = positions / kCellTokens + 2 * uint64_t{sequences};
  if (cells >= tree::kIndexMask - 1) return false;
  tree::PrefixTree::Shape shape;
  shape.cell_tokens = kCellTokens;
  shape.extra_cells = static_cast<uint32_t>(cells);
  lines_.resize(sequences);
  return tree_.create(shape) && cells_.create(shape.extra_cells);
}

bool LiveIndex::prepare(uint32_t cells) {
  if (!cells_.prepare(cells)) return false;
  const uint32_t end = cells_.fresh_after(cells);
  return end == 0 || tree_.ensure(tree_.first_extra() + end - 1);
}

CellIndex LiveIndex::new_cell() noexcept {
  const uint32_t drafted = cells_.draft();
  STEMMA_CHECK(drafted != pool::BlockPool::kNone);
  cells_.publish(drafted);
  return tree_.first_extra() + drafted;
}

void LiveIndex::free_up_to(CellIndex cell, CellIndex end) noexcept {
  while (cell != end && !tree_.has_child(cell) && cells_.pins(place(cell)) == 0) {
    const CellIndex above = tree_.parent(cell);
    tree_.remove(cell);
    cells_.release(place(cell));
    cell = above;
  }
}

void LiveIndex::let_go(CellIndex root) noexcept {
  if (tree_.has_child(root) || cells_.pins(place(root)) != 0) return;
  for (auto it = roots_.begin(); it != roots_.end(); ++it) {
    if (it->second != root) continue;
    roots_.erase(it);
    break;
  }
  tree_.remove(root);
  cells_.release(place(root));
}

Result<void> LiveIndex::append(SequenceId sequence, const Scope& scope,
                               std::span<const uint32_t> words) {
  Line& line = at(sequence);
  if (words.empty()) return {};
  const auto whole = static_cast<uint32_t>((line.tail.size() + words.size()) / kCellTokens);
  const bool first = line.root == kNoCell;
  if (cells_.free_blocks() < uint64_t{whole} + (first ? 1 : 0)) {
    return Error(Errc::out_of_range, "sequences cannot hold this many positions");
  }
  line.cells.reserve(line.cells.size() + whole);
  line.tail.reserve(kCellTokens);
  if (!prepare(whole + (first ? 1 : 0)))
    return Error(Errc::out_of_memory, "no memory for the index");
  if (first) {
    auto [it, fresh] = roots_.try_emplace(scope, kNoCell);
    if (fresh) {
      it->second = new_cell();
      tree_.make_root(it->second, {});
    }
    line.root = it->second;
    cells_.pin(place(line.root));
  }
  const CellIndex before = line.tip();
  CellIndex tip = before;
  for (uint32_t word : words) {
    line.tail.push_back(word);
    if (line.tail.size() != kCellTokens) continue;
    CellIndex cell = tree_.find_child(tip, line.tail);
    if (cell == kNoCell) {
      cell = new_cell();
      const size_t depth = line.cells.size();
      const CellIndex up =
          depth < tree::kHintDistance ? tree_.sentinel() : line.cells[depth - tree::kHintDistance];
      tree_.publish(cell, tip, up, line.tail, false, nullptr);
    }
    line.cells.push_back(cell);
    line.tail.clear();
    tip = cell;
  }
  if (tip != before) {
    cells_.pin(place(tip));
    cells_.unpin(place(before));
  }
  return {};
}

void LiveIndex::trim(SequenceId sequence, uint32_t n) {
  Line& line = at(sequence);
  if (n >= line.length()) return;
  const CellIndex before = line.tip();
  const uint32_t keep = n / kCellTokens;
  if (keep < line.cells.size()) {
    const uint32_t* cut = tree_.words(line.cells[keep]);
    line.tail.assign(cut, cut + n % kCellTokens);
    line.cells.resize(keep);
  } else {
    line.tail.resize(n % kCellTokens);
  }
  const CellIndex tip = line.tip();
  if (tip != before) {
    cells_.pin(place(tip));
    cells_.unpin(place(before));
    free_up_to(before, tip);
  }
  if (n != 0) return;
  cells_.unpin(place(line.root));
  let_go(line.root);
  line.root = kNoCell;
}

void LiveIndex::read(SequenceId sequence, uint32_t begin, uint32_t end,
                     std::vector<uint32_t>& out) const {
  const Line& line = at(sequence);
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t cell = i / kCellTokens;
    out.push_back(cell < line.cells.size() ? tree_.words(line.cells[cell])[i % kCellTokens]
                                           : line.tail[i % kCellTokens]);
  }
}

void LiveIndex::match(const Scope& scope, std::span<const uint32_t> words,
                      std::vector<Match>& out) {
  const auto found = roots_.find(scope);
  if (found == roots_.end()) return;
  const CellIndex root = found->second;
  const auto whole = static_cast<uint32_t>(words.size() / kCellTokens);
  if (walked_.size() < whole) walked_.resize(whole);
  const uint32_t walked = tree_.walk(root, words.data(), whole, walked_.data()).cells;
  for (uint32_t s = 0; s < lines_.size(); ++s) {
    const Line& line = lines_[s];
    if (line.root != root) continue;
    // Equal cells mean equal words before them: true, ..., true, false, ..., false.
    uint32_t low = 0;
    auto high = std::min(walked, static_cast<uint32_t>(line.cells.size()));
    while (low < high) {
      const uint32_t middle = low + (high - low) / 2;
      if (line.cells[middle] == walked_[middle]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const std::span<const uint32_t> rest = words.subspan(size_t{low} * kCellTokens);
    const bool inside = low < line.cells.size();
    const uint32_t* mine = inside ? tree_.words(line.cells[low]) : line.tail.data();
    const size_t count = inside ? kCellTokens : line.tail.size();
    const uint32_t positions =
        low * kCellTokens +
        tree::common_words(mine, rest.data(), static_cast<uint32_t>(std::min(count, rest.size())));
    if (positions != 0) out.push_back({SequenceId{s}, positions});
  }
}

uint64_t LiveIndex::bytes() const noexcept {
  uint64_t total = tree_.bytes() + cells_.bytes() + roots_.size() * 64;
  for (const Line& line : lines_) {
    total += sizeof(Line) + (line.cells.capacity() + line.tail.capacity()) * sizeof(uint32_t);
  }
  return total;
}

void LiveIndex::check_invariants() const {
  cells_.check_invariants();
  uint64_t cells = 0;
  for (const auto& [scope, root] : roots_) {
    tree_.check_invariants(root);
    ++cells;
    for (CellIndex cell = tree_.next_below(root, root); cell != kNoCell;
         cell = tree_.next_below(root, cell)) {
      ++cells;
      STEMMA_CHECK(tree_.has_child(cell) || cells_.pins(place(cell)) != 0);
    }
  }
  STEMMA_CHECK(cells == cells_.cached_blocks());
  for (const Line& line : lines_) {
    STEMMA_CHECK((line.root == kNoCell) == (line.length() == 0));
    if (line.root == kNoCell) continue;
    CellIndex above = line.root;
    for (CellIndex cell : line.cells) {
      STEMMA_CHECK(tree_.is_live(cell) && tree_.parent(cell) == above);
      above = cell;
    }
    STEMMA_CHECK(cells_.pins(place(line.tip())) != 0);
  }
}

}  // namespace stemma::sequence
