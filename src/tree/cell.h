// The memory layout of a cell, the prefix tree's record for one block of words, and of references
// to cells. A cell takes 32 bytes besides its words, in two parallel slabs: a lookup reads `hot`
// for every block; `sibling` is read only at branch points and by changes.
#pragma once

#include <cstdint>

#include "stemma/retention.h"

namespace stemma::tree {

// A child reference names a cell (top bit set) or a node of a sibling trie (the node is embedded in
// the record of some sibling). kNoRef is neither.
using Ref = uint32_t;
inline constexpr Ref kCellBit = 0x8000'0000U;
inline constexpr Ref kNoRef = 0xFFFF'FFFFU;
constexpr Ref cell_ref(CellIndex cell) noexcept { return cell | kCellBit; }
constexpr Ref node_ref(CellIndex cell) noexcept { return cell; }
constexpr bool is_node(Ref ref) noexcept { return (ref & kCellBit) == 0; }
constexpr CellIndex cell_of(Ref ref) noexcept { return ref & ~kCellBit; }

// Flags share the word of the parent's index.
inline constexpr uint32_t kIndexMask = 0x0FFF'FFFFU;
inline constexpr uint32_t kLive = 0x1000'0000U;      // Published and not freed.
inline constexpr uint32_t kShort = 0x2000'0000U;     // A tail: fewer words than a cell holds.
inline constexpr uint32_t kAnchored = 0x4000'0000U;  // It, or an inner cell below, has anchors.
inline constexpr uint32_t kOrphan = 0x8000'0000U;    // Cut off from its root while leased.

// A lookup takes block i's candidate from the cell of block i - kHintDistance: 16 levels ahead hide
// the latency of scattered cells (4 is too few, 32 is no better; measured).
inline constexpr uint32_t kHintDistance = 16;

struct Hot {
  uint32_t link;   // Parent index | flags.
  Ref child;       // The only child, or the root of the children's trie.
  CellIndex hint;  // The cell kHintDistance levels below, as last seen; always checked.
  uint32_t birth;  // Number of its publication.
};
static_assert(sizeof(Hot) == 16);

struct Sibling {
  Ref turns[2];   // Children of the embedded trie node, by the bit it tests.
  uint16_t crit;  // That bit's index, from the first word's highest bit.
  uint16_t flags;
  CellIndex up;  // The ancestor kHintDistance levels above, or the sentinel. Always exact, because
                 // ancestors outlive descendants. Eviction loads ahead by it.
};
static_assert(sizeof(Sibling) == 16);

// Sibling::flags.
inline constexpr uint16_t kHasMedia = 1;  // Some words are media words.
inline constexpr uint16_t kInner = 4;     // Carries anchors at a depth inside a cell; not a child.
inline constexpr uint16_t kCut = 2;  // The top of an orphaned subtree: not a child of its parent.

}  // namespace stemma::tree
