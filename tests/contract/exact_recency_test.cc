// The contract of a RetentionPolicy that promises "least recently used first, exactly, within a
// class".
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

TEST_P(ExactRecencyContract, ParentHasTheBetterClassOfItsOwnUseAndItsChilds) {
  using enum SessionPhase;
  make(8);
  const auto order = [&](bool parent_first, const Touch& parents, const Touch& childs) {
    if (parent_first) touch(6, parents);
    touch(1, childs);
    if (!parent_first) touch(6, parents);
    touch(2, priority(50));
    touch(3, phase(unknown));
    policy->replace(1, 6);
    return drain();
  };
  for (const bool parent_first : {true, false}) {
    EXPECT_EQ(order(parent_first, priority(90), priority(10)), (Order{3, 2, 6}));
    EXPECT_EQ(order(parent_first, priority(10), priority(90)), (Order{3, 2, 6}));
    EXPECT_EQ(order(parent_first, priority(10), priority(40)), (Order{3, 6, 2}));
    EXPECT_EQ(order(parent_first, priority(20), priority(10)), (Order{6, 3, 2}));
    EXPECT_EQ(order(parent_first, phase(ended), phase(active)), (Order{3, 6, 2}));
    EXPECT_EQ(order(parent_first, phase(active), phase(ended)), (Order{3, 6, 2}));
  }
}

TEST_P(ExactRecencyContract, ClassesOfParentAndChildAreComparedAsTheyAreNow) {
  make(8);
  for (const bool parent_first : {true, false}) {
    touch(parent_first ? 6 : 1, priority(90, now_ns + 10));
    touch(parent_first ? 1 : 6, priority(50));
    touch(2, priority(40));
    touch(3, priority(60));
    now_ns += 10;  // The 90 are over: what counts is the 50.
    (void)next();
    policy->replace(1, 6);
    EXPECT_EQ(drain(), (Order{2, 6, 3}));
  }
}

TEST_P(ExactRecencyContract, OfTwoUsesOfOneCellTheLaterGivesItsClass) {
  make(8);
  touch(6, priority(90));
  touch(2, priority(50));
  touch(6, priority(10));
  EXPECT_EQ(drain(), (Order{6, 2}));

  touch(1, priority(90));
  touch(2, priority(50));
  policy->replace(1, 6);
  touch(6, priority(10));  // A mark that came from below counts as its own.
  EXPECT_EQ(drain(), (Order{6, 2}));
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
  const auto worth = [&](const Held& h) {
    return std::pair(h.deadline_ns <= now_ns ? h.expired_rank : h.rank, h.used);
  };
  const auto expected = [&](std::optional<TenantId> tenant) {
    CellIndex least = kNoCell;
    for (const auto& [cell, h] : held) {
      if (tenant && h.tenant != *tenant) continue;
      if (least == kNoCell || worth(h) < worth(held[least])) least = cell;
    }
    return least;
  };
  uint64_t kept = 0;
  uint64_t taken_later = 0;
  uint64_t taken_earlier = 0;
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
      // Few times to live, so that many cells share one.
      if (random() % 3 == 0) how.deadline_ns = now_ns + 50 + random() % 3 * 100;
      touch(cell, how);
      held[cell] = {how.priority * 3 + static_cast<int>(how.phase),
                    how.expired_priority * 3 + static_cast<int>(how.expired_phase), how.deadline_ns,
                    ++instant, how.tenant};
    } else if (dice < 7) {
      const CellIndex parent = (cell + 3) % 39;  // Of the same tenant.
      if (!held.contains(cell)) continue;
      ASSERT_EQ(next(), expected(std::nullopt)) << "step " << step;
      policy->replace(cell, parent);
      const Held child = held[cell];
      held.erase(cell);
      if (!held.contains(parent)) {
        held[parent] = child;
      } else if (worth(held[parent]) < worth(child)) {
        ++(child.used > held[parent].used ? taken_later : taken_earlier);
        held[parent] = child;
      } else {
        ++kept;
      }
    } else if (dice < 8) {
      if (held.erase(cell) == 1) policy->remove(cell);
    } else {
      ASSERT_EQ(next(), expected(std::nullopt)) << "step " << step;
      const TenantId tenant{static_cast<uint32_t>(random() % 3)};
      ASSERT_EQ(next_of(tenant), expected(tenant)) << "step " << step;
    }
    if (step % 1000 == 0) policy->check_invariants();
  }
  EXPECT_GT(kept, 100U);
  EXPECT_GT(taken_later, 100U);
  EXPECT_GT(taken_earlier, 100U);
}

INSTANTIATE_TEST_SUITE_P(Policies, ExactRecencyContract, ::testing::Values("lru"), policy_name);

}  // namespace
}  // namespace stemma::test
