// Converts 64-bit tokens, as frameworks keep them, to 32-bit words.
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stemma/result.h"

namespace stemma::capi {

// Writes `count` tokens to `out`. Error: out_of_range (one is negative or not below kTokenLimit;
// the value is the index of the first). Cost: one pass, with the CPU's widest vectors.
Result<void> narrow(const int64_t* tokens, size_t count, uint32_t* out) noexcept;

}  // namespace stemma::capi
