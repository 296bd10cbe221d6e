#include "base/index_lists.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <list>
#include <random>
#include <vector>

namespace stemma::base {
namespace {

std::vector<uint32_t> items_of(const IndexLists& lists, uint32_t list) {
  std::vector<uint32_t> items;
  for (uint32_t i = lists.front(list); i != IndexLists::kNone; i = lists.after(i))
    items.push_back(i);
  return items;
}

IndexLists make(uint32_t items, uint32_t lists) {
  IndexLists made;
  EXPECT_TRUE(made.create(items, lists));
  return made;
}

void push(IndexLists& lists, uint32_t list, uint32_t item) {
  ASSERT_TRUE(lists.ensure(item));
  lists.push_back(list, item);
}

using Items = std::vector<uint32_t>;

TEST(IndexLists, NewListsAreEmpty) {
  const IndexLists lists = make(10, 3);
  for (uint32_t list = 0; list < 3; ++list) {
    EXPECT_TRUE(lists.empty(list));
    EXPECT_EQ(lists.front(list), IndexLists::kNone);
  }
  for (uint32_t item = 0; item < 10; ++item) EXPECT_FALSE(lists.linked(item));
  EXPECT_EQ(lists.check_invariants(), 0U);
}

TEST(IndexLists, ListsAreOpenedLaterAndCostNothingBefore) {
  IndexLists lists;
  ASSERT_TRUE(lists.create(10, 5'000, 1));
  ASSERT_TRUE(lists.ensure(9));
  const uint64_t bytes = lists.bytes();
  push(lists, 0, 3);
  lists.open(5'000);
  EXPECT_EQ(lists.opened(), 5'000U);
  EXPECT_EQ(lists.bytes() - bytes, 4'999U * 8);
  push(lists, 4'999, 4);
  EXPECT_EQ(items_of(lists, 0), (std::vector<uint32_t>{3}));
  EXPECT_EQ(items_of(lists, 4'999), (std::vector<uint32_t>{4}));
  EXPECT_EQ(lists.check_invariants(), 2U);
}

TEST(IndexLists, ItemsStandInTheOrderTheyCame) {
  IndexLists lists = make(10, 2);
  for (uint32_t item : {3U, 0U, 9U}) push(lists, 0, item);
  push(lists, 1, 5);
  EXPECT_EQ(items_of(lists, 0), (Items{3, 0, 9}));
  EXPECT_EQ(items_of(lists, 1), (Items{5}));
  ASSERT_TRUE(lists.ensure(7));
  lists.insert_before(0, 7);
  ASSERT_TRUE(lists.ensure(1));
  lists.insert_before(3, 1);
  EXPECT_EQ(items_of(lists, 0), (Items{1, 3, 7, 0, 9}));
  EXPECT_EQ(lists.check_invariants(), 6U);
}

TEST(IndexLists, UnlinkedItemsMayJoinAnyListAgain) {
  IndexLists lists = make(4, 2);
  for (uint32_t item = 0; item < 4; ++item) push(lists, 0, item);
  lists.unlink(0);
  lists.unlink(2);
  EXPECT_FALSE(lists.linked(0));
  lists.push_back(1, 0);
  lists.push_back(0, 2);
  EXPECT_EQ(items_of(lists, 0), (Items{1, 3, 2}));
  EXPECT_EQ(items_of(lists, 1), (Items{0}));
  lists.unlink(0);
  EXPECT_TRUE(lists.empty(1));
}

TEST(IndexLists, ItemsCostNothingBeforeTheirFirstUse) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  IndexLists lists = make(100'000'000, 4);
  EXPECT_LE(lists.bytes(), 2 * page);
  EXPECT_EQ(lists.ensured(), 0U);
  EXPECT_FALSE(lists.linked(99'999'999));
  push(lists, 3, 10);
  EXPECT_LE(lists.bytes(), 3 * page);
  EXPECT_GT(lists.ensured(), 10U);
}

TEST(IndexLists, AgreeWithPlainLists) {
  constexpr uint32_t kItems = 300;
  constexpr uint32_t kLists = 7;
  IndexLists lists = make(kItems, kLists);
  std::vector<std::list<uint32_t>> plain(kLists);
  std::vector<int> in(kItems, -1);
  std::mt19937 random(11);
  for (int step = 0; step < 50'000; ++step) {
    const uint32_t item = random() % kItems;
    const uint32_t list = random() % kLists;
    ASSERT_TRUE(lists.ensure(item));
    ASSERT_EQ(lists.linked(item), in[item] >= 0);
    if (in[item] >= 0) {
      lists.unlink(item);
      plain[static_cast<size_t>(in[item])].remove(item);
      in[item] = -1;
    } else if (random() % 2 == 0 || plain[list].empty()) {
      lists.push_back(list, item);
      plain[list].push_back(item);
      in[item] = static_cast<int>(list);
    } else {
      auto at = plain[list].begin();
      std::advance(at, random() % plain[list].size());
      lists.insert_before(*at, item);
      plain[list].insert(at, item);
      in[item] = static_cast<int>(list);
    }
    if (step % 500 != 0) continue;
    uint64_t total = 0;
    for (uint32_t l = 0; l < kLists; ++l) {
      ASSERT_EQ(items_of(lists, l), Items(plain[l].begin(), plain[l].end()));
      ASSERT_EQ(lists.empty(l), plain[l].empty());
      total += plain[l].size();
    }
    ASSERT_EQ(lists.check_invariants(), total);
  }
}

TEST(IndexListsDeathTest, LinkingAnItemTwiceIsFound) {
  IndexLists lists = make(10, 2);
  push(lists, 0, 1);
  push(lists, 0, 2);
  push(lists, 1, 1);
  EXPECT_DEATH(lists.check_invariants(), "index_lists");
}

}  // namespace
}  // namespace stemma::base
