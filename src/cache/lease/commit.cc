#include "cache/lease/commit.h"

#include <algorithm>
#include <array>

#include "cache/lease/copies.h"
#include "key/content_key.h"

namespace stemma::cache {
namespace {

Result<void> check_commit(const Books& books, const LeaseRecord& lease, uint32_t n) {
  if (!lease.copies.empty()) return Error(Errc::wrong_state, "copies are pending");
  if (n > lease.length) return Error(Errc::out_of_range, "beyond the lease's words", n);
  if (n > lease.capacity(books.cell_tokens())) {
    return Error(Errc::out_of_range, "beyond the drafted room", n);
  }
  if (n < lease.committed) {
    return Error(Errc::out_of_range, "below what is committed; rewind() first", n);
  }
  if (n < lease.filling && n % books.unit_tokens() != 0) {
    return Error(Errc::out_of_range, "a lease that fills commits multiples of every block_tokens",
                 n);
  }
  return {};
}

void chain_keys(const Books& books, LeaseRecord& lease, uint32_t first_cell, uint32_t cells) {
  const uint32_t tokens = books.cell_tokens();
  lease.keys.resize(cells);
  const std::span<const uint32_t> words =
      lease.words_of(first_cell * tokens, (first_cell + cells) * tokens);
  // The tip is held, so its key does not change.
  const ContentKey parent = books.tree.key(lease.tip);
  if (lease.spans.empty()) {
    key::chain_keys(parent, words, tokens, lease.keys);
    return;
  }
  std::vector<key::MediaRun> room(tokens);
  const ContentKey* last = &parent;
  for (uint32_t i = 0; i < cells; ++i) {
    const auto runs = key::media_runs(lease.spans, (first_cell + i) * tokens, tokens, room);
    lease.keys[i] = key::block_key(*last, words.subspan(uint64_t{i} * tokens, tokens), runs);
    last = &lease.keys[i];
  }
}

// Publishes cells of a lease's path, one below the other.
class Publisher {
 public:
  // Requires that cells are published at all: it looks up the cells above the first one.
  Publisher(Store& store, LeaseRecord& lease) noexcept
      : store_(store), books_(store.books), lease_(lease), tip_(lease.tip) {
    above_.fill(books_.tree.sentinel());
    CellIndex cell = tip_;
    for (uint32_t i = 0; i < tree::kHintDistance && i < lease.published; ++i) {
      above_[(lease.published - 1 - i) % tree::kHintDistance] = cell;
      cell = books_.tree.parent(cell);
    }
  }
  // Publishes cells [lease.published, end) and moves the lease's tip there.
  void publish_to(uint32_t end, Commit& result) {
    const uint32_t first = lease_.published;
    constexpr uint32_t kAhead = 8;  // Drafts are scattered; load their lines before writing.
    for (uint32_t i = first; i < end; ++i) {
      if (i + kAhead < end) books_.prefetch_draft(lease_.cell_entry(i + kAhead).block());
      tip_ = publish(i, books_.keyed() ? &lease_.keys[i - first] : nullptr, result);
      above_[i % tree::kHintDistance] = tip_;
      for (GroupIndex g = 0; g < books_.group_count(); ++g) {
        const Group& group = books_.group(g);
        if (!group.listed() || (i + 1) % group.ratio() != 0) continue;
        enter_own(store_, lease_, g, tip_, i / group.ratio(), group.ratio());
      }
    }
    store_.holds.move_tip(lease_, tip_, end);
  }

 private:
  // Publishes the lease's cell i below the tip, unless an equal one is there. Returns that cell.
  CellIndex publish(uint32_t i, const ContentKey* key, Commit& result) {
    const uint32_t tokens = books_.cell_tokens();
    const std::span<const uint32_t> words = lease_.words_of(i * tokens, (i + 1) * tokens);
    const bool only_child = !books_.tree.has_child(tip_);
    CellIndex cell = only_child ? kNoCell : books_.tree.find_child(tip_, words);
    const CellIndex own = lease_.cell_entry(i).block();
    if (cell == kNoCell) {
      cell = own;
      lease_.set_cell(i, BlockEntry::shared(cell));
      store_.cells.publish(cell, tip_, above_[i % tree::kHintDistance], words, key,
                           lease_.tenant_index);
      if (!only_child) store_.cells.absorb_tails(cell, lease_.tenant_index);
      result.published += books_.tree.is_orphan(cell) ? 0 : 1;
      return cell;
    }
    ++result.duplicates;
    ++books_.tally.duplicates;
    if (!books_.numbered()) {
      // Give up only the cell; the lease keeps its own blocks of the other groups.
      store_.blocks.discard_cell(own, lease_.tenant_index);
      lease_.set_cell(i, BlockEntry::shared(cell));
    }
    return cell;
  }

