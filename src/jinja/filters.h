// The filters of `|`: filters_text.cc has those about strings and numbers, filters_list.cc those
// about lists and dicts.
// Threading: immutable.
#pragma once

#include <span>
#include <string_view>

#include "jinja/ast.h"

namespace stemma::jinja {

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

std::span<const FilterEntry> text_filters() noexcept;
std::span<const FilterEntry> list_filters() noexcept;

// Returns null if there is none of this name.
FilterFunction find_filter(std::string_view name) noexcept;

}  // namespace stemma::jinja
