// `stemma trace`: records traces of a running server, generates traces, and converts traces to our
// own format.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 written, 1 not written, 2 bad arguments.
int run_trace(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
