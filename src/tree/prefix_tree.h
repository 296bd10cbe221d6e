// The prefix tree: the index of known words, with one fixed-size cell per block of words.
//
// A path from a scope's root spells a prompt. A run without branches is a chain of cells: cells are
// never split or merged. The children of a cell form a crit-bit trie embedded in their own records,
// so that one descent and one comparison find the exact child, or the child that shares most words.
// The caller numbers the cells (a cell's number may be a block's number). The tree allocates no
// cells, holds no bytes, and does not know who uses a cell.
//
// A cell is dead, or live from publish() (or make_root()) to remove():
//
//   dead --publish(words, parent)--> live --orphan()--> live, unreachable --remove()--> dead
//                                      '------------------remove()---------------------'
//
// Invariants: (1) A cell with a child is never removed, so holding the deepest cell holds the path.
//             (2) Words, parent, up link and birth do not change while a cell is live.
//             (3) A live cell that is not an orphan is found from its parent.
//             (4) Of n siblings exactly n-1 embed a trie node, each above its own cell's reference;
//                 crit strictly increases downwards.
//             (5) Hints may be wrong; they are used only if parent and words match.
// Threading:  one writer at a time; calls marked "any thread" may run beside it. A reader reads
//             births() first, walks, then calls valid_prefix() under the writer's lock: if a cell
//             is live, reachable and was born before the walk began, then it and all its ancestors
//             were there, unchanged, during the whole walk. (A generation check on the deepest cell
//             alone would not do: an ancestor may have been recycled after it was compared and
//             before the deepest cell was born.)
// Cost:       32 bytes a cell and 4 a word, taken as cells are first used. publish and remove: one
//             or two trie descents. An adversary who chooses words can make a descent take one step
//             per bit of a cell (512 for 16 words: a few microseconds).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/relaxed.h"
#include "base/slab.h"
#include "stemma/key.h"
#include "tree/cell.h"
#include "tree/walk.h"
#include "tree/words.h"

namespace stemma::tree {

class PrefixTree {
 public:
  struct Shape {
    uint32_t cell_tokens = 16;  // Words a cell holds.
    uint32_t first_cells = 0;   // Cells [0, first_cells): usually a block pool numbers them.
    uint32_t extra_cells = 0;   // Cells [first_cells + 1, ...): roots, short anchors.
    bool keys = false;          // Whether to keep a content key per cell.
  };
  // Returns false if the system gives no address space.
  [[nodiscard]] bool create(const Shape& shape);

  uint32_t cell_tokens() const noexcept { return tokens_; }
  CellIndex sentinel() const noexcept { return sentinel_; }
  CellIndex first_extra() const noexcept { return sentinel_ + 1; }
  uint32_t total_cells() const noexcept { return total_; }
  // Allocates a cell that is about to be used. Returns false if out of memory.
  [[nodiscard]] bool ensure(CellIndex cell);

  // ---- Any thread ------------------------------------------------------------------------------

  // The number of publications so far; read it before walking.
  uint32_t births() const noexcept { return births_.load(std::memory_order_acquire); }
  // Follows `cells` whole cells of `query` from `root`, writing their numbers to `path`.
  WalkResult walk(CellIndex root, const uint32_t* query, uint32_t cells,
                  CellIndex* path) const noexcept {
    return walk_(view_, root, query, cells, path);
  }

  // ---- Reading, under the lock -----------------------------------------------------------------

