#include "cache/store/anchors.h"

#include <algorithm>
#include <new>

namespace stemma::cache {

void Anchors::attach_checkpoint(GroupIndex g, CellIndex cell, uint32_t slot, const LeaseRecord& who,
                                uint32_t depth) {
  Group& group = books_.group(g);
  const uint32_t old = group.at(cell);
  group.enter(cell, slot);  // Everything that needs memory.
  if (old != kNoPage) {
    // Replaced; the cell keeps its place even if it carried nothing else.
    group.forget(old);
    books_.quotas.freed(who.tenant_index, group, Quotas::Was::cached);
    group.pool().release(old);
  }
  group.pool().publish(slot);
  books_.quotas.cached(who.tenant_index, group);
  group.set_home(slot, cell);
  group.wait(slot, blocks_.touch_at(who, depth - 1));
  if (!books_.tree.is_inner(cell)) books_.tree.set_anchored(cell, true);
  if (old == kNoPage) blocks_.tell_stored(g, cell, false);
}

void Anchors::attach_logits(CellIndex cell, std::span<const float> values) {
  books_.logits.put(cell, values, [&](CellIndex gone) { drop_inner_if_bare(gone); });
  if (!books_.tree.is_inner(cell)) books_.tree.set_anchored(cell, true);
}

void Anchors::evict_loose(GroupIndex g, uint32_t page, uint32_t tenant_index) {
  const CellIndex home = books_.group(g).home(page);
  blocks_.detach(g, page, tenant_index);
  drop_inner_if_bare(home);
}

CellIndex Anchors::add_inner(CellIndex parent, std::span<const uint32_t> words) {
  pool::BlockPool& extra = books_.extra;
  if (!extra.prepare(1) || !books_.tree.ensure(extra.fresh_after(1) + books_.first_cells())) {
    throw std::bad_alloc();
  }
  const bool media = std::any_of(words.begin(), words.end(), key::is_media_word);
  const uint32_t place = extra.draft();
  const CellIndex cell = books_.extra_cell(place);
  try {
    books_.tree.publish_inner(cell, parent, words, media);
  } catch (const std::bad_alloc&) {
    extra.release(place);
    throw;
  }
  if (media) books_.refer_to_media(words);
  extra.publish(place);
  books_.tree.set_anchored(parent, true);
  ++books_.inner_cells;
  return cell;
}

void Anchors::drop_inner_if_bare(CellIndex cell) {
  if (!books_.tree.is_live(cell) || !books_.tree.is_inner(cell)) return;
  if (books_.logits.has(cell)) return;
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (books_.group(g).recurrent() && books_.group(g).at(cell) != kNoPage) return;
  }
  if (books_.tree.has_media(cell)) books_.forget_media(books_.words_of(cell));
  books_.tree.remove_inner(cell);
  books_.extra.release(books_.place_of(cell));
  --books_.inner_cells;
}

void Anchors::drop_at(CellIndex cell, uint32_t tenant_index) {
  books_.logits.drop(cell);
  for (GroupIndex g = 0; g < books_.group_count(); ++g) {
    if (!books_.group(g).recurrent()) continue;
    const uint32_t slot = books_.group(g).at(cell);
    if (slot != kNoPage) blocks_.detach(g, slot, tenant_index);
  }
}

void Anchors::drop(CellIndex cell, uint32_t tenant_index) {
  drop_at(cell, tenant_index);
  drop_inner(cell, {}, tenant_index);
}

void Anchors::drop_inner(CellIndex parent, std::span<const uint32_t> words, uint32_t tenant_index) {
  const tree::PrefixTree& tree = books_.tree;
  for (CellIndex cell = tree.first_inner(parent); cell != kNoCell;) {
    const CellIndex next = tree.next_inner(cell);
    const auto shared = std::min(tree.word_count(cell), static_cast<uint32_t>(words.size()));
    if (tree::common_words(tree.words(cell), words.data(), shared) == shared) {
      drop_at(cell, tenant_index);
      drop_inner_if_bare(cell);
    }
    cell = next;
  }
}

}  // namespace stemma::cache
