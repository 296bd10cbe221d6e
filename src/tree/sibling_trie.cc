// The crit-bit tries of PrefixTree: siblings ordered by the bits of their words.
//
// A node decides on one bit (counted from the first word's highest); everything below it agrees on
// all bits before. Nodes live inside the records of the cells they order: inserting a cell brings
// its own node, removing one takes a node away, perhaps another cell's, whose place the removed
// cell's own node then takes. Descents read only node records; one comparison at the end decides.
// Missing words read as padding (all ones), so short cells are ordinary members.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "tree/prefix_tree.h"
#include "tree/words.h"

namespace stemma::tree {

using base::store_relaxed;

namespace {

uint32_t bit_of(std::span<const uint32_t> words, uint32_t crit) noexcept {
  const uint32_t index = crit >> 5;
  const uint32_t word = index < words.size() ? words[index] : key::kPadWord;
  return word >> (31 - (crit & 31)) & 1U;
}

}  // namespace

CellIndex PrefixTree::trie_find(Ref ref, std::span<const uint32_t> words) const noexcept {
  while (is_node(ref)) {
    const Sibling& node = sibling_[ref];
    ref = node.turns[bit_of(words, node.crit)];
  }
  return ref == kNoRef ? kNoCell : cell_of(ref);
}

CellIndex PrefixTree::trie_first(Ref ref) const noexcept {
  while (is_node(ref)) ref = sibling_[ref].turns[0];
  return ref == kNoRef ? kNoCell : cell_of(ref);
}

CellIndex PrefixTree::trie_next(Ref ref, CellIndex cell) const noexcept {
  // Descends to the cell and remembers the last turn to the left.
  const std::span<const uint32_t> own(words(cell), tokens_);
  Ref beyond = kNoRef;
  while (is_node(ref)) {
    const Sibling& node = sibling_[ref];
    const uint32_t bit = bit_of(own, node.crit);
    if (bit == 0) beyond = node.turns[1];
    ref = node.turns[bit];
  }
  return trie_first(beyond);
}

void PrefixTree::trie_insert(Ref* root, CellIndex cell) {
  if (*root == kNoRef) {
    __atomic_store_n(root, cell_ref(cell), __ATOMIC_RELEASE);
    return;
  }
  const std::span<const uint32_t> own(words(cell), tokens_);
  const uint32_t* other = words(trie_find(*root, own));
  uint32_t index = 0;
  while (index < tokens_ && own[index] == other[index]) ++index;
  STEMMA_CHECK(index < tokens_);  // Equal siblings are the caller's bug.
  const auto crit = static_cast<uint16_t>(
      index * 32 + static_cast<uint32_t>(__builtin_clz(own[index] ^ other[index])));

  Ref* link = root;
  while (is_node(*link) && sibling_[*link].crit < crit) {
    Sibling& node = sibling_[*link];
    link = &node.turns[bit_of(own, node.crit)];
  }
  Sibling& node = sibling_[cell];
  const uint32_t bit = bit_of(own, crit);
  store_relaxed(node.crit, crit);
  store_relaxed(node.turns[bit], cell_ref(cell));
  store_relaxed(node.turns[1 - bit], *link);
  __atomic_store_n(link, node_ref(cell), __ATOMIC_RELEASE);
}

void PrefixTree::trie_remove(Ref* root, CellIndex cell) {
  if (*root == cell_ref(cell)) {
    store_relaxed(*root, kNoRef);
    return;
  }
  // With many siblings, this is most of the cost of eviction. A stored cell has all of its words,
  // padding included: every bit is there.
  const uint32_t* const own = words(cell);
  Sibling* const nodes = sibling_.data();
  Ref* own_link = nullptr;   // The link that names the cell's own node.
  Ref* last_link = nullptr;  // The link that names the last node above the cell.
  Ref* link = root;
  for (Ref ref = *root; is_node(ref); ref = *link) {
    if (ref == node_ref(cell)) own_link = link;
    last_link = link;
    Sibling& node = nodes[ref];
    const uint32_t crit = node.crit;
    link = &node.turns[own[crit >> 5U] << (crit & 31U) >> 31U];
  }
  STEMMA_CHECK(*link == cell_ref(cell) && last_link != nullptr);
  const CellIndex last = *last_link;
  Sibling& spliced = sibling_[last];
  // Splice first, copy second: the spliced link may lie inside the record that is copied.
  store_relaxed(*last_link, spliced.turns[link == &spliced.turns[0] ? 1 : 0]);
  if (last != cell && own_link != nullptr) {
    const Sibling& mine = sibling_[cell];
    store_relaxed(spliced.crit, mine.crit);
    store_relaxed(spliced.turns[0], mine.turns[0]);
    store_relaxed(spliced.turns[1], mine.turns[1]);
    store_relaxed(*own_link, node_ref(last));
  }
}

void PrefixTree::load_for_removal(std::span<const CellIndex> cells) const noexcept {
  struct Descent {
    Ref ref;
    const uint32_t* words;
  };
  std::array<Descent, 16> descents;
  size_t count = std::min(cells.size(), descents.size());
  for (CellIndex cell : cells.first(count)) prefetch_cell(cell);
  for (size_t i = 0; i < count; ++i) {
    descents[i] = {hot_[parent(cells[i])].child, words(cells[i])};
  }
  // Each search takes one step in turn, so that memory for one loads while the others work.
  while (count != 0) {
    for (size_t i = 0; i < count;) {
      Descent& at = descents[i];
      if (!is_node(at.ref)) {
        at = descents[--count];
        continue;
      }
      const Sibling& node = sibling_[at.ref];
      at.ref = node.turns[at.words[node.crit >> 5U] << (node.crit & 31U) >> 31U];
      if (is_node(at.ref)) __builtin_prefetch(sibling_.data() + at.ref, 1);
      ++i;
    }
  }
}

void PrefixTree::trie_short_prefixes(Ref root, std::span<const uint32_t> words,
                                     std::vector<CellIndex>& out) const {
  // A short cell of k words that begins like the query parts from it in word k, where it has
  // padding (highest bits 11), the query a token (0) or a media word (10): at bit 32k or 32k + 1 of
  // the very path the query takes. So only those nodes need a probe.
  uint32_t probed = 0;
  Ref ref = root;
  while (is_node(ref)) {
    const Sibling& node = sibling_[ref];
    const uint32_t k = node.crit >> 5;
    if ((node.crit & 31U) <= 1 && k > probed && k < words.size()) {
      probed = k;
      const std::span<const uint32_t> head = words.first(k);
      const CellIndex found = trie_find(root, head);
      if (found != kNoCell && equal_words(found, head)) out.push_back(found);
    }
    ref = node.turns[bit_of(words, node.crit)];
  }
  if (ref == kNoRef) return;
  const CellIndex end = cell_of(ref);
  const uint32_t count = word_count(end);
  if (count < words.size() && count > probed &&
      common_words(this->words(end), words.data(), count) == count) {
    out.push_back(end);
  }
}

void PrefixTree::branch_words(CellIndex parent, std::span<const uint32_t> words, uint32_t begin,
                              std::vector<uint32_t>& depths) const {
  const Partial best = best_child(parent, words);
  for (Ref ref = hot_[parent].child; is_node(ref);) {
    const Sibling& node = sibling_[ref];
    const uint32_t depth = begin + (node.crit >> 5);
    if ((node.crit >> 5) > best.words || (node.crit >> 5) > words.size()) break;
    if (depths.empty() || depths.back() != depth) depths.push_back(depth);
    ref = node.turns[bit_of(words, node.crit)];
  }
}

void PrefixTree::trie_cells(Ref root, std::vector<CellIndex>& out) const {
  for (CellIndex cell = trie_first(root); cell != kNoCell; cell = trie_next(root, cell)) {
    out.push_back(cell);
  }
}

void PrefixTree::check_trie(Ref root, CellIndex parent_cell) const {
  if (root == kNoRef) return;
  struct Visit {
    Ref ref;
    int32_t above;  // crit of the node above, or -1.
  };
  std::vector<Visit> stack{{root, -1}};
  std::vector<CellIndex> nodes;
  std::vector<CellIndex> cells;
  while (!stack.empty()) {
    const Visit visit = stack.back();
    stack.pop_back();
    if (is_node(visit.ref)) {
      const Sibling& node = sibling_[visit.ref];
      STEMMA_CHECK(static_cast<int32_t>(node.crit) > visit.above);
      nodes.push_back(visit.ref);
      stack.push_back({node.turns[0], node.crit});
      stack.push_back({node.turns[1], node.crit});
    } else {
      STEMMA_CHECK(visit.ref != kNoRef);
      const CellIndex cell = cell_of(visit.ref);
      STEMMA_CHECK(is_live(cell) && parent(cell) == parent_cell);
      STEMMA_CHECK(trie_find(root, {words(cell), tokens_}) == cell);
      cells.push_back(cell);
    }
  }
  STEMMA_CHECK(nodes.size() + 1 == cells.size());
  std::sort(nodes.begin(), nodes.end());
  std::sort(cells.begin(), cells.end());
  STEMMA_CHECK(std::adjacent_find(nodes.begin(), nodes.end()) == nodes.end());
  STEMMA_CHECK(std::includes(cells.begin(), cells.end(), nodes.begin(), nodes.end()));
}

void PrefixTree::check_invariants(CellIndex root) const {
  std::vector<CellIndex> below{root};
  descendants(root, below);
  for (CellIndex cell : below) {
    STEMMA_CHECK(is_live(cell) && is_orphan(cell) == is_orphan(root));
    STEMMA_CHECK(!is_short(cell) || !has_child(cell));
    check_trie(hot_[cell].child, cell);
    if (cell != root && up(cell) != sentinel_) {
      STEMMA_CHECK(ancestor(cell, kHintDistance) == up(cell));
    }
    const auto inner = inner_.find(cell);
    if (inner != inner_.end()) check_trie(inner->second, cell);
  }
}

}  // namespace stemma::tree
