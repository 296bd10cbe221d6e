// The most frequent Error: the caller passed what is never allowed.
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "stemma/result.h"

namespace stemma::base {

// `what` must be a string literal; `value` is the offending number, or that of the offending item.
constexpr Error invalid(const char* what, uint32_t value = Error::kNoValue) noexcept {
  return {Errc::invalid_argument, what, value};
}

}  // namespace stemma::base
