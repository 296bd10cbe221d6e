// Leases that fill: they share what is cached of each group, the rest is written from elsewhere,
// and nothing can be found before it is written.
#include <gtest/gtest.h>

#include "support/cache_fixture.h"
#include "support/fake_engine.h"

namespace stemma::test {
namespace {

class Fill : public PagedFixture {
 protected:
  static LeaseOptions to(uint32_t fill_to) {
    LeaseOptions options;
    options.fill_to = fill_to;
    return options;
  }
  static std::vector<BlockId> drafts(const Lease& lease, GroupIndex group) {
    std::vector<BlockId> blocks(lease.block_count(group));
    ok(lease.draft_table(group, blocks, kNoBlock));
    return blocks;
  }
  // The blocks of the table as text: '.' none, 's' shared, 'd' drafted.
  static std::string table(const Lease& lease, GroupIndex group) {
    std::string text;
    const auto all = blocks_of(lease, group);
    const auto own = drafts(lease, group);
    for (size_t i = 0; i < all.size(); ++i)
      text += all[i] == kNoBlock ? '.' : own[i] == kNoBlock ? 's' : 'd';
    return text;
  }
};

}  // namespace

TEST_F(Fill, AWindowGroupGetsNoBlocksBehindItsWindow) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(8, 3, 4)}));
  const Text text = tokens(40, 1);
  // A whole prompt would not fit the window group's three blocks.
  EXPECT_EQ(code(cache.lease(scope, text)), Errc::out_of_blocks);
  Lease lease = take(cache, text, to(36));
  EXPECT_EQ(table(lease, 0), "ddddddddd");
  EXPECT_EQ(table(lease, 1), ".......dd");
  EXPECT_EQ(hit(cache, text), 0U);
  EXPECT_EQ(ok(lease.commit(36)).published, 9U);
  EXPECT_EQ(hit(cache, text), 36U);
  EXPECT_EQ(hit(cache, text.first(36)), 0U) << "35 needs a block that is not there";
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 36U);
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.total.lookups, 1U) << "the one that was refused";
  EXPECT_EQ(stats.total.computed_tokens, 0U);
}

TEST_F(Fill, SinksAreFilledToo) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(6, 8, 4, 5)}));
  Lease lease = take(cache, tokens(30, 1), to(28));
  EXPECT_EQ(table(lease, 1), "dd...dd");
  ok(lease.commit(28));
  EXPECT_EQ(hit(cache, tokens(30, 1)), 28U);
  // And it continues like any lease.
  ok(lease.reserve(30));
  ok(lease.commit(30));
}

TEST_F(Fill, WhatIsCachedOfAGroupIsSharedThoughAnotherGroupHasAHole) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(8, 6, 4)}));
  const Text text = tokens(17, 1);
  fill(cache, text);
  // Windows of other prompts take the blocks, one by one, oldest first.
  fill(cache, tokens(17, 2));
  ASSERT_LT(hit(cache, text), 16U);
  Lease lease = take(cache, text, to(16));
  EXPECT_EQ(table(lease, 0), "ssss");
  EXPECT_NE(table(lease, 1).find('d'), std::string::npos);
  const uint32_t cached = cached_blocks(cache, 0);
  EXPECT_EQ(ok(lease.commit(16)).duplicates, 0U);
  EXPECT_EQ(cached_blocks(cache, 0), cached);
  EXPECT_EQ(draft_blocks(cache, 1), 0U) << "the holes are filled";
  EXPECT_EQ(hit(cache, text), 16U);
}

TEST_F(Fill, ACheckpointAloneIsWhatIsMissing) {
  PagedCache& cache = cache_with(grouped({full(32, 4), recurrent(2)}));
  const Text text = tokens(17, 1);
  fill(cache, text);
  EXPECT_EQ(hit(cache, text), 0U);
  Lease lease = take(cache, text, to(16));
  EXPECT_EQ(table(lease, 0), "ssss");
  EXPECT_EQ(lease.committed(), 0U);
  ok(lease.commit(16));
  save_checkpoint(lease, 1);
  EXPECT_EQ(hit(cache, text), 16U);
}

TEST_F(Fill, LargerBlocksThatEndBeyondWhatIsCachedAreWritten) {
  PagedCache& cache = cache_with(grouped({full(32, 4), full(16, 8), window(8, 8, 8)}));
  const Text text = tokens(26, 1);
  fill(cache, text.first(13));
  Lease lease = take(cache, text, to(24));
  EXPECT_EQ(table(lease, 0), "sssddd");
  EXPECT_EQ(table(lease, 1), "sdd");
  EXPECT_EQ(table(lease, 2), "..d");
  ok(lease.commit(24));
  EXPECT_EQ(hit(cache, text), 24U);
}

TEST_F(Fill, WhatWasNotCommittedIsNotFound) {
  for (const bool abandon : {false, true}) {
    PagedCache& cache = cache_with(grouped({full(32, 4), full(16, 8), window(8, 8, 4)}));
    const Text text = tokens(26, 1);
    Lease first = take(cache, text.first(13));
    ok(first.commit(12));
    ok(first.abandon());  // Leaves no part of the larger block that contains depth 12.
    EXPECT_EQ(hit(cache, text), 8U);
    Lease lease = take(cache, text, to(24));
    EXPECT_EQ(table(lease, 1), "sdd");
    ok(abandon ? lease.abandon() : lease.release());
    EXPECT_EQ(hit(cache, text), 8U) << "nobody wrote what follows";
    EXPECT_EQ(draft_blocks(cache, 2), 0U);
  }
}

