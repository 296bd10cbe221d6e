#include "cache/store/evictor.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "cache/store/reclaim_list.h"

namespace stemma::cache {

namespace {

// Tells counters, policy and observers that a cell is evicted.
inline void note(Books& books, CellIndex cell) noexcept {
  books.counters.count_eviction(books.tree.birth(cell), books.now_ns);
  if (books.tracks_contents()) books.policy->evicted(cell);
  books.tell_removed(cell);
}

}  // namespace

// When leaves are evicted one by one among many siblings, most of the time is spent waiting for
// memory.
void Evictor::load_ahead(CellIndex victim, uint32_t most) noexcept {
  constexpr uint32_t kAtOnce = 16;
  if (loaded_ahead_ != 0) {
    --loaded_ahead_;
    return;
  }
  if (!one_by_one_ || most < kAtOnce / 2) return;
  std::array<CellIndex, kAtOnce> next;
  loaded_ahead_ = books_.policy->following(victim, std::span(next).first(std::min(most, kAtOnce)));
  books_.tree.load_for_removal({next.data(), loaded_ahead_});
}

Victim Evictor::choose(std::optional<TenantId> only) {
  for (;;) {
    const Victim victim =
        books_.policy->victim(books_.now_ns, only.has_value(), only.value_or(kNoTenant));
    if (victim.cell == kNoCell || books_.bare(victim.cell)) return victim;
    books_.policy->set_aside(victim.cell);
    ++books_.tally.markers;
  }
}

uint32_t Evictor::evict(uint32_t most, std::optional<TenantId> only, ReclaimList* list) {
  const Victim victim = choose(only);
  if (victim.cell == kNoCell) return 0;
  Books& books = books_;
  const tree::PrefixTree& tree = books.tree;
  if (victim.next != kNoCell) {
    load_ahead(victim.cell, most);
    books.prefetch_draft(victim.next);
  }
  const uint32_t tenant_index = books.tenant_of(victim.cell);  // Not the policy's tenant.
  if (list != nullptr) list->begin(victim.cell);
  // Freeing a leaf makes its parent a leaf, which is usually next: continue up the path.
  const bool numbered = books.numbered();
  Cells& cells = cells_;
  std::vector<BlockId>* const evicted = evicted_;
  CellIndex cell = victim.cell;
  CellIndex parent;
  uint32_t done = 0;
  for (;;) {
    parent = tree.parent(cell);
    const CellIndex ahead = tree.up(cell);
    if (ahead != tree.sentinel()) {
      tree.prefetch_up(cell);
      if (numbered) books.first.prefetch(ahead);
    }
    note(books, cell);
    if (list != nullptr) list->take(cell);
    if (evicted != nullptr && evicted->size() < evicted->capacity()) {
      evicted->push_back(BlockId{cell});
    }
    cells.free(cell, tenant_index);
    if (++done == most || tree.is_root(parent) || !books.bare(parent) ||
        !books.policy->parent_follows(parent,
                                      numbered && ahead != tree.sentinel() ? ahead : parent)) {
      break;
    }
    cell = parent;
  }
  one_by_one_ = done == 1;
  books.tally.evicted += done;
  books.lose_evictable(done);
  if (tree.is_root(parent) || tree.has_child(parent)) {
    books.policy->remove(victim.cell);
    if (tree.is_root(parent)) cells_.close_root(parent);
  } else {
    books.policy->replace(victim.cell, parent);
  }
  return done;
}

void Evictor::evict_leaf(CellIndex cell, uint32_t tenant_index) {
  const tree::PrefixTree& tree = books_.tree;
  const CellIndex parent = tree.parent(cell);
  note(books_, cell);
  cells_.free(cell, tenant_index);
  ++books_.tally.evicted;
  if (tree.is_root(parent) || tree.has_child(parent)) {
    books_.policy->remove(cell);
  } else {
    books_.policy->replace(cell, parent);
  }
}

uint32_t Evictor::evict_blocks(uint32_t blocks) {
  uint32_t done = 0;
  while (done < blocks) {
    const uint32_t more = evict_some(blocks - done);
    if (more == 0) break;
    done += more;
  }
  books_.events.seal();
  return done;
}

void Evictor::evict_loose(GroupIndex g) {
  const uint32_t page = books_.group(g).next_to_go(books_.now_ns);
  STEMMA_CHECK(page != kNoPage);
  anchors_.evict_loose(g, page, books_.tenant_of(books_.group(g).home(page)));
}

bool Evictor::evict_loose_of(uint32_t tenant_index, Attention kind, Which which) {
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    Group& group = books_.group(g);
    if (group.options().attention != kind) continue;
    const uint32_t page = group.next_of(books_.now_ns, books_.quotas.id_of(tenant_index));
    if (page == kNoPage || (which == Which::passed && !group.is_left(page))) continue;
    anchors_.evict_loose(g, page, tenant_index);
    return true;
  }
  return false;
}

}  // namespace stemma::cache
