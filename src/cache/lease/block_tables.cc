#include "cache/lease/block_tables.h"

#include <algorithm>

namespace stemma::cache {
namespace {

Result<void> check_paged(const Books& books, GroupIndex g) {
  if (g < books.group_count() && books.group(g).paged()) return {};
  return Error(Errc::invalid_argument, "no such paged group", g);
}

BlockEntry entry_at(const Group& group, const LeaseRecord& lease, GroupIndex g, uint32_t block) {
  return group.numbers_cells() ? lease.cell_entry(block) : lease.pages[g][block];
}

// Writes `value(entry)` for each block, and `pad` behind.
template <class Value>
Result<uint32_t> write_table(const Books& books, const LeaseRecord& lease, GroupIndex g,
                             std::span<BlockId> out, BlockId pad, Value&& value) {
  if (Result<void> paged = check_paged(books, g); !paged) return paged.error();
  const uint32_t blocks = block_count(books, lease, g);
  if (out.size() < blocks) {
    return Error(Errc::out_of_range, "the table needs more entries", blocks);
  }
  if (books.group(g).numbers_cells()) {
    std::transform(lease.cells.begin(), lease.cells.begin() + blocks, out.begin(),
                   [&](uint32_t bits) { return value(BlockEntry::from_bits(bits)); });
  } else {
    std::transform(lease.pages[g].begin(), lease.pages[g].end(), out.begin(), value);
  }
  std::fill(out.begin() + blocks, out.end(), pad);
  return blocks;
}

}  // namespace

uint32_t block_count(const Books& books, const LeaseRecord& lease, GroupIndex g) noexcept {
  if (g >= books.group_count() || books.group(g).recurrent()) return 0;
  return books.group(g).numbers_cells() ? lease.cell_count
                                        : static_cast<uint32_t>(lease.pages[g].size());
}

Result<uint32_t> block_table(const Books& books, const LeaseRecord& lease, GroupIndex g,
                             std::span<BlockId> out, BlockId pad) {
  return write_table(books, lease, g, out, pad, [pad](BlockEntry entry) {
    return entry.has_block() ? BlockId{entry.block()} : pad;
  });
}

Result<uint32_t> draft_table(const Books& books, const LeaseRecord& lease, GroupIndex g,
                             std::span<BlockId> out, BlockId pad) {
  return write_table(books, lease, g, out, pad, [pad](BlockEntry entry) {
    return entry.is_own() ? BlockId{entry.block()} : pad;
  });
}

Result<void> slot_mapping(const Books& books, const LeaseRecord& lease, GroupIndex g,
                          uint32_t begin, std::span<int64_t> out, int64_t pad) {
  STEMMA_TRY_VOID(check_paged(books, g));
  const Group& group = books.group(g);
  const uint32_t tokens = group.options().block_tokens;
  const uint32_t blocks = block_count(books, lease, g);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t position = uint64_t{begin} + i;
    const uint64_t block = position / tokens;
    const BlockEntry entry = block < blocks
                                 ? entry_at(group, lease, g, static_cast<uint32_t>(block))
                                 : BlockEntry::none();
    out[i] = entry.has_block()
                 ? int64_t{entry.block()} * tokens + static_cast<int64_t>(position % tokens)
                 : pad;
  }
  return {};
}

}  // namespace stemma::cache