TEST_F(Fill, IsCommittedInWholeBlocksAndMovesNowhereBefore) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(8, 8, 4)}));
  const Text text = tokens(26, 1);
  fill(cache, text.first(9));
  Lease lease = take(cache, text, to(24));
  EXPECT_EQ(lease.committed(), 8U);
  EXPECT_EQ(code(lease.commit(21)), Errc::out_of_range);
  EXPECT_EQ(code(lease.fork()), Errc::wrong_state);
  EXPECT_EQ(code(lease.rewind(8)), Errc::wrong_state);
  EXPECT_EQ(code(lease.shrink_to(4)), Errc::wrong_state);
  ok(lease.commit(24));
  Lease fork = ok(lease.fork());
  EXPECT_EQ(fork.committed(), 24U);
}

TEST_F(Fill, WhatArrivedIsKeptWhereTheRestDidNot) {
  PagedCache& cache = cache_with(grouped({full(32, 4)}));
  const Text text = tokens(40, 1);
  Lease lease = take(cache, text, to(36));
  EXPECT_EQ(ok(lease.commit(20)).published, 5U);
  EXPECT_EQ(hit(cache, text), 20U);
  EXPECT_EQ(code(lease.rewind(8)), Errc::wrong_state) << "it still fills";
  EXPECT_EQ(code(lease.commit(16)), Errc::out_of_range);
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 20U);
  EXPECT_EQ(free_blocks(cache), 27U);
  EXPECT_EQ(cache.stats().total.computed_tokens, 0U);
  // And the rest, if it comes after all.
  Lease again = take(cache, text, to(36));
  EXPECT_EQ(table(again, 0), "sssssdddd");
  ok(again.commit(28));
  ok(again.commit(36));
  ok(again.release());
  EXPECT_EQ(hit(cache, text), 36U);
}

TEST_F(Fill, WhatArrivedOfWindowsFillsItsHolesAndNoOthers) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(12, 16, 4)}));
  const Text text = tokens(32, 1);
  fill(cache, text);
  // Holes behind: everything in the window group is gone, except the tree's cells.
  take(cache, tokens(64, 7));
  ASSERT_EQ(cached_blocks(cache, 1), 0U);
  Lease lease = take(cache, text, to(28));
  ASSERT_EQ(table(lease, 1), "....ddd");
  ok(lease.commit(20));
  EXPECT_EQ(cached_blocks(cache, 1), 1U) << "the one that ends at 20";
  ok(lease.commit(28));
  EXPECT_EQ(cached_blocks(cache, 1), 3U);
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 28U);
}

TEST_F(Fill, OddDepthsAreRefused) {
  PagedCache& cache = cache_with(grouped({full(32, 4), full(16, 8)}));
  const Text text = tokens(26, 1);
  for (const uint32_t depth : {4U, 20U, 26U, 32U})
    EXPECT_EQ(code(cache.lease(scope, text, to(depth))), Errc::invalid_argument) << depth;
  MediaItem item{.offset = 6, .length = 5};
  EXPECT_EQ(code(cache.lease(scope, tokens(26, 1).with(item), to(8))), Errc::invalid_argument);
  EXPECT_EQ(code(cache.lease(scope, tokens(26, 1).with(item), to(16))), kOk);
}

TEST_F(Fill, TwoThatFillTheSameKeepOneCopy) {
  PagedCache& cache = cache_with(grouped({full(32, 4), window(8, 8, 4)}));
  const Text text = tokens(26, 1);
  Lease one = take(cache, text, to(24)), two = take(cache, text, to(24));
  ok(one.commit(24));
  EXPECT_EQ(ok(two.commit(24)).duplicates, 6U);
  EXPECT_EQ(two.adopt_canonical(), 6U);
  EXPECT_EQ(blocks_of(one, 1), blocks_of(two, 1));
  EXPECT_EQ(draft_blocks(cache, 1), 0U);
}

TEST_F(Fill, AHeldCheckpointNeitherGoesNorChanges) {
  PagedCache& cache = cache_with(grouped({full(32, 4), recurrent(2)}));
  const Text text = tokens(17, 1);
  Lease lease = take(cache, text);
  ok(lease.commit(8));
  const BlockId at8 = save_checkpoint(lease, 1);
  ok(lease.commit(13));
  const BlockId at13 = save_checkpoint(lease, 1);
  EXPECT_EQ(ok(lease.hold_checkpoint(1, 17)).depth, 13U);
  EXPECT_EQ(ok(lease.hold_checkpoint(1, 17)).slot, at13);
  EXPECT_EQ(ok(lease.hold_checkpoint(1, 12)).depth, 8U);
  EXPECT_EQ(ok(lease.hold_checkpoint(1, 8)).slot, at8);
  EXPECT_EQ(code(lease.hold_checkpoint(0, 8)), Errc::unsupported);
  // Other requests want both slots: one may be evicted, the held one may not.
  Lease other = take(cache, tokens(9, 2));
  ok(other.commit(8));
  EXPECT_EQ(save_checkpoint(other, 1), at13);
  Lease third = take(cache, tokens(9, 3));
  ok(third.commit(8));
  EXPECT_EQ(save_checkpoint(third, 1), at13);
  EXPECT_EQ(ok(lease.hold_checkpoint(1, 7)), Checkpoint{}) << "and that lets go";
  ok(third.commit(9));
  EXPECT_EQ(save_checkpoint(third, 1), at13);
  ok(other.commit(9));
  EXPECT_EQ(save_checkpoint(other, 1), at8);
}

}  // namespace stemma::test
