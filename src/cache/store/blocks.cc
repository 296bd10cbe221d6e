#include "cache/store/blocks.h"

#include <algorithm>
#include <new>

#include "base/check.h"
#include "retain/touch.h"

namespace stemma::cache {

// ---- Drafts ------------------------------------------------------------------------------------

uint32_t Blocks::draft(GroupIndex g, uint32_t tenant_index) {
  Books& books = books_;
  Group& group = books.group(g);
  const uint32_t page = group.pool().draft();
  STEMMA_CHECK(page != kNoPage);
  books.quotas.drafted(tenant_index, group);
  return page;
}

CellIndex Blocks::draft_cell(uint32_t tenant_index) {
  Books& books = books_;
  if (books.numbered()) {
    const CellIndex cell = books.first.draft();
    STEMMA_CHECK(cell != kNoPage);
    books.quotas.drafted(tenant_index, books.group(0));
    return cell;
  }
  const uint32_t place = books.extra.draft();
  STEMMA_CHECK(place != kNoPage);
  return books.extra_cell(place);
}

void Blocks::discard(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  Group& group = books_.group(g);
  books_.quotas.freed(tenant_index, group, Quotas::Was::draft);
  group.pool().release(page);
}

void Blocks::discard_cell(CellIndex cell, uint32_t tenant_index) {
  if (books_.numbered()) {
    books_.quotas.freed(tenant_index, books_.group(0), Quotas::Was::draft);
  }
  books_.pool_of(cell).release(books_.place_of(cell));
}

bool Blocks::draft_cell_exactly(CellIndex cell, uint32_t tenant_index) {
  if (!books_.numbered() || cell >= books_.first_cells()) return false;
  if (!books_.first.ensure(cell) || !books_.ensure_cells(cell)) throw std::bad_alloc();
  if (!books_.first.draft_exactly(cell)) return false;
  books_.quotas.drafted(tenant_index, books_.group(0));
  return true;
}

bool Blocks::draft_exactly(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  Group& group = books_.group(g);
  if (page >= group.pool().capacity()) return false;
  if (!group.pool().ensure(page) || !group.ensure_page(page)) throw std::bad_alloc();
  if (!group.pool().draft_exactly(page)) return false;
  books_.quotas.drafted(tenant_index, group);
  return true;
}

void Blocks::relist() {
  books_.first.relist();
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (!books_.group(g).numbers_cells()) books_.group(g).pool().relist();
  }
}

// ---- In the index ------------------------------------------------------------------------------

void Blocks::tell_stored(GroupIndex g, CellIndex home, bool tail) noexcept {
  if (!is_told(home)) return;
  const Group& group = books_.group(g);
  books_.events.stored({}, books_.tree.key(home), {},
                       group.paged() ? group.options().block_tokens : 0, g, tail);
}

void Blocks::attach(GroupIndex g, CellIndex home, uint32_t page, uint32_t cells_in_block,
                    uint32_t tenant_index, Lesser lesser) {
  Books& books = books_;
  Group& group = books.group(g);
  group.pool().publish(page);
  books.quotas.cached(tenant_index, group);
  group.set_home(page, home);
  group.enter(home, page);
  CellIndex cell = home;
  for (uint32_t i = 1; i < cells_in_block; ++i) {
    cell = books.tree.parent(cell);
    const uint32_t there = group.at(cell);
    if (there != kNoPage) {
      // A smaller part-block whose cells this block covers too.
      if (lesser == Lesser::keep || group.home(there) != cell || group.pool().pins(there) != 0) {
        continue;
      }
      detach(g, there, tenant_index);
    }
    group.enter(cell, page);
  }
  tell_stored(g, home, cells_in_block != group.ratio() || books.tree.is_short(home));
}

void Blocks::detach(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  Books& books = books_;
  Group& group = books.group(g);
  const tree::PrefixTree& tree = books.tree;
  if (group.loose()) group.forget(page);
  const CellIndex home = group.home(page);
  if (is_told(home)) books.events.removed(tree.key(home), g);
  group.erase(home);
  if (group.paged()) {
    CellIndex cell = home;
    for (uint32_t i = 1; i < group.ratio(); ++i) {
      cell = tree.parent(cell);
      if (tree.is_root(cell) || cell == tree.sentinel()) break;
      if (group.at(cell) == page) refill_entry(group, cell);
    }
  }
  books.quotas.freed(tenant_index, group, Quotas::Was::cached);
  group.pool().release(page);
}

void Blocks::detach_all(CellIndex cell, uint32_t tenant_index) {
  Books& books = books_;
  for (GroupIndex g = books.numbered() ? 1 : 0; g < books.group_count(); ++g) {
    Group& group = books.group(g);
    if (group.recurrent()) continue;
    const uint32_t page = group.at(cell);
    if (page == kNoPage) continue;
    if (group.home(page) == cell) {
      detach(g, page, tenant_index);
    } else {
      group.erase(cell);
    }
  }
}

void Blocks::refill_entry(Group& group, CellIndex cell) {
  // Another block of the same span, in another branch below, may cover this cell as well.
  const tree::PrefixTree& tree = books_.tree;
  group.erase(cell);
  for (CellIndex child = tree.first_child(cell); child != kNoCell; child = tree.next_child(child)) {
    const uint32_t page = group.at(child);
    if (page != kNoPage) {
      group.enter(cell, page);
      return;
    }
  }
}

// ---- Pins --------------------------------------------------------------------------------------

void Blocks::pin(GroupIndex g, uint32_t page) {
  Group& group = books_.group(g);
  group.pool().pin(page);
  if (group.loose()) {
    group.stop_waiting(page);
  } else {
    ++full_pins_[g];
  }
}

void Blocks::unpin(GroupIndex g, uint32_t page, const LeaseRecord& who, uint32_t position,
                   Leaving how) {
  Group& group = books_.group(g);
  if (!group.loose()) {
    --full_pins_[g];
    group.pool().unpin(page);
    return;
  }
  // Also when others still hold it, it counts as used now.
  const bool cached = group.pool().is_cached(page);
  const bool last = group.pool().unpin(page);
  if (!cached) return;
  group.wait(page, touch_at(who, position, how));
  if (!last) group.stop_waiting(page);
}

Touch Blocks::touch_at(const LeaseRecord& who, uint32_t position, Leaving how) const {
  Touch touch;
  if (how == Leaving::passed) {
    Retain passed = who.retain;
    passed.phase = SessionPhase::ended;
    passed.will_return = false;
    touch = retain::touch_of(passed, position, books_.now_ns);
  } else {
    touch = retain::touch_of(who.retain, position, books_.now_ns);
  }
  touch.tenant = books_.quotas.id_of(who.tenant_index);
  return touch;
}

}  // namespace stemma::cache
