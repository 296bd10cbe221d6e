#include "retain/lru.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "base/slab.h"

namespace stemma::retain {
namespace {

using Order = std::vector<CellIndex>;

// The naive policy: a touch and a time per cell, searched for every question.
class PlainLru {
 public:
  void touch(CellIndex cell, const Touch& touch) { held_[cell] = {touch, ++time_, false}; }
  // The parent keeps its own entry if that is better: of a higher class now, or later in the same.
  void replace(CellIndex child, CellIndex parent, uint64_t now) {
    const auto it = held_.find(child);
    if (it == held_.end()) return;
    const Entry entry = it->second;
    held_.erase(it);
    const auto above = held_.find(parent);
    const auto value = [&](const Entry& e) { return std::pair(rank(e.touch, now), e.time); };
    if (above == held_.end() || value(above->second) < value(entry)) held_[parent] = entry;
    held_[parent].aside = false;
  }
  void set_aside(CellIndex cell) { held_[cell].aside = true; }
  void remove(CellIndex cell) { held_.erase(cell); }
  bool holds(CellIndex cell) const { return held_.count(cell) != 0; }
  Order order(uint64_t now, std::optional<TenantId> tenant = {}) const {
    std::vector<std::tuple<uint32_t, uint64_t, CellIndex>> sorted;
    for (const auto& [cell, entry] : held_) {
      if (entry.aside) continue;
      if (!tenant || entry.touch.tenant == *tenant) {
        sorted.emplace_back(rank(entry.touch, now), entry.time, cell);
      }
    }
    std::ranges::sort(sorted);
    Order cells;
    for (const auto& entry : sorted) cells.push_back(std::get<2>(entry));
    return cells;
  }

