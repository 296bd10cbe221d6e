// Makes leases: finds what is cached of a prompt, shares it, and drafts room for the rest.
//
// Threading:  thread-safe: takes the lock of the Core. May throw std::bad_alloc with nothing
//             changed.
#pragma once

#include "cache/core.h"

namespace stemma::cache {

// PagedCache::lease().
Result<LeaseRecord*> new_lease(Core& core, const Scope& scope, const Prompt& prompt,
                               const LeaseOptions& options);

}  // namespace stemma::cache
