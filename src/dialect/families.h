// Families: formats that the probe cannot find by comparing renderings.
//
// Some templates write calls as separate messages, and some do not write past calls at all although
// their models make calls. They are recognized by texts in their templates, never by a model's
// name.
//
// Threading:  pure functions.
#pragma once

#include <string_view>

#include "dialect/format.h"

namespace stemma::dialect {

// When a family is tried: before comparing renderings, because differences would mislead, or after
// they showed nothing.
enum class FamilyTurn : uint8_t { before_difference, after_difference };

// If the template belongs to a family, fills in thinking, content, calls, channels and `source`,
// and returns true.
bool apply_family(std::string_view source, FamilyTurn turn, Format& format);

}  // namespace stemma::dialect
