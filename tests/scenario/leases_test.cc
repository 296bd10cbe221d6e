// Leases: growing, speculating, rewinding, forking, ending; and resetting under them.
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"
#include "support/fake_engine.h"

namespace stemma::test {
namespace {

class Leases : public PagedFixture {};

// ---- Speculation and lookahead -----------------------------------------------------------------

TEST_F(Leases, RejectedSpeculationIsNeverFoundAndFreesTheEmptiedBlock) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(30);
  Lease lease = take(cache, text);
  compute(lease);
  const std::vector<BlockId> before = blocks_of(lease);
  ok(lease.extend(tokens(6, 2).tokens));
  EXPECT_EQ(lease.block_count(0), 3U);
  EXPECT_EQ(free_blocks(cache), 7U);
  ok(lease.rewind(31));
  EXPECT_EQ(lease.length(), 31U);
  EXPECT_EQ(free_blocks(cache), 8U) << "exactly the emptied block went back";
  EXPECT_EQ(blocks_of(lease), before);
  ok(lease.extend(tokens(5, 3).tokens));
  ok(lease.commit(36));
  ok(lease.release());
  EXPECT_EQ(kept(cache, text + tokens(1, 2) + tokens(5, 3)), 36U);
  EXPECT_EQ(kept(cache, text + tokens(6, 2)), 31U);
}

TEST_F(Leases, LookaheadTakesBlocksForPositionsNotTokens) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 8});
  const std::pair<uint32_t, uint32_t> needs[] = {{3, 1}, {5, 2}, {7, 2}, {8, 2}, {9, 3}};
  for (auto [positions, blocks] : needs) {
    Lease lease = take(cache, tokens(3));
    ok(lease.reserve(positions));
    EXPECT_EQ(lease.block_count(0), blocks) << positions << " positions";
    EXPECT_EQ(lease.length(), 3U);
    EXPECT_GE(lease.capacity(), positions);
  }
}

TEST_F(Leases, ReserveAndExtendAreAllOrNothing) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 4});
  fill(cache, tokens(4, 9));
  Lease lease = take(cache, tokens(7));
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(lease.reserve(17)), Errc::out_of_blocks);
  EXPECT_EQ(code(lease.extend(tokens(10, 2).tokens)), Errc::out_of_blocks);
  EXPECT_EQ(books(cache) + position(lease), before);
  EXPECT_EQ(kept(cache, tokens(4, 9)), 4U);
  ok(lease.reserve(16));
  EXPECT_EQ(lease.block_count(0), 4U);
}

TEST_F(Leases, SampledTokenIsFoundOnlyAfterItWasEvaluated) {
  PagedCache& cache = cache_of({.block_tokens = 1, .capacity = 20});
  const Text text = tokens(10);
  Lease lease = take(cache, text.first(9));
  compute(lease);
  ok(lease.extend({&text.tokens[9], 1}));
  ok(lease.release());
  EXPECT_EQ(kept(cache, text), 9U) << "its row was never written";
}

TEST_F(Leases, RoomIsDraftedAsAskedAndMoreLater) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  LeaseOptions options;
  options.draft_tokens = 20;
  Lease lease = take(cache, tokens(100), options);  // Longer than the pool, which is allowed.
  EXPECT_EQ(lease.length(), 100U);
  EXPECT_EQ(lease.block_count(0), 2U);
  ok(lease.commit(20));
  EXPECT_NE(code(lease.commit(33)), kOk) << "there is no block to have written it to";
  ok(lease.reserve(64));
  EXPECT_EQ(ok(lease.commit(64)).published, 3U);
}

// ---- Rewind and fork ---------------------------------------------------------------------------

