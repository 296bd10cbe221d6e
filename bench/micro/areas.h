// One function per area; each appends its benchmarks.
#pragma once

#include <vector>

#include "bench/harness.h"

namespace stemma::bench {

void add_full_hit(std::vector<Benchmark>& out);
void add_miss(std::vector<Benchmark>& out);
void add_evict(std::vector<Benchmark>& out);
void add_partial_match(std::vector<Benchmark>& out);
void add_growth(std::vector<Benchmark>& out);
void add_memory(std::vector<Benchmark>& out);
void add_retention(std::vector<Benchmark>& out);
void add_pressure(std::vector<Benchmark>& out);
void add_capi(std::vector<Benchmark>& out);
void add_sequence(std::vector<Benchmark>& out);
void add_threads(const Settings& settings, std::vector<Benchmark>& out);

}  // namespace stemma::bench
