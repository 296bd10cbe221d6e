#include "cache/lease/lease_anchors.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/lease/placement.h"

namespace stemma::cache {
namespace {

Result<void> check_recurrent(const Books& books, GroupIndex g) {
  if (g < books.group_count() && books.group(g).recurrent()) return {};
  return Error(Errc::unsupported, "not a recurrent group", g);
}

// The cell that carries anchors at a depth of the lease's path; makes it if needed.
Result<CellIndex> anchor_at(Store& store, const LeaseRecord& lease, uint32_t depth) {
  const tree::PrefixTree& tree = store.books.tree;
  const uint32_t tokens = store.books.cell_tokens();
  const uint32_t boundary = depth / tokens;
  if (depth == 0 || depth > lease.committed || boundary > lease.published) {
    return Error(Errc::out_of_range, "not within what is committed", depth);
  }
  if (key::floor_to_unit(lease.spans, depth) != depth) {
    return Error(Errc::out_of_range, "inside a media item", depth);
  }
  if (!lease.write) return Error(Errc::wrong_state, "this lease does not write");
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
  const CellIndex cell = store.room.inner_cell(above, words);
  if (cell != kNoCell) return cell;
  return Error(Errc::out_of_blocks, "every cell of the index is in use (index_cells)", depth);
}

// Calls `attach(store, cell)` under the lock, with the cell for this depth.
template <class Attach>
Result<void> attach_at(Core& core, const LeaseRecord& lease, uint32_t depth, Attach&& attach) {
  return core.locked([&](Store& store) -> Result<void> {
    STEMMA_TRY(const CellIndex cell, anchor_at(store, lease, depth));
    try {
      attach(store, cell);
    } catch (const std::bad_alloc&) {
      store.anchors.drop_inner_if_bare(cell);
      throw;
    }
    return {};
  });
}

}  // namespace

Result<BlockId> draft_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g) {
  STEMMA_TRY_VOID(check_recurrent(core.view(), g));
  if (lease.checkpoint[g] != kNoPage) {
    return Error(Errc::wrong_state, "a checkpoint of this group is drafted already", g);
  }
  if (!lease.write) return Error(Errc::wrong_state, "this lease does not write");
  Need need;
  need.blocks[g] = 1;
  return core.until_room([&](Store& store, bool) -> Result<BlockId> {
    STEMMA_TRY_VOID(store.room.make(need, lease.tenant_index));
    lease.checkpoint[g] = store.blocks.draft(g, lease.tenant_index);
    return BlockId{lease.checkpoint[g]};
  });
}

Result<void> commit_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g, uint32_t depth) {
  STEMMA_TRY_VOID(check_recurrent(core.view(), g));
  if (lease.checkpoint[g] == kNoPage) {
    return Error(Errc::wrong_state, "no checkpoint of this group is drafted", g);
  }
  return attach_at(core, lease, depth, [&](Store& store, CellIndex cell) {
    store.anchors.attach_checkpoint(g, cell, lease.checkpoint[g], lease, depth);
    store.books.events.seal();
    lease.checkpoint[g] = kNoPage;
  });
}

Result<Checkpoint> hold_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g, uint32_t at_most) {
  STEMMA_TRY_VOID(check_recurrent(core.view(), g));
  return core.locked([&](Store& store) -> Result<Checkpoint> {
    const Books& books = store.books;
    const Path path = own_path(books, lease);
    Checkpoint found;
    found.depth =
        Present(books, path, lease.spans).checkpoint_at_most(g, std::min(at_most, lease.committed));
    const uint32_t before = std::exchange(lease.held_slot[g], kNoPage);
    const uint32_t depth_before = std::exchange(lease.held_depth[g], found.depth);
    if (found.depth != 0) {
      lease.held_slot[g] = books.group(g).at(anchor_cell(books, path, found.depth));
      store.blocks.pin(g, lease.held_slot[g]);
      found.slot = BlockId{lease.held_slot[g]};
    }
    if (before != kNoPage) store.blocks.unpin(g, before, lease, depth_before - 1);
    return found;
  });
}

Result<void> attach_logits(Core& core, LeaseRecord& lease, uint32_t depth,
                           std::span<const float> logits) {
  if (core.options().logits_bytes == 0) {
    return Error(Errc::unsupported, "Options::logits_bytes is 0: no logits are kept");
  }
  if (logits.empty()) return Error(Errc::invalid_argument, "no logits given");
  if (!core.view().logits.fits(logits.size())) {
    return Error(Errc::out_of_memory, "larger than Options::logits_bytes");
  }
  return attach_at(core, lease, depth, [&](Store& store, CellIndex cell) {
    store.anchors.attach_logits(cell, logits);
  });
}

}  // namespace stemma::cache
