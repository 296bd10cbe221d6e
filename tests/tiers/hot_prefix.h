// The prefix that every request shares is used in memory and never read from a tier. Tiers must
// hear of those uses: otherwise the hottest prefix is the oldest entry they have, and the first
// they evict.
//
// A tier joins by INSTANTIATE_TEST_SUITE_P(Name, HotPrefix, ...), as for TierContract.
#pragma once

#include "tiers/tier_suite.h"

namespace stemma::test {

class HotPrefix : public ::testing::TestWithParam<TierCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HotPrefix);

}  // namespace stemma::test
