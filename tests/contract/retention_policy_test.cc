// What every RetentionPolicy promises. A new policy joins with one line at the end of this file,
// and with one in exact_recency_test.cc if it promises least recently used first.
#include "stemma/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "base/slab.h"
#include "retain/policies.h"
#include "support/cpu_time.h"
#include "support/policy_fixture.h"

namespace stemma::test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr TenantId kRed{1};
constexpr TenantId kBlue{2};

class RetentionPolicyContract : public PolicyTest {};

TEST_P(RetentionPolicyContract, IsKnownByItsName) {
  make(4);
  EXPECT_EQ(policy->name(), GetParam());
}

TEST_P(RetentionPolicyContract, NewPolicyHoldsNothing) {
  make(8);
  for (CellIndex cell = 0; cell < 8; ++cell) EXPECT_FALSE(policy->holds(cell));
  EXPECT_EQ(next(), kNoCell);
  EXPECT_EQ(next_of(kRed), kNoCell);
}

TEST_P(RetentionPolicyContract, EverythingTouchedIsHeldUntilRemovedAndComesUpOnce) {
  make(64);
  for (CellIndex cell = 0; cell < 64; ++cell) {
    touch(cell * 37 % 64, priority(static_cast<Priority>(cell % 3 * 40)));
  }
  for (CellIndex cell = 0; cell < 64; ++cell) EXPECT_TRUE(policy->holds(cell));
  for (CellIndex cell = 0; cell < 64; cell += 5) {
    policy->remove(cell);
    EXPECT_FALSE(policy->holds(cell));
  }
  Order order = drain();
  std::ranges::sort(order);
  Order expected;
  for (CellIndex cell = 0; cell < 64; ++cell) {
    if (cell % 5 != 0) expected.push_back(cell);
  }
  EXPECT_EQ(order, expected);
}

TEST_P(RetentionPolicyContract, ChoosingDoesNotRemove) {
  make(8);
  touch(3);
  touch(5);
  const CellIndex first = next();
  EXPECT_TRUE(policy->holds(first));
  EXPECT_EQ(next(), first);
  EXPECT_EQ(next(), first);
}

TEST_P(RetentionPolicyContract, VictimsNeverNameRemovedCells) {
  make(32);
  std::mt19937_64 random(7);
  std::set<CellIndex> held;
  for (int step = 0; step < 20'000; ++step) {
    now_ns += random() % 100;
    const auto cell = static_cast<CellIndex>(random() % 32);
    switch (random() % 4) {
      case 0:
      case 1:
        touch(cell, priority(static_cast<Priority>(random() % 4 * 25),
                             random() % 2 == 0 ? kNever : now_ns + random() % 500));
        held.insert(cell);
        break;
      case 2:
        if (held.erase(cell) == 1) policy->remove(cell);
        break;
      default: {
        const CellIndex victim = next();
        if (held.empty()) {
          ASSERT_EQ(victim, kNoCell);
        } else {
          ASSERT_TRUE(held.contains(victim)) << "step " << step;
        }
      }
    }
    for (CellIndex c = 0; c < 32; ++c) ASSERT_EQ(policy->holds(c), held.contains(c));
    if (step % 500 == 0) policy->check_invariants();
  }
}

TEST_P(RetentionPolicyContract, ReplacingALeafHoldsItsParentInstead) {
  make(8);
  touch(1);
  touch(2);
  policy->replace(1, 5);
  EXPECT_FALSE(policy->holds(1));
  EXPECT_TRUE(policy->holds(5));
  EXPECT_TRUE(policy->holds(2));
  Order order = drain();
  std::ranges::sort(order);
  EXPECT_EQ(order, (Order{2, 5}));
}

TEST_P(RetentionPolicyContract, LowerPriorityGoesFirst) {
  make(8);
  touch(0, priority(100));
  touch(1, priority(0));
  touch(2, priority(36));
  touch(3);
  touch(4, priority(34));
  EXPECT_EQ(drain(), (Order{1, 4, 3, 2, 0}));
}

