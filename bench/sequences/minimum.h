// The offline minimum: what would have to be computed if every prefix of everything ever seen, prompts
// with their answers, could be had, on any model and without any limit of memory.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/sequences/workloads.h"

namespace stemma::bench::sequences {

// Tokens of each request, at least 1.
std::vector<uint32_t> minimum(const Workload& workload);

}  // namespace stemma::bench::sequences