 private:
  struct Entry {
    Touch touch;
    uint64_t time = 0;
    bool aside = false;
  };
  static uint32_t rank(const Touch& touch, uint64_t now) {
    const bool expired = now >= touch.deadline_ns;
    const uint32_t priority = expired             ? touch.expired_priority
                              : touch.will_return ? kMaxPriority + 1U
                                                  : touch.priority;
    return priority * 3 + static_cast<uint32_t>(expired ? touch.expired_phase : touch.phase);
  }
  std::map<CellIndex, Entry> held_;
  uint64_t time_ = 0;
};

// Drives both with the same random story and compares every answer.
struct Story {
  uint32_t cells = 60;
  uint32_t priorities = 1;
  uint32_t tenants = 1;
  bool deadlines = false;
  uint32_t distinct_deadlines = 2;
  bool phases = false;
  int steps = 20'000;
};

void expect_exact(const Story& story, uint32_t seed) {
  LruPolicy policy(story.cells);
  ASSERT_TRUE(policy.ok());
  PlainLru plain;
  std::mt19937 random(seed);
  uint64_t now = 1;
  const auto random_touch = [&] {
    Touch touch;
    touch.now_ns = now;
    touch.tenant = TenantId{static_cast<uint32_t>(random() % story.tenants)};
    touch.priority = static_cast<Priority>((35 + random() % story.priorities * 5) % 101);
    if (story.deadlines && random() % 2 == 0) {
      touch.deadline_ns = now + 100 + random() % story.distinct_deadlines * 300;
      touch.expired_phase = SessionPhase::ended;
    }
    if (story.phases) {
      touch.phase = SessionPhase{static_cast<uint8_t>(random() % 3)};
      touch.will_return = random() % 8 == 0;
    }
    return touch;
  };
  for (int step = 0; step < story.steps; ++step) {
    now += random() % 4;
    const auto cell = static_cast<CellIndex>(random() % story.cells);
    switch (random() % 8) {
      case 0:
        policy.remove(cell);
        plain.remove(cell);
        break;
      case 1:
      case 2: {  // Evict: the parent, which may have a marker, takes the leaf's place.
        const bool only = random() % 2 == 0;
        const TenantId tenant{static_cast<uint32_t>(random() % story.tenants)};
        const Order expected = plain.order(now, only ? std::optional(tenant) : std::nullopt);
        const Victim victim = policy.victim(now, only, tenant);
        ASSERT_EQ(victim.cell, expected.empty() ? kNoCell : expected.front()) << "step " << step;
        if (victim.cell == kNoCell) break;
        ASSERT_TRUE(!only || victim.tenant == tenant);
        if (random() % 4 == 0) {  // Something is below it, or uses it.
          policy.set_aside(victim.cell);
          plain.set_aside(victim.cell);
        } else if (victim.cell != cell && random() % 4 != 0) {
          policy.replace(victim.cell, cell);
          plain.replace(victim.cell, cell, now);
        } else {
          policy.remove(victim.cell);
          plain.remove(victim.cell);
        }
        break;
      }
      default: {
        const Touch touch = random_touch();
        policy.touch(cell, touch);
        plain.touch(cell, touch);
      }
    }
    for (CellIndex c = 0; c < story.cells; ++c) ASSERT_EQ(policy.holds(c), plain.holds(c));
    if (step % 50 != 0) continue;
    policy.check_invariants();
    Order order;
    policy.order(now, order);
    ASSERT_EQ(order, plain.order(now)) << "step " << step;
  }
}

TEST(Lru, OneClassIsExact) { expect_exact({}, 1); }

TEST(Lru, PrioritiesAreExact) { expect_exact({.priorities = 4}, 2); }

TEST(Lru, TenantsAreExactAndApart) { expect_exact({.tenants = 5}, 3); }

TEST(Lru, PrioritiesPhasesDeadlinesAndTenantsTogetherAreExact) {
  for (uint32_t seed = 10; seed < 14; ++seed) {
    expect_exact({.priorities = 3, .tenants = 2, .deadlines = true, .phases = true}, seed);
  }
}

TEST(Lru, AnyNumberOfClassesAndTimesToLiveIsExact) {
  // More combinations than cells: every touch has a time to live of its own.
  for (uint32_t seed = 20; seed < 23; ++seed) {
    expect_exact({.cells = 400,
                  .priorities = 101,
                  .tenants = LruPolicy::kMaxTenants + 1,
                  .deadlines = true,
                  .distinct_deadlines = 1'000'000,
                  .phases = true,
                  .steps = 6'000},
                 seed);
    expect_exact({.cells = 400, .deadlines = true, .distinct_deadlines = 1'000, .steps = 6'000},
                 seed);
  }
}

TEST(Lru, MarkersOfInnerCellsAreKeptWhenTheyAreLater) {
  LruPolicy policy(10);
  policy.touch(3, {});  // A leaf.
  policy.touch(2, {});  // Its parent, at which a later use ended.
  policy.touch(7, {});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 3U);
  policy.replace(3, 2);
  Order order;
  policy.order(1, order);
  EXPECT_EQ(order, (Order{2, 7}));
  policy.replace(2, 1);  // 1 has no entry: it takes 2's place, before 7.
  order.clear();
  policy.order(1, order);
  EXPECT_EQ(order, (Order{1, 7}));
}

TEST(Lru, EarlierMarkersGiveWayToTheLaterUseOfTheLeaf) {
  LruPolicy policy(10);
  policy.touch(2, {});                // Once the end of a path,
  policy.touch(5, {.priority = 90});  // (a second class brings stamps)
  policy.touch(3, {});                // then it was gone on from.
  policy.touch(7, {});
  policy.replace(3, 2);
  Order order;
  policy.order(1, order);
  EXPECT_EQ(order, (Order{2, 7, 5})) << "where 3 was, not where the marker was";
}

TEST(Lru, ALowLeafDoesNotPullAHighParentDown) {
  LruPolicy policy(10);
  policy.touch(2, {.priority = 80});  // A prefix that one user values,
  policy.touch(3, {.priority = 10});  // continued by another who does not.
  policy.touch(7, {.priority = 35});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 3U);
  policy.replace(3, 2);
  Order order;
  policy.order(1, order);
  EXPECT_EQ(order, (Order{7, 2}));
}

TEST(Lru, WhatWasSetAsideCountsAgainWhenAllBelowItIsGone) {
  LruPolicy policy(10);
  policy.touch(2, {.priority = 80});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 2U);
  policy.set_aside(2);  // The only class there is, so far.
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, kNoCell);
  policy.touch(3, {.priority = 10});
  policy.touch(7, {.priority = 35});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 3U);
  policy.replace(3, 2);
  Order order;
  policy.order(1, order);
  EXPECT_EQ(order, (Order{7, 2}));
  policy.set_aside(2);
  policy.remove(2);
  EXPECT_FALSE(policy.holds(2));
  policy.check_invariants();
}