  bool is_live(CellIndex cell) const noexcept { return (hot_[cell].link & kLive) != 0; }
  bool is_orphan(CellIndex cell) const noexcept { return (hot_[cell].link & kOrphan) != 0; }
  bool is_inner(CellIndex cell) const noexcept { return (sibling_[cell].flags & kInner) != 0; }
  bool is_cut(CellIndex cell) const noexcept { return (sibling_[cell].flags & kCut) != 0; }
  bool is_short(CellIndex cell) const noexcept { return (hot_[cell].link & kShort) != 0; }
  bool is_anchored(CellIndex cell) const noexcept { return (hot_[cell].link & kAnchored) != 0; }
  bool is_root(CellIndex cell) const noexcept { return parent(cell) == sentinel_; }
  bool has_child(CellIndex cell) const noexcept { return hot_[cell].child != kNoRef; }
  bool has_media(CellIndex cell) const noexcept { return (sibling_[cell].flags & kHasMedia) != 0; }
  CellIndex parent(CellIndex cell) const noexcept { return hot_[cell].link & kIndexMask; }
  uint32_t birth(CellIndex cell) const noexcept { return hot_[cell].birth; }
  const uint32_t* words(CellIndex cell) const noexcept {
    return words_.data() + static_cast<uint64_t>(cell) * tokens_;
  }
  // Words before the padding: cell_tokens() unless the cell is short.
  uint32_t word_count(CellIndex cell) const noexcept;
  const ContentKey& key(CellIndex cell) const noexcept { return keys_[cell]; }

  // Whether a cell seen by a walk that began at `births` was really there all along.
  bool was_there(CellIndex cell, uint32_t births) const noexcept {
    const uint32_t link = hot_[cell].link;
    return (link & (kLive | kOrphan)) == kLive &&
           static_cast<int32_t>(hot_[cell].birth - births) <= 0;
  }
  // How many leading cells of a walked path were there all along. O(log cells).
  uint32_t valid_prefix(CellIndex root, const CellIndex* path, uint32_t cells,
                        uint32_t births) const noexcept;

  // The child of `parent` with exactly these words, or kNoCell. Fewer words than a cell holds name
  // a short child.
  CellIndex find_child(CellIndex parent, std::span<const uint32_t> words) const noexcept;
  struct Partial {
    CellIndex cell = kNoCell;
    uint32_t words = 0;  // Leading words in common, at most those asked for.
  };
  // A child that shares most leading words with `words`; kNoCell if no child shares any.
  Partial best_child(CellIndex parent, std::span<const uint32_t> words) const noexcept;
  // Short children whose words are a strict prefix of `words`, shortest first; fewer than
  // cell_tokens().
  void short_prefixes(CellIndex parent, std::span<const uint32_t> words,
                      std::vector<CellIndex>& out) const;
  // Visit the children of a cell one by one, without allocating. A child may be removed once the
  // next one is known. kNoCell: there are no (more) children.
  CellIndex first_child(CellIndex parent) const noexcept { return trie_first(hot_[parent].child); }
  CellIndex next_child(CellIndex child) const noexcept {
    return trie_next(hot_[parent(child)].child, child);
  }
  // The same for all cells below `top`, parents before children; starts with `cell` = top. Once the
  // next one is known, a childless cell may be removed, and so may the cells above it that then
  // have no child left.
  CellIndex next_below(CellIndex top, CellIndex cell) const noexcept;
  // Calls visit(cell, depth) for every cell below `top`, parents first; right below `top` the depth
  // is 1. Linear in the cells. `visit` must not change the tree.
  template <class Visit>
  void visit_below(CellIndex top, Visit&& visit) const {
    uint32_t depth = 0;
    for (CellIndex cell = top;;) {
      if (has_child(cell)) {
        cell = first_child(cell);
        ++depth;
      } else {
        CellIndex next = kNoCell;
        for (; cell != top && (next = next_child(cell)) == kNoCell; --depth) cell = parent(cell);
        if (cell == top) return;
        cell = next;
      }
      visit(cell, depth);
    }
  }
  void children(CellIndex parent, std::vector<CellIndex>& out) const;
  bool branches(CellIndex cell) const noexcept {
    return hot_[cell].child != kNoRef && is_node(hot_[cell].child);
  }
  // Appends the depths (`begin` + words) at which children of `parent` part from those that go on
  // like `words`, ascending and without repeats.
  void branch_words(CellIndex parent, std::span<const uint32_t> words, uint32_t begin,
                    std::vector<uint32_t>& depths) const;
  // All cells below `top`, parents before children; `top` itself is not included.
  void descendants(CellIndex top, std::vector<CellIndex>& out) const;
  CellIndex ancestor(CellIndex cell, uint32_t levels) const noexcept {
    for (; levels != 0; --levels) cell = parent(cell);
    return cell;
  }

