#include "retain/adaptive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "retain/hazard.h"

namespace stemma::retain {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(HazardModel, LearnsWhoComesBackAndWhen) {
  HazardModel model;
  ASSERT_TRUE(model.create());
  Traits soon;
  soon.finish = 2;
  Traits never;
  never.finish = 1;
  const uint32_t at = HazardModel::interval(10 * kSecond);
  for (int i = 0; i < 300; ++i) {
    for (uint32_t age = 0; age < at; ++age) model.learn(soon, age, false, 1);
    model.learn(soon, at, true, 1);
    for (uint32_t age = 0; age < HazardModel::kAges; ++age) model.learn(never, age, false, 1);
  }
  EXPECT_GT(model.index(soon, 0, 10), 5 * model.index(never, 0, 10));
  // The nearer the return, the more a second of room is worth.
  EXPECT_GT(model.index(soon, at, 10), model.index(soon, 0, 10));
  EXPECT_GT(model.index(soon, at, 10), model.index(soon, at + 3, 10));
}

TEST(HazardModel, IntervalsCoverAllAges) {
  EXPECT_EQ(HazardModel::interval(0), 0U);
  for (uint32_t i = 0; i + 1 < HazardModel::kAges; ++i) {
    EXPECT_EQ(HazardModel::interval(HazardModel::end_ns(i) - 1), i);
    EXPECT_EQ(HazardModel::interval(HazardModel::end_ns(i)), i + 1);
  }
  EXPECT_EQ(HazardModel::interval(~uint64_t{0}), HazardModel::kAges - 1);
}

// Conversations of one cell each: some come back every 20 s, some never. The cell is the name.
class Traffic {
 public:
  explicit Traffic(uint32_t cells) : policy_(cells) {
    for (CellIndex cell = cells; cell-- > 0;) free_.push_back(cell);
  }
  // A use of conversation `who`; returns whether it was there.
  bool use(uint32_t who, uint64_t now_ns, FinishReason finish, SessionId session = kNoSession) {
    if (who >= where_.size()) where_.resize(who + 1, kNoCell);
    const bool hit = where_[who] != kNoCell;
    if (!hit) {
      if (free_.empty()) evict(now_ns);
      where_[who] = free_.back();
      free_.pop_back();
      const std::array<uint32_t, 1> words = {who};
      policy_.inserted(where_[who], kNoCell, words);
    }
    policy_.touch(where_[who], {.now_ns = now_ns,
                                .session = session,
                                .finish = finish,
                                .depth_tokens = 1,
                                .reused_tokens = hit ? 1U : 0U});
    return hit;
  }
  void evict(uint64_t now_ns) {
    const Victim victim = policy_.victim(now_ns, false, kNoTenant);
    victims.push_back(victim.cell);
    policy_.evicted(victim.cell);
    policy_.remove(victim.cell);
    for (CellIndex& cell : where_) {
      if (cell == victim.cell) cell = kNoCell;
    }
    free_.push_back(victim.cell);
  }
  AdaptivePolicy& policy() { return policy_; }
  std::vector<CellIndex> victims;

