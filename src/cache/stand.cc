// Where a lease stands: which blocks it shares, which it copies, which it drafts. One way for a new
// lease, a shrunk one and a rewound one.
#include <algorithm>

#include "base/check.h"
#include "cache/shared.h"

namespace stemma::cache {
namespace {

uint32_t blocks_for(uint32_t positions, uint32_t block_tokens) {
  return positions / block_tokens + (positions % block_tokens != 0 ? 1 : 0);
}

// The first block that a window group needs to continue at n, sinks apart; 0 for a full group.
uint32_t window_low(const Group& group, uint32_t n) {
  const GroupOptions& options = group.options();
  if (!group.window() || n <= options.window_tokens) return 0;
  return (n - options.window_tokens) / options.block_tokens;
}

// A block that the lease will draft when everything else is settled.
constexpr uint32_t kToDraft = kOwn | kPageMask;

}  // namespace

uint32_t Shared::capacity(const LeaseRecord& lease) const noexcept {
  return static_cast<uint32_t>(
      std::min<uint64_t>(uint64_t{lease.cell_count} * view_.cell_tokens(), 0xFFFF'FFFFU));
}

Need Shared::first_need(const LeaseRecord& record, const LeaseOptions& options) const {
  const bool fills = options.fill_to != 0;
  const uint32_t capacity = fills ? options.fill_to : std::min(options.draft_tokens, record.length);
  if (capacity == 0) return {};
  Need need = growth(record, capacity);
  for (GroupIndex g = 0; fills && g < view_.group_count(); ++g) {
    const Group& group = view_.group(g);
    if (!group.window()) continue;
    const uint32_t sinks = blocks_for(group.options().sink_tokens, group.options().block_tokens);
    const uint32_t low = window_low(group, options.fill_to);
    need.blocks[g] -= low - std::min(low, sinks);
  }
  return need;
}

bool Shared::can_take_over(const LeaseRecord& lease, const Stand& stand) const {
  const uint32_t tokens = store_.cell_tokens();
  if (stand.n % tokens == 0) return false;
  const CellIndex cell = stand.path.holding(stand.n - 1, tokens);
  if (store_.tree().has_child(cell) || store_.holds(cell) != 0) return false;
  for (const CopySource& source : lease.next_sources) {
    const Group& group = store_.group(source.group);
    if (group.recurrent() || group.numbers_cells()) continue;
    if (group.home(source.page) != cell || group.pool().pins(source.page) != 0) return false;
  }
  return true;
}

void Shared::take_over(LeaseRecord& lease, CellIndex cell) {
  store_.evict_leaf(cell, lease.tenant_index);
  // What was freed last is drafted first.
  STEMMA_CHECK(store_.draft_cell(lease.tenant_index) == cell);
  std::erase_if(lease.next_sources, [&](const CopySource& source) {
    const Group& group = view_.group(source.group);
    if (group.recurrent()) return false;
    if (group.numbers_cells()) return true;
    STEMMA_CHECK(store_.draft(source.group, lease.tenant_index) == source.page);
    lease.next_pages[source.group][source.block] = source.page | kOwn;
    return true;
  });
}

Result<void> Shared::take_stand(LeaseRecord& lease, const Stand& stand) {
  const uint32_t tokens = store_.cell_tokens();
  const Path& path = stand.path;
  // What is shared. A lease that fills shares every whole cell, whether all groups serve it or not.
  const bool fills = stand.fill != 0;
  const uint32_t n = fills ? std::min(stand.fill, path.whole * tokens) : stand.n;
  const uint32_t reach = fills ? stand.fill : n;  // What windows look back from.
  const uint32_t keep = n / tokens;
  const CellIndex tip = path.ending(keep);
  const uint32_t total_cells = blocks_for(stand.capacity, tokens);

  // All memory first. (Where the path is in lease.cells, that is large enough and does not move.
  // Copies are at most one a group: for so many there is always room.)
  if (lease.cells.size() < total_cells) lease.cells.resize(total_cells);
  if (lease.cell_count != 0) lease.spare_cells.reserve(lease.cell_count - lease.own_from);
  lease.spare_cells.clear();
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (group.numbers_cells() || group.recurrent()) continue;
    lease.next_pages[g].reserve(blocks_for(stand.capacity, group.options().block_tokens));
  }

  // First find everything that will be used. Cells are held at once, so that making room cannot
  // take them; loose blocks are pinned only when there is room, because pinning takes them from
  // their place in the order of going.
  std::vector<CopySource>& sources = lease.next_sources;
  std::array<std::vector<uint32_t>, kMaxGroups>& pages = lease.next_pages;
  sources.clear();
  for (auto& list : pages) list.clear();
  Need need;
  const auto will_pin = [&](GroupIndex g, uint32_t page) {
    STEMMA_CHECK(page != kNoPage);  // Coverage said that it is there.
    if (view_.group(g).loose() && view_.group(g).waiting(page)) ++need.reserved[g];
  };
  bool source_cell_held = false;
  store_.hold(tip, keep, lease.tenant_index);
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    Group& group = store_.group(g);
    if (group.recurrent()) {
      if (n == 0 || fills) continue;
      const CellIndex cell = anchor_cell(store_, path, n);
      const uint32_t slot = cell == kNoCell ? kNoPage : group.at(cell);
      will_pin(g, slot);
      sources.push_back({g, slot, kNoCell, 0, 0});
      continue;
    }
    const uint32_t block_tokens = group.options().block_tokens;
    const uint32_t shared_blocks = n / block_tokens;
    const uint32_t total = blocks_for(stand.capacity, block_tokens);
    need.blocks[g] = total - shared_blocks;
    if (n % block_tokens != 0 && !fills) {
      const CellIndex cell = path.holding(n - 1, tokens);
      CopySource source;
      source.group = g;
      source.block = n / block_tokens;
      if (!group.numbers_cells()) {
        source.page = Present(store_, path, lease.spans).part_block(g, n);
        will_pin(g, source.page);
      }
      if (n % tokens != 0 && !source_cell_held) {
        source_cell_held = true;
        source.cell = cell;
        source.depth_cells = (n - 1) / tokens + 1;
        store_.hold(cell, source.depth_cells, lease.tenant_index);
      }
      sources.push_back(source);
    }
    if (group.numbers_cells()) continue;
    const uint32_t ratio = group.ratio();
    std::vector<uint32_t>& list = pages[g];
    const uint32_t low = window_low(group, reach);
    const uint32_t sinks = blocks_for(group.options().sink_tokens, block_tokens);
    for (uint32_t j = 0; j < shared_blocks; ++j) {
      const uint32_t page = group.at(path.cells[(j + 1) * ratio - 1]);
      if (group.full()) {
        list.push_back(page);
      } else if (j < low && j >= sinks) {
        list.push_back(kPageMask);
      } else if (fills && page == kNoPage) {
        list.push_back(kToDraft);
        ++need.blocks[g];
      } else {
        will_pin(g, page);
        list.push_back(page | kPinned);
      }
    }
    for (uint32_t j = shared_blocks; j < total; ++j) {
      const bool passed = fills && j < low && j >= sinks;
      list.push_back(passed ? kPageMask : kToDraft);
      if (passed) --need.blocks[g];
    }
  }
  if (!store_.numbered()) need.cells = total_cells - keep;
  const CellIndex source_cell = source_cell_held ? path.holding(n - 1, tokens) : kNoCell;
  for (const CopySource& source : sources) {
    if (stand.take_over && !store_.group(source.group).recurrent()) --need.blocks[source.group];
  }
  if (stand.take_over && !store_.numbered()) --need.cells;

  // What the lease owns already can be used again, but for drafts that a fork still copies from.
  const auto reusable_cell = [&](uint32_t entry) {
    return (entry & kOwn) != 0 && view_.holds(entry & kPageMask) == 0;
  };
  const auto reusable_page = [&](GroupIndex g, uint32_t entry) {
    return (entry & kOwn) != 0 && view_.group(g).pool().pins(entry & kPageMask) == 0;
  };
  uint32_t own_cells = 0;
  for (uint32_t i = lease.own_from; i < lease.cell_count; ++i) {
    own_cells += reusable_cell(lease.cells[i]) ? 1U : 0U;
  }
  Need missing = need;
  missing.cells -= std::min(missing.cells, own_cells);
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    uint32_t own = store_.group(g).numbers_cells() ? own_cells : 0;
    for (uint32_t entry : lease.pages[g]) own += reusable_page(g, entry) ? 1U : 0U;
    missing.blocks[g] -= std::min(missing.blocks[g], own);
  }
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const auto passed = [](uint32_t entry) { return entry == kPageMask; };
    const auto blocks = static_cast<uint32_t>(
        store_.group(g).numbers_cells()
            ? total_cells
            : pages[g].size() - std::count_if(pages[g].begin(), pages[g].end(), passed));
    missing.kept[g] = blocks - missing.blocks[g];
  }
  missing.kept_cells = total_cells - missing.cells;
  missing.reserved = need.reserved;
  missing.sources = &sources;
  missing.held = {tip, source_cell};
  missing.takes_over = stand.take_over;
  if (Result<void> room = store_.check_room(missing, lease.tenant_index); !room) {
    for (const CopySource& source : sources) {
      if (source.cell == kNoCell) continue;
      store_.undo_hold(source.cell, source.depth_cells, lease.tenant_index);
    }
    store_.undo_hold(tip, keep, lease.tenant_index);
    return room.error();
  }
  if (stand.take_over) {
    store_.undo_hold(source_cell, keep + 1, lease.tenant_index);
    take_over(lease, source_cell);
  }
  for (const CopySource& source : sources) {
    if (source.page != kPageMask) store_.pin_page(source.group, source.page);
  }
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    for (uint32_t entry : pages[g]) {
      if (entry != kPageMask && (entry & kPinned) != 0) store_.pin_page(g, entry & kPageMask);
    }
  }
  store_.evict_for(missing, lease.tenant_index);

  // Nothing can fail from here on. Let go of the old stand, keeping what was owned.
  std::vector<uint32_t>& spare_cells = lease.spare_cells;
  for (uint32_t i = lease.own_from; i < lease.cell_count; ++i) {
    if ((lease.cells[i] & kOwn) == 0) continue;
    const CellIndex cell = lease.cells[i] & kPageMask;
    if (reusable_cell(lease.cells[i])) {
      spare_cells.push_back(cell);
    } else {
      store_.discard_cell(cell, lease.tenant_index);
    }
  }
  release_sources(lease);
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    size_t spare = 0;  // Gathered at the front of the old list.
    for (size_t j = 0; j < lease.pages[g].size(); ++j) {
      const uint32_t entry = lease.pages[g][j];
      if (entry == kPageMask) continue;
      if (reusable_page(g, entry)) {
        lease.pages[g][spare++] = entry & kPageMask;
      } else if ((entry & kOwn) != 0) {
        store_.discard(g, entry & kPageMask, lease.tenant_index);
      } else if ((entry & kPinned) != 0) {
        const uint32_t at = static_cast<uint32_t>(j) * store_.group(g).options().block_tokens;
        store_.unpin_page(g, entry & kPageMask, lease, at);
      }
    }
    lease.pages[g].resize(spare);
    lease.pages[g].swap(pages[g]);
  }
  if (lease.tip != kNoCell) store_.let_go(lease.tip, lease.published, lease);
  lease.tip = tip;
  lease.published = keep;

  if (path.cells != lease.cells.data()) {
    std::copy(path.cells, path.cells + keep, lease.cells.begin());
  }
  for (uint32_t i = keep; i < total_cells; ++i) {
    uint32_t cell;
    if (stand.take_over && i == keep) {
      cell = source_cell;
    } else if (spare_cells.empty()) {
      cell = store_.draft_cell(lease.tenant_index);
    } else {
      cell = spare_cells.back();
      spare_cells.pop_back();
    }
    lease.cells[i] = cell | kOwn;
  }
  lease.cell_count = total_cells;
  lease.own_from = keep;
  for (uint32_t cell : spare_cells) store_.discard_cell(cell, lease.tenant_index);
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (group.numbers_cells() || group.recurrent()) continue;
    std::vector<uint32_t>& spare_pages = pages[g];
    for (uint32_t& entry : lease.pages[g]) {
      if (entry != kToDraft) continue;
      uint32_t page;
      if (spare_pages.empty()) {
        page = store_.draft(g, lease.tenant_index);
      } else {
        page = spare_pages.back();
        spare_pages.pop_back();
      }
      entry = page | kOwn;
    }
    for (uint32_t page : spare_pages) store_.discard(g, page, lease.tenant_index);
    lease.window_low[g] = window_low(group, reach);
  }

  lease.sources.swap(sources);
  lease.copies.clear();
  for (const CopySource& source : lease.sources) {
    const Group& group = store_.group(source.group);
    BlockCopy copy;
    copy.group = source.group;
    if (group.recurrent()) {
      copy.source = BlockId{source.page};
      copy.tokens = n;
    } else {
      const uint32_t block_tokens = group.options().block_tokens;
      copy.tokens = n % block_tokens;
      copy.source = BlockId{group.numbers_cells() ? source_cell : source.page};
      copy.target =
          BlockId{group.numbers_cells() ? lease.cells[n / tokens] & kPageMask
                                        : lease.pages[source.group][n / block_tokens] & kPageMask};
    }
    lease.copies.push_back(copy);
  }
  return {};
}