  // ---- Changing, under the lock ----------------------------------------------------------------

  void make_root(CellIndex cell, const ContentKey& key);
  // Makes `cell` a child of `parent`. `up` is the cell kHintDistance levels above it, or the
  // sentinel. Requires: dead, ensured, 1..cell_tokens words, no equal child; short cells get no
  // children.
  void publish(CellIndex cell, CellIndex parent, CellIndex up, std::span<const uint32_t> words,
               bool media, const ContentKey* key);
  // Unlinks and kills a cell without children.
  void remove(CellIndex cell);
  // Cuts `top` off from its parent; it and all below stay live for their holders. Its parent no
  // longer counts it as a child, so the caller must hold the parent until `top` is removed.
  void orphan(CellIndex top) noexcept;
  // Births are compared as signed differences: a cell older than 2^31 publications would look
  // unborn to every walk. Code that meets an old cell under the lock makes it young. Walks that
  // began before that reject the cell once, and their results stay correct.
  void keep_young(CellIndex cell) noexcept {
    const uint32_t now = births_.load(std::memory_order_relaxed);
    if (now - hot_[cell].birth > 1U << 30U) base::store_relaxed(hot_[cell].birth, now);
  }
  void set_anchored(CellIndex cell, bool anchored) noexcept;
  // Rewrites the hints along a path, so that the next walk finds every cell by its hint.
  void repair_hints(const CellIndex* path, uint32_t cells) noexcept;
  // Prefetches what evicting `cell`'s ancestors will need.
  void prefetch_up(CellIndex cell) const noexcept {
    const CellIndex up = sibling_[cell].up;
    __builtin_prefetch(hot_.data() + up, 1);
    __builtin_prefetch(sibling_.data() + up, 1);
    __builtin_prefetch(words(up), 1, 2);  // The next user of the cell will write them.
  }
  // Loads what removing these cells will read, for all cells at once. One by one, each would wait
  // for a chain of loads down the trie of its siblings. Changes nothing.
  void load_for_removal(std::span<const CellIndex> cells) const noexcept;
  CellIndex up(CellIndex cell) const noexcept { return sibling_[cell].up; }
  // Prefetches what publishing `cell` will write.
  void prefetch_cell(CellIndex cell) const noexcept {
    __builtin_prefetch(words(cell), 1);
    __builtin_prefetch(hot_.data() + cell, 1);
    __builtin_prefetch(sibling_.data() + cell, 1);
  }

  // ---- Inner anchors: short cells below a cell, beside its children ----------------------------

  // A short cell that carries anchors at a depth inside a cell. It lives beside the children of
  // `parent`; only these calls find it. It goes when `parent` goes.
  CellIndex find_inner(CellIndex parent, std::span<const uint32_t> words) const noexcept;
  // May throw std::bad_alloc before anything changes.
  void publish_inner(CellIndex cell, CellIndex parent, std::span<const uint32_t> words, bool media);
  void remove_inner(CellIndex cell);
  // Inner cells whose words are a prefix of `words`, shortest first; at most cell_tokens().
  void inner_prefixes(CellIndex parent, std::span<const uint32_t> words,
                      std::vector<CellIndex>& out) const;
  // Visit them one by one, as with first_child().
  CellIndex first_inner(CellIndex parent) const noexcept;
  CellIndex next_inner(CellIndex cell) const noexcept;
  void inner_children(CellIndex parent, std::vector<CellIndex>& out) const;
  bool has_inner(CellIndex parent) const { return inner_.count(parent) != 0; }

  uint64_t bytes() const noexcept;
  // Stops the process with a description if an invariant is broken below `root`.
  void check_invariants(CellIndex root) const;

