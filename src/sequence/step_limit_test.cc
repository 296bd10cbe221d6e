#include "sequence/step_limit.h"

#include <gtest/gtest.h>

namespace stemma::sequence {
namespace {

TEST(StepLimit, GrowsWithWhatWasSeenToBeFast) {
  StepLimit limit;
  EXPECT_EQ(limit.bytes(), 0U) << "nothing is known";
  limit.read(1000, kStepNs / 4);
  EXPECT_EQ(limit.bytes(), 4000U);
  limit.read(4000, kStepNs / 2);
  EXPECT_EQ(limit.bytes(), 8000U);
  EXPECT_EQ(limit.bytes(kStepNs / 2), 4000U) << "half a step";
}

TEST(StepLimit, FallsWhenAStepTookTooLong) {
  StepLimit limit;
  limit.read(8000, kStepNs);
  limit.read(8000, 2 * kStepNs);
  EXPECT_EQ(limit.bytes(), 4000U);
}

TEST(StepLimit, ShortReadsInManyPiecesSayNothingOfBytes) {
  StepLimit limit;
  limit.read(8000, kStepNs);
  limit.read(100, 2 * kStepNs);
  EXPECT_EQ(limit.bytes(), 8000U);
}

// A read takes time for the call and for each byte: no allowed step may take too long.
TEST(StepLimit, NeverAllowsTooMuchWhereTimeGrowsWithBytes) {
  StepLimit limit;
  const auto takes = [](uint64_t bytes) { return 1'000'000 + bytes * 25; };
  uint64_t bytes = 1000;
  for (int i = 0; i < 30; ++i) {
    ASSERT_LE(takes(bytes), kStepNs + 1) << i;
    limit.read(bytes, takes(bytes));
    ASSERT_GE(limit.bytes(), bytes);
    bytes = limit.bytes();
  }
  EXPECT_GT(takes(bytes), kStepNs * 9 / 10) << "and comes close";
}

}  // namespace
}  // namespace stemma::sequence
