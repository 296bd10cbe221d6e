// Holds: the leases that live, the paths that they and pins hold, and what the policy hears when a
// use ends.
//
// Holding a cell holds its path: a cell with something below it is never freed. When the last use
// of a path ends, its deepest cell that can still be found is touched.
//
// Invariant:  depth_sum() is the sum of the depths of all holds, so at most that many cells are
//             held; every live, childless, unheld cell that is neither a root nor an orphan is in
//             the policy's order.
// Threading:  one thread at a time. Only the calls that say so may throw std::bad_alloc.
#pragma once

#include <span>
#include <vector>

#include "cache/store/cells.h"

namespace stemma::cache {

class Holds {
 public:
  Holds(Books& books, Cells& cells) noexcept : books_(books), cells_(cells) {}

  void hold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  // Ends a hold and touches the cell for the policy; frees orphans without a holder.
  void let_go(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  // Undoes a hold() made a moment ago, with no eviction in between. Touches nothing and keeps a
  // root that nobody else holds: close_root() is left to the caller.
  void undo(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  // Holds a draft that another lease's copy reads. It is not in the tree, so no path is held.
  void pin_draft(CellIndex cell);
  void unpin_draft(CellIndex cell, const LeaseRecord& who);
  // Moves a lease's tip to a deeper cell that is new below the old tip.
  void move_tip(LeaseRecord& record, CellIndex tip, uint32_t depth_cells);

  // Touches a cell for no request in particular.
  void touch_loaded(CellIndex cell);
  void end_session(SessionId session);

  // Allocates what add_live() needs; may throw std::bad_alloc.
  void prepare_live();
  void add_live(LeaseRecord* record) noexcept;
  void remove_live(LeaseRecord* record) noexcept;
  std::span<LeaseRecord* const> live() const noexcept { return live_; }

  uint64_t depth_sum() const noexcept { return depth_sum_; }
  uint32_t forked_drafts() const noexcept { return forked_drafts_; }
  uint64_t bytes() const noexcept { return live_.capacity() * sizeof(void*); }

 private:
  void unhold(CellIndex cell, uint32_t depth_cells, uint32_t tenant_index);
  // A use of the path to `cell` ended: touches its deepest cell that can still be found.
  void end_use(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  void touch(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who);
  void touch_in_class(CellIndex cell, uint32_t depth_cells, const LeaseRecord& who,
                      Priority priority, uint64_t ttl_ns);

  Books& books_;
  Cells& cells_;
  uint64_t depth_sum_ = 0;
  uint32_t forked_drafts_ = 0;  // Holds by pin_draft().
  std::vector<LeaseRecord*> live_;
};

}  // namespace stemma::cache