  Store& store_;
  Books& books_;
  LeaseRecord& lease_;
  CellIndex tip_;
  // The cells up to kHintDistance levels above the next one, by level.
  std::array<CellIndex, tree::kHintDistance> above_;
};

// Kept out of line, like the next one: most commits do not need them.
// Enters the lease's own blocks at those of the first `cells` cells that are already findable.
[[gnu::noinline]] void fill_holes(Store& store, LeaseRecord& lease, uint32_t cells) {
  const Books& books = store.books;
  CellIndex cell = lease.tip;
  for (uint32_t i = lease.published; i-- > 0; cell = books.tree.parent(cell)) {
    if (i >= cells) continue;
    for (GroupIndex g = 0; g < books.group_count(); ++g) {
      const Group& group = books.group(g);
      if (!group.window() || (i + 1) % group.ratio() != 0) continue;
      enter_own(store, lease, g, cell, i / group.ratio(), group.ratio());
    }
  }
}

// Gives up the blocks that the lease's windows have passed.
[[gnu::noinline]] void advance_windows(Store& store, LeaseRecord& lease) {
  for (GroupIndex g = 0; g < store.books.group_count(); ++g) {
    const Group& group = store.books.group(g);
    if (!group.window()) continue;
    const uint32_t low = group.window_low(lease.committed);
    for (uint32_t j = std::max(lease.window_low[g], group.sink_blocks()); j < low; ++j) {
      give_up_block(store, lease, g, j, Blocks::Leaving::passed);
      lease.pages[g][j] = BlockEntry::none();
    }
    lease.window_low[g] = std::max(lease.window_low[g], low);
  }
}

}  // namespace

void enter_own(Store& store, LeaseRecord& lease, GroupIndex g, CellIndex cell, uint32_t block,
               uint32_t cells_in_block) {
  const Group& group = store.books.group(g);
  BlockEntry& entry = lease.pages[g][block];
  if (!entry.is_own() || group.at(cell) != kNoPage) return;
  const uint32_t page = entry.block();
  store.blocks.attach(g, cell, page, cells_in_block, lease.tenant_index);
  entry = BlockEntry::shared(page);
  if (!group.loose()) return;
  store.blocks.pin(g, page);
  entry = BlockEntry::pinned(page);
}

void count_request(Books& books, LeaseRecord& lease) {
  if (lease.counted) return;
  lease.counted = true;
  books.counters.count(lease.report, books.now_ns);
}

Result<Commit> commit(Core& core, LeaseRecord& lease, uint32_t n) {
  const Books& view = core.view();
  STEMMA_TRY_VOID(check_commit(view, lease, n));
  const uint32_t whole =
      lease.write ? key::floor_to_unit(lease.spans, n) / view.cell_tokens() : lease.published;
  const uint32_t first = lease.published;
  const bool publishes = whole > first;
  if (publishes && view.keyed()) chain_keys(view, lease, first, whole - first);
  return core.locked([&](Store& store) -> Result<Commit> {
    Books& books = store.books;
    Commit result;
    result.committed = n;
    const uint32_t filled = lease.filling;
    if (n >= filled) lease.filling = 0;
    if (filled != 0 && lease.write) fill_holes(store, lease, whole);
    if (publishes) {
      Publisher(store, lease).publish_to(whole, result);
      books.counters.sample_birth(books.tree.births(), books.now_ns);
    }
    books.events.seal();
    const uint32_t computed = n - std::min(n, std::max({lease.committed, lease.reused, filled}));
    if (computed != 0) books.counters.add_computed(computed, books.now_ns);
    lease.committed = n;
    if (books.has_loose_groups()) advance_windows(store, lease);
    if (n > lease.reused) count_request(books, lease);
    return result;
  });
}

uint32_t adopt_canonical(Core& core, LeaseRecord& lease) {
  return core.locked([&](Store& store) {
    const Books& books = store.books;
    uint32_t given_up = 0;
    CellIndex cell = lease.tip;
    for (uint32_t i = lease.published; i-- > 0; cell = books.tree.parent(cell)) {
      if (books.numbered() && lease.cell_entry(i).is_own()) {
        store.blocks.discard_cell(lease.cell_entry(i).block(), lease.tenant_index);
        lease.set_cell(i, BlockEntry::shared(cell));
        ++given_up;
      }
      for (GroupIndex g = 0; g < books.group_count(); ++g) {
        const Group& group = books.group(g);
        if (!group.listed() || (i + 1) % group.ratio() != 0) continue;
        BlockEntry& entry = lease.pages[g][i / group.ratio()];
        const uint32_t page = entry.is_own() ? group.at(cell) : kNoPage;
        if (page == kNoPage) continue;
        store.blocks.discard(g, entry.block(), lease.tenant_index);
        if (group.loose()) store.blocks.pin(g, page);
        entry = group.loose() ? BlockEntry::pinned(page) : BlockEntry::shared(page);
        if (!books.numbered() || g == 0) ++given_up;
      }
    }
    return given_up;
  });
}

}  // namespace stemma::cache
