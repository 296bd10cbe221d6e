#include "cache/store/reclaimer.h"

#include <algorithm>
#include <new>

namespace stemma::cache {

uint32_t Reclaimer::cells_short_of(uint32_t positions) const noexcept {
  const auto missing = [positions](uint64_t free, uint32_t tokens) {
    const uint64_t blocks = (uint64_t{positions} + tokens - 1) / tokens;
    return blocks > free ? blocks - free : 0;
  };
  uint64_t cells =
      books_.numbered() ? 0 : missing(books_.extra.free_blocks(), books_.cell_tokens());
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    if (!group.full()) continue;
    // Blocks that are being saved are as good as free.
    const uint64_t free = uint64_t{books_.pool_of_group(g).free_blocks()} + books_.reclaimed[g];
    cells = std::max(cells, missing(free, group.options().block_tokens) * group.ratio());
  }
  return static_cast<uint32_t>(std::min<uint64_t>(cells, kNoCell));
}

uint32_t Reclaimer::reclaim_loose(uint32_t positions, uint32_t most, ReclaimList& out) {
  uint32_t done = 0;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    if (!group.loose()) continue;
    const uint32_t tokens = group.options().block_tokens;
    const uint32_t reach = std::min(positions, group.options().window_tokens);
    // A window plus the block in which its first position lies; for recurrent groups one state.
    const uint64_t wanted = group.recurrent() ? 1
                            : positions == 0  ? 0
                                              : (uint64_t{reach} + tokens - 1) / tokens + 1;
    const uint64_t needed = std::min<uint64_t>(wanted, group.pool().capacity());
    const uint64_t there = uint64_t{group.pool().free_blocks()} + books_.reclaimed[g];
    if (there >= needed || done == most) continue;
    const std::vector<uint32_t> pages =
        group.next_to_go(books_.now_ns, std::min<uint64_t>(needed - there, most - done));
    out.take_loose(g, pages);
    for (uint32_t page : pages) {
      anchors_.evict_loose(g, page, books_.tenant_of(group.home(page)));
    }
    done += static_cast<uint32_t>(pages.size());
  }
  return done;
}

uint32_t Reclaimer::reclaim(uint32_t positions, uint32_t most, ReclaimList& out) {
  uint32_t done = 0;
  try {
    for (uint32_t left = most; left != 0;) {
      const uint32_t wanted = std::min(left, cells_short_of(positions));
      const uint32_t gone = wanted != 0 ? evictor_.evict_some(wanted, &out) : 0;
      if (gone == 0) break;
      left -= gone;
      done += gone;
    }
    done += reclaim_loose(positions, most - std::min(most, done), out);
  } catch (const std::bad_alloc&) {
    // Blocks evicted so far are held; without memory no more are evicted.
  }
  books_.events.seal();
  return done;
}

void Reclaimer::end(std::span<const Reclaimed::Block> blocks) noexcept {
  for (const Reclaimed::Block& block : blocks) {
    Group& group = books_.group(block.group);
    (group.numbers_cells() ? books_.first : group.pool()).unpin(to_index(block.block));
    --books_.reclaimed[block.group];
  }
}

}  // namespace stemma::cache
