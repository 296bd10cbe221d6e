// The end of a lease: its last part-block stays as a tail, and everything else is given back.
//
// Threading:  release() takes the lock of the Core. Neither needs memory, except to hash a tail,
//             which is not kept then.
#pragma once

#include "cache/core.h"

namespace stemma::cache {

// Ends the lease and gives its record back. Error: invalid_argument; the lease goes on then.
enum class Tail : uint8_t { publish, forget };
Result<void> release(Core& core, LeaseRecord* lease, const ReleaseOptions& options, Tail tail);

// Under the lock: the lease is over; gives back what it holds.
void settle(Store& store, LeaseRecord& lease);

}  // namespace stemma::cache
