// Families: formats that differences do not show.
//
// Some templates write calls as messages of their own, and some do not write calls of the history at all although
// their models make them. Those are known by texts that their templates contain, never by the name of a model.
//
// Threading:  pure functions.
#pragma once

#include <string_view>

#include "dialect/format.h"

namespace stemma::dialect {

// When a family is asked: before differences are looked at, because they would mislead, or after they showed
// nothing.
enum class FamilyTurn : uint8_t { before_difference, after_difference };

// Fills in what the family's template means: thinking, content, calls and channels, and `source`.
// Returns whether one of the families has this template.
bool apply_family(std::string_view source, FamilyTurn turn, Format& format);

}  // namespace stemma::dialect
