// The calls of a PagedCache that are about a prompt and make no lease.
//
// Threading:  thread-safe: each takes the lock of the Core. May throw std::bad_alloc with nothing
//             changed.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/core.h"

namespace stemma::cache {

// PagedCache's lookup(), pin(), truncate() and branch_points().
Result<Report> look_up(Core& core, const Scope& scope, const Prompt& prompt,
                       const LookupOptions& options);
Result<PinResult> pin(Core& core, const Scope& scope, const Prompt& prompt, uint64_t ttl_ns);
Result<uint32_t> truncate(Core& core, const Scope& scope, const Prompt& prompt, uint32_t keep);
Result<std::vector<uint32_t>> branch_points(Core& core, const Scope& scope, const Prompt& prompt);

}  // namespace stemma::cache
