#include "cache/lease/placement.h"

#include <algorithm>

#include "base/check.h"
#include "cache/lease/copies.h"

namespace stemma::cache {

// ---- What will be used -------------------------------------------------------------------------

void Placement::hold_tip(CellIndex tip) {
  tip_ = tip;
  store_.holds.hold(tip, keep_, lease_.tenant_index);
}

// Cells are held at once, so that making room cannot evict them; loose blocks are pinned only when
// there is room, because pinning takes them out of the eviction order.
BlockEntry Placement::share(GroupIndex g, uint32_t page) {
  STEMMA_CHECK(page != kNoPage);  // Coverage said that it is there.
  if (!books_.group(g).loose()) return BlockEntry::shared(page);
  if (books_.group(g).waiting(page)) ++need_.reserved[g];
  return BlockEntry::pinned(page);
}

void Placement::share_path(const Target& target, Source source) {
  const uint32_t tokens = books_.cell_tokens();
  const Path& path = target.path;
  // A lease that fills shares every whole cell, served by all groups or not.
  const bool fills = target.fill != 0;
  n_ = fills ? std::min(target.fill, path.whole * tokens) : target.n;
  reach_ = fills ? target.fill : n_;
  keep_ = n_ / tokens;
  total_cells_ = Group::blocks_of(target.capacity, tokens);
  source_ = source;
  shared_cells_ = path.cells;

  // First all the memory. (If the path is in lease.cells, that is large enough and does not move.
  // There is at most one copy a group, and always room for those.)
  if (lease_.cells.size() < total_cells_) lease_.cells.resize(total_cells_);
  if (lease_.cell_count != 0) lease_.spare_cells.reserve(lease_.cell_count - lease_.own_from);
  lease_.next_sources.clear();
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    lease_.next_pages[g].clear();
    if (!books_.group(g).listed()) continue;
    lease_.next_pages[g].reserve(books_.group(g).blocks_for(target.capacity));
  }

  hold_tip(path.ending(keep_));
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    if (group.recurrent()) {
      if (n_ != 0 && !fills) share_state(g, path);
      continue;
    }
    need_.blocks[g] = group.blocks_for(target.capacity) - n_ / group.options().block_tokens;
    if (n_ % group.options().block_tokens != 0 && !fills) share_part_block(g, target);
    if (group.listed()) list_blocks(g, target);
  }
  if (!books_.numbered()) need_.cells = total_cells_ - keep_;
  if (source == Source::take_over) {
    for (const CopySource& copy : lease_.next_sources) {
      if (!books_.group(copy.group).recurrent()) --need_.blocks[copy.group];
    }
    if (!books_.numbered()) --need_.cells;
  }
  need_.sources = &lease_.next_sources;
  need_.takes_over = source == Source::take_over;
}

void Placement::share_state(GroupIndex g, const Path& path) {
  const CellIndex cell = anchor_cell(books_, path, n_);
  const uint32_t slot = cell == kNoCell ? kNoPage : books_.group(g).at(cell);
  lease_.next_sources.push_back({g, share(g, slot).block(), kNoCell, 0, 0});
}

void Placement::share_part_block(GroupIndex g, const Target& target) {
  const Group& group = books_.group(g);
  const uint32_t tokens = books_.cell_tokens();
  CopySource source;
  source.group = g;
  source.block = n_ / group.options().block_tokens;
  if (!group.numbers_cells()) {
    source.page = share(g, Present(books_, target.path, lease_.spans).part_block(g, n_)).block();
  }
  if (n_ % tokens != 0 && source_cell_ == kNoCell) {
    source.cell = source_cell_ = target.path.holding(n_ - 1, tokens);
    source.depth_cells = keep_ + 1;
    store_.holds.hold(source_cell_, source.depth_cells, lease_.tenant_index);
  }
  lease_.next_sources.push_back(source);
}

