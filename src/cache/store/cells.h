// Cells: how a cell comes into the tree and leaves it, with everything that hangs on it.
//
//   publish() -> free()          evicted, or a tail that a longer cell covers
//             -> free_orphans()  forgotten on request: as soon as nobody holds it
//
// Invariant:  every orphan is held, from below or by a user; a cut cell holds its parent; a root
//             that nobody holds and that has nothing below it is closed.
// Threading:  one thread at a time. Nothing here but add_root() needs memory.
#pragma once

#include <span>
#include <vector>

#include "cache/store/anchors.h"

namespace stemma::cache {

class Cells {
 public:
  Cells(Books& books, Blocks& blocks, Anchors& anchors) noexcept
      : books_(books), blocks_(blocks), anchors_(anchors) {}
  void create() { tails_.reserve(books_.cell_tokens()); }  // May throw std::bad_alloc.

  // Makes the root of a scope that has none. Requires a free place in `extra`. Error:
  // out_of_memory.
  Result<const ScopeTable::Root*> add_root(const Scope& scope, TenantId tenant);
  // Removes the root if it is not held and has nothing below it.
  void close_root(CellIndex root);

  // Makes `cell` findable below `parent`. Requires no equal child.
  void publish(CellIndex cell, CellIndex parent, CellIndex up, std::span<const uint32_t> words,
               const ContentKey* key, uint32_t tenant_index);
  // Frees the unused tails beside `cell` whose words it covers.
  void absorb_tails(CellIndex cell, uint32_t tenant_index);
  // Frees a childless, unheld cell that the policy no longer holds. Tells no observer.
  void free(CellIndex cell, uint32_t tenant_index);
  // Frees the cell and those above it, as far as they are orphans that nobody holds.
  void free_orphans(CellIndex cell, uint32_t tenant_index);

 private:
  // Frees what hangs on a cell: blocks, anchors, references to media.
  void strip(CellIndex cell, uint32_t tenant_index);

  Books& books_;
  Blocks& blocks_;
  Anchors& anchors_;
  std::vector<CellIndex> tails_;  // Scratch of absorb_tails().
};

}  // namespace stemma::cache
