#include "cache/lease/growth.h"

#include "base/vectors.h"

namespace stemma::cache {
namespace {

void prepare_growth(const Books& books, LeaseRecord& lease, uint32_t capacity) {
  const uint32_t cells = Group::blocks_of(capacity, books.cell_tokens());
  if (lease.cells.size() < cells) lease.cells.resize(cells);
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    if (!books.group(g).listed()) continue;
    const size_t blocks = books.group(g).blocks_for(capacity);
    const size_t have = lease.pages[g].size();
    if (blocks > have) base::make_room(lease.pages[g], blocks - have);
  }
}

void draft_up_to(Store& store, LeaseRecord& lease, uint32_t capacity) {
  const Books& books = store.books;
  const uint32_t cells = Group::blocks_of(capacity, books.cell_tokens());
  while (lease.cell_count < cells) {
    const CellIndex cell = store.blocks.draft_cell(lease.tenant_index);
    lease.set_cell(lease.cell_count++, BlockEntry::own(cell));
  }
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    if (!books.group(g).listed()) continue;
    const uint32_t blocks = books.group(g).blocks_for(capacity);
    while (lease.pages[g].size() < blocks) {
      lease.pages[g].push_back(BlockEntry::own(store.blocks.draft(g, lease.tenant_index)));
    }
  }
}

Result<void> grow(Core& core, LeaseRecord& lease, uint32_t positions) {
  const Books& view = core.view();
  if (positions <= lease.capacity(view.cell_tokens())) return {};
  const Need need = growth(view, lease, positions);
  if (could_fit(view, need)) prepare_growth(view, lease, positions);
  return core.until_room([&](Store& store, bool) -> Result<void> {
    STEMMA_TRY_VOID(store.room.make(need, lease.tenant_index));
    draft_up_to(store, lease, positions);
    return {};
  });
}

}  // namespace

Need growth(const Books& books, const LeaseRecord& lease, uint32_t capacity) {
  Need need;
  const uint32_t cells = Group::blocks_of(capacity, books.cell_tokens());
  const uint32_t more_cells = cells > lease.cell_count ? cells - lease.cell_count : 0;
  for (GroupIndex g = 0; g < books.group_count(); ++g) {
    const Group& group = books.group(g);
    if (group.recurrent()) continue;
    if (group.numbers_cells()) {
      need.blocks[g] = more_cells;
      need.kept[g] = lease.cell_count;
      continue;
    }
    const uint32_t blocks = group.blocks_for(capacity);
    const auto have = static_cast<uint32_t>(lease.pages[g].size());
    if (blocks > have) need.blocks[g] = blocks - have;
    if (group.full()) need.kept[g] = have;  // A window's blocks are given up as it advances.
  }
  if (!books.numbered()) {
    need.cells = more_cells;
    need.kept_cells = lease.cell_count;
  }
  return need;
}

Result<void> reserve(Core& core, LeaseRecord& lease, uint32_t positions) {
  if (positions > key::kMaxPromptPositions) {
    return Error(Errc::out_of_range, "more than 2^31 - 1 positions", positions);
  }
  return grow(core, lease, positions);
}

Result<void> extend(Core& core, LeaseRecord& lease, std::span<const Token> tokens) {
  if (tokens.size() > key::kMaxPromptPositions - lease.length) {
    return Error(Errc::out_of_range, "the lease would be longer than 2^31 - 1 positions");
  }
  if (const auto bad = key::first_bad_token(tokens)) {
    return Error(Errc::invalid_argument, "not a token (2^31 or more) at this position", *bad);
  }
  const uint32_t length = lease.length + static_cast<uint32_t>(tokens.size());
  base::make_room(lease.words, tokens.size());
  STEMMA_TRY_VOID(grow(core, lease, length));
  lease.words.insert(lease.words.end(), tokens.begin(), tokens.end());
  lease.length = length;
  return {};
}

}  // namespace stemma::cache
