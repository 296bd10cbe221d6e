// `stemma replay`: replays a trace through the cache, with a choice of policies and capacities.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 done, 1 the trace cannot be used, 2 bad arguments.
int run_replay(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
