// What must hold between our policy and the others, as rows of a benchmark.
#pragma once

#include "bench/harness.h"
#include "bench/sequences/compare.h"

namespace stemma::bench::sequences {

// A row for each workload. We may evaluate at most half a per cent more tokens than the best
// baseline, and must evaluate fewer if the best is above the minimum. A baseline that was wrong
// does not count; if we are wrong, the row is wrong. The row names all baselines, the best one
// first. Without a result of ours it has the best baseline's figure and no limit.
void judge_tokens(const Comparison& comparison, Sheet& sheet);

// A row: the bytes of whole states divided by our saved bytes, at least 2. For workloads in which
// many requests share a prefix.
void judge_bytes(const Workload& workload, Model model, Sheet& sheet);

}  // namespace stemma::bench::sequences
