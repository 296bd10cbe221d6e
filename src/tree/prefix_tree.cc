#include "tree/prefix_tree.h"

#include <algorithm>

#include "base/check.h"
#include "tree/words.h"

namespace stemma::tree {

using base::store_relaxed;

bool PrefixTree::create(const Shape& shape) {
  tokens_ = shape.cell_tokens;
  sentinel_ = shape.first_cells;
  total_ = shape.first_cells + 1 + shape.extra_cells;
  STEMMA_CHECK(total_ < kNoCell);
  if (!words_.reserve(static_cast<size_t>(total_) * tokens_) || !hot_.reserve(total_) ||
      !sibling_.reserve(total_)) {
    return false;
  }
  if (shape.keys && !keys_.reserve(total_)) return false;
  growth_first_ = base::Growth(0, shape.first_cells);
  growth_extra_ = base::Growth(sentinel_, total_);
  walk_ = choose_walk(tokens_);
  view_ = {words_.data(), hot_.data(), sibling_.data(), tokens_, sentinel_};
  if (!ensure(sentinel_)) return false;
  hot_[sentinel_] = {sentinel_, kNoRef, sentinel_, 0};
  sibling_[sentinel_].up = sentinel_;
  return true;
}

bool PrefixTree::ensure(CellIndex cell) {
  base::Growth& growth = cell < sentinel_ ? growth_first_ : growth_extra_;
  if (growth.covers(cell)) return true;
  const size_t begin = growth.committed();
  const size_t end = growth.next(cell);
  if (!words_.commit(begin * tokens_, end * tokens_) || !hot_.commit(begin, end) ||
      !sibling_.commit(begin, end) || !keys_.commit(begin, end)) {
    return false;
  }
  growth.advance(end);
  return true;
}

uint32_t PrefixTree::word_count(CellIndex cell) const noexcept {
  if (!is_short(cell)) return tokens_;
  const uint32_t* w = words(cell);
  uint32_t count = 0;
  while (count < tokens_ && w[count] != key::kPadWord) ++count;
  return count;
}

uint32_t PrefixTree::valid_prefix(CellIndex root, const CellIndex* path, uint32_t cells,
                                  uint32_t births) const noexcept {
  if (!was_there(root, births) || !is_root(root)) return 0;
  // If a cell was there, so were its ancestors: the answers are true, ..., true, false, ..., false.
  if (cells == 0 || was_there(path[cells - 1], births)) return cells;
  uint32_t low = 0;
  uint32_t high = cells - 1;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (was_there(path[middle], births)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// ---- Children --------------------------------------------------------------------------------

bool PrefixTree::equal_words(CellIndex cell, std::span<const uint32_t> query) const noexcept {
  const uint32_t* w = words(cell);
  if (common_words(w, query.data(), static_cast<uint32_t>(query.size())) != query.size()) {
    return false;
  }
  return query.size() == tokens_ || w[query.size()] == key::kPadWord;
}

CellIndex PrefixTree::find_child(CellIndex parent, std::span<const uint32_t> words) const noexcept {
  const CellIndex found = trie_find(hot_[parent].child, words);
  return found != kNoCell && equal_words(found, words) ? found : kNoCell;
}

PrefixTree::Partial PrefixTree::best_child(CellIndex parent,
                                           std::span<const uint32_t> query) const noexcept {
  // A blind descent ends at a cell that shares the longest prefix of all siblings, also when the
  // query is shorter than a cell.
  const CellIndex found = trie_find(hot_[parent].child, query);
  if (found == kNoCell) return {};
  const auto limit = static_cast<uint32_t>(std::min<size_t>(query.size(), tokens_));
  const uint32_t common = common_words(words(found), query.data(), limit);
  if (common == 0) return {};
  // If several share as much, the choice must not depend on the rest of the query.
  if (common < limit) return {trie_find(hot_[parent].child, query.first(common)), common};
  return {found, common};
}

void PrefixTree::short_prefixes(CellIndex parent, std::span<const uint32_t> words,
                                std::vector<CellIndex>& out) const {
  trie_short_prefixes(hot_[parent].child, words, out);
}

void PrefixTree::children(CellIndex parent, std::vector<CellIndex>& out) const {
  trie_cells(hot_[parent].child, out);
}

void PrefixTree::descendants(CellIndex top, std::vector<CellIndex>& out) const {
  size_t next = out.size();
  children(top, out);
  for (; next < out.size(); ++next) children(out[next], out);
}

CellIndex PrefixTree::next_below(CellIndex top, CellIndex cell) const noexcept {
  if (has_child(cell)) return first_child(cell);
  for (; cell != top; cell = parent(cell)) {
    const CellIndex next = next_child(cell);
    if (next != kNoCell) return next;
  }
  return kNoCell;
}

// ---- Changing ----------------------------------------------------------------------------------

void PrefixTree::make_root(CellIndex cell, const ContentKey& key) {
  write_cell(cell, sentinel_, 0, {}, false);
  store_relaxed(hot_[cell].link, sentinel_ | kLive);
  sibling_[cell].up = sentinel_;
  if (keys_) keys_[cell] = key;
  count_birth();
}

void PrefixTree::orphan(CellIndex top) noexcept {
  STEMMA_CHECK(is_live(top) && !is_orphan(top));
  if (parent(top) != sentinel_) trie_remove(&hot_[parent(top)].child, top);
  sibling_[top].flags |= kCut;
  for (CellIndex cell = top; cell != kNoCell; cell = next_below(top, cell)) {
    store_relaxed(hot_[cell].link, hot_[cell].link | kOrphan);
  }
}

void PrefixTree::set_anchored(CellIndex cell, bool anchored) noexcept {
  const uint32_t link = hot_[cell].link;
  store_relaxed(hot_[cell].link, anchored ? link | kAnchored : link & ~kAnchored);
}

void PrefixTree::repair_hints(const CellIndex* path, uint32_t cells) noexcept {
  for (uint32_t i = kHintDistance; i < cells; ++i) {
    Hot& hot = hot_[path[i - kHintDistance]];
    if (hot.hint != path[i]) store_relaxed(hot.hint, path[i]);
  }
}

// ---- Inner anchors -----------------------------------------------------------------------------

CellIndex PrefixTree::find_inner(CellIndex parent, std::span<const uint32_t> words) const noexcept {
  const auto it = inner_.find(parent);
  if (it == inner_.end()) return kNoCell;
  const CellIndex found = trie_find(it->second, words);
  return found != kNoCell && equal_words(found, words) ? found : kNoCell;
}

void PrefixTree::publish_inner(CellIndex cell, CellIndex parent, std::span<const uint32_t> words,
                               bool media) {
  Ref& trie = inner_.try_emplace(parent, kNoRef).first->second;  // Everything that needs memory.
  write_cell(cell, parent, 0, words, media);
  sibling_[cell].flags |= kInner;
  trie_insert(&trie, cell);
  count_birth();
}

void PrefixTree::remove_inner(CellIndex cell) {
  const auto it = inner_.find(parent(cell));
  STEMMA_CHECK(it != inner_.end());
  trie_remove(&it->second, cell);
  if (it->second == kNoRef) inner_.erase(it);
  store_relaxed(hot_[cell].link, sentinel_);
}

void PrefixTree::inner_prefixes(CellIndex parent, std::span<const uint32_t> words,
                                std::vector<CellIndex>& out) const {
  const auto it = inner_.find(parent);
  if (it == inner_.end()) return;
  trie_short_prefixes(it->second, words, out);
  const CellIndex exact = words.size() < tokens_ ? trie_find(it->second, words) : kNoCell;
  if (exact != kNoCell && equal_words(exact, words)) out.push_back(exact);
}

CellIndex PrefixTree::first_inner(CellIndex parent) const noexcept {
  const auto it = inner_.find(parent);
  return it == inner_.end() ? kNoCell : trie_first(it->second);
}

CellIndex PrefixTree::next_inner(CellIndex cell) const noexcept {
  return trie_next(inner_.find(parent(cell))->second, cell);
}

void PrefixTree::inner_children(CellIndex parent, std::vector<CellIndex>& out) const {
  const auto it = inner_.find(parent);
  if (it != inner_.end()) trie_cells(it->second, out);
}

uint64_t PrefixTree::bytes() const noexcept {
  return words_.bytes() + hot_.bytes() + sibling_.bytes() + keys_.bytes() +
         inner_.size() * (sizeof(void*) * 2 + sizeof(std::pair<CellIndex, Ref>)) +
         inner_.bucket_count() * sizeof(void*);
}

}  // namespace stemma::tree