void Placement::list_blocks(GroupIndex g, const Target& target) {
  const Group& group = books_.group(g);
  const uint32_t shared = n_ / group.options().block_tokens;
  const uint32_t total = group.blocks_for(target.capacity);
  const uint32_t low = group.window_low(reach_);
  const uint32_t sinks = group.sink_blocks();
  const bool fills = target.fill != 0;
  std::vector<BlockEntry>& list = lease_.next_pages[g];
  for (uint32_t j = 0; j < shared; ++j) {
    if (j < low && j >= sinks) {
      list.push_back(BlockEntry::none());
      continue;
    }
    const uint32_t page = group.at(target.path.cells[(j + 1) * group.ratio() - 1]);
    if (fills && page == kNoPage) {
      list.push_back(BlockEntry::to_draft());
      ++need_.blocks[g];
    } else {
      list.push_back(share(g, page));
    }
  }
  for (uint32_t j = shared; j < total; ++j) {
    const bool passed = fills && j < low && j >= sinks;
    list.push_back(passed ? BlockEntry::none() : BlockEntry::to_draft());
    if (passed) --need_.blocks[g];
  }
}

void Placement::prepare_fork(const Books& books, const LeaseRecord& parent, uint32_t n,
                             LeaseRecord& child) {
  const uint32_t cells = Group::blocks_of(n, books.cell_tokens());
  size_t copies = cells - parent.published;
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    if (!books.group(g).listed()) continue;
    child.next_pages[g].reserve(books.group(g).blocks_for(n));
    copies += static_cast<size_t>(std::count_if(parent.pages[g].begin(), parent.pages[g].end(),
                                                [](BlockEntry entry) { return entry.is_own(); }));
  }
  child.copies.reserve(copies);
  child.next_sources.reserve(copies);
  if (child.cells.size() < cells) child.cells.resize(cells);
}

void Placement::share_with(const LeaseRecord& parent, const Path& path, uint32_t n) {
  n_ = reach_ = n;
  keep_ = parent.published;
  total_cells_ = Group::blocks_of(n, books_.cell_tokens());
  shared_cells_ = path.cells;
  lease_.next_sources.clear();
  // Making room must not evict the canonical blocks that the child will share.
  hold_tip(parent.tip);
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    lease_.next_pages[g].clear();
    if (books_.group(g).numbers_cells()) {
      need_.blocks[g] = total_cells_ - keep_;
      for (uint32_t i = keep_; i < total_cells_; ++i) {
        lease_.next_sources.push_back({g, kNoPage, parent.cell_entry(i).block(), 0, i});
      }
    } else if (books_.group(g).listed()) {
      list_parents_blocks(g, parent, path);
    }
  }
  if (!books_.numbered()) need_.cells = total_cells_ - keep_;
}

void Placement::list_parents_blocks(GroupIndex g, const LeaseRecord& parent, const Path& path) {
  const Group& group = books_.group(g);
  for (uint32_t j = 0; j < group.blocks_for(n_); ++j) {
    const BlockEntry entry = parent.pages[g][j];
    const uint32_t end = (j + 1) * group.ratio();
    const uint32_t canonical =
        entry.is_own() && end <= keep_ ? group.at(path.cells[end - 1]) : kNoPage;
    BlockEntry next = entry;
    if (canonical != kNoPage) {
      next = share(g, canonical);
    } else if (entry.is_own()) {
      next = BlockEntry::to_draft();
      lease_.next_sources.push_back({g, entry.block(), kNoCell, 0, j});
      ++need_.blocks[g];
    } else if (entry.has_block()) {
      next = share(g, entry.block());
    }
    lease_.next_pages[g].push_back(next);
  }
}

// ---- Carrying it out ---------------------------------------------------------------------------

Need Placement::missing() const {
  Need missing = need_;
  uint32_t own_cells = 0;
  for (uint32_t i = lease_.own_from; i < lease_.cell_count; ++i) {
    own_cells += reusable_cell(lease_.cell_entry(i)) ? 1U : 0U;
  }
  missing.cells -= std::min(missing.cells, own_cells);
  missing.kept_cells = total_cells_ - missing.cells;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    uint32_t own = own_cells;
    uint32_t blocks = total_cells_;
    if (!books_.group(g).numbers_cells()) {
      const std::vector<BlockEntry>& old = lease_.pages[g];
      const std::vector<BlockEntry>& next = lease_.next_pages[g];
      own = static_cast<uint32_t>(
          std::count_if(old.begin(), old.end(), [&](BlockEntry e) { return reusable(g, e); }));
      blocks = static_cast<uint32_t>(next.size() -
                                     std::count(next.begin(), next.end(), BlockEntry::none()));
    }
    missing.blocks[g] -= std::min(missing.blocks[g], own);
    missing.kept[g] = blocks - missing.blocks[g];
  }
  missing.held = {tip_, source_cell_};
  return missing;
}

