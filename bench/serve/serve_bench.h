// `stemma bench serve`: the workloads of bench/sequences end to end, through HTTP and llama.cpp.
// `stemma bench restart`: the first answers of a server that finds what another left on disk.
#pragma once

#include <span>
#include <string_view>

namespace stemma::bench::serve {

int run_serve_bench(std::span<const std::string_view> words);
int run_restart_bench(std::span<const std::string_view> words);

}  // namespace stemma::bench::serve
