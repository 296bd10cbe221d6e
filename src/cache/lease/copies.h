// Copies: the part-blocks and states that the engine copies before it computes, and what becomes of
// a lease if it does not.
//
// Invariant:  what a pending copy reads is held until the outcome is reported.
// Threading:  a lease is used by one thread at a time; calls that take a Core take its lock.
#pragma once

#include <cstdint>

#include "cache/core.h"

namespace stemma::cache {

// Lease's calls of the same names. shrink_to() and copies_failed() may throw std::bad_alloc with
// nothing changed.
void copies_done(Core& core, LeaseRecord& lease);
Result<void> copies_failed(Core& core, LeaseRecord& lease);
Result<void> run_copies(Core& core, LeaseRecord& lease);
Result<uint32_t> shrink_to(Core& core, LeaseRecord& lease, uint32_t n);

// Under the lock: gives up what the copies read.
void release_sources(Store& store, LeaseRecord& lease);
// Under the lock: gives up the lease's block `index` of a listed group, if it has one.
inline void give_up_block(Store& store, const LeaseRecord& lease, GroupIndex g, uint32_t index,
                          Blocks::Leaving how = Blocks::Leaving::used) {
  const BlockEntry entry = lease.pages[g][index];
  if (entry.is_own()) {
    store.blocks.discard(g, entry.block(), lease.tenant_index);
  } else if (entry.is_pinned()) {
    const uint32_t position = index * store.books.group(g).options().block_tokens;
    store.blocks.unpin(g, entry.block(), lease, position, how);
  }
}

}  // namespace stemma::cache
