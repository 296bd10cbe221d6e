// LateTier: a tier that cannot be opened yet, because another process still has its directory or
// the file system refuses. It tries again in the background; once that works, it passes everything
// on to the real tier.
//
//   make_late_tier() --> away: every item ends as failed, at once
//        every retry_ns: open() --> it works: from now on the real tier answers
//
// Invariant:  submit() never waits for open(), and every item ends exactly once. The traits are the
//             given ones, before and after.
// Threading:  thread-safe. `open` is called on a thread of the tier's own, one call at a time.
// Ownership:  owns the real tier. The destructor waits for a call of `open` that is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "stemma/result.h"
#include "stemma/tier/tier.h"

namespace stemma::tier {

// Returns the real tier, or an error: then it is called again later.
using OpenTier = std::function<Result<std::unique_ptr<Tier>>()>;

// Error: out_of_memory (there is no memory or no thread).
Result<std::unique_ptr<Tier>> make_late_tier(TierTraits traits, OpenTier open, uint64_t retry_ns);

}  // namespace stemma::tier