TEST_F(Leases, RewindBelowWhatWasCommittedCopiesTheCutBlock) {
  const Options options = grouped({full(10)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(60);
  const Story story = story_of(text);
  Lease lease = take(cache, text);
  engine.run(lease, story, 60);
  const std::vector<BlockId> before = blocks_of(lease);
  ok(lease.rewind(40));
  EXPECT_EQ(lease.length(), 40U);
  EXPECT_EQ(lease.committed(), 40U);
  EXPECT_EQ(in_place(cache, text), 48U) << "what was committed stays cached";
  ASSERT_EQ(lease.copies().size(), 1U);
  EXPECT_EQ(lease.copies()[0].source, before[2]);
  EXPECT_EQ(lease.copies()[0].tokens, 8U);
  EXPECT_NE(blocks_of(lease)[2], before[2]) << "a cached block is never written again";

  const Text other = text.first(40) + tokens(20, 2);
  const Story other_story = story_of(other);
  ok(lease.extend(tokens(20, 2).tokens));
  engine.run(lease, other_story, 60);
  ok(lease.release());
  for (const auto& [path, right] : {std::pair{text, story}, {other, other_story}}) {
    Lease reader = take(cache, path);
    EXPECT_GE(reader.reused(), 48U);
    engine.run(reader, right, 60);
  }
}

TEST_F(Leases, RewindToTheLengthIsAlwaysAllowed) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  Lease lease = take(cache, tokens(10));
  compute(lease);
  const std::vector<BlockId> before = blocks_of(lease);
  ok(lease.rewind(10));
  EXPECT_EQ(blocks_of(lease), before);
  EXPECT_TRUE(lease.copies().empty());
  EXPECT_EQ(lease.committed(), 10U);
}

TEST_F(Leases, RewindToNothingStartsOver) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 4});
  Lease lease = take(cache, tokens(10));
  compute(lease);
  ok(lease.rewind(0));
  EXPECT_EQ(lease.length(), 0U);
  EXPECT_EQ(lease.committed(), 0U);
  ok(lease.extend(tokens(8, 2).tokens));
  ok(lease.commit(8));
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(8, 2)), 8U);
}

TEST_F(Leases, ForksShareWholeBlocksAndCopyThePartBlock) {
  const Options options = grouped({full(10)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(40);
  Lease trunk = take(cache, text);
  engine.run(trunk, story_of(text), 40);
  Lease fork = ok(trunk.fork());
  EXPECT_EQ(fork.length(), 40U);
  EXPECT_EQ(free_blocks(cache), 6U) << "one block for the copy";
  ASSERT_EQ(fork.copies().size(), 1U);
  EXPECT_EQ(fork.copies()[0].source, blocks_of(trunk)[2]);
  EXPECT_EQ(fork.copies()[0].tokens, 8U);
  EXPECT_EQ(cache.stats().forks, 1U);

  const Text left = text + tokens(30, 2);
  const Text right = text + tokens(30, 3);
  engine.load(fork, story_of(right));
  ok(trunk.extend(tokens(30, 2).tokens));
  ok(fork.extend(tokens(30, 3).tokens));
  engine.run(trunk, story_of(left), 70);
  engine.run(fork, story_of(right), 70);
  engine.expect_right(trunk, story_of(left), 70);
  engine.expect_right(fork, story_of(right), 70);
  ok(trunk.release());
  ok(fork.release());
  EXPECT_EQ(kept(cache, left), 70U);
  EXPECT_EQ(kept(cache, right), 70U);
}

TEST_F(Leases, ForkAtABlockBorderNeedsNoRoom) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 2});
  Lease trunk = take(cache, tokens(32));
  compute(trunk);
  Lease fork = ok(trunk.fork());
  EXPECT_TRUE(fork.copies().empty());
  EXPECT_EQ(blocks_of(fork), blocks_of(trunk));
}

TEST_F(Leases, ForkThatDoesNotFitChangesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 3});
  Lease trunk = take(cache, tokens(40));
  compute(trunk);
  const std::string before = books(cache) + position(trunk);
  EXPECT_EQ(code(trunk.fork()), Errc::out_of_blocks);
  EXPECT_EQ(books(cache) + position(trunk), before);
}

TEST_F(Leases, WhatAForkStillCopiesFromIsNotRewoundOver) {
  // The first group numbers the cells, the second has blocks of its own.
  for (const Options& options : {grouped({full(10)}), grouped({window(64, 10), window(64, 10)})}) {
    PagedCache& cache = cache_with(options);
    Lease trunk = take(cache, tokens(40));
    compute(trunk);
    Lease fork = ok(trunk.fork());
    ASSERT_FALSE(fork.copies().empty());
    EXPECT_EQ(code(trunk.rewind(36)), Errc::busy);
    EXPECT_EQ(trunk.length(), 40U) << "a refusal changes nothing";
    ok(fork.copies_done());
    ok(trunk.rewind(36));
    EXPECT_EQ(trunk.length(), 36U);
  }
}

