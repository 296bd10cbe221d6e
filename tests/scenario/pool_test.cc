// The pool of blocks: which blocks are lent, in what order, and that none is ever lost.
#include <deque>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Pool : public PagedFixture {
 protected:
  static BlockId only_block(const Lease& lease) { return blocks_of(lease).at(0); }
};

TEST_F(Pool, FirstBlocksAreCountedFromZeroAndCleanOnesComeBackLastInFirstOut) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  std::vector<Lease> leases;
  for (uint32_t i = 0; i < 4; ++i) {
    leases.push_back(take(cache, tokens(16, i)));
    EXPECT_EQ(only_block(leases[i]), BlockId{i});
  }
  EXPECT_EQ(code(cache.lease(scope, tokens(16, 9))), Errc::out_of_blocks);
  ok(leases[1].release());
  ok(leases[3].release());
  leases[1] = take(cache, tokens(16, 5));
  leases[3] = take(cache, tokens(16, 6));
  EXPECT_EQ(only_block(leases[1]), BlockId{3});
  EXPECT_EQ(only_block(leases[3]), BlockId{1});
}

TEST_F(Pool, EveryBlockOfThePoolCanBeLent) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease lease = take(cache, tokens(64));
  EXPECT_EQ(blocks_of(lease), (std::vector{BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}}));
  EXPECT_EQ(free_blocks(cache), 0U);
}

TEST_F(Pool, LeaseThatDoesNotFitTakesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(32));
  Lease holder = hold(cache, tokens(32) + tokens(1, 2));
  fill(cache, tokens(16, 3));
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.lease(scope, tokens(48, 4))), Errc::out_of_blocks);
  EXPECT_EQ(books(cache), before) << "nothing may be evicted for a request that fails anyway";
  EXPECT_EQ(kept(cache, tokens(16, 3)), 16U);
  EXPECT_EQ(take(cache, tokens(32, 4)).block_count(0), 2U);
}

TEST_F(Pool, PeakStaysAfterBlocksAreFreed) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  take(cache, tokens(80));
  take(cache, tokens(32));
  const GroupStats group = cache.stats().groups[0];
  EXPECT_EQ(group.free_blocks, 8U);
  EXPECT_EQ(group.peak_used_blocks, 5U);
  EXPECT_EQ(group.capacity_blocks, 8U);
}

TEST_F(Pool, SharedBlocksStayUntilTheirLastUserIsGone) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  const Text text = tokens(16);
  fill(cache, text);
  std::deque<Lease> users;
  for (uint32_t i = 0; i < 3; ++i) users.push_back(hold(cache, text + tokens(1, 2 + i)));
  while (!users.empty()) {
    EXPECT_EQ(cache.evict(4), 0U) << users.size() << " users left";
    EXPECT_EQ(code(cache.lease(scope, tokens(64, 9))), Errc::out_of_blocks);
    EXPECT_EQ(kept(cache, text), 16U);
    ok(users.front().release());
    users.pop_front();
  }
  EXPECT_EQ(take(cache, tokens(64, 9)).block_count(0), 4U);
}

TEST_F(Pool, RunningRequestsShareTheirWrittenBlocks) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease writer = take(cache, tokens(16));
  compute(writer);
  Lease reader = take(cache, tokens(16) + tokens(1, 2));
  EXPECT_EQ(reader.reused(), 16U);
  EXPECT_EQ(blocks_of(reader)[0], blocks_of(writer)[0]);
  ok(writer.release());
  EXPECT_EQ(cache.evict(4), 0U);
}

TEST_F(Pool, FreedBlockIsTakenBackIntoUseWhereItLies) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease writer = take(cache, tokens(16));
  compute(writer);
  const BlockId block = only_block(writer);
  ok(writer.release());
  EXPECT_EQ(take(cache, tokens(64, 2).first(48)).block_count(0), 3U) << "it is not needed yet";

  Lease again = hold(cache, tokens(16) + tokens(1, 2));
  EXPECT_EQ(blocks_of(again).at(0), block);
  EXPECT_EQ(code(cache.lease(scope, tokens(64, 3))), Errc::out_of_blocks) << "it is in use now";
}

TEST_F(Pool, MissHasNoEffect) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(32));
  const std::string before = books(cache);
  const Report report = look(cache, tokens(32, 2));
  EXPECT_EQ(report.reused_tokens, 0U);
  EXPECT_EQ(report.outcome, Outcome::miss);
  EXPECT_EQ(report.reason, MissReason::first_use);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(32)), 32U);
}

TEST_F(Pool, CleanBlockIsPreferredToACachedOne) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 3});
  Lease a = take(cache, tokens(16));
  Lease b = take(cache, tokens(16, 2));
  compute(a);
  ok(b.release());
  ok(a.release());  // Freed last, but it has contents.
  {
    Lease two = take(cache, tokens(32, 3));
    EXPECT_EQ(kept(cache, tokens(16)), 16U);
  }
  Lease three = take(cache, tokens(48, 3));
  EXPECT_EQ(kept(cache, tokens(16)), 0U);
}

