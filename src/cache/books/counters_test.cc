#include "cache/books/counters.h"

#include <gtest/gtest.h>

#include <numeric>

namespace stemma::cache {
namespace {

constexpr uint64_t kWindow = 60'000'000'000;

Report report(Outcome outcome, MissReason reason, uint32_t prompt, uint32_t matched,
              uint32_t reused, uint32_t copied = 0) {
  return {.prompt_tokens = prompt,
          .matched_tokens = matched,
          .reused_tokens = reused,
          .copied_tokens = copied,
          .outcome = outcome,
          .reason = reason};
}
uint64_t outcome(const Counts& counts, Outcome which) {
  return counts.outcomes[static_cast<uint32_t>(which)];
}
uint64_t sum(const Histogram& histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), uint64_t{0});
}

TEST(Counters, RequestsAreCountedInTokensByOutcomeAndReason) {
  Counters counters(kWindow, 100);
  counters.count(report(Outcome::full_hit, MissReason::none, 64, 64, 63, 15), 1);
  counters.count(report(Outcome::miss, MissReason::first_use, 40, 3, 0), 2);
  counters.count(report(Outcome::miss, MissReason::unknown_scope, 10, 0, 0), 3);
  counters.add_computed(51, 4);
  const Counts& total = counters.total();
  EXPECT_EQ(total.lookups, 3U);
  EXPECT_EQ(outcome(total, Outcome::full_hit), 1U);
  EXPECT_EQ(outcome(total, Outcome::miss), 2U);
  EXPECT_EQ(total.reasons[static_cast<uint32_t>(MissReason::first_use)], 1U);
  EXPECT_EQ(total.queried_tokens, 114U);
  EXPECT_EQ(total.reused_tokens, 63U);
  EXPECT_EQ(total.copied_tokens, 15U);
  EXPECT_EQ(total.computed_tokens, 51U);
  EXPECT_DOUBLE_EQ(total.hit_ratio(), 63.0 / 114.0);
  EXPECT_EQ(counters.window(4).queried_tokens, 114U);
  EXPECT_EQ(counters.window(4).computed_tokens, 51U);
}

TEST(Counters, WindowSlidesAndIsExactToOneSlice) {
  Counters counters(kWindow, 100);
  const uint64_t slice = kWindow / 12 + 1;
  // One request every slice, for a long time.
  for (uint64_t i = 0; i < 100; ++i) {
    counters.count(report(Outcome::miss, MissReason::first_use, 1, 0, 0), i * slice);
    EXPECT_EQ(counters.window(i * slice).lookups, std::min<uint64_t>(i + 1, 12));
  }
  const uint64_t last = 99 * slice;
  EXPECT_EQ(counters.window(last + kWindow - 1).lookups, 1U) << "still inside the window";
  EXPECT_EQ(counters.window(last + kWindow + slice).lookups, 0U);
  EXPECT_EQ(counters.total().lookups, 100U);
}

TEST(Counters, LongSilenceLeavesNothingOldInTheWindow) {
  Counters counters(kWindow, 100);
  counters.count(report(Outcome::miss, MissReason::first_use, 1, 0, 0), 5);
  EXPECT_EQ(counters.window(1000 * kWindow).lookups, 0U);
  counters.count(report(Outcome::miss, MissReason::first_use, 1, 0, 0), 1000 * kWindow);
  EXPECT_EQ(counters.window(1000 * kWindow).lookups, 1U);
}

TEST(Counters, TinyWindowsWork) {
  Counters counters(1, 100);
  counters.add_computed(7, 100);
  EXPECT_EQ(counters.window(100).computed_tokens, 7U);
  EXPECT_EQ(counters.window(200).computed_tokens, 0U);
}

TEST(Counters, HistogramBucketsAreAsTheHeaderSays) {
  EXPECT_EQ(histogram_bucket(0), 0U);
  for (uint32_t i = 1; i < kHistogramBuckets - 1; ++i) {
    EXPECT_EQ(histogram_bucket(uint64_t{1} << (i - 1)), i);
    EXPECT_EQ(histogram_bucket((uint64_t{1} << i) - 1), i);
  }
  EXPECT_EQ(histogram_bucket(~uint64_t{0}), kHistogramBuckets - 1) << "all that is larger";
}

TEST(Counters, MatchesAreInTheHistogramWhetherServableOrNot) {
  Counters counters(kWindow, 100);
  counters.count(report(Outcome::miss, MissReason::no_checkpoint, 64, 63, 0), 1);
  counters.count(report(Outcome::miss, MissReason::first_use, 64, 0, 0), 1);
  EXPECT_EQ(counters.match_tokens()[6], 1U);
  EXPECT_EQ(counters.match_tokens()[0], 1U);
  EXPECT_EQ(sum(counters.match_tokens()), 2U);
}

TEST(Counters, EvictionAgesAreKnownToASixteenthOfThePool) {
  // 1600 blocks, one publication a millisecond; each block is evicted after exactly 1600 of them.
  constexpr uint32_t kBlocks = 1600;
  constexpr uint64_t kMillisecond = 1'000'000;
  Counters counters(kWindow, kBlocks);
  for (uint32_t birth = 1; birth < 20'000; ++birth) {
    const uint64_t now = birth * kMillisecond;
    counters.sample_birth(birth, now);
    if (birth > kBlocks) counters.count_eviction(birth - kBlocks, now);
  }
  // The true age is 1,600,000 us; a sixteenth of the pool more at most.
  const uint32_t right = histogram_bucket(1'600'000);
  ASSERT_EQ(right, histogram_bucket(1'701'000));
  EXPECT_EQ(counters.eviction_age_us()[right], sum(counters.eviction_age_us()));
  EXPECT_EQ(sum(counters.eviction_age_us()), 20'000U - kBlocks - 1);
}

TEST(Counters, BirthNumbersMayWrapAround) {
  Counters counters(kWindow, 160);
  uint32_t birth = 0xFFFF'FF00U;
  uint64_t now = 1'000'000;
  for (int i = 0; i < 1000; ++i, ++birth, now += 1000) {
    counters.sample_birth(birth, now);
    if (i > 100) counters.count_eviction(birth - 64, now);  // 64 us old, or a little more.
  }
  EXPECT_EQ(counters.eviction_age_us()[histogram_bucket(64)], sum(counters.eviction_age_us()));
}

TEST(Counters, EvictionsBeforeAnySampleHaveNoAge) {
  Counters counters(kWindow, 100);
  counters.count_eviction(5, 1'000'000);
  EXPECT_EQ(counters.eviction_age_us()[0], 1U);
}

}  // namespace
}  // namespace stemma::cache
