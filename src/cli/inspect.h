// `stemma inspect DIR`: shows operators what is in a disk tier's directory.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 done, 1 something is damaged or could not be done, 2 bad arguments.
int run_inspect(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
