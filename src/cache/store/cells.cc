#include "cache/store/cells.h"

#include <algorithm>
#include <new>

#include "key/content_key.h"

namespace stemma::cache {

Result<const ScopeTable::Root*> Cells::add_root(const Scope& scope, TenantId tenant) {
  const uint32_t place = books_.extra.draft();
  const CellIndex cell = books_.extra_cell(place);
  if (place == kNoPage || !books_.tree.ensure(cell)) {
    if (place != kNoPage) books_.extra.release(place);
    return Error(Errc::out_of_memory, "no memory for another scope");
  }
  books_.extra.publish(place);
  books_.tree.make_root(cell, books_.keyed() ? key::root_key(scope) : ContentKey{});
  ++books_.roots;
  try {
    books_.scopes.add({scope, cell, tenant, books_.quotas.index_of(tenant), false});
  } catch (const std::bad_alloc&) {
    books_.tree.remove(cell);
    books_.extra.release(place);
    --books_.roots;
    return Error(Errc::out_of_memory, "no memory for another scope");
  }
  return books_.scopes.find(scope);
}

void Cells::close_root(CellIndex root) {
  if (!books_.bare(root)) return;
  anchors_.drop(root, books_.scopes.find(root)->tenant_index);
  books_.scopes.remove(root);
  books_.tree.remove(root);
  books_.extra.release(books_.place_of(root));
  --books_.roots;
}

void Cells::publish(CellIndex cell, CellIndex parent, CellIndex up, std::span<const uint32_t> words,
                    const ContentKey* key, uint32_t tenant_index) {
  Books& books = books_;
  const bool media =
      books.media.size() != 0 && std::any_of(words.begin(), words.end(), key::is_media_word);
  if (media) books.refer_to_media(words);
  books.pool_of(cell).publish(books.place_of(cell));
  if (books.numbered()) books.quotas.cached(tenant_index, books.group(0));
  books.tree.publish(cell, parent, up, words, media, key);
  if (books.tracks_contents()) {
    books.policy->inserted(cell, books.tree.is_root(parent) ? kNoCell : parent, words);
  }
  if (key != nullptr && !books.tree.is_orphan(cell)) {
    books.events.stored(books.tree.key(parent), *key, words, books.cell_tokens(),
                        books.index_group(), words.size() < books.cell_tokens());
  }
}

void Cells::absorb_tails(CellIndex cell, uint32_t tenant_index) {
  const CellIndex parent = books_.tree.parent(cell);
  if (!books_.tree.branches(parent)) return;
  tails_.clear();
  books_.tree.short_prefixes(parent, books_.words_of(cell), tails_);
  for (size_t i = 0; i < tails_.size(); ++i) {
    const CellIndex tail = tails_[i];
    if (tail != cell && books_.holds(tail) == 0) {
      books_.lose_evictable(1);
      books_.policy->remove(tail);
      if (books_.tracks_contents()) books_.policy->forgotten(tail);
      books_.tell_removed(tail);
      free(tail, tenant_index);
    }
  }
}

void Cells::strip(CellIndex cell, uint32_t tenant_index) {
  blocks_.detach_all(cell, tenant_index);
  if (books_.tree.is_anchored(cell)) anchors_.drop(cell, tenant_index);
  if (books_.media.size() != 0 && books_.tree.has_media(cell)) {
    books_.forget_media(books_.words_of(cell));
  }
}

void Cells::free(CellIndex cell, uint32_t tenant_index) {
  Books& books = books_;
  if (!books.plain() || books.media.size() != 0 || books.tree.is_anchored(cell)) {
    strip(cell, tenant_index);
  }
  books.tree.remove(cell);
  if (books.numbered()) books.quotas.freed(tenant_index, books.group(0), Quotas::Was::cached);
  books.pool_of(cell).release(books.place_of(cell));
}

void Cells::free_orphans(CellIndex cell, uint32_t tenant_index) {
  const tree::PrefixTree& tree = books_.tree;
  while (tree.is_live(cell) && tree.is_orphan(cell) && books_.bare(cell)) {
    if (tree.is_root(cell)) {
      close_root(cell);
      return;
    }
    const CellIndex parent = tree.parent(cell);
    const bool cut = tree.is_cut(cell);
    if (books_.tracks_contents()) books_.policy->forgotten(cell);
    free(cell, tenant_index);
    if (cut) {
      books_.pool_of(parent).unpin(books_.place_of(parent));
      if (tree.is_root(parent)) {
        close_root(parent);
        return;
      }
      if (!tree.is_orphan(parent)) return;  // The end of a use there touches it.
    }
    cell = parent;
  }
}

}  // namespace stemma::cache