void Placement::undo_holds() {
  if (source_cell_ != kNoCell) {
    store_.holds.undo(source_cell_, keep_ + 1, lease_.tenant_index);
  }
  store_.holds.undo(tip_, keep_, lease_.tenant_index);
}

Result<void> Placement::carry_out() {
  const Need missing = this->missing();
  if (Result<void> room = store_.room.check(missing, lease_.tenant_index); !room) {
    undo_holds();
    return room;
  }
  if (source_ == Source::take_over) take_over();
  pin_all();
  store_.room.evict_for(missing, lease_.tenant_index);

  // Nothing can fail from here on. Give up what the lease had, but keep its own blocks.
  give_up_blocks();
  if (lease_.tip != kNoCell) store_.holds.let_go(lease_.tip, lease_.published, lease_);
  lease_.tip = tip_;
  lease_.published = keep_;
  draft_cells();
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (!books_.group(g).listed()) continue;
    draft_listed(g);
    lease_.window_low[g] = books_.group(g).window_low(reach_);
  }
  list_copies();
  return {};
}

void Placement::take_over() {
  const uint32_t tenant_index = lease_.tenant_index;
  store_.holds.undo(source_cell_, keep_ + 1, tenant_index);
  store_.evictor.evict_leaf(source_cell_, tenant_index);
  // What was freed last is drafted first.
  STEMMA_CHECK(store_.blocks.draft_cell(tenant_index) == source_cell_);
  std::erase_if(lease_.next_sources, [&](const CopySource& source) {
    const Group& group = books_.group(source.group);
    if (group.recurrent()) return false;
    if (group.numbers_cells()) return true;
    STEMMA_CHECK(store_.blocks.draft(source.group, tenant_index) == source.page);
    lease_.next_pages[source.group][source.block] = BlockEntry::own(source.page);
    return true;
  });
}

void Placement::pin_all() {
  for (const CopySource& source : lease_.next_sources) {
    if (source.has_page()) store_.blocks.pin(source.group, source.page);
    if (source.cell != kNoCell && source.depth_cells == 0) store_.holds.pin_draft(source.cell);
  }
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    for (BlockEntry entry : lease_.next_pages[g]) {
      if (entry.is_pinned()) store_.blocks.pin(g, entry.block());
    }
  }
}

void Placement::give_up_blocks() {
  lease_.spare_cells.clear();
  for (uint32_t i = lease_.own_from; i < lease_.cell_count; ++i) {
    const BlockEntry entry = lease_.cell_entry(i);
    if (reusable_cell(entry)) {
      lease_.spare_cells.push_back(entry.block());
    } else if (entry.is_own()) {
      store_.blocks.discard_cell(entry.block(), lease_.tenant_index);
    }
  }
  release_sources(store_, lease_);
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    std::vector<BlockEntry>& old = lease_.pages[g];
    size_t spare = 0;  // Gathered at the front of the old list.
    for (size_t j = 0; j < old.size(); ++j) {
      if (old[j].has_block() && reusable(g, old[j])) {
        old[spare++] = old[j];
      } else {
        give_up_block(store_, lease_, g, static_cast<uint32_t>(j));
      }
    }
    old.resize(spare);
    old.swap(lease_.next_pages[g]);
  }
}

void Placement::draft_cells() {
  if (shared_cells_ != lease_.cells.data()) {
    std::copy(shared_cells_, shared_cells_ + keep_, lease_.cells.begin());
  }
  std::vector<uint32_t>& spare = lease_.spare_cells;
  for (uint32_t i = keep_; i < total_cells_; ++i) {
    CellIndex cell;
    if (source_ == Source::take_over && i == keep_) {
      cell = source_cell_;
    } else if (spare.empty()) {
      cell = store_.blocks.draft_cell(lease_.tenant_index);
    } else {
      cell = spare.back();
      spare.pop_back();
    }
    lease_.set_cell(i, BlockEntry::own(cell));
  }
  lease_.cell_count = total_cells_;
  lease_.own_from = keep_;
  for (CellIndex cell : spare) store_.blocks.discard_cell(cell, lease_.tenant_index);
}

