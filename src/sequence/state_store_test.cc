#include "sequence/state_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "support/states_fixture.h"

namespace stemma::sequence {
namespace {

// ---- Storing ------------------------------------------------------------------------------------

TEST_F(States, BytesAndLogitsComeBack) {
  auto draft = reserve(tokens(20), 100, 3);
  ASSERT_TRUE(draft);
  EXPECT_EQ(draft->state().size(), 100U);
  std::iota(draft->state().begin(), draft->state().end(), static_cast<uint8_t>(0));
  std::ranges::copy(std::vector<float>{1.5F, -2, 3}, draft->logits().begin());
  EXPECT_EQ(exact(tokens(20)), 0U);  // Not before it is committed.
  ASSERT_TRUE(draft->commit(90));
  EXPECT_FALSE(*draft);
  const StateLease got = lease(tokens(20));
  const auto read = got.read();
  ASSERT_TRUE(read);
  EXPECT_EQ(read->state.size(), 90U);
  EXPECT_EQ(read->state[89], 89);
  EXPECT_EQ(std::vector<float>(read->logits.begin(), read->logits.end()),
            (std::vector<float>{1.5F, -2, 3}));
  EXPECT_EQ(got.bytes(), 112U);
  EXPECT_EQ(store->stats().bytes, 112U);
}

TEST_F(States, DroppedDraftGivesEverythingBack) {
  ASSERT_TRUE(save(tokens(10), 10));
  {
    auto draft = reserve(tokens(50).with(image(1, 3, 4)), 500, 10);
    ASSERT_TRUE(draft);
    EXPECT_EQ(store->stats().bytes, 550U);
    EXPECT_EQ(store->stats().drafts, 1U);
    store->check_invariants();
  }
  lexicon.release(scratch);
  EXPECT_EQ(lexicon.items(), 0U);
  EXPECT_EQ(store->stats().bytes, 10U);
  EXPECT_EQ(store->stats().held_bytes, 0U);
  EXPECT_EQ(common(tokens(50)), 10U);
}

TEST_F(States, MisuseIsAnErrorAndChangesNothing) {
  EXPECT_EQ(reserve(test::Text{}, 10).error().code(), Errc::invalid_argument);
  EXPECT_EQ(reserve(tokens(5), 0).error().code(), Errc::invalid_argument);
  EXPECT_EQ(store->reserve(scope_of(""), text(tokens(5)), 6, 10).error().code(),
            Errc::out_of_range);
  auto draft = reserve(tokens(5), 10);
  ASSERT_TRUE(draft);
  EXPECT_EQ(draft->commit(11).error().code(), Errc::out_of_range);
  EXPECT_EQ(draft->commit(0).error().code(), Errc::invalid_argument);
  ASSERT_TRUE(draft->seal(4));
  EXPECT_EQ(draft->seal(4).error().code(), Errc::wrong_state);
  ASSERT_TRUE(draft->commit(4));
  EXPECT_EQ(draft->commit(4).error().code(), Errc::wrong_state);
  StateLease ended = lease(tokens(5));
  ended.release();
  ended.release();
  EXPECT_EQ(ended.read().error().code(), Errc::wrong_state);
  EXPECT_FALSE(store->remove(ended));
  store->used(ended);
  EXPECT_EQ(store->stats().entries, 1U);
  EXPECT_EQ(store->stats().refused_too_large, 0U);
  EXPECT_EQ(StateStore::create({.policy = "mru"}, lexicon).error().code(), Errc::invalid_argument);
  EXPECT_EQ(StateStore::create({.max_positions = ~0ULL}, lexicon).error().code(),
            Errc::invalid_argument);
}

TEST_F(States, SameKeyReplacesAndCountsOnce) {
  ASSERT_TRUE(save(tokens(20), 300, 1));
  ASSERT_TRUE(save(tokens(20), 200, 2));
  EXPECT_EQ(fill_of(lease(tokens(20))), 2);
  const StateStore::Stats stats = store->stats();
  EXPECT_EQ(stats.entries, 1U);
  EXPECT_EQ(stats.bytes, 200U);
  EXPECT_EQ(stats.stores, 2U);
  EXPECT_EQ(stats.replaced, 1U);
  EXPECT_EQ(stats.evictions, 0U);
  EXPECT_EQ(store->evict(5), 1U);
  EXPECT_EQ(store->stats().bytes, 0U);
}

TEST_F(States, ReplacingTakesItsOwnRoomBeforeOthers) {
  ASSERT_TRUE(save(tokens(20, 1), 500, 1));
  ASSERT_TRUE(save(tokens(20, 2), 500, 2));
  ASSERT_TRUE(save(tokens(20, 2), 500, 3));  // The other one is older, and stays.
  EXPECT_EQ(exact(tokens(20, 1)), 20U);
  EXPECT_EQ(fill_of(lease(tokens(20, 2))), 3);
  EXPECT_EQ(store->stats().evictions, 0U);
  EXPECT_EQ(store->stats().replaced, 1U);
}

TEST_F(States, ReplacedStateStaysUntilItsSuccessorIsWrittenIfThereIsRoom) {
  ASSERT_TRUE(save(tokens(20), 400, 1));
  {
    const auto draft = reserve(tokens(20), 400);
    ASSERT_TRUE(draft);
    EXPECT_EQ(fill_of(lease(tokens(20))), 1);
  }
  EXPECT_EQ(fill_of(lease(tokens(20))), 1);
}

TEST_F(States, ReplacingALeasedStateLeavesItsBytesToTheLease) {
  ASSERT_TRUE(save(tokens(20), 300, 1));
  StateLease old = lease(tokens(20));
  ASSERT_TRUE(save(tokens(20), 300, 2));
  EXPECT_EQ(fill_of(old), 1);
  EXPECT_EQ(fill_of(lease(tokens(20))), 2);
  EXPECT_EQ(store->stats().bytes, 600U);  // Both are there.
  EXPECT_EQ(store->stats().entries, 1U);
  store->check_invariants();
  EXPECT_EQ(store->evict(9), 1U);
  EXPECT_EQ(fill_of(old), 1);
  old.release();
  EXPECT_EQ(store->stats().bytes, 0U);
}

// ---- Room ---------------------------------------------------------------------------------------

TEST_F(States, LeastRecentlyUsedGoesFirst) {
  for (uint32_t i = 1; i <= 4; ++i) ASSERT_TRUE(save(tokens(20, i), 250));
  store->used(lease(tokens(20, 1)));
  ASSERT_TRUE(save(tokens(20, 5), 251));  // Two must go.
  EXPECT_EQ(exact(tokens(20, 1)), 20U);
  EXPECT_EQ(exact(tokens(20, 2)), 0U);
  EXPECT_EQ(exact(tokens(20, 3)), 0U);
  EXPECT_EQ(exact(tokens(20, 4)), 20U);
  EXPECT_EQ(store->stats().evictions, 2U);
  EXPECT_EQ(store->stats().bytes, 751U);
}

TEST_F(States, TheDefaultPolicyWhichLearnsFromBlocksGoesAsLruWhereThereAreNone) {
  make({.budget_bytes = 1000, .policy = "default"});
  for (uint32_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(save(tokens(20, i), 250));
    if (i > 1) store->used(lease(tokens(20, i - 1)));
    const uint32_t used_last = std::max(i, 2U) - 1;
    EXPECT_EQ(exact(tokens(20, used_last)), 20U);
    if (i > 4) {
      EXPECT_EQ(exact(tokens(20, i - 4)), 0U);
    }
  }
  store->check_invariants();
}

TEST_F(States, PrioritiesAreObeyed) {
  for (uint32_t i = 1; i <= 2; ++i) {
    auto draft = reserve(tokens(20, i), 500);
    ASSERT_TRUE(draft->commit(500, {.priority = i == 1 ? Priority{80} : Priority{10}}));
  }
  ASSERT_TRUE(save(tokens(20, 3), 500));
  EXPECT_EQ(exact(tokens(20, 1)), 20U);
  EXPECT_EQ(exact(tokens(20, 2)), 0U);
}

TEST_F(States, TimeToLiveBeginsAnewWithTheEndOfALease) {
  const Touch precious{
      .now_ns = clock.now_ns(), .priority = kMaxPriority, .deadline_ns = clock.now_ns() + 1000};
  auto draft = reserve(tokens(20, 1), 400);
  ASSERT_TRUE(draft);
  ASSERT_TRUE(draft->commit(400, precious));
  {
    const StateLease held = lease(tokens(20, 1));
    EXPECT_EQ(store->evict(1), 0U) << "it came up, and is leased";
    clock.advance_ns(900);
  }
  ASSERT_TRUE(save(tokens(20, 2), 400));
  clock.advance_ns(900);
  EXPECT_EQ(store->evict(1), 1U);
  EXPECT_EQ(exact(tokens(20, 1)), 20U);
  ASSERT_TRUE(save(tokens(20, 3), 400));
  clock.advance_ns(100);
  EXPECT_EQ(store->evict(1), 1U);
  EXPECT_EQ(exact(tokens(20, 1)), 0U) << "its time is over";
}

TEST_F(States, WhatOnlyAnEndedSessionUsedGoesFirst) {
  const auto by = [](uint64_t session) { return Touch{.session = SessionId{session}}; };
  make({.budget_bytes = 500});
  for (uint32_t i = 1; i <= 5; ++i) {
    auto draft = reserve(tokens(10, i), 100);
    ASSERT_TRUE(draft);
    ASSERT_TRUE(draft->commit(100, by(i == 1 ? 1 : 2)));
  }
  store->used(lease(tokens(10, 3)), by(3));
  store->used(lease(tokens(10, 3)), by(2));
  {
    const StateLease held = lease(tokens(10, 4));
    store->end_session(SessionId{2});
    store->end_session(SessionId{9});
    store->end_session(kNoSession);
    EXPECT_EQ(store->evict(2), 2U);
    EXPECT_EQ(exact(tokens(10, 2)) + exact(tokens(10, 5)), 0U);
  }
  EXPECT_EQ(store->evict(1), 1U);
  EXPECT_EQ(exact(tokens(10, 4)), 0U) << "as soon as nobody leased it";
  EXPECT_EQ(exact(tokens(10, 1)), 10U) << "another session";
  EXPECT_EQ(exact(tokens(10, 3)), 10U) << "another session used it too";
}

TEST_F(States, LeasedStatesNeverGo) {
  ASSERT_TRUE(save(tokens(20, 1), 400, 1));
  ASSERT_TRUE(save(tokens(20, 2), 400, 2));
  StateLease oldest = lease(tokens(20, 1));
  ASSERT_TRUE(save(tokens(20, 3), 400, 3));
  EXPECT_EQ(exact(tokens(20, 1)), 20U);
  EXPECT_EQ(exact(tokens(20, 2)), 0U);
  EXPECT_EQ(store->evict(10), 1U);
  EXPECT_EQ(fill_of(oldest), 1);
  // Once the lease has ended, it can go like any other.
  oldest.release();
  EXPECT_EQ(store->evict(10), 1U);
  EXPECT_EQ(store->stats().entries, 0U);
}

TEST_F(States, TooLargeIsRefusedAndCountedBeforeAnythingGoes) {
  ASSERT_TRUE(save(tokens(20, 1), 400));
  ASSERT_TRUE(save(tokens(20, 2), 400));
  EXPECT_EQ(save(tokens(20, 3), 1001).error().code(), Errc::out_of_range);
  EXPECT_EQ(reserve(tokens(20, 3), 990, 3).error().code(), Errc::out_of_range);
  EXPECT_EQ(reserve(tokens(20, 3), ~0ULL, 3).error().code(), Errc::out_of_range);
  const StateLease held = lease(tokens(20, 1));
  EXPECT_EQ(save(tokens(20, 3), 601).error().code(), Errc::out_of_blocks);
  EXPECT_EQ(store->stats().refused_too_large, 4U);
  EXPECT_EQ(store->stats().evictions, 0U);
  EXPECT_EQ(exact(tokens(20, 2)), 20U);
  ASSERT_TRUE(save(tokens(20, 3), 600));  // Just what the lease leaves.
  EXPECT_EQ(exact(tokens(20, 2)), 0U);
}

TEST_F(States, DraftsCountAgainstTheBudgetFromTheStart) {
  const auto first = reserve(tokens(20, 1), 600);
  ASSERT_TRUE(first);
  EXPECT_EQ(save(tokens(20, 2), 401).error().code(), Errc::out_of_blocks);
  EXPECT_TRUE(save(tokens(20, 2), 400));
}

TEST_F(States, NumberOfEntriesIsBounded) {
  make({.budget_bytes = 1000, .max_entries = 2});
  ASSERT_TRUE(save(tokens(20, 1), 1));
  ASSERT_TRUE(save(tokens(20, 2), 1));
  ASSERT_TRUE(save(tokens(20, 2), 1));
  EXPECT_EQ(store->stats().evictions, 0U);
  ASSERT_TRUE(save(tokens(20, 3), 1));
  EXPECT_EQ(exact(tokens(20, 1)), 0U);
  {
    const StateLease one = lease(tokens(20, 2));
    const StateLease two = lease(tokens(20, 3));
    EXPECT_EQ(save(tokens(20, 4), 1).error().code(), Errc::out_of_blocks);
  }
  make({.budget_bytes = 1000, .max_entries = 0});
  EXPECT_EQ(save(tokens(20, 4), 1).error().code(), Errc::out_of_blocks);
}

TEST_F(States, IndexIsBoundedAndMakesRoomToo) {
  make({.budget_bytes = 1000, .max_entries = 4, .max_positions = 160});  // 10 + 8 cells.
  ASSERT_TRUE(save(tokens(128, 1), 1));
  EXPECT_EQ(save(tokens(1000, 2), 1).error().code(), Errc::out_of_range);
  EXPECT_EQ(exact(tokens(128, 1)), 128U);
  {
    const StateLease held = lease(tokens(128, 1));
    EXPECT_EQ(save(tokens(160, 2), 1).error().code(), Errc::out_of_blocks);
    EXPECT_EQ(store->stats().refused_too_large, 2U);
    EXPECT_EQ(store->stats().evictions, 0U);
  }
  ASSERT_TRUE(save(tokens(160, 2), 1));
  EXPECT_EQ(exact(tokens(128, 1)), 0U);
  EXPECT_EQ(exact(tokens(160, 2)), 160U);
}

// ---- Letting go ---------------------------------------------------------------------------------

TEST_F(States, DamageIsNoticedAndTheStateCanBeRemoved) {
  auto draft = reserve(tokens(20), 100);
  ASSERT_TRUE(draft);
  const std::span<uint8_t> kept = draft->state();
  ASSERT_TRUE(draft->commit(100));
  ASSERT_TRUE(save(tokens(10), 50, 7));
  const StateLease bad = lease(tokens(20));
  const StateLease same = lease(tokens(20));
  kept[50] ^= 4;
  EXPECT_EQ(bad.read().error().code(), Errc::corrupt);
  EXPECT_TRUE(store->remove(bad));
  EXPECT_FALSE(store->remove(same));
  EXPECT_EQ(store->stats().removed, 1U);
  EXPECT_EQ(exact(tokens(20)), 10U);  // The next best.
  EXPECT_EQ(fill_of(lease(tokens(20))), 7);
  ASSERT_TRUE(save(tokens(20), 100, 9));
  EXPECT_EQ(fill_of(lease(tokens(20))), 9);
}

TEST_F(States, CandidateMayBeGoneByTheTimeItIsLeased) {
  ASSERT_TRUE(save(tokens(20), 100, 1));
  const StateCandidate found = find(tokens(20)).exact;
  ASSERT_TRUE(save(tokens(20), 100, 2));
  EXPECT_EQ(store->lease(found).error().code(), Errc::stale);
  const StateCandidate second = find(tokens(20)).exact;
  store->evict(1);
  ASSERT_TRUE(save(tokens(20), 100, 3));  // In the same slot.
  EXPECT_EQ(store->lease(second).error().code(), Errc::stale);
}

TEST_F(States, DroppedScopeIsForgottenAndItsDraftsAreRefused) {
  ASSERT_TRUE(save(tokens(20), 100, 1, scope_of("one")));
  ASSERT_TRUE(save(tokens(30), 100, 1, scope_of("one")));
  ASSERT_TRUE(save(tokens(20), 100, 2, scope_of("two")));
  auto held = store->lease(find(tokens(20), ~0U, scope_of("one")).exact);
  ASSERT_TRUE(held);
  auto draft = reserve(tokens(40), 100, 0, scope_of("one"));
  ASSERT_TRUE(draft);
  EXPECT_EQ(store->drop_scope(scope_of("one")), 2U);
  EXPECT_EQ(store->drop_scope(scope_of("one")), 0U);
  EXPECT_FALSE(find(tokens(40), ~0U, scope_of("one")).longest);
  EXPECT_TRUE(find(tokens(20), ~0U, scope_of("two")).exact);
  EXPECT_EQ(fill_of(*held), 1);
  EXPECT_EQ(draft->commit(100).error().code(), Errc::stale);
  store->check_invariants();
  draft->abandon();
  held->release();
  EXPECT_EQ(store->stats().bytes, 100U);
  ASSERT_TRUE(save(tokens(20), 100, 5, scope_of("one")));
}

TEST_F(States, ClearForgetsEverythingNotLeased) {
  for (uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(save(tokens(20, i), 100, static_cast<uint8_t>(i)));
  StateLease held = lease(tokens(20, 2));
  EXPECT_EQ(store->clear(), 3U);
  EXPECT_EQ(store->stats().entries, 0U);
  EXPECT_EQ(store->stats().bytes, 100U);
  EXPECT_EQ(fill_of(held), 2);
  held = StateLease();
  EXPECT_EQ(store->stats().bytes, 0U);
}

TEST_F(States, ListTellsWhatIsKept) {
  ASSERT_TRUE(save(tokens(37), 100, 1, scope_of("one")));
  auto draft = reserve(tokens(5), 100);
  const auto all = store->list();
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1U);
  EXPECT_EQ((*all)[0].scope, scope_of("one"));
  EXPECT_EQ((*all)[0].words, tokens(37).tokens);
  EXPECT_EQ((*all)[0].bytes, 100U);
  EXPECT_EQ(store->stats().positions, 37U);
  EXPECT_GT(store->stats().index_bytes, 37U * 4);
}

TEST_F(States, RightsMoveAndEndOnce) {
  ASSERT_TRUE(save(tokens(20, 1), 100, 1));
  ASSERT_TRUE(save(tokens(20, 2), 100, 2));
  StateLease one = lease(tokens(20, 1));
  StateLease two = lease(tokens(20, 2));
  one = std::move(two);
  EXPECT_EQ(fill_of(one), 2);
  EXPECT_EQ(store->stats().leased, 1U);
  auto first = reserve(tokens(20, 3), 100);
  auto second = reserve(tokens(20, 4), 100);
  StateDraft draft = std::move(*first);
  draft = std::move(*second);
  EXPECT_EQ(store->stats().drafts, 1U);
  ASSERT_TRUE(draft.commit(100));
  EXPECT_EQ(exact(tokens(20, 4)), 20U);
  EXPECT_EQ(exact(tokens(20, 3)), 0U);
}

}  // namespace
}  // namespace stemma::sequence
