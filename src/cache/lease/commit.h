// Committing: what the engine has computed becomes findable, block by block.
//
// Invariant:  the first writer of a block wins; an equal block of a second writer stays private to
//             its lease. What is committed never changes.
// Threading:  a lease is used by one thread at a time; these take the lock of the Core. Content
//             keys are hashed before.
#pragma once

#include <cstdint>

#include "cache/core.h"

namespace stemma::cache {

// Lease's calls of the same names. commit() may throw std::bad_alloc with nothing changed.
Result<Commit> commit(Core& core, LeaseRecord& lease, uint32_t n);
uint32_t adopt_canonical(Core& core, LeaseRecord& lease);

// Under the lock: enters the lease's own block of a listed group at `cell`, its home, as the first
// `cells_in_block` cells of it. Does nothing if the block is not the lease's own, or if the cell
// has one already.
void enter_own(Store& store, LeaseRecord& lease, GroupIndex g, CellIndex cell, uint32_t block,
               uint32_t cells_in_block);
// Under the lock: counts the lease as a request, once.
void count_request(Books& books, LeaseRecord& lease);

}  // namespace stemma::cache
