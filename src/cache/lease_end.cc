// Anchors a lease attaches, what kernels read from it, and how it ends.
#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "cache/shared.h"
#include "key/content_key.h"

namespace stemma::cache {

// ---- Anchors -----------------------------------------------------------------------------------

Result<BlockId> Shared::draft_checkpoint(LeaseRecord& lease, GroupIndex g) {
  if (g >= view_.group_count() || !view_.group(g).recurrent()) {
    return Error(Errc::unsupported, "not a recurrent group", g);
  }
  if (lease.checkpoint[g] != kPageMask) {
    return Error(Errc::wrong_state, "a checkpoint of this group is drafted already", g);
  }
  if (!lease.write) return Error(Errc::wrong_state, "this lease does not write");
  Need need;
  need.blocks[g] = 1;
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      const Result<void> room = store_.make_room(need, lease.tenant_index);
      if (room) {
        lease.checkpoint[g] = store_.draft(g, lease.tenant_index);
        return BlockId{lease.checkpoint[g]};
      }
      if (give_up(tries)) return refuse(room.error());
    }
    poll();
  }
}

Result<CellIndex> Shared::anchor_at(LeaseRecord& lease, uint32_t depth) {
  const uint32_t tokens = store_.cell_tokens();
  const uint32_t boundary = depth / tokens;
  if (depth == 0 || depth > lease.committed || boundary > lease.published) {
    return Error(Errc::out_of_range, "not within what is committed", depth);
  }
  if (key::floor_to_unit(lease.spans, depth) != depth) {
    return Error(Errc::out_of_range, "inside a media item", depth);
  }
  if (!lease.write) return Error(Errc::wrong_state, "this lease does not write");
  const tree::PrefixTree& tree = store_.tree();
  const uint32_t begin = boundary * tokens;
  // The cell that ends at the boundary, and the words behind it up to the depth.
  CellIndex above = lease.tip;
  CellIndex beyond = kNoCell;
  for (uint32_t i = lease.published; i > boundary; --i) {
    beyond = above;
    above = tree.parent(above);
  }
  if (depth == begin) return above;
  const std::span<const uint32_t> words =
      begin >= lease.words_begin ? lease.words_of(begin, depth)
                                 : std::span<const uint32_t>(tree.words(beyond), depth - begin);
  const CellIndex cell = store_.inner_cell(above, words, true);
  if (cell == kNoCell)
    return Error(Errc::out_of_blocks, "every cell of the index is in use (index_cells)", depth);
  return cell;
}

Result<void> Shared::commit_checkpoint(LeaseRecord& lease, GroupIndex g, uint32_t depth) {
  if (g >= view_.group_count() || !view_.group(g).recurrent()) {
    return Error(Errc::unsupported, "not a recurrent group", g);
  }
  if (lease.checkpoint[g] == kPageMask) {
    return Error(Errc::wrong_state, "no checkpoint of this group is drafted", g);
  }
  const Section lock(*this);
  STEMMA_TRY(const CellIndex cell, anchor_at(lease, depth));
  try {
    store_.attach_checkpoint(g, cell, lease.checkpoint[g], lease, depth);
    store_.events().seal();
  } catch (const std::bad_alloc&) {
    store_.drop_inner_if_bare(cell);
    throw;
  }
  lease.checkpoint[g] = kPageMask;
  return {};
}

Result<Checkpoint> Shared::hold_checkpoint(LeaseRecord& lease, GroupIndex g, uint32_t at_most) {
  if (g >= view_.group_count() || !view_.group(g).recurrent()) {
    return Error(Errc::unsupported, "not a recurrent group", g);
  }
  const Section lock(*this);
  const Path path = own_path(lease);
  Checkpoint found;
  found.depth =
      Present(store_, path, lease.spans).checkpoint_at_most(g, std::min(at_most, lease.committed));
  uint32_t& held = lease.held_slot[g];
  const uint32_t before = held;
  const uint32_t depth_before = std::exchange(lease.held_depth[g], found.depth);
  held = kPageMask;
  if (found.depth != 0) {
    held = store_.group(g).at(anchor_cell(store_, path, found.depth));
    store_.pin_page(g, held);
    found.slot = BlockId{held};
  }
  if (before != kPageMask) store_.unpin_page(g, before, lease, depth_before - 1);
  return found;
}

