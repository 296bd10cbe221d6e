// The Evictor frees what the retention policy chooses: paths from their leaves upwards, and single
// blocks of window and recurrent groups.
//
// Invariant:  nothing that is held goes; a cell goes with all that hangs on it.
// Threading:  one thread at a time.
// Cost:       O(1) a cell; needs no memory unless evicted blocks are held for a ReclaimList.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cache/store/cells.h"

namespace stemma::cache {

class ReclaimList;

class Evictor {
 public:
  Evictor(Books& books, Anchors& anchors, Cells& cells) noexcept
      : books_(books), anchors_(anchors), cells_(cells) {}

  // Evicts the policy's choice and what follows it, at most `most` cells. Returns how many; 0: none
  // is left. With a list, evicted blocks are held for it, and the call may throw std::bad_alloc
  // before it evicts anything.
  uint32_t evict_some(uint32_t most, ReclaimList* list = nullptr) {
    return evict(most, std::nullopt, list);
  }
  // The same, but only a path that this tenant used.
  uint32_t evict_of(TenantId tenant, uint32_t most) { return evict(most, tenant, nullptr); }
  // Evicts `blocks` cells, or all.
  uint32_t evict_blocks(uint32_t blocks);
  // Evicts this childless, unheld cell. Its parent must be held.
  void evict_leaf(CellIndex cell, uint32_t tenant_index);

  // Evicts the next unpinned block of a window or recurrent group. Requires one.
  void evict_loose(GroupIndex g);
  // Evicts a tenant's next such block in the groups of one kind. `passed`: only if its lease has
  // passed it or its session has ended. Returns false if there is none.
  enum class Which : uint8_t { any, passed };
  bool evict_loose_of(uint32_t tenant_index, Attention kind, Which which = Which::any);

  // From now on evict_some() appends the cells it evicts to `into`, up to its capacity; null: stops
  // that. Requires numbered cells.
  void note_evicted(std::vector<BlockId>* into) noexcept { evicted_ = into; }

 private:
  uint32_t evict(uint32_t most, std::optional<TenantId> only, ReclaimList* list);
  Victim choose(std::optional<TenantId> only);
  void load_ahead(CellIndex victim, uint32_t most) noexcept;

  Books& books_;
  Anchors& anchors_;
  Cells& cells_;
  std::vector<BlockId>* evicted_ = nullptr;  // Set by note_evicted().
  uint32_t loaded_ahead_ = 0;                // Coming victims whose memory was loaded.
  bool one_by_one_ = false;                  // The last victim's parent was not evicted with it.
};

}  // namespace stemma::cache
