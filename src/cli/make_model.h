// `stemma make-model`: writes a small model with random weights as a GGUF file.
#pragma once

#include <span>
#include <string_view>

namespace stemma::cli {

// Returns the exit code: 0 written, 1 not written, 2 bad arguments.
int run_make_model(std::span<const std::string_view> arguments);

}  // namespace stemma::cli
