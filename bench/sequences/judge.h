// What must hold between our policy and the others, as rows of a benchmark.
#pragma once

#include "bench/harness.h"
#include "bench/sequences/compare.h"

namespace stemma::bench::sequences {

// A row for each workload. We may evaluate no more tokens than the best baseline (and half a per cent),
// and must evaluate fewer where the best is above the minimum. A baseline that was wrong is none; when
// we are wrong the row is. The row names all baselines, the best one first. Without a line of ours it
// has the best baseline's figure and no limit.
void judge_tokens(const Comparison& comparison, Sheet& sheet);

// A row: how many times our saved bytes whole states would take, at least 2. For workloads in which many
// requests share a prefix.
void judge_bytes(const Workload& workload, Model model, Sheet& sheet);

}  // namespace stemma::bench::sequences