 private:
  AdaptivePolicy policy_;
  std::vector<CellIndex> free_;
  std::vector<CellIndex> where_;
};

struct Step {
  uint32_t who;
  FinishReason finish;
};

// One step a second: 20 that return in turn, each after 40 s, and as many that never do.
Step step_at(uint32_t i) {
  if (i % 2 == 0) return {i / 2 % 20, FinishReason::tool_use};
  return {100 + i, FinishReason::end_turn};
}

TEST(AdaptivePolicy, KeepsWhoComesBackWhereLruKeepsNobody) {
  // LRU sees 40 others between two uses and has room for 30: it would hit nothing.
  Traffic traffic(30);
  uint32_t hits = 0;
  for (uint32_t i = 0; i < 3000; ++i) {
    const Step step = step_at(i);
    const bool hit = traffic.use(step.who, (i + 1) * kSecond, step.finish);
    if (i >= 1500 && i % 2 == 0) hits += hit ? 1 : 0;
  }
  EXPECT_GT(hits, 600U) << "of 750";
  traffic.policy().check_invariants();
}

// Sessions in turn, more than fit. At one use in five a session moves to another path; the path it
// left never comes back.
uint32_t hits_of_moving_sessions(bool named) {
  constexpr uint32_t kSessions = 31;
  Traffic traffic(24);
  std::mt19937 random(7);
  std::vector<uint32_t> paths(kSessions);
  uint32_t hits = 0;
  uint32_t next = 0;
  for (uint32_t i = 0; i < 6000; ++i) {
    const uint32_t session = i % kSessions;
    if (i < kSessions || random() % 5 == 0) paths[session] = next++;
    const bool hit = traffic.use(paths[session], (i + 1) * kSecond, FinishReason::unknown,
                                 SessionId{named ? session + 1 : 0});
    hits += hit ? 1 : 0;
  }
  traffic.policy().check_invariants();
  return hits;
}

TEST(AdaptivePolicy, LetsGoWhatASessionHasLeft) {
  EXPECT_GT(hits_of_moving_sessions(true), hits_of_moving_sessions(false) + 100);
}

// Half of the uses are of conversations of five turns, a dozen at a time; all of those fit. The
// others come once. The finish reason tells the two apart, but its meaning is reversed every few
// hundred steps.
Step fickle_step_at(uint32_t i) {
  const bool flipped = i / 400 % 2 != 0;
  const bool comes_back = i % 2 == 0;
  const auto finish = comes_back != flipped ? FinishReason::tool_use : FinishReason::end_turn;
  if (!comes_back) return {10'000 + i, finish};
  return {i / 2 / 60 * 12 + i / 2 % 12, finish};
}

TEST(AdaptivePolicy, IsNotBehindLruWhereWhatWasLearntDoesNotHold) {
  constexpr uint32_t kCells = 26;
  constexpr uint32_t kUses = 12'000;
  Traffic traffic(kCells);
  std::vector<uint32_t> lru;  // Latest first.
  int64_t lead = 0;
  for (uint32_t i = 0; i < kUses; ++i) {
    const Step step = fickle_step_at(i);
    lead += traffic.use(step.who, (i + 1) * kSecond, step.finish) ? 1 : 0;
    const auto there = std::find(lru.begin(), lru.end(), step.who);
    if (there != lru.end()) {
      --lead;
      lru.erase(there);
    } else if (lru.size() == kCells) {
      lru.pop_back();
    }
    lru.insert(lru.begin(), step.who);
  }
  EXPECT_GE(lead, -6) << "of " << kUses;
  traffic.policy().check_invariants();
}

TEST(AdaptivePolicy, DecisionsDependOnThePastOnly) {
  Traffic one(30);
  Traffic other(30);
  std::mt19937 random(1);
  for (uint32_t i = 0; i < 2000; ++i) {
    const Step step = step_at(i);
    (void)one.use(step.who, (i + 1) * kSecond, step.finish);
    const bool same = i < 1000;
    (void)other.use(same ? step.who : static_cast<uint32_t>(random() % 500), (i + 1) * kSecond,
                    same ? step.finish : FinishReason::unknown);
    if (i != 999) continue;
    EXPECT_GT(one.victims.size(), 100U);
    EXPECT_EQ(one.victims, other.victims);
  }
  EXPECT_NE(one.victims, other.victims);
}

TEST(AdaptivePolicy, AgesMayEndWithAnIntervalToTheNanosecond) {
  for (uint32_t i = 0; i + 1 < HazardModel::kAges; ++i) {
    AdaptivePolicy policy(4);
    policy.touch(1, {.now_ns = 7, .depth_tokens = 16});
    for (const uint64_t age_ns : {HazardModel::end_ns(i) - 1, HazardModel::end_ns(i)}) {
      EXPECT_EQ(policy.victim(7 + age_ns, false, kNoTenant).cell, 1U);
    }
    EXPECT_EQ(policy.victim(kNever, false, kNoTenant).cell, 1U);
    policy.touch(1, {.now_ns = 3, .depth_tokens = 16});  // Time runs backwards.
    EXPECT_EQ(policy.victim(0, false, kNoTenant).cell, 1U);
    policy.check_invariants();
  }
}

TEST(AdaptivePolicy, FinishReasonsThatDoNotExistSpoilNothing) {
  AdaptivePolicy policy(64);
  for (uint32_t i = 0; i < 1'000; ++i) {
    policy.touch(i % 64, {.now_ns = i * kSecond,
                          .finish = FinishReason{static_cast<uint8_t>(i)},
                          .depth_tokens = 16});
  }
  policy.check_invariants();
}

TEST(AdaptivePolicy, WhatIsSaidOfBlocksCountsFirst) {
  Traffic traffic(30);
  for (uint32_t i = 0; i < 2000; ++i) {
    const Step step = step_at(i);
    (void)traffic.use(step.who, (i + 1) * kSecond, step.finish);
  }
  AdaptivePolicy& policy = traffic.policy();
  const CellIndex first = policy.victim(2001 * kSecond, false, kNoTenant).cell;
  policy.touch(first, {.now_ns = 2001 * kSecond, .priority = 90});
  const CellIndex second = policy.victim(2001 * kSecond, false, kNoTenant).cell;
  EXPECT_NE(second, first);
  policy.touch(first, {.now_ns = 2001 * kSecond, .priority = 10});
  EXPECT_EQ(policy.victim(2001 * kSecond, false, kNoTenant).cell, first);
  policy.check_invariants();
}

}  // namespace
}  // namespace stemma::retain
