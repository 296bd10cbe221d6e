#include "cache/store/forgetter.h"

namespace stemma::cache {

void Forgetter::tell_forgotten(CellIndex cell) noexcept {
  EventLog& events = books_.events;
  if (!events.on()) return;
  const ContentKey& key = books_.tree.key(cell);
  events.removed(key, books_.index_group());
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    const Group& group = books_.group(g);
    if (group.numbers_cells()) continue;
    const uint32_t page = group.at(cell);
    if (page != kNoPage && group.home(page) == cell) events.removed(key, g);
  }
}

uint32_t Forgetter::let_go_below(CellIndex top, Top which, uint32_t tenant_index) {
  const tree::PrefixTree& tree = books_.tree;
  books_.known_evictable = 0;
  uint32_t count = 0;
  for (CellIndex cell = which == Top::included ? top : tree.next_below(top, top); cell != kNoCell;
       cell = tree.next_below(top, cell)) {
    books_.policy->remove(cell);
    if (books_.keyed()) tell_forgotten(cell);
    ++count;
  }
  for (CellIndex cell = books_.pins.empty() ? kNoCell : top; cell != kNoCell;) {
    // Cells held only by pins go too: they are at or above this one, so the next one stays.
    const CellIndex next = tree.next_below(top, cell);
    pins_.forget_at(cell);
    cell = next;
  }
  for (CellIndex cell = tree.is_live(top) ? top : kNoCell; cell != kNoCell;) {
    const CellIndex next = tree.next_below(top, cell);
    if (books_.bare(cell)) cells_.free_orphans(cell, tenant_index);
    cell = next;
  }
  // If the top is gone, so is everything below it.
  for (CellIndex cell = tree.is_live(top) ? top : kNoCell; cell != kNoCell;
       cell = tree.next_below(top, cell)) {
    books_.tally.orphaned += which == Top::included || cell != top ? 1U : 0U;
  }
  books_.events.seal();
  return count;
}

uint32_t Forgetter::cut(CellIndex top, uint32_t tenant_index) {
  const CellIndex parent = books_.tree.parent(top);
  books_.tree.orphan(top);
  // The cut-off top holds its parent until it is freed.
  books_.pool_of(parent).pin(books_.place_of(parent));
  return let_go_below(top, Top::included, tenant_index);
}

uint32_t Forgetter::drop_root(CellIndex root) {
  const uint32_t tenant_index = books_.scopes.find(root)->tenant_index;
  books_.tree.orphan(root);
  books_.scopes.hide(root);
  return let_go_below(root, Top::left_out, tenant_index);
}

void Forgetter::drop_all() {
  pins_.end_all();
  // By index, because a removed root leaves its place in the list empty.
  for (size_t i = 0; i < books_.scopes.roots().size(); ++i) {
    const ScopeTable::Root& root = books_.scopes.roots()[i];
    if (root.cell != kNoCell && !root.hidden) drop_root(root.cell);
  }
}

}  // namespace stemma::cache
