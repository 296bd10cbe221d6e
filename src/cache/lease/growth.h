// Growth: drafting more blocks for a lease, before the engine writes into them.
//
// Invariant:  all blocks that a call asks for are drafted, or none. A request that can never fit is
//             refused before any table grows.
// Threading:  a lease is used by one thread at a time; calls that take a Core take its lock. All
//             may throw std::bad_alloc with nothing changed.
#pragma once

#include <cstdint>
#include <span>

#include "cache/core.h"

namespace stemma::cache {

// Lease's calls of the same names.
Result<void> extend(Core& core, LeaseRecord& lease, std::span<const Token> tokens);
Result<void> reserve(Core& core, LeaseRecord& lease, uint32_t positions);

// What a lease needs to have room for `capacity` positions, at least 1.
Need growth(const Books& books, const LeaseRecord& lease, uint32_t capacity);

}  // namespace stemma::cache
