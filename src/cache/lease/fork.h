// Leaving a lease's line: fork() continues it twice, rewind() takes a part of it back.
//
// Invariant:  neither changes what is committed, nor a block that another lease reads.
// Threading:  a lease is used by one thread at a time; these take the lock of the Core. May throw
//             std::bad_alloc with nothing changed.
#pragma once

#include <cstdint>

#include "cache/core.h"

namespace stemma::cache {

// Lease's calls of the same names.
Result<LeaseRecord*> fork(Core& core, LeaseRecord& lease);
Result<void> rewind(Core& core, LeaseRecord& lease, uint32_t n);

}  // namespace stemma::cache
