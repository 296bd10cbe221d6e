// Bounds that no policy can beat: Belady's MIN, which knows the future, and a cache without limits.
//
// MIN runs over the block references of all requests as one sequence, and may skip (bypass) a block
// that is needed later than all others. A parent's next use is never later than its child's, so the
// block needed last is always a leaf. So no prefix cache finds more, and the bound is exact for the
// plain hit ratio. Its weighted ratio is that of its choices, not a bound. `evictions` counts
// blocks that it evicted or skipped although they are used again.
//
// Threading:  pure functions.
// Cost:       MIN takes 8 bytes a block reference while it runs, and about 20 ns each.
#pragma once

#include "replay/replay.h"

namespace stemma::replay {

// Requests between two calls of ReplayOptions::progress.
inline constexpr uint64_t kProgressEvery = 256;

ReplayResult replay_min(const Trace& trace, const ReplayOptions& options);
ReplayResult replay_infinite(const Trace& trace, const ReplayOptions& options);

}  // namespace stemma::replay