TEST_F(Pool, RewrittenBlockIsFoundUnderItsNewContentsOnly) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 1});
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    fill(cache, tokens(16, seed));
    for (uint32_t other = 1; other <= 5; ++other) {
      EXPECT_EQ(in_place(cache, tokens(16, other)), other == seed ? 16U : 0U);
    }
  }
}

TEST_F(Pool, CachedBlocksGoLeastRecentlyUsedFirst) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  for (uint32_t seed = 1; seed <= 4; ++seed) fill(cache, tokens(16, seed));
  hold(cache, tokens(16, 2) + tokens(1, 9));
  const uint32_t order[] = {1, 3, 4, 2};
  for (uint32_t i = 0; i < 4; ++i) {
    fill(cache, tokens(16, 10 + i));
    EXPECT_EQ(kept(cache, tokens(16, order[i])), 0U);
    for (uint32_t later = i + 1; later < 4; ++later) {
      EXPECT_EQ(kept(cache, tokens(16, order[later])), 16U);
    }
  }
}

TEST_F(Pool, HeadOfAChainNeverGoesBeforeItsTail) {
  // Reuse and pressure in changing amounts. A block whose predecessor is gone would stay cached but
  // never be found, so the blocks found must add up to the blocks cached.
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 16});
  std::vector<Text> texts = {tokens(160, 1)};
  fill(cache, texts[0]);
  for (uint32_t seed = 2; seed < 60; ++seed) {
    const Text& used = texts[seed * 5 % texts.size()];
    hold(cache, used.first(seed * 37 % used.size() + 1) + tokens(1, 0));
    texts.push_back(tokens(16 * (1 + seed % 5), seed));
    fill(cache, texts.back());
    uint32_t found = 0;
    for (const Text& text : texts) found += in_place(cache, text) / 16;
    ASSERT_EQ(found, cached_blocks(cache)) << "round " << seed;
  }
}

TEST_F(Pool, HitsAmongTheFreedBlocksAreNotRoom) {
  for (uint32_t capacity : {8U, 9U}) {
    PagedCache& cache = cache_of({.block_tokens = 16, .capacity = capacity});
    const Text six = tokens(96);
    fill(cache, six);
    Lease user = hold(cache, six.first(48) + tokens(1, 2));
    // In use: 3. Cached and unused: 3. Without contents: 2, or 3.
    const std::string before = books(cache);
    Result<Lease> lease = cache.lease(scope, six + tokens(48, 3));
    if (capacity == 8) {
      EXPECT_EQ(code(lease), Errc::out_of_blocks);
      EXPECT_EQ(books(cache), before);
    } else {
      ASSERT_EQ(code(lease), kOk);
      EXPECT_EQ(lease->reused(), 96U);
      EXPECT_EQ(free_blocks(cache), 0U);
    }
    EXPECT_EQ(kept(cache, six), 96U);
  }
}

TEST_F(Pool, EqualBlocksCommittedTwiceAreHeldToo) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(64));
  LeaseOptions read_off;
  read_off.lookup.read = false;
  Lease second = take(cache, tokens(64), read_off);
  EXPECT_EQ(code(cache.lease(scope, tokens(160, 2))), Errc::out_of_blocks);
  EXPECT_EQ(compute(second).duplicates, 4U);
  // The lease's path now ends at the canonical blocks, so these are in use too.
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.lease(scope, tokens(16, 3))), Errc::out_of_blocks);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(second.adopt_canonical(), 4U);
  EXPECT_EQ(take(cache, tokens(64, 3)).block_count(0), 4U);
}

TEST_F(Pool, PaddingIsNoBlockAnybodyCouldHave) {
  PagedCache& cache = cache_with(grouped({full(8), window(16, 8)}));
  Lease lease = take(cache, tokens(96));
  ok(lease.commit(96));
  std::vector<BlockId> table(8);
  EXPECT_EQ(ok(lease.block_table(1, table)), 6U);
  for (uint32_t i : {0U, 1U, 6U, 7U}) EXPECT_EQ(table[i], kNoBlock) << i;
  EXPECT_NE(table[5], kNoBlock);
  EXPECT_EQ(ok(lease.draft_table(0, table)), 6U);
  EXPECT_EQ(table, std::vector(8, kNoBlock)) << "all of it is committed";
}

