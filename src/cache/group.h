// A Group is one layer group's side of the index: the books of its blocks, and which cell each
// cached block belongs to.
//
// The group whose blocks number the cells (`numbers_cells`) needs neither: its block at a cell is
// the cell. For every other group:
//   paged:      a block covers `ratio` cells of a path. It is entered at each of them that has no
//               block yet; its home is the deepest cell it covers. At the cell that ends the block's
//               span it is whole and shared in place; elsewhere it is only a copy source.
//   recurrent:  a block is a slot with the state at exactly the depth where its home ends.
// Blocks of window and recurrent groups may go while their cell stays. Those that nobody pins wait to be
// taken, in the classes of retain/lru.h.
//
// Threading:  one thread at a time; at() on any thread for cells the caller holds.
// Cost:       4 bytes a cell (paged), 4 a block, and what LruPolicy takes for a block of window and
//             recurrent groups.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/relaxed.h"
#include "base/slab.h"
#include "pool/block_pool.h"
#include "retain/lru.h"
#include "stemma/options.h"
#include "tree/coverage.h"

namespace stemma::cache {

inline constexpr uint32_t kNoPage = pool::BlockPool::kNone;

class Group {
 public:
  [[nodiscard]] bool create(const GroupOptions& options, uint32_t cell_tokens, bool numbers_cells,
                            uint32_t total_cells);

  const GroupOptions& options() const noexcept { return options_; }
  bool numbers_cells() const noexcept { return numbers_cells_; }
  bool paged() const noexcept { return options_.attention != Attention::recurrent; }
  bool full() const noexcept { return options_.attention == Attention::full; }
  bool window() const noexcept { return options_.attention == Attention::window; }
  bool recurrent() const noexcept { return options_.attention == Attention::recurrent; }
  // Blocks may go while their cell stays.
  bool loose() const noexcept { return !full(); }
  uint32_t ratio() const noexcept { return ratio_; }
  tree::GroupReach reach() const noexcept;

  // The block entered at a cell, or kNoPage.
  uint32_t at(CellIndex cell) const noexcept;
  // The cell a cached block belongs to.
  CellIndex home(uint32_t page) const noexcept { return homes_[page]; }
  // Takes memory for a cell's entry. False when there is none.
  [[nodiscard]] bool ensure(CellIndex cell);
  // Takes memory for all that is kept of a block: its books, home and place in a list.
  [[nodiscard]] bool ensure_page(uint32_t page);
  // The same for `count` blocks about to be drafted.
  [[nodiscard]] bool prepare(uint32_t count);
  // Recurrent: throws std::bad_alloc at a cell without a block; nothing has changed then.
  void enter(CellIndex cell, uint32_t page);
  void erase(CellIndex cell);
  void set_home(uint32_t page, CellIndex cell);

  // Loose blocks that nobody pins, in the order of going. A block's priority is the highest that was
  // said of it since it was cached, as long as that lasts; its place in the order is that of its last use.
  void wait(uint32_t page, const Touch& use);
  // Somebody pins it; what was said of it counts again when it waits again.
  void stop_waiting(uint32_t page);
  // It is no longer cached.
  void forget(uint32_t page);
  bool waiting(uint32_t page) const noexcept { return order_->is_queued(page); }
  uint32_t waiting_blocks() const noexcept { return waiting_; }
  // The next to go, or kNoPage; of those that a tenant with a quota has used.
  uint32_t next_to_go(uint64_t now_ns) noexcept;
  uint32_t next_of(uint64_t now_ns, TenantId tenant) noexcept;
  // The next `count` to go, or all. O(blocks that wait), and throws std::bad_alloc.
  std::vector<uint32_t> next_to_go(uint64_t now_ns, uint64_t count) const;
  // Whether it counts as left: its lease has passed it, or its session has ended.
  bool is_left(uint32_t page) const noexcept {
    return order_->phase_of(page) == SessionPhase::ended;
  }

  pool::BlockPool& pool() noexcept { return pool_; }
  const pool::BlockPool& pool() const noexcept { return pool_; }
  uint64_t bytes() const noexcept;
  void check_invariants() const;

 private:
  GroupOptions options_;
  uint32_t ratio_ = 1;
  bool numbers_cells_ = false;
  uint32_t waiting_ = 0;
  pool::BlockPool pool_;
  base::Slab<uint32_t> entries_;  // Per cell: page + 1, 0 = none.
  base::Growth growth_;
  base::Slab<CellIndex> homes_;  // Per block.
  base::Growth home_growth_;
  std::unique_ptr<retain::LruPolicy> order_;       // Of loose groups, by block.
  std::unordered_map<CellIndex, uint32_t> slots_;  // Recurrent groups: few, so not a column.
};

}  // namespace stemma::cache
