// The body of walk.h, included by each of its translation units, which define `Compare` first:
//   struct Compare {
//     static constexpr uint32_t kTokens;                  0: any cell size
//     void begin(); bool equal(const uint32_t* cell, const uint32_t* query, uint32_t tokens);
//     uint32_t bits() const; }
// Only equal() reads words that a writer may be writing. That is formally a data race, but
// harmless: a cell rewritten during the walk was born after the walk began, so it is rejected.
// Under ThreadSanitizer it uses atomic loads (see words.h).
// Only raw code here: these files are compiled with instructions the machine may lack, and a
// library function emitted from them could be linked into code that runs everywhere.
#pragma once

namespace {

inline uint32_t load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); }

// The only cell below `parent` that can equal the query, or the sentinel.
inline CellIndex descend(const WalkView& view, CellIndex parent, const uint32_t* query) {
  Ref ref = load(view.hot[parent].child);
  int32_t last = -1;
  while (is_node(ref)) {
    const Sibling& node = view.sibling[ref];
    const int32_t crit = __atomic_load_n(&node.crit, __ATOMIC_RELAXED);
    if (crit <= last) return view.sentinel;  // A writer is at work here.
    last = crit;
    const uint32_t bit = query[crit >> 5] >> (31 - (crit & 31)) & 1U;
    ref = load(node.turns[bit]);
  }
  return ref == kNoRef ? view.sentinel : cell_of(ref);
}

inline WalkResult walk_with_compare(const WalkView& view, CellIndex root, const uint32_t* query,
                                    uint32_t cells, CellIndex* path) {
  Compare compare;
  compare.begin();
  const uint32_t tokens = Compare::kTokens != 0 ? Compare::kTokens : view.cell_tokens;
  WalkResult result;
  CellIndex current = root;
  uint32_t i = 0;
  for (; i < cells; ++i, query += tokens) {
    CellIndex candidate =
        i >= kHintDistance ? load(view.hot[path[i - kHintDistance]].hint) : view.sentinel;
    // The sentinel is its own parent, so "no hint" fails the first check without a branch of its
    // own.
    if ((load(view.hot[candidate].link) & kIndexMask) != current ||
        !compare.equal(view.words + static_cast<uint64_t>(candidate) * tokens, query, tokens)) {
      ++result.fallbacks;
      candidate = descend(view, current, query);
      if ((load(view.hot[candidate].link) & kIndexMask) != current ||
          !compare.equal(view.words + static_cast<uint64_t>(candidate) * tokens, query, tokens)) {
        break;
      }
    }
    path[i] = candidate;
    current = candidate;
    const CellIndex ahead = load(view.hot[candidate].hint);
    __builtin_prefetch(view.words + static_cast<uint64_t>(ahead) * tokens);
    __builtin_prefetch(view.hot + ahead);
  }
  result.cells = i;
  result.word_bits = compare.bits();
  return result;
}

}  // namespace
