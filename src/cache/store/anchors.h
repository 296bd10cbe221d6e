// Anchors: what is attached to the tree at exact depths, beside blocks: the states of recurrent
// groups (checkpoints) and logits.
//
// A depth at the end of a cell is anchored at that cell. A depth inside a cell has an inner cell
// below the one before it.
//
// Invariant:  an inner cell carries at least one anchor, except between the making of the cell and
//             the attaching of its first anchor.
// Threading:  one thread at a time. Only the calls that say so may throw std::bad_alloc.
#pragma once

#include <span>

#include "cache/store/blocks.h"

namespace stemma::cache {

class Anchors {
 public:
  Anchors(Books& books, Blocks& blocks) noexcept : books_(books), blocks_(blocks) {}

  // Makes the inner cell for the depth where `words` end. Requires a free place in `extra`, and
  // that there is none yet. May throw std::bad_alloc before anything changes.
  CellIndex add_inner(CellIndex parent, std::span<const uint32_t> words);
  void drop_inner_if_bare(CellIndex cell);  // Does nothing to any other cell.

  // Attaches a drafted state, in the place of an older one. May throw std::bad_alloc before
  // anything changes.
  void attach_checkpoint(GroupIndex g, CellIndex cell, uint32_t slot, const LeaseRecord& who,
                         uint32_t depth);
  // Requires that they fit the shelf. May throw std::bad_alloc before anything changes.
  void attach_logits(CellIndex cell, std::span<const float> values);
  // Frees an unpinned block of a window or recurrent group, while its cell stays.
  void evict_loose(GroupIndex g, uint32_t page, uint32_t tenant_index);

  // Drops the logits and checkpoints of a cell and of the inner cells below it.
  void drop(CellIndex cell, uint32_t tenant_index);
  // The same for inner cells below `parent` whose words are a prefix of `words`, or the reverse.
  void drop_inner(CellIndex parent, std::span<const uint32_t> words, uint32_t tenant_index);

 private:
  void drop_at(CellIndex cell, uint32_t tenant_index);

  Books& books_;
  Blocks& blocks_;
};

}  // namespace stemma::cache