 private:
  // Operations on the trie below `root`, over the words of its cells.
  CellIndex trie_find(Ref root, std::span<const uint32_t> words) const noexcept;
  CellIndex trie_first(Ref root) const noexcept;
  CellIndex trie_next(Ref root, CellIndex cell) const noexcept;
  void trie_insert(Ref* root, CellIndex cell);
  void trie_remove(Ref* root, CellIndex cell);
  void trie_short_prefixes(Ref root, std::span<const uint32_t> words,
                           std::vector<CellIndex>& out) const;
  void trie_cells(Ref root, std::vector<CellIndex>& out) const;
  bool equal_words(CellIndex cell, std::span<const uint32_t> words) const noexcept;
  void count_birth() noexcept {
    // One writer: no need for an atomic addition.
    births_.store(births_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void write_cell(CellIndex cell, CellIndex parent, uint32_t flags, std::span<const uint32_t> words,
                  bool media);
  void check_trie(Ref root, CellIndex parent) const;

  uint32_t tokens_ = 16;
  CellIndex sentinel_ = 0;
  uint32_t total_ = 0;
  WalkFunction walk_ = nullptr;
  WalkView view_{};
  base::Slab<uint32_t> words_;
  base::Slab<Hot> hot_;
  base::Slab<Sibling> sibling_;
  base::Slab<ContentKey> keys_;
  base::Growth growth_first_;
  base::Growth growth_extra_;
  std::atomic<uint32_t> births_{0};
  std::unordered_map<CellIndex, Ref> inner_;
};

// Called per block: inline.

inline void PrefixTree::write_cell(CellIndex cell, CellIndex parent, uint32_t flags,
                                   std::span<const uint32_t> words, bool media) {
  STEMMA_DCHECK(!is_live(cell));
  Hot& hot = hot_[cell];
  base::store_relaxed(hot.child, kNoRef);
  base::store_relaxed(hot.hint, sentinel_);
  store_words(words_.data() + static_cast<uint64_t>(cell) * tokens_, words.data(),
              static_cast<uint32_t>(words.size()), tokens_);
  sibling_[cell].flags = media ? kHasMedia : 0;
  const uint32_t birth = births_.load(std::memory_order_relaxed) + 1;
  base::store_relaxed(hot.birth, birth);
  if (words.size() < tokens_) flags |= kShort;
  __atomic_store_n(&hot.link, parent | kLive | flags, __ATOMIC_RELEASE);
}

inline void PrefixTree::publish(CellIndex cell, CellIndex parent, CellIndex up,
                                std::span<const uint32_t> words, bool media,
                                const ContentKey* key) {
  // A cell below an orphan is as unreachable as its parent.
  write_cell(cell, parent, hot_[parent].link & kOrphan, words, media);
  sibling_[cell].up = up;
  if (keys_ && key != nullptr) keys_[cell] = *key;
  if (hot_[parent].child == kNoRef) {
    __atomic_store_n(&hot_[parent].child, cell_ref(cell), __ATOMIC_RELEASE);
  } else {
    trie_insert(&hot_[parent].child, cell);
  }
  // The first continuation sets the hint; lookups repair it when another is used.
  if (up != sentinel_ && hot_[up].hint == sentinel_) base::store_relaxed(hot_[up].hint, cell);
  count_birth();
}

inline void PrefixTree::remove(CellIndex cell) {
  STEMMA_CHECK(is_live(cell) && !has_child(cell));
  Hot& hot = hot_[cell];
  const CellIndex above = parent(cell);
  // The top of an orphaned subtree is in no trie; below it everything is linked as before.
  const bool cut = is_orphan(cell) && is_cut(cell);
  if (hot_[above].child == cell_ref(cell)) {
    base::store_relaxed(hot_[above].child, kNoRef);  // The only child: no trie to mend.
  } else if (above != sentinel_ && !cut) {
    trie_remove(&hot_[above].child, cell);
  }
  base::store_relaxed(hot.link, sentinel_);
}

}  // namespace stemma::tree