// ---- Ends --------------------------------------------------------------------------------------

TEST_F(Leases, BlocksWaitForTheFenceOfTheirLease) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  ManualFence fence;
  Lease lease = take(cache, tokens(40));
  ok(lease.commit(20));
  ok(lease.release({.fence = &fence}));
  EXPECT_FALSE(lease.active());
  EXPECT_EQ(cache.stats().leases, 1U) << "it still waits";
  EXPECT_EQ(cache.poll(), 0U);
  EXPECT_EQ(cache.evict(4), 0U) << "a kernel may still read it";
  EXPECT_EQ(code(cache.lease(scope, tokens(64, 2))), Errc::out_of_blocks);
  EXPECT_EQ(take(cache, tokens(16, 2)).block_count(0), 1U) << "the fourth block is free";
  fence.signal();
  EXPECT_EQ(take(cache, tokens(64, 2)).block_count(0), 4U) << "seen without being polled";
}

TEST_F(Leases, PollSettlesWhatHasSignalled) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  ManualFence fences[2];
  for (ManualFence& fence : fences) {
    Lease lease = take(cache, tokens(16, 3));
    ok(lease.abandon(&fence));
  }
  EXPECT_EQ(draft_blocks(cache), 2U);
  fences[1].signal();
  EXPECT_EQ(cache.poll(), 1U);
  EXPECT_EQ(draft_blocks(cache), 1U);
  fences[0].signal();
  EXPECT_EQ(cache.poll(), 1U);
  EXPECT_EQ(cache.poll(), 0U);
  EXPECT_EQ(free_blocks(cache), 4U);
}

TEST_F(Leases, ResetUnderALeaseIsRefusedOrDeferredAsAsked) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(48, 2));
  Lease lease = take(cache, tokens(40));
  compute(lease);
  const std::vector<BlockId> blocks = blocks_of(lease);
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(cache.reset(OnBusy::refuse)), Errc::busy);
  EXPECT_EQ(books(cache) + position(lease), before);
  EXPECT_EQ(kept(cache, tokens(48, 2)), 48U);

  ok(cache.reset(OnBusy::defer));
  EXPECT_EQ(kept(cache, tokens(48, 2)), 0U);
  EXPECT_EQ(kept(cache, tokens(40)), 0U);
  EXPECT_EQ(blocks_of(lease), blocks) << "what is in use is not touched";
  EXPECT_EQ(free_blocks(cache), 5U);
  ok(lease.extend(tokens(20, 3).tokens));
  ok(lease.commit(60));
  ok(lease.release());
  EXPECT_EQ(free_blocks(cache), 8U);
  EXPECT_EQ(kept(cache, tokens(40) + tokens(20, 3)), 0U);
  ok(cache.reset());
  EXPECT_EQ(cache.stats().scopes, 0U);
}

TEST_F(Leases, ResetOfAnIdleCacheForgetsEverything) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(48));
  fill(cache, tokens(48, 2));
  ok(cache.reset());
  EXPECT_EQ(free_blocks(cache), 8U);
  EXPECT_EQ(hit(cache, tokens(48)), 0U);
  EXPECT_EQ(look(cache, tokens(48)).reason, MissReason::unknown_scope);
  fill(cache, tokens(48));
  EXPECT_EQ(kept(cache, tokens(48)), 48U) << "and works as before";
}

TEST_F(Leases, TruncateForgetsTheContinuationOnly) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(80);
  const Text branch = text.first(48) + tokens(32, 2);
  fill(cache, text);
  fill(cache, branch);
  EXPECT_EQ(ok(cache.truncate(scope, text, 50)), 2U);
  EXPECT_EQ(kept(cache, text), 48U);
  EXPECT_EQ(kept(cache, branch), 80U);
  EXPECT_EQ(free_blocks(cache), 5U);
  EXPECT_EQ(ok(cache.truncate(scope, branch, 20)), 4U);
  EXPECT_EQ(kept(cache, branch), 16U);
  EXPECT_EQ(free_blocks(cache), 9U);
}

