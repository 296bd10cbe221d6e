// Lookups, tested through the store that owns the index.
#include "sequence/state_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "support/states_fixture.h"

namespace stemma::sequence {
namespace {

TEST_F(States, EmptyStoreFindsNothing) {
  const StateMatch match = find(tokens(100));
  EXPECT_FALSE(match.exact);
  EXPECT_FALSE(match.longest);
  EXPECT_EQ(store->lease(match.exact).error().code(), Errc::stale);
}

TEST_F(States, DeepestStateWithinThePromptIsExact) {
  for (uint32_t depth : {3U, 5U, 9U, 16U, 20U, 32U, 50U, 53U})
    ASSERT_TRUE(save(tokens(depth), depth));
  for (uint32_t length = 0; length <= 60; ++length) {
    uint32_t expected = 0;
    for (uint32_t depth : {3U, 5U, 9U, 16U, 20U, 32U, 50U, 53U})
      expected = depth <= length ? depth : expected;
    EXPECT_EQ(exact(tokens(length)), expected) << length;
    EXPECT_EQ(exact(tokens(60), length), expected) << length;
  }
}

TEST_F(States, EveryDepthInsideACellIsItsOwn) {
  make({.budget_bytes = 10'000});
  for (uint32_t depth = 1; depth <= 70; ++depth) {
    ASSERT_TRUE(save(tokens(depth), 1, static_cast<uint8_t>(depth)));
  }
  for (uint32_t depth = 1; depth <= 70; ++depth) {
    EXPECT_EQ(exact(tokens(depth)), depth);
    EXPECT_EQ(fill_of(lease(tokens(depth))), static_cast<int>(depth));
  }
  store->check_invariants();
}

TEST_F(States, LongestSharesMostAndMayGoOn) {
  ASSERT_TRUE(save(tokens(40) + tokens(30, 2), 1));
  ASSERT_TRUE(save(tokens(10), 2));
  StateMatch match = find(tokens(40) + tokens(5, 3));
  EXPECT_EQ(match.exact.depth, 10U);
  EXPECT_EQ(match.longest.common, 40U);
  EXPECT_EQ(match.longest.depth, 70U);
  // `at_most` limits the common part.
  match = find(tokens(40) + tokens(30, 2), 33);
  EXPECT_EQ(match.longest.common, 33U);
  EXPECT_EQ(match.longest.depth, 70U);
  EXPECT_EQ(match.exact.depth, 10U);
  // Part from it at every place.
  for (uint32_t part = 1; part < 70; ++part) {
    const test::Text whole = tokens(40) + tokens(30, 2);
    match = find(whole.first(part) + tokens(9, 7));
    EXPECT_EQ(match.longest.common, part);
    EXPECT_EQ(match.exact.depth, part >= 10 ? 10U : 0U);
  }
  EXPECT_EQ(find(tokens(9, 7)).longest.common, 0U);
  EXPECT_FALSE(find(tokens(9, 7)).longest);
}

TEST_F(States, LongestIsTheExactOneWhereNoneHasMore) {
  ASSERT_TRUE(save(tokens(35), 1));
  ASSERT_TRUE(save(tokens(40) + tokens(3, 2), 1));
  ASSERT_TRUE(save(tokens(32), 1));
  for (uint32_t length : {32U, 35U}) {
    const StateMatch match = find(tokens(length) + tokens(4, 9));
    EXPECT_EQ(match.exact.entry, match.longest.entry);
    EXPECT_EQ(match.longest.depth, length);
  }
}

TEST_F(States, NothingIsFoundAcrossScopes) {
  ASSERT_TRUE(save(tokens(40), 1, 1, scope_of("one")));
  EXPECT_FALSE(find(tokens(40), ~0U, scope_of("two")).longest);
  EXPECT_TRUE(find(tokens(40), ~0U, scope_of("one")).exact);
}

TEST_F(States, MediaAreComparedByContentAndNeverParted) {
  const test::Text seen = tokens(40).with(image(1, 10, 12));
  ASSERT_TRUE(save(seen, 5));
  EXPECT_EQ(exact(seen + tokens(5, 3)), 40U);
  const test::Text other = tokens(40).with(image(2, 10, 12));
  EXPECT_EQ(common(other), 10U);
  EXPECT_EQ(common(tokens(40)), 10U);
  EXPECT_EQ(common(seen, 15), 10U);  // Not inside the item.
  EXPECT_EQ(common(seen, 22), 22U);
  EXPECT_EQ(reserve(seen, 5).has_value(), true);
  EXPECT_EQ(store->reserve(scope_of(""), text(seen), 15, 5).error().code(), Errc::invalid_argument);
  // The number means this item as long as the state is kept, whatever else comes and goes.
  for (uint8_t i = 10; i < 20; ++i) text(tokens(20).with(image(i, 0, 3)));
  EXPECT_EQ(exact(seen), 40U);
  EXPECT_EQ(store->clear(), 1U);
}

TEST_F(States, LookupChangesNothing) {
  make({.budget_bytes = 20});
  ASSERT_TRUE(save(tokens(10, 1), 10));
  ASSERT_TRUE(save(tokens(10, 2), 10));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(exact(tokens(10, 1)), 10U);
  ASSERT_TRUE(save(tokens(10, 3), 10));
  EXPECT_EQ(exact(tokens(10, 1)), 0U);  // Still the oldest: it was looked at and not used.
  EXPECT_EQ(exact(tokens(10, 2)), 10U);
}

TEST_F(States, LookupDoesNotGrowWithTheNumberOfEntries) {
  const auto best_ns = [&](uint32_t entries) {
    make({.budget_bytes = 1U << 20U, .max_entries = 60'000, .max_positions = 10'000'000});
    const test::Text query = tokens(512, 1);
    EXPECT_TRUE(save(query, 1));
    for (uint32_t i = 0; i < entries; ++i) {
      test::Text other = tokens(40, 2);
      other.tokens[0] = i * 2;
      EXPECT_TRUE(save(other, 1));
    }
    text(query);
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 2000; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(store->find(scope_of(""), scratch, 512).exact.depth, 512U);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  };
  const auto few = best_ns(10);
  const auto many = best_ns(50'000);
  EXPECT_LT(many, 10 * few) << "five thousand times the entries";
}

}  // namespace
}  // namespace stemma::sequence