Result<void> Shared::attach_logits(LeaseRecord& lease, uint32_t depth,
                                   std::span<const float> logits) {
  if (options_.logits_bytes == 0) {
    return Error(Errc::unsupported, "Options::logits_bytes is 0: no logits are kept");
  }
  if (logits.empty()) return Error(Errc::invalid_argument, "no logits given");
  const Section lock(*this);
  if (!store_.logits_fit(logits.size())) {
    return Error(Errc::out_of_memory, "larger than Options::logits_bytes");
  }
  STEMMA_TRY(const CellIndex cell, anchor_at(lease, depth));
  try {
    return store_.attach_logits(cell, logits);
  } catch (const std::bad_alloc&) {
    store_.drop_inner_if_bare(cell);
    throw;
  }
}

// ---- Kernels -----------------------------------------------------------------------------------

uint32_t Shared::block_count(const LeaseRecord& lease, GroupIndex g) const noexcept {
  if (g >= view_.group_count() || view_.group(g).recurrent()) return 0;
  return view_.group(g).numbers_cells() ? lease.cell_count
                                        : static_cast<uint32_t>(lease.pages[g].size());
}

uint32_t Shared::page_at(const LeaseRecord& lease, GroupIndex g, uint32_t block) const noexcept {
  const uint32_t entry =
      view_.group(g).numbers_cells() ? lease.cells[block] : lease.pages[g][block];
  return entry & kPageMask;
}

Result<std::span<const uint32_t>> Shared::entries(const LeaseRecord& lease, GroupIndex g,
                                                  size_t room) const {
  if (g >= view_.group_count() || view_.group(g).recurrent()) {
    return Error(Errc::invalid_argument, "no such paged group", g);
  }
  const uint32_t blocks = block_count(lease, g);
  if (room < blocks) return Error(Errc::out_of_range, "the table needs more entries", blocks);
  const uint32_t* first =
      view_.group(g).numbers_cells() ? lease.cells.data() : lease.pages[g].data();
  return std::span<const uint32_t>(first, blocks);
}

Result<uint32_t> Shared::block_table(const LeaseRecord& lease, GroupIndex g, std::span<BlockId> out,
                                     BlockId pad) const {
  STEMMA_TRY(const std::span<const uint32_t> entries, this->entries(lease, g, out.size()));
  for (size_t i = 0; i < entries.size(); ++i) {
    const uint32_t block = entries[i] & kPageMask;
    out[i] = block == kPageMask ? pad : BlockId{block};
  }
  std::fill(out.begin() + static_cast<ptrdiff_t>(entries.size()), out.end(), pad);
  return static_cast<uint32_t>(entries.size());
}

Result<uint32_t> Shared::draft_table(const LeaseRecord& lease, GroupIndex g, std::span<BlockId> out,
                                     BlockId pad) const {
  STEMMA_TRY(const std::span<const uint32_t> entries, this->entries(lease, g, out.size()));
  for (size_t i = 0; i < entries.size(); ++i)
    out[i] = (entries[i] & kOwn) == 0 ? pad : BlockId{entries[i] & kPageMask};
  std::fill(out.begin() + static_cast<ptrdiff_t>(entries.size()), out.end(), pad);
  return static_cast<uint32_t>(entries.size());
}

Result<void> Shared::slot_mapping(const LeaseRecord& lease, GroupIndex g, uint32_t begin,
                                  std::span<int64_t> out, int64_t pad) const {
  if (g >= view_.group_count() || view_.group(g).recurrent()) {
    return Error(Errc::invalid_argument, "no such paged group", g);
  }
  const uint32_t tokens = view_.group(g).options().block_tokens;
  const uint32_t blocks = block_count(lease, g);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t position = uint64_t{begin} + i;
    const uint64_t block = position / tokens;
    const uint32_t page =
        block < blocks ? page_at(lease, g, static_cast<uint32_t>(block)) : kPageMask;
    out[i] =
        page == kPageMask ? pad : int64_t{page} * tokens + static_cast<int64_t>(position % tokens);
  }
  return {};
}

// ---- The end -----------------------------------------------------------------------------------

Result<void> Shared::release(LeaseRecord* lease, const ReleaseOptions& options, bool publish_tail) {
  if (options.retain != nullptr) {
    STEMMA_TRY_VOID(check_retain(*options.retain));
    set_retain(*lease, *options.retain);
  }
  lease->publish_tail = publish_tail;
  if (const uint32_t words = view_.keyed() ? tail_words(*lease) : 0; words != 0) {
    // Hashed here, without the lock; the tip is held, so its key stays.
    const uint32_t begin = lease->published * view_.cell_tokens();
    try {
      std::vector<key::MediaRun> room(lease->spans.empty() ? 0 : words);
      lease->keys.assign(
          1, key::block_key(view_.tree().key(lease->tip), lease->words_of(begin, begin + words),
                            key::media_runs(lease->spans, begin, words, room)));
    } catch (const std::bad_alloc&) {
      lease->publish_tail = false;  // The lease must end; the tail can be computed again.
    }
  }
  const bool waits = options.fence != nullptr && !options.fence->signalled();
  bool last;
  {
    const Section lock(*this);
    if (waits) {
      lease->fence = options.fence;
      lease->next_fenced = nullptr;
      *fenced_end_ = lease;
      fenced_end_ = &lease->next_fenced;
      fenced_count_.fetch_add(1, std::memory_order_relaxed);
    } else {
      settle(*lease);
      recycle(lease);
    }
    last = unused();
  }
  if (last) delete this;
  return {};
}