void Placement::draft_listed(GroupIndex g) {
  std::vector<BlockEntry>& spare = lease_.next_pages[g];  // See give_up_blocks().
  for (BlockEntry& entry : lease_.pages[g]) {
    if (entry != BlockEntry::to_draft()) continue;
    if (spare.empty()) {
      entry = BlockEntry::own(store_.blocks.draft(g, lease_.tenant_index));
    } else {
      entry = spare.back();
      spare.pop_back();
    }
  }
  for (BlockEntry entry : spare) store_.blocks.discard(g, entry.block(), lease_.tenant_index);
}

void Placement::list_copies() {
  lease_.sources.swap(lease_.next_sources);
  lease_.copies.clear();
  for (const CopySource& source : lease_.sources) {
    const Group& group = books_.group(source.group);
    BlockCopy copy;
    copy.group = source.group;
    copy.source = BlockId{group.numbers_cells() ? source.cell : source.page};
    copy.tokens = n_;
    if (!group.recurrent()) {
      const uint32_t block_tokens = group.options().block_tokens;
      copy.tokens = std::min(block_tokens, n_ - source.block * block_tokens);
      copy.target =
          BlockId{group.numbers_cells() ? lease_.cell_entry(source.block).block()
                                        : lease_.pages[source.group][source.block].block()};
    }
    lease_.copies.push_back(copy);
  }
}

// ---- Going back --------------------------------------------------------------------------------

Path own_path(const Books& books, LeaseRecord& lease) {
  lease.path.resize(lease.published);
  CellIndex cell = lease.tip;
  for (uint32_t i = lease.published; i > 0; --i) {
    lease.path[i - 1] = cell;
    cell = books.tree.parent(cell);
  }
  Path path;
  path.root = lease.root;
  path.cells = lease.path.data();
  path.whole = lease.published;
  path.words = lease.words;
  path.words_begin = lease.words_begin;
  return path;
}

bool can_take_over(const Books& books, const LeaseRecord& lease, const Placement::Target& target) {
  const uint32_t tokens = books.cell_tokens();
  if (target.n % tokens == 0) return false;
  const CellIndex cell = target.path.holding(target.n - 1, tokens);
  if (!books.bare(cell)) return false;
  return std::all_of(lease.next_sources.begin(), lease.next_sources.end(), [&](const auto& source) {
    const Group& group = books.group(source.group);
    return !group.listed() ||
           (group.home(source.page) == cell && group.pool().pins(source.page) == 0);
  });
}

Result<void> step_back(Store& store, LeaseRecord& lease, uint32_t n, uint32_t length,
                       uint32_t capacity) {
  const Books& books = store.books;
  Placement::Target target;
  target.path = own_path(books, lease);
  const uint32_t tokens = books.cell_tokens();
  // A cut inside a cell needs the words of that cell, to find what is attached there.
  const uint32_t begin = n / tokens * tokens;
  std::vector<uint32_t> words;
  words.reserve(length - begin + tokens);
  for (uint32_t at = begin; at < lease.words_begin; at += tokens) {
    const uint32_t* cell = books.tree.words(target.path.cells[at / tokens]);
    words.insert(words.end(), cell, cell + tokens);
  }
  const uint32_t known = std::max(begin, lease.words_begin);
  words.insert(words.end(), lease.words.begin() + (known - lease.words_begin), lease.words.end());
  words.resize(length - begin);
  target.path.words = words;
  target.path.words_begin = begin;
  target.n = n;
  target.capacity = std::max(n, capacity);
  const Present present(books, target.path, lease.spans);
  if (!tree::servable(books.reaches(), n, true, present)) {
    return Error(Errc::out_of_range, "a layer group can no longer serve this position", n);
  }
  Placement placement(store, lease);
  placement.share_path(target);
  if (Result<void> room = placement.carry_out(); !room) return store.books.refused(room.error());
  lease.words = std::move(words);
  lease.words_begin = begin;
  lease.length = length;
  return {};
}

}  // namespace stemma::cache
