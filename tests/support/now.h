// The machine's monotonic clock, in which tiers have their deadlines.
#pragma once

#include <cstdint>

#include "stemma/clock.h"

namespace stemma::test {

inline uint64_t now_ns() { return Clock::monotonic().now_ns(); }

}  // namespace stemma::test
