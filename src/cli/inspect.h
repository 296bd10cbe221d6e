// `stemma inspect DIR`: what lies in a disk tier's directory, for who looks after it.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 done, 1 something is damaged or could not be done, 2 bad arguments.
int run_inspect(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
