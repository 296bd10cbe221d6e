// What a lease attaches at exact depths, for others to find: checkpoints of recurrent groups and
// logits.
//
// Threading:  a lease is used by one thread at a time; these take the lock of the Core. May throw
//             std::bad_alloc with nothing changed.
#pragma once

#include <cstdint>
#include <span>

#include "cache/core.h"

namespace stemma::cache {

// Lease's calls of the same names.
Result<BlockId> draft_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g);
Result<void> commit_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g, uint32_t depth);
Result<Checkpoint> hold_checkpoint(Core& core, LeaseRecord& lease, GroupIndex g, uint32_t at_most);
Result<void> attach_logits(Core& core, LeaseRecord& lease, uint32_t depth,
                           std::span<const float> logits);

}  // namespace stemma::cache
