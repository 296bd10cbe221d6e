#include "cache/lease/ending.h"

#include <algorithm>
#include <new>

#include "cache/check_options.h"
#include "cache/lease/commit.h"
#include "cache/lease/copies.h"
#include "key/content_key.h"

namespace stemma::cache {
namespace {

// How many words a tail would have now; 0: publish no tail.
uint32_t tail_words(const Books& books, const LeaseRecord& lease) {
  if (!lease.write || !lease.publish_tail || !lease.copies.empty() || lease.filling != 0) return 0;
  const uint32_t begin = lease.published * books.cell_tokens();
  const uint32_t end = key::floor_to_unit(lease.spans, lease.committed);
  return end > begin ? end - begin : 0;
}

void hash_tail(const Books& books, LeaseRecord& lease, uint32_t words) {
  // The tip is held, so its key stays valid.
  const uint32_t begin = lease.published * books.cell_tokens();
  try {
    std::vector<key::MediaRun> room(lease.spans.empty() ? 0 : words);
    lease.keys.assign(
        1, key::block_key(books.tree.key(lease.tip), lease.words_of(begin, begin + words),
                          key::media_runs(lease.spans, begin, words, room)));
  } catch (const std::bad_alloc&) {
    lease.publish_tail = false;  // The lease must end; the tail can be computed again.
  }
}

// Enters the lease's own part-filled blocks at `home`, as copy sources.
void attach_part_blocks(Store& store, LeaseRecord& lease, CellIndex home, uint32_t depth_cells) {
  for (GroupIndex g = 0; g < store.books.group_count(); ++g) {
    const Group& group = store.books.group(g);
    if (!group.listed()) continue;
    enter_own(store, lease, g, home, (depth_cells - 1) / group.ratio(),
              (depth_cells - 1) % group.ratio() + 1);
  }
}

void publish_tail(Store& store, LeaseRecord& lease, uint32_t count) {
  Books& books = store.books;
  const tree::PrefixTree& tree = books.tree;
  const uint32_t begin = lease.published * books.cell_tokens();
  const std::span<const uint32_t> words = lease.words_of(begin, begin + count);
  if (count == 0 || tree.best_child(lease.tip, words).words == count) {
    // No tail, but larger blocks of other groups may still end in the middle.
    if (lease.published != 0) attach_part_blocks(store, lease, lease.tip, lease.published);
    return;
  }
  const CellIndex cell = lease.cell_entry(lease.published).block();
  lease.set_cell(lease.published, BlockEntry::shared(cell));
  const CellIndex up = lease.published < tree::kHintDistance
                           ? tree.sentinel()
                           : tree.ancestor(lease.tip, tree::kHintDistance - 1);
  store.cells.publish(cell, lease.tip, up, words, books.keyed() ? lease.keys.data() : nullptr,
                      lease.tenant_index);
  store.cells.absorb_tails(cell, lease.tenant_index);
  attach_part_blocks(store, lease, cell, lease.published + 1);
  store.holds.move_tip(lease, cell, lease.published + 1);
  if (!tree.is_orphan(cell)) ++books.tally.tails;
}

}  // namespace

Result<void> release(Core& core, LeaseRecord* lease, const ReleaseOptions& options, Tail tail) {
  if (options.retain != nullptr) {
    STEMMA_TRY_VOID(check_retain(*options.retain));
    lease->set_retain(*options.retain);
  }
  lease->publish_tail = tail == Tail::publish;
  const Books& view = core.view();
  if (const uint32_t words = view.keyed() ? tail_words(view, *lease) : 0; words != 0) {
    hash_tail(view, *lease, words);
  }
  core.end(lease, options.fence);
  return {};
}

void settle(Store& store, LeaseRecord& lease) {
  Books& books = store.books;
  const bool publish =
      lease.write && lease.publish_tail && lease.copies.empty() && lease.filling == 0;
  release_sources(store, lease);
  if (publish && !books.tree.is_short(lease.tip)) {
    publish_tail(store, lease, tail_words(books, lease));
    books.events.seal();
  }
  for (uint32_t i = lease.own_from; i < lease.cell_count; ++i) {
    const BlockEntry entry = lease.cell_entry(i);
    if (entry.is_own()) store.blocks.discard_cell(entry.block(), lease.tenant_index);
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    for (uint32_t j = 0; j < lease.pages[g].size(); ++j) give_up_block(store, lease, g, j);
    if (lease.checkpoint[g] != kNoPage) {
      store.blocks.discard(g, lease.checkpoint[g], lease.tenant_index);
    }
    if (lease.held_slot[g] != kNoPage) {
      store.blocks.unpin(g, lease.held_slot[g], lease, lease.held_depth[g] - 1);
    }
  }
  store.holds.let_go(lease.tip, lease.published, lease);
  for (uint32_t number : lease.media_numbers) books.media.drop_reference(number);
  count_request(books, lease);
  store.holds.remove_live(&lease);
}

}  // namespace stemma::cache