TEST_F(Leases, TruncateAtThePromptsEndForgetsEveryContinuation) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(48);
  const Text other = text.first(16) + tokens(32, 2);
  fill(cache, text);
  fill(cache, other);
  EXPECT_EQ(ok(cache.truncate(scope, text.first(32), 32)), 1U) << "other parts from it before";
  EXPECT_EQ(kept(cache, text), 32U);
  EXPECT_EQ(kept(cache, other), 48U);
  EXPECT_EQ(ok(cache.truncate(scope, text.first(16), 16)), 3U);
  EXPECT_EQ(kept(cache, text), 16U);
  EXPECT_EQ(kept(cache, other), 16U);
  EXPECT_EQ(ok(cache.truncate(scope, text.first(0), 0)), 1U) << "all of the scope";
  EXPECT_EQ(kept(cache, text), 0U);
  EXPECT_EQ(free_blocks(cache), 10U);
}

TEST_F(Leases, TruncatedBlocksInUseGoAtRelease) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(80);
  fill(cache, text);
  Lease user = hold(cache, text + tokens(1, 2));
  const std::vector<BlockId> blocks = blocks_of(user);
  EXPECT_EQ(ok(cache.truncate(scope, text, 32)), 3U);
  EXPECT_EQ(kept(cache, text), 32U);
  EXPECT_EQ(blocks_of(user), blocks);
  EXPECT_EQ(free_blocks(cache), 5U);
  ok(user.release());
  EXPECT_EQ(free_blocks(cache), 8U);
  EXPECT_EQ(kept(cache, text), 32U);
}

TEST_F(Leases, TruncateLeavesRunningLeasesAlone) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Text text = tokens(64);
  Lease behind = take(cache, text);
  Lease before = take(cache, text);
  ok(behind.commit(48));
  ok(before.commit(32));
  const std::vector<BlockId> blocks = blocks_of(behind);
  EXPECT_EQ(ok(cache.truncate(scope, text, 32)), 1U);
  EXPECT_EQ(blocks_of(behind), blocks);
  EXPECT_EQ(behind.committed(), 48U);
  EXPECT_EQ(ok(behind.commit(64)).published, 0U) << "below what was cut off";
  EXPECT_EQ(kept(cache, text), 32U);
  EXPECT_EQ(ok(before.commit(64)).published, 2U) << "it stands before the cut";
  EXPECT_EQ(kept(cache, text), 64U);
}

TEST_F(Leases, LeaseOutlivesItsCache) {
  std::optional<PagedCache> cache = ok(PagedCache::create(grouped({full(4)})));
  Lease lease = take(*cache, tokens(40));
  cache.reset();
  EXPECT_EQ(lease.block_count(0), 3U);
  ok(lease.commit(40));
  std::thread elsewhere([moved = std::move(lease)]() mutable { ok(moved.release()); });
  elsewhere.join();
}

TEST_F(Leases, CacheAndLeasesMayEndOnDifferentThreadsInAnyOrder) {
  // The last owner frees what they share; a sanitizer notices if nobody does, or somebody too
  // early.
  for (uint32_t round = 0; round < 200; ++round) {
    std::optional<PagedCache> cache = ok(PagedCache::create(grouped({full(16)})));
    std::vector<Lease> leases;
    for (uint32_t i = 0; i < 3; ++i) leases.push_back(take(*cache, tokens(40, i + 1)));
    ManualFence never;
    ok(leases[1].release({.fence = &never}));  // The fence never signals, and keeps nothing alive.
    std::atomic<uint32_t> ready{0};
    const auto together = [&](auto&& body) {
      ++ready;
      while (ready < 3) {
      }
      body();
    };
    std::thread first([&] { together([&] { leases[0] = Lease(); }); });
    std::thread second([&] { together([&] { leases[2] = Lease(); }); });
    together([&] { cache.reset(); });
    first.join();
    second.join();
  }
}

TEST_F(Leases, AssigningOverALeaseReleasesIt) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease lease = take(cache, tokens(32));
  compute(lease);
  lease = take(cache, tokens(16, 2));
  EXPECT_EQ(cache.stats().leases, 1U);
  EXPECT_EQ(kept(cache, tokens(32)), 32U);
  lease = Lease();
  EXPECT_EQ(cache.stats().leases, 0U);
}

}  // namespace
}  // namespace stemma::test
