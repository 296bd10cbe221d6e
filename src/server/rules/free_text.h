// A grammar rule for text that does not contain certain markers.
//
// The rule is a finite automaton with a state for each beginning of a marker. The text may end
// anywhere, even behind the beginning of a marker, but never contains a whole one.
//
// Threading:  a pure function.
// Cost:       a rule for each byte of the markers.
#pragma once

#include <span>
#include <string>

#include "constrain/grammar_builder.h"

namespace stemma::server {

// Ignores empty markers.
constrain::RuleId text_without(constrain::GrammarBuilder& build,
                               std::span<const std::string> markers);

}  // namespace stemma::server
