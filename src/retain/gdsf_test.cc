#include "retain/gdsf.h"

#include <gtest/gtest.h>

#include <vector>

namespace stemma::retain {
namespace {

// Blocks of one path, in order, each behind the one before.
void insert(GdsfPolicy& policy, const std::vector<CellIndex>& path) {
  CellIndex parent = kNoCell;
  for (const CellIndex cell : path) {
    const uint32_t word = cell;
    policy.inserted(cell, parent, {&word, 1});
    parent = cell;
  }
}

CellIndex evict(GdsfPolicy& policy, CellIndex parent = kNoCell) {
  const CellIndex cell = policy.victim(1, false, kNoTenant).cell;
  policy.evicted(cell);
  if (parent == kNoCell) {
    policy.remove(cell);
  } else {
    policy.replace(cell, parent);
  }
  return cell;
}

TEST(Gdsf, WhatCostsMoreToComputeAgainStaysLonger) {
  GdsfPolicy policy(20);
  insert(policy, {1, 2, 3});
  policy.touch(3, {});
  insert(policy, {7});
  policy.touch(7, {});
  EXPECT_EQ(evict(policy), 7U) << "used later, but not deep";
  EXPECT_EQ(evict(policy, 2), 3U);
  EXPECT_EQ(evict(policy, 1), 2U);
}

TEST(Gdsf, UsesCountTimesDepth) {
  GdsfPolicy policy(20);
  insert(policy, {1, 2, 3});
  policy.touch(3, {});
  insert(policy, {7});
  for (int i = 0; i < 4; ++i) policy.touch(7, {});
  EXPECT_EQ(evict(policy, 2), 3U) << "three deep, once, against once deep, four times";
}

TEST(Gdsf, WhatIsNotUsedAgesAsOthersGo) {
  GdsfPolicy policy(50);
  insert(policy, {1, 2, 3, 4, 5, 6});
  policy.touch(6, {});  // Worth 6.
  for (CellIndex cell = 10; cell < 15; ++cell) {
    insert(policy, {cell});
    policy.touch(cell, {});  // Each worth one more than the last evicted.
    EXPECT_EQ(evict(policy), cell);
  }
  insert(policy, {20});
  policy.touch(20, {});
  insert(policy, {21});
  policy.touch(21, {});
  policy.touch(21, {});
  policy.remove(20);
  EXPECT_EQ(evict(policy, 5), 6U) << "7 by now is more than 6";
}

}  // namespace
}  // namespace stemma::retain
