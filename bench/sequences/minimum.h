// The offline minimum: the tokens to compute if every prefix of every earlier prompt and answer
// could be reused, on any model and with unlimited memory.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/sequences/workloads.h"

namespace stemma::bench::sequences {

// Tokens of each request, at least 1.
std::vector<uint32_t> minimum(const Workload& workload);

}  // namespace stemma::bench::sequences