TEST(Lru, ReplacingWhatIsNotHeldDoesNothing) {
  LruPolicy policy(10);
  policy.touch(2, {});
  policy.replace(5, 6);
  EXPECT_FALSE(policy.holds(6));
  EXPECT_TRUE(policy.holds(2));
}

TEST(Lru, OneClassCostsEightBytesACellASecondTenMoreAndATimeToLiveTwentySix) {
  constexpr uint32_t kCells = 1 << 16;
  LruPolicy policy(kCells);
  const uint64_t empty = policy.bytes();
  for (CellIndex cell = 0; cell < kCells; ++cell) policy.touch(cell, {});
  const uint64_t one_class = policy.bytes() - empty;
  EXPECT_GE(one_class, 8 * kCells);
  EXPECT_LE(one_class, 8.5 * kCells);
  policy.touch(0, {.priority = 90});
  EXPECT_GE(policy.bytes() - empty, 18 * kCells);
  EXPECT_LE(policy.bytes() - empty, 18.5 * kCells);
  policy.touch(0, {.priority = 90, .deadline_ns = 1});
  EXPECT_GE(policy.bytes() - empty, 44 * kCells);
  EXPECT_LE(policy.bytes() - empty, 44.5 * kCells);
}

TEST(Lru, TenantsThatHoldNothingMakeWayForOthers) {
  LruPolicy policy(10);
  for (uint32_t tenant = 0; tenant < 1'000; ++tenant) {
    const CellIndex cell = tenant % 10;
    policy.remove(cell);
    policy.touch(cell, {.tenant = TenantId{tenant}, .priority = 60, .deadline_ns = tenant});
    ASSERT_EQ(policy.victim(tenant / 2, true, TenantId{tenant}).cell, cell);
    policy.check_invariants();
  }
}

TEST(Lru, PrioritiesAndPhasesThatDoNotExistGoLast) {
  LruPolicy policy(10);
  policy.touch(1, {.priority = 255});
  policy.touch(2, {.phase = SessionPhase{255}, .will_return = true});
  policy.touch(3, {.deadline_ns = 5, .expired_priority = 255, .expired_phase = SessionPhase{9}});
  policy.touch(4, {});
  policy.check_invariants();
  EXPECT_EQ(policy.victim(10, false, kNoTenant).cell, 4U);
  policy.check_invariants();
}

TEST(Lru, ADeadlineThatHasPassedStaysPassedWhenTimeRunsBackwards) {
  LruPolicy policy(10);
  policy.touch(1, {.now_ns = 100, .priority = 90, .deadline_ns = 200});
  policy.touch(2, {.now_ns = 100, .priority = 50});
  EXPECT_EQ(policy.victim(150, false, kNoTenant).cell, 2U);
  EXPECT_EQ(policy.victim(200, false, kNoTenant).cell, 1U);
  EXPECT_EQ(policy.victim(0, false, kNoTenant).cell, 1U);
  policy.touch(1, {.now_ns = 0, .priority = 90, .deadline_ns = kNever - 1});
  EXPECT_EQ(policy.victim(kNever - 2, false, kNoTenant).cell, 2U);
  EXPECT_EQ(policy.victim(kNever, false, kNoTenant).cell, 1U);
  policy.check_invariants();
}

