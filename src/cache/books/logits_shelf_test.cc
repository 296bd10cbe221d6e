#include "cache/books/logits_shelf.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace stemma::cache {
namespace {

constexpr size_t kFloats = 100;

// A shelf with room for exactly `entries` of kFloats each.
LogitsShelf shelf_for(size_t entries) {
  uint64_t one = kFloats * sizeof(float);
  while (!LogitsShelf(one).fits(kFloats)) ++one;
  return LogitsShelf(entries * one);
}

std::vector<CellIndex> put(LogitsShelf& shelf, CellIndex cell, float value) {
  std::vector<CellIndex> gone;
  shelf.put(cell, std::vector<float>(kFloats, value), [&](CellIndex c) { gone.push_back(c); });
  shelf.check_invariants();
  return gone;
}

TEST(LogitsShelf, TheLeastRecentlyUsedGoFirst) {
  LogitsShelf shelf = shelf_for(2);
  EXPECT_TRUE(put(shelf, 1, 1).empty());
  EXPECT_TRUE(put(shelf, 2, 2).empty());
  ASSERT_NE(shelf.use(1), nullptr);
  EXPECT_EQ(put(shelf, 3, 3), std::vector<CellIndex>{2});
  EXPECT_TRUE(shelf.has(1));
  EXPECT_FALSE(shelf.has(2));
}

TEST(LogitsShelf, LookingWithoutUseChangesNoOrder) {
  LogitsShelf shelf = shelf_for(2);
  put(shelf, 1, 1);
  put(shelf, 2, 2);
  ASSERT_NE(shelf.peek(1), nullptr);
  EXPECT_EQ(put(shelf, 3, 3), std::vector<CellIndex>{1});
}

TEST(LogitsShelf, NewLogitsTakeThePlaceOfOlderOnes) {
  LogitsShelf shelf = shelf_for(1);
  put(shelf, 1, 1);
  const Logits old = shelf.peek(1);
  EXPECT_TRUE(put(shelf, 1, 5).empty());
  EXPECT_EQ(shelf.peek(1)->front(), 5);
  EXPECT_EQ(old->front(), 1);  // Who holds them may read them further.
}

TEST(LogitsShelf, WhatIsDroppedGivesItsBytesBack) {
  LogitsShelf shelf = shelf_for(3);
  put(shelf, 1, 1);
  put(shelf, 2, 2);
  const uint64_t two = shelf.bytes();
  shelf.drop(1);
  shelf.drop(1);
  shelf.drop(7);
  EXPECT_EQ(shelf.bytes(), two / 2);
  EXPECT_EQ(shelf.use(1), nullptr);
  shelf.check_invariants();
}

TEST(LogitsShelf, TheOldestOfAKindIsFound) {
  LogitsShelf shelf = shelf_for(4);
  for (CellIndex cell : {4, 3, 2, 1}) put(shelf, cell, 0);
  EXPECT_EQ(shelf.oldest([](CellIndex cell) { return cell % 2 == 1; }), 3u);
  EXPECT_EQ(shelf.oldest([](CellIndex cell) { return cell > 9; }), kNoCell);
}

TEST(LogitsShelf, WhatIsLargerThanTheBudgetDoesNotFit) {
  const LogitsShelf shelf = shelf_for(1);
  EXPECT_TRUE(shelf.fits(kFloats));
  EXPECT_FALSE(shelf.fits(kFloats + 1));
  EXPECT_FALSE(shelf.fits(~size_t{0}));
  EXPECT_FALSE(LogitsShelf(0).fits(0));
}

}  // namespace
}  // namespace stemma::cache
