// The filters of `|`: those about strings and numbers in filters_text.cc, those about lists and dicts in
// filters_list.cc.
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

// Null: there is none of this name.
FilterFunction find_filter(std::string_view name) noexcept;

}  // namespace stemma::jinja