TEST(Lru, ATimeToLiveOfItsOwnForEveryUseIsExact) {
  LruPolicy policy(10);
  // Another time to live every time, but never more than a few at once.
  for (uint64_t now = 1; now < 10'000; ++now) {
    policy.touch(static_cast<CellIndex>(now % 10), {.now_ns = now, .deadline_ns = 2 * now + 50});
    if (now % 10 != 0) continue;
    ASSERT_EQ(policy.victim(now, false, kNoTenant).cell, 1U) << "exact: classes were not merged";
  }
}

TEST(Lru, ClearForgetsEverything) {
  LruPolicy policy(10);
  for (CellIndex cell = 0; cell < 10; ++cell) {
    policy.touch(cell, {.priority = static_cast<Priority>(cell)});
  }
  policy.clear();
  policy.check_invariants();
  for (CellIndex cell = 0; cell < 10; ++cell) EXPECT_FALSE(policy.holds(cell));
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, kNoCell);
  policy.touch(4, {});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 4U);
}

// The calls made while memory is refused, and the choice once there is memory again.
class WithoutSlabs {
 public:
  WithoutSlabs() { base::refuse_slab_memory_after(0); }
  ~WithoutSlabs() { base::refuse_slab_memory_after(base::kUnlimited); }
};

TEST(Lru, PreparingIsAllThatCanBeRefused) {
  LruPolicy policy(1000);
  ASSERT_TRUE(policy.prepare(9));
  policy.touch(9, {});
  const WithoutSlabs none;
  EXPECT_TRUE(policy.prepare(9));
  EXPECT_FALSE(policy.prepare(999));
  EXPECT_FALSE(policy.prepare(999));
  for (CellIndex cell = 0; cell < 10; ++cell) policy.touch(cell, {});
  EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 0U);
}

TEST(Lru, WithoutMemoryForStampsClassesStillCountAndTenantsStayApart) {
  LruPolicy policy(100);
  ASSERT_TRUE(policy.prepare(99));
  {
    const WithoutSlabs none;
    policy.touch(1, {.priority = 90});
    policy.touch(2, {.priority = 10});
    policy.touch(3, {.tenant = TenantId{5}, .priority = 10});
    policy.touch(4, {.priority = 90});
    policy.check_invariants();
    EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 2U);
    EXPECT_EQ(policy.victim(1, true, TenantId{5}).cell, 3U);
    policy.replace(2, 4);  // Its own entry counts as the better one.
    EXPECT_EQ(policy.victim(1, false, kNoTenant).cell, 3U);
  }
  // With memory again it finds its way back: by age, across classes.
  for (int i = 0; i < 300; ++i) policy.touch(50, {.tenant = TenantId{5}, .priority = 90});
  policy.check_invariants();
  policy.touch(1, {.priority = 90});
  policy.remove(3);
  std::vector<CellIndex> order;
  policy.order(1, order);
  EXPECT_EQ(order, (std::vector<CellIndex>{4, 50, 1}));
}

TEST(Lru, TimeToLiveThatCannotBeNotedIsOver) {
  LruPolicy policy(100);
  ASSERT_TRUE(policy.prepare(99));
  const WithoutSlabs none;
  policy.touch(1, {.now_ns = 1, .priority = 90, .deadline_ns = 1000});
  policy.touch(2, {.now_ns = 2, .priority = 40});
  EXPECT_EQ(policy.victim(3, false, kNoTenant).cell, 1U) << "at its default priority by now";
}

TEST(Lru, IsMadeByName) {
  EXPECT_NE(make_policy("lru", 10), nullptr);
  EXPECT_EQ(make_policy("", 10), nullptr);
  EXPECT_EQ(make_policy("LRU", 10), nullptr);
}

}  // namespace
}  // namespace stemma::retain
