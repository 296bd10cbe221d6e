#include "tier/redis/breaker.h"

#include <gtest/gtest.h>

#include <set>

namespace stemma::tier::redis {
namespace {

TEST(RedisBreaker, IntervalsGrowToTheLongestAndStartAnewAfterSuccess) {
  Breaker breaker(100, 1'000, 1);
  EXPECT_TRUE(breaker.closed());
  uint64_t now = 1'000'000;
  for (const uint64_t interval : {100U, 200U, 400U, 800U, 1'000U, 1'000U}) {
    breaker.fail(now);
    EXPECT_FALSE(breaker.closed());
    EXPECT_FALSE(breaker.due(now + interval / 2 - 1)) << interval;
    EXPECT_TRUE(breaker.due(now + interval)) << interval;
    breaker.probe();
    EXPECT_TRUE(breaker.probing());
    EXPECT_FALSE(breaker.due(now + 10 * interval));  // One probe at a time.
    EXPECT_FALSE(breaker.closed());
    now += 10 * interval;
  }
  breaker.succeed();
  EXPECT_TRUE(breaker.closed());
  breaker.fail(now);
  EXPECT_TRUE(breaker.due(now + 100));
}

TEST(RedisBreaker, ManyClientsDoNotComeBackAtTheSameInstant) {
  std::set<uint64_t> instants;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Breaker breaker(1'000'000, 1'000'000, seed);
    breaker.fail(0);
    instants.insert(breaker.probe_ns());
  }
  EXPECT_GT(instants.size(), 90U);
}

}  // namespace
}  // namespace stemma::tier::redis