uint32_t Shared::tail_words(const LeaseRecord& lease) const {
  if (!lease.write || !lease.publish_tail || !lease.copies.empty() || lease.filling != 0) return 0;
  const uint32_t begin = lease.published * view_.cell_tokens();
  const uint32_t end = key::floor_to_unit(lease.spans, lease.committed);
  return end > begin ? end - begin : 0;
}

void Shared::attach_part_blocks(LeaseRecord& lease, CellIndex home, uint32_t depth_cells) {
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    const Group& group = store_.group(g);
    if (group.numbers_cells() || group.recurrent()) continue;
    const uint32_t block = (depth_cells - 1) / group.ratio();
    uint32_t& entry = lease.pages[g][block];
    if ((entry & kOwn) == 0 || group.at(home) != kNoPage) continue;
    const uint32_t page = entry & kPageMask;
    store_.attach_page(g, home, page, (depth_cells - 1) % group.ratio() + 1, lease.tenant_index);
    entry = page;
    if (group.loose()) {
      store_.pin_page(g, page);
      entry |= kPinned;
    }
  }
}

void Shared::publish_tail(LeaseRecord& lease, uint32_t count) {
  tree::PrefixTree& tree = store_.tree();
  const uint32_t tokens = store_.cell_tokens();
  const uint32_t begin = lease.published * tokens;
  if (count != 0) {
    const std::span<const uint32_t> words = lease.words_of(begin, begin + count);
    if (tree.best_child(lease.tip, words).words != count) {
      const CellIndex cell = lease.cells[lease.published] & kPageMask;
      lease.cells[lease.published] = cell;
      const CellIndex up = lease.published < tree::kHintDistance
                               ? tree.sentinel()
                               : tree.ancestor(lease.tip, tree::kHintDistance - 1);
      store_.publish_cell(cell, lease.tip, up, words, store_.keyed() ? lease.keys.data() : nullptr,
                          lease.tenant_index);
      store_.absorb_tails(cell, lease.tenant_index);
      attach_part_blocks(lease, cell, lease.published + 1);
      store_.move_tip(lease, cell, lease.published + 1);
      if (!tree.is_orphan(cell)) ++store_.tally.tails;
      return;
    }
  }
  // No tail of its own; larger blocks of other groups may still end in the middle.
  if (lease.published != 0) attach_part_blocks(lease, lease.tip, lease.published);
}

void Shared::settle(LeaseRecord& lease) {
  const bool publish =
      lease.write && lease.publish_tail && lease.copies.empty() && lease.filling == 0;
  release_sources(lease);
  if (publish && !store_.tree().is_short(lease.tip)) {
    publish_tail(lease, tail_words(lease));
    store_.events().seal();
  }
  for (uint32_t i = lease.own_from; i < lease.cell_count; ++i) {
    if ((lease.cells[i] & kOwn) != 0) {
      store_.discard_cell(lease.cells[i] & kPageMask, lease.tenant_index);
    }
  }
  for (GroupIndex g = 0; g < store_.group_count(); ++g) {
    for (size_t j = 0; j < lease.pages[g].size(); ++j) {
      const uint32_t entry = lease.pages[g][j];
      if (entry == kPageMask) continue;
      if ((entry & kOwn) != 0) {
        store_.discard(g, entry & kPageMask, lease.tenant_index);
      } else if ((entry & kPinned) != 0) {
        const uint32_t at = static_cast<uint32_t>(j) * store_.group(g).options().block_tokens;
        store_.unpin_page(g, entry & kPageMask, lease, at);
      }
    }
    if (lease.checkpoint[g] != kPageMask) {
      store_.discard(g, lease.checkpoint[g], lease.tenant_index);
      lease.checkpoint[g] = kPageMask;
    }
    if (lease.held_slot[g] != kPageMask) {
      store_.unpin_page(g, lease.held_slot[g], lease, lease.held_depth[g] - 1);
      lease.held_slot[g] = kPageMask;
    }
  }
  store_.let_go(lease.tip, lease.published, lease);
  for (uint32_t number : lease.media_numbers) store_.media().drop_reference(number);
  count(lease);
  store_.remove_live(&lease);
}

}  // namespace stemma::cache
