// The tests of `is`: defined, string, mapping, equalto ...
// Threading: immutable.
#pragma once

#include <string_view>

#include "jinja/ast.h"

namespace stemma::jinja {

// Returns null if there is none of this name.
TestFunction find_test(std::string_view name) noexcept;

}  // namespace stemma::jinja
