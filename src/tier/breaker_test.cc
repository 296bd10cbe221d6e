#include "tier/breaker.h"

#include <gtest/gtest.h>

#include <set>

namespace stemma::tier {
namespace {

TEST(Breaker, PausesGrowToTheLongestAndStartAnewAfterSuccess) {
  Breaker breaker({.first_ns = 100, .longest_ns = 1'000, .seed = 1});
  EXPECT_TRUE(breaker.closed());
  uint64_t now = 1'000'000;
  for (const uint64_t pause : {100U, 200U, 400U, 800U, 1'000U, 1'000U}) {
    const bool news = breaker.fail(now);
    EXPECT_EQ(news, breaker.errors() == 1) << "only the first one is news";
    EXPECT_FALSE(breaker.closed());
    EXPECT_FALSE(breaker.due(now + pause / 2 - 1)) << pause;
    EXPECT_TRUE(breaker.due(now + pause)) << pause;
    EXPECT_TRUE(breaker.lets_through(now + pause)) << pause;
    EXPECT_FALSE(breaker.lets_through(now + pause / 2 - 1)) << pause;
    breaker.probe();
    EXPECT_TRUE(breaker.probing());
    EXPECT_FALSE(breaker.due(now + 10 * pause)) << "one probe at a time";
    EXPECT_FALSE(breaker.closed());
    now += 10 * pause;
  }
  breaker.succeed();
  EXPECT_TRUE(breaker.closed());
  EXPECT_EQ(breaker.errors(), 0U);
  EXPECT_TRUE(breaker.fail(now));
  EXPECT_TRUE(breaker.due(now + 100));
}

TEST(Breaker, ManyClientsDoNotComeBackAtTheSameInstant) {
  std::set<uint64_t> instants;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Breaker breaker({.first_ns = 1'000'000, .seed = seed});
    breaker.fail(0);
    instants.insert(breaker.probe_ns());
  }
  EXPECT_GT(instants.size(), 90U);
}

TEST(Breaker, OpensAfterSoManyErrorsInARow) {
  Breaker breaker({.errors = 3, .first_ns = 100});
  EXPECT_FALSE(breaker.fail(0));
  EXPECT_FALSE(breaker.fail(0));
  breaker.succeed();
  EXPECT_FALSE(breaker.fail(0));
  EXPECT_FALSE(breaker.fail(0));
  EXPECT_TRUE(breaker.closed());
  EXPECT_TRUE(breaker.lets_through(0));
  EXPECT_TRUE(breaker.fail(0));
  EXPECT_EQ(breaker.probe_ns(), 100U) << "without a seed the pause is exact";
  // One error is enough for a probe.
  breaker.probe();
  EXPECT_FALSE(breaker.fail(200)) << "which is no news";
  EXPECT_TRUE(breaker.open());
  EXPECT_EQ(breaker.probe_ns(), 300U);
}

TEST(Breaker, OneThatIsTrippedForGoodWaitsForSuccess) {
  Breaker breaker({.errors = 3, .first_ns = 100});
  EXPECT_TRUE(breaker.trip_for_good());
  EXPECT_FALSE(breaker.due(kNever - 1));
  EXPECT_FALSE(breaker.lets_through(kNever - 1));
  breaker.succeed();
  EXPECT_TRUE(breaker.lets_through(0));
  EXPECT_TRUE(breaker.trip(50));
  EXPECT_FALSE(breaker.trip(60));
  EXPECT_TRUE(breaker.open());
}

TEST(Breaker, PausesDoNotOverflow) {
  Breaker breaker({.first_ns = kNever / 2 + 1, .longest_ns = kNever});
  breaker.fail(kNever - 1);
  EXPECT_EQ(breaker.probe_ns(), kNever);
  breaker.fail(1);
  EXPECT_EQ(breaker.probe_ns(), kNever);
}

}  // namespace
}  // namespace stemma::tier
