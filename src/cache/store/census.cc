#include "cache/store/census.h"

#include <algorithm>
#include <new>

namespace stemma::cache {
namespace {

uint64_t minus(uint64_t a, uint64_t b) noexcept { return a - std::min(a, b); }

}  // namespace

void Census::mark_path(CellIndex cell, Bytes bytes, Evictable& held) {
  for (; !books_.tree.is_root(cell); cell = books_.tree.parent(cell)) {
    uint64_t& word = marks_[cell / 64];
    const uint64_t bit = uint64_t{1} << (cell % 64);
    if ((word & bit) != 0) return;
    word |= bit;
    ++held.cells;
    for (GroupIndex g = 0; g < books_.group_count(); ++g) {
      const Group& group = books_.group(g);
      if (!group.numbers_cells()) {
        const uint32_t page = group.at(cell);
        if (page == kNoPage || group.home(page) != cell) continue;
      }
      ++held.blocks[g];
      // A window block that waits may be evicted while its cell stays.
      const bool waits = group.window() && group.waiting(group.at(cell));
      if (bytes == Bytes::count && group.paged() && !waits) {
        held.tenant_bytes += group.options().block_bytes;
      }
    }
  }
}

Evictable Census::held_for(const Need& need, uint32_t tenant_index) {
  Evictable held;
  std::vector<std::pair<GroupIndex, uint32_t>> pinned_pages;
  const auto mark = [&](CellIndex cell, uint32_t tenant) {
    const bool counts = tenant_index != 0 && tenant == tenant_index;
    mark_path(cell, counts ? Bytes::count : Bytes::ignore, held);
  };
  const auto note_pages = [&](const std::vector<CopySource>& sources) {
    for (const CopySource& source : sources) {
      if (source.has_page()) pinned_pages.emplace_back(source.group, source.page);
    }
  };
  for (const LeaseRecord* lease : holds_.live()) {
    mark(lease->tip, lease->tenant_index);
    for (const CopySource& source : lease->sources) {
      // A draft that a fork copies from may have become a cell since.
      if (source.cell != kNoCell &&
          books_.pool_of(source.cell).is_cached(books_.place_of(source.cell))) {
        mark(source.cell, lease->tenant_index);
      }
    }
    note_pages(lease->sources);
  }
  if (need.sources != nullptr) note_pages(*need.sources);
  books_.pins.for_each(
      [&](const PinTable::Pin& pin) { mark(pin.cell, books_.tenant_of(pin.cell)); });
  for (CellIndex cell : need.held) {
    if (cell != kNoCell) mark(cell, tenant_index);
  }
  // Blocks that a copy reads stay when their cell is evicted.
  std::sort(pinned_pages.begin(), pinned_pages.end());
  pinned_pages.erase(std::unique(pinned_pages.begin(), pinned_pages.end()), pinned_pages.end());
  for (const auto& [g, page] : pinned_pages) {
    const Group& group = books_.group(g);
    if (!group.full() || !group.pool().is_cached(page)) continue;
    const CellIndex home = group.home(page);
    if ((marks_[home / 64] >> (home % 64) & 1U) == 0) ++held.blocks[g];
  }
  return held;
}

Evictable Census::exactly(const Need& need, uint32_t tenant_index) {
  ++books_.tally.exact_counts;
  clear_marks();
  Evictable held = held_for(need, tenant_index);
  Evictable evictable;
  evictable.cells = books_.cached_cells() - held.cells;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    evictable.blocks[g] = group.numbers_cells()
                              ? evictable.cells
                              : minus(group.pool().cached_blocks(), held.blocks[g]);
    if (group.window()) held.tenant_bytes += need.reserved[g] * group.options().block_bytes;
  }
  evictable.tenant_bytes = minus(books_.quotas.paged_bytes(tenant_index), held.tenant_bytes);
  books_.known_evictable = evictable.cells;
  return evictable;
}

Evictable Census::at_least(const Need& need, uint32_t tenant_index) const noexcept {
  Evictable sure;
  const uint64_t held_cells = holds_.depth_sum();
  sure.cells = std::max(minus(books_.cached_cells(), held_cells), books_.known_evictable);
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    const uint64_t held =
        held_cells + blocks_.full_pins(g) + (need.sources == nullptr ? 0 : need.sources->size());
    sure.blocks[g] = group.numbers_cells() ? sure.cells : minus(group.pool().cached_blocks(), held);
  }
  sure.tenant_bytes = books_.quotas.surely_unheld_bytes(tenant_index, books_.cell_bytes());
  return sure;
}

std::array<uint64_t, kMaxGroups> Census::evictable_blocks() {
  // A cheap bound that is never too high; exact if nothing is held.
  std::array<uint64_t, kMaxGroups> blocks{};
  bool exact = true;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const uint64_t held = holds_.depth_sum() + blocks_.full_pins(g) + holds_.forked_drafts();
    blocks[g] = minus(books_.pool_of_group(g).cached_blocks(), held);
    exact = exact && held == 0;
  }
  if (exact) return blocks;
  const uint64_t known = books_.known_evictable;
  const uint64_t counts = books_.tally.exact_counts;
  try {
    blocks = exactly({}, 0).blocks;
  } catch (const std::bad_alloc&) {
  }
  books_.known_evictable = known;
  books_.tally.exact_counts = counts;
  return blocks;
}

bool Census::pins_within_share(CellIndex cell, uint32_t depth_cells,
                               std::span<const LooseBlock> blocks) {
  // Add up first; count cells shared by several pins once only if the sum is too large.
  const auto share_of = [&](uint32_t supply) {
    return static_cast<uint64_t>(books_.options().pin_share * supply);
  };
  const uint64_t cells_share =
      share_of(books_.numbered() ? books_.first.capacity() : books_.extra.capacity());
  if (books_.pins.depth_sum() + depth_cells > cells_share) {
    clear_marks();
    Evictable held;
    mark_path(cell, Bytes::ignore, held);
    books_.pins.for_each(
        [&](const PinTable::Pin& pin) { mark_path(pin.cell, Bytes::ignore, held); });
    if (held.cells > cells_share) return false;
  }
  if (blocks.empty()) return true;
  std::vector<LooseBlock> all(blocks.begin(), blocks.end());
  books_.pins.for_each([&](const PinTable::Pin& pin) {
    all.insert(all.end(), pin.blocks.begin(), pin.blocks.end());
  });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::array<uint64_t, kMaxGroups> held{};
  for (const LooseBlock& block : all) ++held[block.group];
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (held[g] > share_of(books_.group(g).options().capacity_blocks)) return false;
  }
  return true;
}

}  // namespace stemma::cache
