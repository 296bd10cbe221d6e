// `stemma bench sequences`: its arguments, tables and limits.
#pragma once

#include <span>
#include <string_view>

#include "bench/sequences/compare.h"

namespace stemma::bench::sequences {

// Three tables for people: tokens evaluated, bytes stored, virtual time. Figures of a policy whose
// sequences held wrong contents are marked.
void print(const Comparison& comparison);

// Returns the exit code.
int run_sequences(std::span<const std::string_view> arguments);

}  // namespace stemma::bench::sequences