TEST_P(RetentionPolicyContract, EndedGoesBeforeUnknownBeforeActiveWithinAPriority) {
  make(8);
  touch(0, phase(SessionPhase::active));
  touch(1, phase(SessionPhase::unknown));
  touch(2, phase(SessionPhase::ended));
  Touch cheap = phase(SessionPhase::active);
  cheap.priority = kDefaultPriority - 1;
  touch(3, cheap);
  EXPECT_EQ(drain(), (Order{3, 2, 1, 0}));
}

TEST_P(RetentionPolicyContract, WhatWillReturnGoesLast) {
  make(8);
  touch(0, {.will_return = true});
  touch(1, phase(SessionPhase::active));
  touch(2);
  EXPECT_EQ(drain().back(), 0U);
}

TEST_P(RetentionPolicyContract, AfterItsDeadlineAUseCountsAsItSaidItWould) {
  make(8);
  Touch falls = priority(80, now_ns + kSecond);
  falls.expired_priority = 50;
  touch(0, falls);
  Touch ends = phase(SessionPhase::active, now_ns + kSecond);
  ends.expired_phase = SessionPhase::ended;
  touch(1, ends);
  touch(2, priority(60));
  touch(3);
  touch(4, priority(45));
  EXPECT_EQ(next(), 3U);
  now_ns += kSecond + 2;
  EXPECT_EQ(drain(), (Order{1, 3, 4, 0, 2}));
}

TEST_P(RetentionPolicyContract, LowPriorityRisesToTheDefaultWhenItsDeadlinePasses) {
  make(8);
  touch(0, priority(10, now_ns + kSecond));
  touch(1, priority(20));
  EXPECT_EQ(next(), 0U);
  now_ns += kSecond + 2;
  EXPECT_EQ(drain(), (Order{1, 0}));
}

TEST_P(RetentionPolicyContract, TouchingAgainReplacesTheDeadline) {
  make(8);
  touch(0, priority(80, now_ns + kSecond));
  touch(1, priority(60));
  touch(0, priority(80));
  now_ns += 10 * kSecond;
  EXPECT_EQ(drain(), (Order{1, 0}));
}

