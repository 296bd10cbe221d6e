// What a RetentionPolicy promises that says "least recently used first, exactly, within a class".
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "stemma/retention.h"
#include "support/policy_fixture.h"

namespace stemma::test {
namespace {

class ExactRecencyContract : public PolicyTest {};

TEST_P(ExactRecencyContract, LeastRecentlyTouchedGoesFirst) {
  make(8);
  for (CellIndex cell : {3, 1, 4, 2, 3, 5}) touch(cell);
  EXPECT_EQ(drain(), (Order{1, 4, 2, 3, 5}));
}

TEST_P(ExactRecencyContract, ParentTakesThePlaceOfItsLastChild) {
  make(8);
  touch(1);
  touch(2);
  policy->replace(1, 6);
  touch(3);
  EXPECT_EQ(drain(), (Order{6, 2, 3}));
}

TEST_P(ExactRecencyContract, ParentUsedLaterKeepsItsLaterPlace) {
  make(8);
  touch(1);
  touch(2);
  touch(6);
  touch(3);
  policy->replace(1, 6);
  EXPECT_EQ(drain(), (Order{2, 6, 3}));
}

TEST_P(ExactRecencyContract, ParentUsedEarlierMovesToItsChildsPlace) {
  make(8);
  touch(7, priority(10));  // With one class only, a leaf that goes is older than any parent's use.
  touch(6);
  touch(2);
  touch(1);
  touch(3);
  policy->replace(1, 6);
  EXPECT_EQ(drain(), (Order{7, 2, 6, 3}));
}

TEST_P(ExactRecencyContract, ParentInheritsTheClassOfTheLaterUse) {
  make(8);
  touch(6, priority(90));
  touch(1, priority(10));  // Later than the parent's own: this one counts.
  touch(2, priority(50));
  policy->replace(1, 6);
  EXPECT_EQ(drain(), (Order{6, 2}));

  touch(1, priority(10));
  touch(6, priority(90));
  touch(2, priority(50));
  policy->replace(1, 6);
  EXPECT_EQ(drain(), (Order{2, 6}));
}

TEST_P(ExactRecencyContract, ChainsUnwindInPlace) {
  // A path of four cells under one use, beside another of three.
  make(16);
  touch(3);
  touch(13);
  for (CellIndex child : {3, 2, 1}) {
    EXPECT_EQ(next(), child);
    policy->replace(child, child - 1);
  }
  EXPECT_EQ(drain(), (Order{0, 13}));
}

TEST_P(ExactRecencyContract, OrderIsExactWithinEveryClassInRandomRuns) {
  // The obvious way: remember everything and sort.
  struct Held {
    int rank = 0;
    int expired_rank = 0;
    uint64_t deadline_ns = kNever;
    uint64_t used = 0;
    TenantId tenant = kNoTenant;
  };
  const Priority priorities[] = {0, kDefaultPriority, 90};
  make(39);
  std::mt19937_64 random(11);
  std::map<CellIndex, Held> held;
  uint64_t instant = 0;
  auto expected = [&](std::optional<TenantId> tenant) {
    std::tuple<int, uint64_t, CellIndex> best{1 << 20, 0, kNoCell};
    for (const auto& [cell, h] : held) {
      if (tenant && h.tenant != *tenant) continue;
      const int rank = h.deadline_ns < now_ns ? h.expired_rank : h.rank;
      best = std::min(best, {rank, h.used, cell});
    }
    return std::get<CellIndex>(best);
  };
  for (int step = 0; step < 30'000; ++step) {
    now_ns += 10;
    const auto cell = static_cast<CellIndex>(random() % 39);
    const uint64_t dice = random() % 10;
    if (dice < 5) {
      // A tenant belongs to a cell's scope, so it never changes while the cell is held.
      Touch how{.tenant = TenantId{cell % 3},
                .priority = priorities[random() % 3],
                .expired_priority = priorities[random() % 3],
                .expired_phase = static_cast<SessionPhase>(random() % 3),
                .phase = static_cast<SessionPhase>(random() % 3)};
      // Deadlines lie in the future and off the grid of instants.
      if (random() % 3 == 0) how.deadline_ns = now_ns + 5 + random() % 40 * 10;
      touch(cell, how);
      held[cell] = {how.priority * 3 + static_cast<int>(how.phase),
                    how.expired_priority * 3 + static_cast<int>(how.expired_phase), how.deadline_ns,
                    ++instant, how.tenant};
    } else if (dice < 7) {
      const CellIndex parent = (cell + 3) % 39;  // Of the same tenant.
      if (!held.contains(cell)) continue;
      policy->replace(cell, parent);
      const Held child = held[cell];
      held.erase(cell);
      if (!held.contains(parent) || held[parent].used < child.used) held[parent] = child;
    } else if (dice < 8) {
      if (held.erase(cell) == 1) policy->remove(cell);
    } else {
      ASSERT_EQ(next(), expected(std::nullopt)) << "step " << step;
      const TenantId tenant{static_cast<uint32_t>(random() % 3)};
      ASSERT_EQ(next_of(tenant), expected(tenant)) << "step " << step;
    }
    if (step % 1000 == 0) policy->check_invariants();
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ExactRecencyContract, ::testing::Values("lru"), policy_name);

}  // namespace
}  // namespace stemma::test
