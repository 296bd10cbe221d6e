// `stemma bench sealed`: what it costs to encrypt entries.
#pragma once

#include <span>
#include <string_view>

namespace stemma::bench::disk {

// The words after "stemma bench sealed"; returns the exit code.
int run_sealed_bench(std::span<const std::string_view> words);

}  // namespace stemma::bench::disk