TEST_F(Pool, TableIsPaddedAndSlotsNameTheirPlace) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 8});
  take(cache, tokens(4));
  Lease first = take(cache, tokens(4, 2));
  Lease lease = take(cache, tokens(6, 3));
  const std::vector<BlockId> own = blocks_of(lease);
  std::vector<BlockId> table(5, BlockId{77});
  EXPECT_EQ(ok(lease.block_table(0, table)), 2U);
  EXPECT_EQ(table, (std::vector{own[0], own[1], kNoBlock, kNoBlock, kNoBlock}));
  EXPECT_EQ(ok(lease.block_table(0, table, BlockId{8})), 2U);
  EXPECT_EQ(table, (std::vector{own[0], own[1], BlockId{8}, BlockId{8}, BlockId{8}}));

  std::vector<int64_t> slots(6);
  ok(lease.slot_mapping(0, 3, slots));
  const int64_t a = to_index(own[0]);
  const int64_t b = to_index(own[1]);
  EXPECT_EQ(slots, (std::vector<int64_t>{a * 4 + 3, b * 4, b * 4 + 1, b * 4 + 2, b * 4 + 3, -1}));
  ok(lease.slot_mapping(0, 4'000'000'000U, slots, -7));
  EXPECT_EQ(slots, std::vector<int64_t>(6, -7));
}

TEST_F(Pool, ContextLengthsAreWhatIsWritten) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 8});
  Lease a = take(cache, tokens(6));
  Lease b = take(cache, tokens(9, 2));
  ok(a.commit(5));
  const Lease* const leases[] = {&a, &b};
  std::vector<uint32_t> lengths(2, 99);
  ok(context_lengths(leases, lengths));
  EXPECT_EQ(lengths, (std::vector<uint32_t>{5, 0}));
  std::vector<uint32_t> one(1);
  EXPECT_EQ(code(context_lengths(leases, one)), Errc::out_of_range);
}

// The details of a refusal, by which a caller decides what to do.
struct Shortage {
  GroupIndex group = 0;
  uint32_t missing = 0;
  bool never_fits = false;
  bool operator==(const Shortage&) const = default;
};
template <class T>
Shortage shortage(const Result<T>& refused) {
  EXPECT_EQ(code(refused), Errc::out_of_blocks);
  if (refused) return {};
  return {refused.error().group(), refused.error().value(), refused.error().never_fits()};
}
std::ostream& operator<<(std::ostream& out, const Shortage& s) {
  return out << s.missing << " missing in group " << s.group << (s.never_fits ? ", never" : "");
}

TEST_F(Pool, RefusalSaysHowManyBlocksAreMissingAndWhetherItCanEverFit) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease user = take(cache, tokens(80));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(100, 2))), (Shortage{0, 4, false}));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(16 * 11, 2))), (Shortage{0, 3, true}));
  EXPECT_EQ(
      cache.lease(scope, tokens(100, 2)).error().to_string(),
      "out_of_blocks: too few blocks of this group are free or evictable (4 missing in group 0)");
  EXPECT_EQ(
      cache.lease(scope, tokens(16 * 11, 2)).error().to_string(),
      "out_of_blocks: it can never fit: more blocks at once than this group has (3 too many for "
      "group 0)");
  // Cached blocks make room, and count as part of the lease that shares them.
  fill(cache, tokens(48, 3));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(80, 3))), (Shortage{0, 2, false}));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(48, 3) + tokens(96, 4))), (Shortage{0, 1, true}));
  ok(user.release());
}

TEST_F(Pool, LeaseThatCannotGrowSaysWhetherWaitingHelps) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease other = take(cache, tokens(48));
  Lease lease = take(cache, tokens(64, 2));
  EXPECT_EQ(shortage(lease.reserve(112)), (Shortage{0, 2, false})) << "1 of 3 is free";
  EXPECT_EQ(shortage(lease.reserve(128)), (Shortage{0, 3, false})) << "all of the pool";
  EXPECT_EQ(shortage(lease.reserve(160)), (Shortage{0, 2, true})) << "with its own 4 it is 10 of 8";
  ok(other.abandon());
  ok(lease.reserve(128));
}

TEST_F(Pool, RefusalNamesTheGroupThatIsShort) {
  PagedCache& cache = cache_with(grouped({full(20), window(32, 6)}));
  Lease user = take(cache, tokens(64));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(80, 2))), (Shortage{1, 3, false}));
  EXPECT_EQ(shortage(cache.lease(scope, tokens(112, 2))), (Shortage{1, 1, true}));
  // Window blocks go back as a lease advances, so its current blocks do not count against it for
  // good.
  EXPECT_EQ(shortage(user.reserve(112)), (Shortage{1, 1, false}));
  EXPECT_EQ(shortage(user.reserve(176)), (Shortage{1, 1, true})) << "7 at once";
}

TEST_F(Pool, FailedRequestsLeakNothingHoweverManyThereAre) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(64));
  Lease user = hold(cache, tokens(64) + tokens(1, 2));
  const std::string before = books(cache);
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(code(cache.lease(scope, tokens(64) + tokens(80, 3))), Errc::out_of_blocks);
    ASSERT_EQ(code(cache.lease(scope, tokens(60) + tokens(90, 3))), Errc::out_of_blocks);
  }
  EXPECT_EQ(books(cache), before);
  ok(user.release());
  EXPECT_EQ(take(cache, tokens(128, 5)).block_count(0), 8U);
}

TEST_F(Pool, EvictingOneBlockOfALongPromptFreesOneBlock) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 2048});
  const Text text = tokens(2048 * 16);
  fill(cache, text);
  EXPECT_EQ(cache.evict(1), 1U);
  EXPECT_EQ(free_blocks(cache), 1U);
  EXPECT_EQ(kept(cache, text), 2047U * 16);
  EXPECT_EQ(cache.evict(5000), 2047U);
  EXPECT_EQ(cache.evict(1), 0U);
}

}  // namespace
}  // namespace stemma::test
