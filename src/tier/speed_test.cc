#include "tier/speed.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/rooms/tier_keys.h"
#include "tier/sightings.h"

namespace stemma::tier {
namespace {

using test::numbered_key;

TEST(TierSpeed, AGuessHoldsUntilSomethingWasSeen) {
  Speed speed(1000, 2);
  EXPECT_DOUBLE_EQ(speed.estimate_ns(500), 2000);
  speed.answered(300);
  EXPECT_DOUBLE_EQ(speed.estimate_ns(500), 1300);
  speed.moved(100, 300 + 400);
  EXPECT_DOUBLE_EQ(speed.estimate_ns(500), 300 + 4 * 500);
}

TEST(TierSpeed, WhatChangesIsFollowed) {
  Speed speed;
  for (int i = 0; i < 50; ++i) speed.moved(1000, 1000);
  EXPECT_NEAR(speed.ns_per_byte(), 1, 1e-9);
  speed.moved(1000, 9000);
  EXPECT_NEAR(speed.ns_per_byte(), 3, 1e-9);
  for (int i = 0; i < 50; ++i) speed.moved(1000, 9000);
  EXPECT_NEAR(speed.ns_per_byte(), 9, 0.01);
  speed.moved(0, 1);  // Says nothing about the speed.
  EXPECT_NEAR(speed.ns_per_byte(), 9, 0.01);
}

class WorthLoading : public ::testing::Test {
 protected:
  // Blocks of 16 tokens and 1000 bytes on these levels.
  static std::vector<LoadCandidate> blocks(std::initializer_list<uint32_t> levels) {
    std::vector<LoadCandidate> made;
    for (const uint32_t level : levels) made.push_back({level, 16, 1000});
    return made;
  }
  // Level 0: round trip 100, one block 100. Level 1: round trip 10,000, one block 2,000.
  std::vector<Speed> levels{Speed(100, 0.1), Speed(10'000, 2)};
};

TEST_F(WorthLoading, AFastLevelIsUsedAndASlowOneIsNot) {
  const double token_ns = 50;  // A block takes 800.
  EXPECT_EQ(worth_loading(blocks({0, 0, 0}), levels, token_ns).count, 3U);
  EXPECT_EQ(worth_loading(blocks({1, 1, 1}), levels, token_ns).count, 0U);
  // Worth it until the slow level is needed; nothing after that block helps.
  EXPECT_EQ(worth_loading(blocks({0, 0, 1, 0, 0}), levels, token_ns).count, 2U);
}

TEST_F(WorthLoading, ALongRunPaysForItsRoundTrip) {
  const double token_ns = 300;  // A block takes 4,800, loading saves 2,800, a round trip is 10,000.
  EXPECT_EQ(worth_loading(blocks({1, 1, 1}), levels, token_ns).count, 0U);
  EXPECT_EQ(worth_loading(blocks({1, 1, 1, 1}), levels, token_ns).count, 4U);
  // Levels work in parallel: during one level's round trip, the other's blocks arrive.
  const LoadChoice both = worth_loading(blocks({0, 1, 0, 1, 1, 1}), levels, token_ns);
  EXPECT_EQ(both.count, 6U);
  EXPECT_DOUBLE_EQ(both.expected_ns, 10'000 + 4 * 2000);
  EXPECT_DOUBLE_EQ(both.saved_ns, 6 * 4800);
}

TEST_F(WorthLoading, CautionWantsMore) {
  const double token_ns = 300;
  EXPECT_EQ(worth_loading(blocks({1, 1, 1, 1, 1, 1}), levels, token_ns, 1.3).count, 6U);
  EXPECT_EQ(worth_loading(blocks({1, 1, 1, 1, 1, 1}), levels, token_ns, 1.5).count, 0U);
}

TEST_F(WorthLoading, WithoutKnowingTheEngineEverythingIsWorthIt) {
  EXPECT_EQ(worth_loading(blocks({1, 0, 1}), levels, 0).count, 3U);
  EXPECT_EQ(worth_loading({}, levels, 0).count, 0U);
}

TEST(Sightings, CountsAndRemembersLevels) {
  Sightings sightings(64);
  EXPECT_EQ(sightings.saw(numbered_key(1)), 1U);
  EXPECT_EQ(sightings.saw(numbered_key(1)), 2U);
  EXPECT_EQ(sightings.stored(numbered_key(1)), 0U);
  sightings.set_stored(numbered_key(1), 0b101, 1);
  sightings.clear_stored(numbered_key(1), 0b100);
  EXPECT_EQ(sightings.stored(numbered_key(1)), 0b001U);
  EXPECT_EQ(sightings.stored(numbered_key(2)), 0U);
  sightings.clear_stored(numbered_key(2), 1);
  EXPECT_EQ(sightings.saw(numbered_key(1)), 3U);
}

TEST(Sightings, TheNewerOfTwoThatMeetIsRemembered) {
  Sightings sightings(2);
  sightings.set_stored(numbered_key(0), 1, 1);
  for (uint64_t i = 1; i < 20; ++i) EXPECT_EQ(sightings.saw(numbered_key(i)), 1U);
  EXPECT_EQ(sightings.stored(numbered_key(0)), 0U);
}

}  // namespace
}  // namespace stemma::tier
