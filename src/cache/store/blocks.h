// Blocks: what happens to a block of a layer group, from its draft to its end.
//
//   draft() -> discard()
//           -> attach() at a cell -> pin() / unpin() by leases -> detach() when it is evicted
//
// Invariant:  a cached block of a group beside the index is entered at its home; an unpinned block
//             of a window or recurrent group waits in its group's order of eviction.
// Threading:  one thread at a time. Only the calls that say so may throw std::bad_alloc.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cache/books/books.h"
#include "cache/lease/lease_record.h"

namespace stemma::cache {

class Blocks {
 public:
  explicit Blocks(Books& books) noexcept : books_(books) {}

  // Takes one block, or one cell, for writing. Requires room. If cells are numbered, a cell is also
  // a block of group 0.
  uint32_t draft(GroupIndex g, uint32_t tenant_index);
  CellIndex draft_cell(uint32_t tenant_index);
  // Gives a draft or duplicate back.
  void discard(GroupIndex g, uint32_t page, uint32_t tenant_index);
  void discard_cell(CellIndex cell, uint32_t tenant_index);
  // For loading a dump: takes exactly this one. Returns false if it is not free. May throw
  // std::bad_alloc.
  bool draft_cell_exactly(CellIndex cell, uint32_t tenant_index);
  bool draft_exactly(GroupIndex g, uint32_t page, uint32_t tenant_index);
  void relist();  // After the calls above; see BlockPool.

  // Enters a lease's block at its home, and at the cells above it in the same block that have no
  // block (or an unused lesser one). `cells_in_block` counts the block's cells on the home's path,
  // including the home.
  enum class Lesser : uint8_t { replace, keep };
  void attach(GroupIndex g, CellIndex home, uint32_t page, uint32_t cells_in_block,
              uint32_t tenant_index, Lesser lesser = Lesser::replace);
  // Takes a cached block of a group beside the index out of it and frees it.
  void detach(GroupIndex g, uint32_t page, uint32_t tenant_index);
  // What has to end with a cell: its blocks in the groups beside the index.
  void detach_all(CellIndex cell, uint32_t tenant_index);

  void pin(GroupIndex g, uint32_t page);
  // Unpins the block of the lease's path that holds `position`. `passed`: the lease has advanced
  // past it, so it is worth less than blocks of the same priority from which a prompt may continue.
  enum class Leaving : uint8_t { used, passed };
  void unpin(GroupIndex g, uint32_t page, const LeaseRecord& who, uint32_t position,
             Leaving how = Leaving::used);
  // Blocks of this full group that copies read.
  uint32_t full_pins(GroupIndex g) const noexcept { return full_pins_[g]; }
  // The touch for the block that holds `position` of a lease's path, in the class that the lease
  // gave it.
  Touch touch_at(const LeaseRecord& who, uint32_t position, Leaving how = Leaving::used) const;

  // Tells observers of events that a block or state of a group beside the index is at its home.
  void tell_stored(GroupIndex g, CellIndex home, bool tail) noexcept;

 private:
  void refill_entry(Group& group, CellIndex cell);
  // Whether observers of events hear of what is at this cell.
  bool is_told(CellIndex home) const noexcept {
    return books_.events.on() && !books_.tree.is_inner(home) && !books_.tree.is_orphan(home);
  }

  Books& books_;
  std::array<uint32_t, kMaxGroups> full_pins_{};
};

}  // namespace stemma::cache
