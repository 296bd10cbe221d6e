// Shared by the processes on one directory and their test: which entries exist, and how large the
// directory may be. An entry's contents follow from its number.
#pragma once

#include <string>

#include "stemma/tier/shared_tier.h"
#include "tiers/tier_suite.h"

namespace stemma::test::processes {

inline constexpr uint64_t kCapacity = 4U << 20U;
inline constexpr uint64_t kSlack = 256U << 10U;
inline constexpr uint64_t kMostBytes = 60'000;
inline constexpr uint32_t kSame = 200;  // Entries that two processes put at once.
inline constexpr uint64_t kSameBytes = 20'000;

inline tier::shared::SharedOptions options_for(const std::string& store) {
  return {.path = store,
          .capacity_bytes = kCapacity,
          .slack_bytes = kSlack,
          .threads = 4,
          .touch_ns = 1'000'000};
}

inline Entry numbered(uint64_t number) { return entry(number, 0, 1 + number * 7919 % kMostBytes); }

}  // namespace stemma::test::processes