Path Shared::own_path(LeaseRecord& lease) {
  lease.path.resize(lease.published);
  CellIndex cell = lease.tip;
  for (uint32_t i = lease.published; i > 0; --i) {
    lease.path[i - 1] = cell;
    cell = store_.tree().parent(cell);
  }
  Path path;
  path.root = lease.root;
  path.cells = lease.path.data();
  path.whole = lease.published;
  path.words = lease.words;
  path.words_begin = lease.words_begin;
  return path;
}

Result<void> Shared::step_back(LeaseRecord& lease, uint32_t n, uint32_t length,
                               uint32_t new_capacity) {
  const Path path = own_path(lease);
  const uint32_t tokens = store_.cell_tokens();
  // A cut inside a cell reads the words of that cell: they must be known to find what hangs there.
  const uint32_t begin = n / tokens * tokens;
  std::vector<uint32_t> words;
  words.reserve(length - begin + tokens);
  for (uint32_t at = begin; at < lease.words_begin; at += tokens) {
    const uint32_t* cell = store_.tree().words(path.cells[at / tokens]);
    words.insert(words.end(), cell, cell + tokens);
  }
  const uint32_t known = std::max(begin, lease.words_begin);
  words.insert(words.end(), lease.words.begin() + (known - lease.words_begin), lease.words.end());
  words.resize(length - begin);
  Stand stand;
  stand.path = path;
  stand.path.words = words;
  stand.path.words_begin = begin;
  stand.n = n;
  stand.capacity = std::max(n, new_capacity);
  const Present present(store_, stand.path, lease.spans);
  if (!tree::servable(store_.reaches(), n, true, present)) {
    return Error(Errc::out_of_range, "a layer group can no longer serve this position", n);
  }
  STEMMA_TRY_VOID(take_stand(lease, stand));
  lease.words = std::move(words);
  lease.words_begin = begin;
  lease.length = length;
  return {};
}

}  // namespace stemma::cache
