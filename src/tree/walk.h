// The hot loop of a lookup: follows a prompt down the tree, one cell per block, without a lock.
//
// Compiled three times (plain, AVX2, AVX-512) and chosen at run time. It may run beside a writer:
// it reads everything by relaxed loads, trie descents are bounded, and its result is only a claim
// that PrefixTree::valid_prefix() verifies under the lock.
#pragma once

#include <cstdint>

#include "tree/cell.h"

namespace stemma::tree {

struct WalkView {
  const uint32_t* words;
  const Hot* hot;
  const Sibling* sibling;
  uint32_t cell_tokens;
  CellIndex sentinel;
};

struct WalkResult {
  uint32_t cells = 0;      // How many cells matched; their numbers are in `path`.
  uint32_t fallbacks = 0;  // Blocks found through the child reference instead of a hint.
  uint32_t word_bits = 0;  // All matched query words or-ed together.
};

using WalkFunction = WalkResult (*)(const WalkView& view, CellIndex root, const uint32_t* query,
                                    uint32_t cells, CellIndex* path);

WalkResult walk_plain(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                      CellIndex* path);
#if defined(__x86_64__)
WalkResult walk_avx2(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                     CellIndex* path);
WalkResult walk_avx512(const WalkView& view, CellIndex root, const uint32_t* query, uint32_t cells,
                       CellIndex* path);
#endif

// The best one for this machine and cell size. The vector ones are for cells of 16 words.
WalkFunction choose_walk(uint32_t cell_tokens) noexcept;
bool cpu_has_avx2() noexcept;
bool cpu_has_avx512() noexcept;

}  // namespace stemma::tree
