// Room: whether a request's blocks can be had, and evicting until they can.
//
// check() decides and changes nothing; after it, evict_for() cannot fail. So a request is refused
// before anything was evicted for it.
//
// Invariant:  check() allocates all memory that the blocks it grants will ever need.
// Threading:  one thread at a time.
// Cost:       O(blocks evicted); O(leased blocks) if most of the pool is leased and the running
//             lower bound of evictable blocks has run out.
#pragma once

#include <cstdint>
#include <span>

#include "cache/store/census.h"
#include "cache/store/evictor.h"
#include "cache/store/need.h"

namespace stemma::cache {

class Room {
 public:
  Room(Books& books, Blocks& blocks, Anchors& anchors, Cells& cells, Census& census,
       Evictor& evictor) noexcept
      : books_(books),
        blocks_(blocks),
        anchors_(anchors),
        cells_(cells),
        census_(census),
        evictor_(evictor) {}

  // Whether evict_for() can succeed. Error: out_of_blocks, over_quota, out_of_memory.
  Result<void> check(const Need& need, uint32_t tenant_index);
  // Evicts until `need` can be drafted. Requires check(), and no new holds since then except those
  // given as reserved.
  void evict_for(const Need& need, uint32_t tenant_index);
  // check(), then evict_for().
  Result<void> make(const Need& need, uint32_t tenant_index);

  // Returns the scope's root and makes it if needed. `need` is what the first lease below it needs:
  // if making the root requires eviction, it evicts for `need` as well, or not at all. Error:
  // out_of_blocks, over_quota, out_of_memory, invalid_argument (another tenant's scope).
  Result<const ScopeTable::Root*> open_root(const Scope& scope, TenantId tenant, Need need);
  // The cell that carries anchors at a depth inside a cell. Makes one, evicting if needed. kNoCell:
  // all cells are in use. May throw std::bad_alloc before anything changes.
  CellIndex inner_cell(CellIndex parent, std::span<const uint32_t> words);
  // Drafts a cell if cells have their own supply and one is free. Evicts nothing. May throw
  // std::bad_alloc.
  CellIndex draft_free_cell();

 private:
  bool enough(const Need& need, const Evictable& evictable) const noexcept;
  uint64_t over_quota(const Need& need, uint32_t tenant_index) const noexcept;
  // The refusal of `need` because of what is missing beside what could be evicted.
  Error short_of(const Need& need, const Evictable& evictable) const;
  // The refusal of `need` because `missing` blocks of a group are not available; kMaxGroups: cells.
  Error refusal(const Need& need, GroupIndex g, uint64_t missing) const;
  // Bytes of a tenant's unused checkpoints, without those that `need` reserves.
  uint64_t idle_checkpoint_bytes(const Need& need, uint32_t tenant_index) const;
  // Evicts until `need` fits the tenant's quota.
  void evict_within_quota(const Need& need, uint32_t tenant_index);
  // Makes a place in `extra` free for a root or for an inner cell. Returns false if all are in use.
  bool make_spare_place();
  [[nodiscard]] bool take_memory(const Need& need);

  Books& books_;
  Blocks& blocks_;
  Anchors& anchors_;
  Cells& cells_;
  Census& census_;
  Evictor& evictor_;
};

}  // namespace stemma::cache
