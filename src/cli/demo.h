// `stemma demo`: runs prompts that share prefixes through the reference engine, with and without
// the cache.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 all logits identical, 1 not, 2 bad arguments.
int run_demo(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
