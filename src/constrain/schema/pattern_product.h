// Strings that match several patterns at once, and have a length within bounds.
//
// Each pattern becomes a small automaton over characters; the states of all of them and the length
// so far are one state of the result. That is exact, and takes as many states as their product: it
// is meant for short bounds and small patterns. One pattern alone needs none of this (regex.h).
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "constrain/grammar_builder.h"
#include "constrain/schema/regex.h"

namespace stemma::constrain {

// The inside of a JSON string. Nothing if it would take more than about 50,000 steps from state to
// state.
std::optional<Expr> patterns_in_json(GrammarBuilder& build, std::span<const Regex> patterns,
                                     uint32_t min_length, uint32_t max_length);

}  // namespace stemma::constrain
