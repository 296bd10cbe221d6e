// A Group is one layer group's side of the index: the books of its blocks, and which cell each
// cached block belongs to.
//
// The group whose blocks number the cells (`numbers_cells`) needs neither: its block and its cell
// have the same number. For every other group:
//   paged:      a block covers `ratio` cells of a path. It is entered at each of them that has no
//               block yet; its home is the deepest cell it covers. At the cell where its span ends,
//               the block is whole and shared in place; at other cells it is only a copy source.
//   recurrent:  a block is a slot that holds the state at exactly the depth where its home ends.
// Blocks of window and recurrent groups may be evicted while their cell stays. Unpinned ones wait
// for eviction, in the classes of retain/lru.h.
//
// Threading:  one thread at a time; at() on any thread for cells the caller holds.
// Cost:       4 bytes a cell (paged) and 4 a block. A block of a window or recurrent group adds
//             what LruPolicy needs.
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
  // A lease lists its blocks by itself: they have other numbers than its cells.
  bool listed() const noexcept { return paged() && !numbers_cells_; }
  // Blocks may be evicted while their cell stays.
  bool loose() const noexcept { return !full(); }
  uint32_t ratio() const noexcept { return ratio_; }
  tree::GroupReach reach() const noexcept;
  // How many blocks so many positions need.
  uint32_t blocks_for(uint32_t positions) const noexcept {
    return blocks_of(positions, options_.block_tokens);
  }
  static uint32_t blocks_of(uint32_t positions, uint32_t block_tokens) noexcept {
    return positions / block_tokens + (positions % block_tokens != 0 ? 1 : 0);
  }
  // The first block that a window group needs at n, not counting sinks; 0 for a full group.
  uint32_t window_low(uint32_t n) const noexcept {
    if (!window() || n <= options_.window_tokens) return 0;
    return (n - options_.window_tokens) / options_.block_tokens;
  }
  uint32_t sink_blocks() const noexcept { return blocks_for(options_.sink_tokens); }

  // The block entered at a cell, or kNoPage.
  uint32_t at(CellIndex cell) const noexcept;
  // The cell a cached block belongs to.
  CellIndex home(uint32_t page) const noexcept { return homes_[page]; }
  // Allocates a cell's entry. Returns false if out of memory.
  [[nodiscard]] bool ensure(CellIndex cell);
  // Allocates everything kept about a block: its books, home and place in a list.
  [[nodiscard]] bool ensure_page(uint32_t page);
  // The same for `count` blocks about to be drafted.
  [[nodiscard]] bool prepare(uint32_t count);
  // Recurrent: may throw std::bad_alloc at a cell without a block, before anything changes.
  void enter(CellIndex cell, uint32_t page);
  void erase(CellIndex cell);
  void set_home(uint32_t page, CellIndex cell);

  // Puts an unpinned loose block in the eviction order. Its priority is the highest given since it
  // was cached, until that expires; its place in the order is that of its last use.
  void wait(uint32_t page, const Touch& use);
  // A lease pins the block. Its priority counts again when it waits again.
  void stop_waiting(uint32_t page);
  // The block is no longer cached.
  void forget(uint32_t page);
  bool waiting(uint32_t page) const noexcept { return order_->is_queued(page); }
  uint32_t waiting_blocks() const noexcept { return waiting_; }
  // The next block to evict, or kNoPage. next_of() only considers those that a tenant with a quota
  // has used.
  uint32_t next_to_go(uint64_t now_ns) noexcept;
  uint32_t next_of(uint64_t now_ns, TenantId tenant) noexcept;
  // The next `count` blocks to evict, or all. O(blocks that wait); may throw std::bad_alloc.
  std::vector<uint32_t> next_to_go(uint64_t now_ns, uint64_t count) const;
  // Whether its lease has passed the block or its session has ended.
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
  std::unique_ptr<retain::LruPolicy> order_;       // For loose groups, by block.
  std::unordered_map<CellIndex, uint32_t> slots_;  // Recurrent groups: few entries, so a map.
};

}  // namespace stemma::cache
