// The books of a Store must balance: what the headers of its parts say always holds.
#include "base/check.h"
#include "cache/store/store.h"

namespace stemma::cache {
namespace {

void check_cell(const Books& books, CellIndex cell) {
  STEMMA_CHECK(books.pool_of(cell).is_cached(books.place_of(cell)));
  if (books.bare(cell)) {
    STEMMA_CHECK(!books.tree.is_orphan(cell) && books.policy->holds(cell));
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (group.numbers_cells()) continue;
    const uint32_t page = group.at(cell);
    if (page == kNoPage) continue;
    STEMMA_CHECK(group.pool().is_cached(page));
    STEMMA_CHECK(group.at(group.home(page)) == page);
    if (group.loose() && group.home(page) == cell) {
      STEMMA_CHECK(group.waiting(page) == (group.pool().pins(page) == 0));
    }
  }
}

// Returns the number of cells below all roots.
uint64_t check_cells(const Books& books) {
  uint64_t reachable = 0;
  for (const ScopeTable::Root& root : books.scopes.roots()) {
    if (root.cell == kNoCell) continue;
    STEMMA_CHECK(books.tree.is_live(root.cell) && books.tree.is_root(root.cell));
    STEMMA_CHECK(root.hidden == books.tree.is_orphan(root.cell));
    books.tree.check_invariants(root.cell);
    STEMMA_CHECK(!books.bare(root.cell));
    std::vector<CellIndex> cells;
    books.tree.descendants(root.cell, cells);
    reachable += cells.size();
    for (CellIndex cell : cells) check_cell(books, cell);
  }
  return reachable;
}

}  // namespace

void Store::check_invariants() const {
  books.first.check_invariants();
  books.extra.check_invariants();
  books.policy->check_invariants();
  books.media.check_invariants();
  books.logits.check_invariants();
  books.quotas.check_invariants();
  for (GroupIndex g = 0; g < books.group_count(); ++g) books.group(g).check_invariants();
  // Cells that were cut off and are still held cannot be reached from any root.
  STEMMA_CHECK(check_cells(books) <= books.cached_cells());
  uint64_t held = 0;
  for (const LeaseRecord* lease : holds.live()) {
    STEMMA_CHECK(books.tree.is_live(lease->tip));
    held += lease->published;
    for (const CopySource& source : lease->sources) held += source.depth_cells;
  }
  books.pins.for_each([&](const PinTable::Pin& pin) {
    held += pin.depth_cells;
    STEMMA_CHECK(books.pins.at(pin.cell) != PinTable::kNone);
  });
  STEMMA_CHECK(held == holds.depth_sum());
}

}  // namespace stemma::cache