TEST_P(RetentionPolicyContract, ManyDeadlinesCostNoScan) {
  auto drain_ns = [&](uint32_t cells) {
    make(cells);
    for (CellIndex cell = 0; cell < cells; ++cell) {
      touch(cell, priority(80, now_ns + kSecond + cell % 8));
    }
    now_ns += 2 * kSecond;
    const uint64_t start = cpu_ns();
    EXPECT_EQ(drain().size(), cells);
    return static_cast<double>(cpu_ns() - start) / cells;
  };
  const double few = drain_ns(1000);
  const double many = drain_ns(100'000);
  EXPECT_LT(many, 30 * few) << "a hundred times the cells";
}

TEST_P(RetentionPolicyContract, EveryTenantHasItsOwnVictims) {
  make(8);
  touch(0, {.tenant = kRed});
  touch(1, {.tenant = kBlue});
  touch(2, {.tenant = kRed, .priority = 0});
  touch(3);
  EXPECT_EQ(next_of(kRed), 2U);
  EXPECT_EQ(next_of(kBlue), 1U);
  EXPECT_EQ(next_of(TenantId{9}), kNoCell);
  const Victim any = policy->victim(now_ns, false, kBlue);
  EXPECT_EQ(any.cell, 2U) << "the tenant does not matter when it is not asked for";
  EXPECT_EQ(any.tenant, kRed);
  policy->remove(2);
  EXPECT_EQ(next_of(kRed), 0U);
  policy->replace(0, 6);
  EXPECT_EQ(next_of(kRed), 6U) << "the parent is the tenant's too";
}

TEST_P(RetentionPolicyContract, TenantsComeAndGoAmongAnyNumberOfTimesToLive) {
  constexpr CellIndex kOthers = 500;
  make(kOthers + 1);
  uint32_t uses = 0;
  const auto other = [&] {  // Every use has a time to live of its own.
    touch(uses % kOthers, priority(50, now_ns + 1'000 * kSecond + uses));
    ++uses;
  };
  while (uses < 250) other();
  for (int round = 0; round < 300; ++round) {
    touch(kOthers, {.tenant = kRed});
    EXPECT_EQ(next_of(kRed), kOthers);
    policy->remove(kOthers);
    EXPECT_EQ(next_of(kRed), kNoCell);
    other();
  }
}

TEST_P(RetentionPolicyContract, ClearForgetsEverything) {
  make(8);
  for (CellIndex cell = 0; cell < 8; ++cell) touch(cell, priority(static_cast<Priority>(cell)));
  policy->clear();
  EXPECT_EQ(next(), kNoCell);
  for (CellIndex cell = 0; cell < 8; ++cell) EXPECT_FALSE(policy->holds(cell));
  touch(4);
  EXPECT_EQ(next(), 4U);
}

TEST_P(RetentionPolicyContract, OrderTellsWhatWouldGoWithoutChangingIt) {
  make(32);
  for (CellIndex cell = 0; cell < 32; ++cell) {
    Touch how = priority(static_cast<Priority>(cell * 7 % 5 * 20));
    if (cell % 4 == 0) how.deadline_ns = now_ns + kSecond;
    touch(cell * 5 % 32, how);
  }
  for (uint64_t later : {uint64_t{0}, 2 * kSecond}) {
    now_ns += later;
    Order order;
    policy->order(now_ns, order);
    EXPECT_EQ(order.size(), 32U);
    EXPECT_EQ(order.front(), next());
  }
  Order order;
  policy->order(now_ns, order);
  EXPECT_EQ(order, drain());
}

TEST_P(RetentionPolicyContract, ParentOfWhatWasForgottenIsALeafAgain) {
  make(8);
  const uint32_t words[] = {7};
  policy->inserted(1, kNoCell, words);
  touch(1, priority(10));
  policy->inserted(2, 1, words);
  touch(2);
  policy->inserted(3, kNoCell, words);
  touch(3);
  policy->remove(2);
  policy->forgotten(2);
  policy->check_invariants();
  EXPECT_EQ(next(), 1U);
  // Its number may be reused for another cell; cells below that must not count for the old one.
  policy->inserted(2, kNoCell, words);
  policy->inserted(4, 2, words);
  touch(4, priority(60));
  policy->check_invariants();
  EXPECT_EQ(drain(), (Order{1, 3, 4}));
}

TEST_P(RetentionPolicyContract, SaysHowMuchMemoryItHolds) {
  make(10'000);
  for (CellIndex cell = 0; cell < 10'000; ++cell) touch(cell, priority(cell % 2 == 0 ? 10 : 90));
  const uint64_t bytes = policy->bytes();
  EXPECT_GT(bytes, 10'000U);
  EXPECT_LT(bytes, 100U * 10'000U + (1U << 20U)) << "a model may be as large as that";
  for (int round = 0; round < 10; ++round) {
    for (CellIndex cell = 0; cell < 10'000; ++cell) touch(cell, priority(cell % 2 == 0 ? 90 : 10));
  }
  EXPECT_EQ(policy->bytes(), bytes) << "no memory is taken in steady state";
}

TEST_P(RetentionPolicyContract, TakesNoMoreMemoryThanBudgetsAreMadeWith) {
  constexpr uint32_t kCells = 70'000;  // A little more than a power of two: the worst for tables.
  make(kCells);
  for (CellIndex cell = 0; cell < kCells; ++cell) {
    const uint32_t words[] = {cell};
    if (policy->tracks_contents()) policy->inserted(cell, kNoCell, words);
    touch(cell, {.tenant = cell % 2 == 0 ? kRed : kBlue,
                 .priority = static_cast<Priority>(cell % 100),
                 .deadline_ns = now_ns + kSecond});
  }
  const retain::PolicyBytes most = retain::most_bytes(GetParam());
  constexpr uint64_t kSmall = 128U << 10U;
  EXPECT_LE(policy->bytes(), uint64_t{most.per_cell} * kCells + most.fixed + kSmall);
  EXPECT_GE(policy->bytes(), uint64_t{most.per_cell} * kCells / 2) << "nor much less";
  make(100);
  EXPECT_LE(policy->bytes(), most.per_cell * 100 + most.fixed + kSmall);
  EXPECT_GE(policy->bytes(), most.fixed / 2) << "nor much less";
}

TEST_P(RetentionPolicyContract, EqualStoriesHaveEqualEnds) {
  const auto story = [&](uint32_t seed) {
    make(64);
    std::mt19937 random(seed);
    Order victims;
    CellIndex parent = kNoCell;
    std::vector<CellIndex> parents(64, kNoCell);
    std::set<CellIndex> cached;
    for (int step = 0; step < 5'000; ++step) {
      now_ns += random() % 10;
      const auto cell = static_cast<CellIndex>(random() % 64);
      if (!cached.contains(cell)) {
        const uint32_t words[] = {static_cast<uint32_t>(random() % 500)};
        parent = random() % 2 == 0 && cached.contains(parent) ? parent : kNoCell;
        parents[cell] = parent;
        if (policy->tracks_contents()) policy->inserted(cell, parent, words);
        cached.insert(cell);
      }
      touch(cell, priority(static_cast<Priority>(35 + random() % 2)));
      parent = cell;
      if (cached.size() < 40) continue;
      const CellIndex victim = next();
      victims.push_back(victim);
      if (policy->tracks_contents()) policy->evicted(victim);
      cached.erase(victim);
      if (cached.contains(parents[victim])) {
        policy->replace(victim, parents[victim]);
      } else {
        policy->remove(victim);
      }
      if (step % 100 == 0) policy->check_invariants();
    }
    return victims;
  };
  const Order once = story(3);
  EXPECT_GT(once.size(), 1000U);
  EXPECT_EQ(story(3), once);
  EXPECT_NE(story(4), once);
}

TEST_P(RetentionPolicyContract, WhatWasPreparedNeedsNoMoreMemory) {
  make(10'000);
  ASSERT_TRUE(policy->prepare(4'999));
  base::refuse_slab_memory_after(0);
  EXPECT_FALSE(policy->prepare(9'999));
  for (CellIndex cell = 0; cell < 5'000; ++cell) {
    touch(cell, {.tenant = cell % 2 == 0 ? kRed : kBlue,
                 .priority = static_cast<Priority>(cell % 5 * 20),
                 .deadline_ns = cell % 3 == 0 ? kSecond : kNever});
  }
  for (CellIndex cell = 1; cell < 5'000; cell += 7) policy->replace(cell, cell - 1);
  now_ns = 2 * kSecond;
  EXPECT_NE(next_of(kRed), kNoCell);
  const size_t left = drain().size();
  base::refuse_slab_memory_after(base::kUnlimited);
  EXPECT_EQ(left, 5'000U - 5'000U / 7 - 1);
}

TEST(RetentionPolicies, UnknownNamesMakeNone) {
  EXPECT_EQ(make_policy("", 8), nullptr);
  EXPECT_EQ(make_policy("LRU", 8), nullptr);
  EXPECT_EQ(make_policy("lru2", 8), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Policies, RetentionPolicyContract,
                         ::testing::Values("lru", "lru_k", "slru", "arc", "s3_fifo", "sieve",
                                           "gdsf", "adaptive"),
                         policy_name);

}  // namespace
}  // namespace stemma::test
