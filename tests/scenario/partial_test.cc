// Part-blocks: reuse to the last equal token by copying one block, and what happens without the
// copy.
#include <algorithm>
#include <chrono>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Partial : public PagedFixture {
 protected:
  // Blocks of 4: the prompt 0..8 and two generated tokens.
  void cache_eleven(PagedCache& cache) {
    Lease lease = take(cache, counting(0, 9));
    compute(lease);
    ok(lease.extend(counting(500, 502).tokens));
    ok(lease.commit(11));
    ok(lease.release());
  }
};

// ---- The last token ----------------------------------------------------------------------------

TEST_F(Partial, FullyCachedPromptEvaluatesExactlyOneToken) {
  const Options options = grouped({full(10)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(64);
  const Story story = story_of(text);
  Lease writer = take(cache, text);
  engine.run(writer, story, 64);
  const std::vector<BlockId> cached = blocks_of(writer);
  ok(writer.release());

  Lease lease = take(cache, text);
  const Report report = lease.report();
  EXPECT_EQ(report.prompt_tokens, 64U);
  EXPECT_EQ(report.matched_tokens, 64U);
  EXPECT_EQ(report.reused_tokens, 63U);
  EXPECT_EQ(report.copied_tokens, 15U);
  EXPECT_EQ(report.to_compute_tokens, 1U);
  EXPECT_EQ(report.outcome, Outcome::full_hit);
  EXPECT_EQ(report.reason, MissReason::none);
  ASSERT_EQ(lease.copies().size(), 1U);
  EXPECT_EQ(lease.copies()[0].source, cached[3]);
  EXPECT_EQ(lease.copies()[0].target, blocks_of(lease)[3]);
  EXPECT_EQ(lease.copies()[0].tokens, 15U);
  engine.run(lease, story, 64);
}

TEST_F(Partial, SharedLastBlockIsNotRewrittenByAFullHit) {
  const Options options = grouped({full(10)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(32);
  const Story story = story_of(text);
  Lease writer = take(cache, text);
  engine.run(writer, story, 32);
  Lease second = take(cache, text);
  engine.load(second, story);
  EXPECT_NE(blocks_of(second)[1], blocks_of(writer)[1]);
  engine.memory.poison_block(0, blocks_of(second)[1]);  // Its own; others must not notice.
  engine.expect_right(writer, story, 32);
  Lease third = take(cache, text + tokens(1, 2));
  EXPECT_EQ(third.reused(), 32U);
  engine.expect_right(third, story, 32);
}

TEST_F(Partial, CallerMayAskForALongerTailToEvaluate) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  for (uint32_t k : {1U, 2U, 5U, 15U, 16U, 17U, 63U}) {
    LookupOptions options;
    options.evaluate_at_least = k;
    const Report report = look(cache, tokens(64), options);
    EXPECT_EQ(report.reused_tokens, 64 - k);
    EXPECT_EQ(report.to_compute_tokens, k);
    EXPECT_EQ(report.outcome, Outcome::full_hit);
  }
  for (uint32_t k : {64U, 65U, 4'000'000'000U}) {
    LookupOptions options;
    options.evaluate_at_least = k;
    const Report report = look(cache, tokens(64), options);
    EXPECT_EQ(report.reused_tokens, 0U);
    EXPECT_EQ(report.reason, MissReason::too_short);
  }
}

// ---- Ends inside a block -----------------------------------------------------------------------

TEST_F(Partial, ReuseEndsAtTheLastEqualToken) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  cache_eleven(cache);
  const Report report = look(cache, counting(0, 10));
  EXPECT_EQ(report.reused_tokens, 9U);
  EXPECT_EQ(report.copied_tokens, 1U);
}

TEST_F(Partial, PartBlockServesSeveralAtOnce) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  cache_eleven(cache);
  Lease pending = take(cache, counting(0, 10));
  EXPECT_EQ(pending.reused(), 9U);
  EXPECT_EQ(take(cache, counting(0, 10)).reused(), 9U) << "its copy is still pending";
  compute(pending);
  Lease third = take(cache, counting(0, 10));
  EXPECT_EQ(third.reused(), 9U) << "the other one still runs";
  EXPECT_NE(blocks_of(third)[2], blocks_of(pending)[2]);
}

TEST_F(Partial, WrittenBlockOfARunningRequestIsACopySource) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  Lease running = take(cache, counting(0, 12));
  compute(running);
  Lease other = take(cache, counting(0, 9) + counting(700, 702));
  EXPECT_EQ(other.reused(), 9U);
  EXPECT_EQ(other.copies()[0].source, blocks_of(running)[2]);
}

TEST_F(Partial, WithoutCopiesReuseEndsAtABlockBorder) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  cache_eleven(cache);
  LeaseOptions options;
  options.lookup.allow_copy = false;
  Lease user = take(cache, counting(0, 10));
  Lease lease = take(cache, counting(0, 10), options);
  EXPECT_EQ(lease.reused(), 8U);
  EXPECT_TRUE(lease.copies().empty());
  EXPECT_EQ(lease.report().reason, MissReason::no_copy);
  EXPECT_EQ(lease.report().matched_tokens, 9U);
}

TEST_F(Partial, EveryDivergencePointIsServedExactly) {
  const Options options = grouped({full(64, 8)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(29);
  Lease writer = take(cache, text);
  engine.run(writer, story_of(text), 29);
  ok(writer.release());
  for (uint32_t shared = 0; shared <= 29; ++shared) {
    const Text query = text.first(shared) + tokens(5, 2);
    LeaseOptions write_off;
    write_off.lookup.write = false;
    Lease lease = take(cache, query, write_off);
    EXPECT_EQ(lease.reused(), shared);
    EXPECT_EQ(lease.report().matched_tokens, shared);
    engine.run(lease, story_of(query), query.size());
  }
}

TEST_F(Partial, LongestOfSeveralCachedPromptsIsServed) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 40});
  const Text text = counting(0, 20);
  fill(cache, text.first(6) + counting(100, 110));
  fill(cache, text.first(11) + counting(200, 210));
  fill(cache, text.first(9) + counting(300, 310));
  EXPECT_EQ(hit(cache, text), 11U);
  EXPECT_EQ(hit(cache, text.first(11)), 10U);
  EXPECT_EQ(hit(cache, prompt("something else altogether")), 0U);
}

TEST_F(Partial, TenThousandSiblingsHideNothingAndCostNoMore) {
  const Text head = tokens(16);
  const Text shared = tokens(7, 2);
  auto best_ns = [&](PagedCache& cache, uint32_t siblings) {
    for (uint32_t i = 0; i < siblings; ++i) fill(cache, head + shared + counting(i * 9, i * 9 + 9));
    const Text query = head + shared + tokens(9, 3) + tokens(1, 4);
    EXPECT_EQ(hit(cache, query), 23U);
    const Text exact = head + shared + counting(siblings / 2 * 9, siblings / 2 * 9 + 9);
    EXPECT_EQ(kept(cache, exact), 32U);
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 2000; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(hit(cache, query), 23U);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  };
  const auto few = best_ns(cache_of({.block_tokens = 16, .capacity = 12'000}), 10);
  const auto many = best_ns(cache_of({.block_tokens = 16, .capacity = 12'000}), 10'000);
  EXPECT_LT(many, 30 * few) << "a thousand times the siblings";
}

TEST_F(Partial, LongerTailReplacesTheShorterOne) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(20));
  EXPECT_EQ(cached_blocks(cache), 2U);
  fill(cache, tokens(25));
  EXPECT_EQ(cached_blocks(cache), 2U) << "the tail of 4 is a prefix of the tail of 9";
  EXPECT_EQ(kept(cache, tokens(25)), 25U);
  fill(cache, tokens(22));
  EXPECT_EQ(cached_blocks(cache), 2U) << "a shorter tail adds nothing";
  fill(cache, tokens(32));
  EXPECT_EQ(cached_blocks(cache), 2U);
  EXPECT_EQ(in_place(cache, tokens(32)), 32U);
}

// ---- Copies ------------------------------------------------------------------------------------

TEST_F(Partial, NothingIsCommittedWhileCopiesArePending) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(40));
  Lease lease = take(cache, tokens(40));
  ASSERT_EQ(lease.copies().size(), 1U);
  EXPECT_EQ(code(lease.commit(40)), Errc::wrong_state);
  ok(lease.copies_done());
  EXPECT_TRUE(lease.copies().empty());
  ok(lease.commit(40));
}

TEST_F(Partial, SayingThatCopiesAreDoneIsFineWhereThereAreNone) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  Lease first = take(cache, tokens(40));
  ASSERT_TRUE(first.copies().empty());
  ok(first.copies_done());
  ok(first.commit(40));
  ok(first.release());
  Lease second = take(cache, tokens(40));
  ASSERT_EQ(second.copies().size(), 1U);
  ok(second.copies_done());
  ok(second.copies_done());
  EXPECT_EQ(code(second.copies_failed()), Errc::wrong_state) << "what is done has not failed";
  ok(second.commit(40));
  EXPECT_EQ(second.committed(), 40U);
}

TEST_F(Partial, CopySourceStaysUntilTheCopyIsDone) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(10));
  Lease lease = take(cache, tokens(10));
  ASSERT_EQ(lease.copies().size(), 1U);
  const BlockId source = lease.copies()[0].source;
  EXPECT_EQ(cache.evict(4), 0U);
  EXPECT_EQ(code(cache.lease(scope, tokens(48, 2))), Errc::out_of_blocks);
  ok(lease.copies_done());
  EXPECT_EQ(cache.evict(4), 1U);
  Lease other = take(cache, tokens(48, 2));
  const std::vector<BlockId> blocks = blocks_of(other);
  EXPECT_NE(std::ranges::find(blocks, source), blocks.end());
}

TEST_F(Partial, OwnTailIsTakenOverWhereThePoolIsExactlyFull) {
  const Options options = grouped({full(4)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(64);
  {
    Lease first = take(cache, text.first(60));
    engine.run(first, story_of(text.first(60)), 60);
  }
  const BlockId tail = [&] {
    Lease all = take(cache, text);
    EXPECT_EQ(all.reused(), 60U);
    EXPECT_TRUE(all.copies().empty()) << "there is no room for one";
    EXPECT_EQ(all.report().copied_tokens, 0U);
    EXPECT_EQ(all.report().reason, MissReason::first_use);
    const BlockId own = blocks_of(all)[3];
    engine.expect_right(all, story_of(text), 60);
    engine.run(all, story_of(text), 64);
    return own;
  }();
  EXPECT_EQ(cache.stats().evicted_blocks, 1U);
  EXPECT_EQ(kept(cache, text), 64U);
  // With a spare block it makes a copy, and the source stays.
  PagedCache& larger = cache_with(grouped({full(5)}));
  fill(larger, text.first(60));
  Lease copies = take(larger, text);
  EXPECT_EQ(copies.reused(), 60U);
  EXPECT_EQ(copies.copies().size(), 1U);
  EXPECT_EQ(tail, BlockId{3});
}

TEST_F(Partial, EveryGroupsPartBlockIsTakenOver) {
  for (const auto& groups : std::vector<std::vector<GroupOptions>>{
           {full(4), window(64, 4)},
           {window(64, 4)},
           {full(4), full(2, 32)},
           {window(64, 4), full(2, 32)},
       }) {
    PagedCache& cache = cache_with(grouped(groups));
    Engine engine(groups);
    const Text text = tokens(64);
    {
      Lease first = take(cache, text.first(60));
      engine.run(first, story_of(text.first(60)), 60);
    }
    Lease all = take(cache, text);
    EXPECT_EQ(all.reused(), 60U);
    EXPECT_TRUE(all.copies().empty());
    engine.expect_right(all, story_of(text), 60);
    engine.run(all, story_of(text), 64);
    ok(all.release());
    EXPECT_EQ(kept(cache, text), 64U);
  }
}

TEST_F(Partial, SourceThatSomebodyUsesIsNotTakenOver) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  const Text text = tokens(64);
  fill(cache, text.first(60));
  // A request that only looks at cached blocks evicts nothing.
  LeaseOptions looks;
  looks.draft_tokens = 0;
  EXPECT_EQ(take(cache, text, looks).reused(), 48U);
  EXPECT_EQ(kept(cache, text.first(60)), 60U);
  // Pinned cells stay where they are.
  fill(cache, text);
  const PinResult pin = ok(cache.pin(scope, text.first(32), kNever));
  Lease lease = take(cache, text.first(20) + tokens(12, 2));
  EXPECT_EQ(lease.reused(), 20U);
  EXPECT_EQ(lease.copies().size(), 1U);
  ok(lease.release());
  ok(cache.unpin(pin.id));
}

TEST_F(Partial, FailedCopyStepsBackToWhatHoldsWithoutIt) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  Lease lease = take(cache, tokens(64));
  ASSERT_EQ(lease.reused(), 63U);
  ok(lease.copies_failed());
  EXPECT_EQ(lease.reused(), 48U);
  EXPECT_EQ(lease.committed(), 48U);
  EXPECT_TRUE(lease.copies().empty());
  const Report report = lease.report();
  EXPECT_EQ(report.reused_tokens, 48U);
  EXPECT_EQ(report.copied_tokens, 0U);
  EXPECT_EQ(report.to_compute_tokens, 16U);
  EXPECT_EQ(report.reason, MissReason::gave_up);
  compute(lease);
  ok(lease.release());
  const Counts total = cache.stats().total;
  EXPECT_EQ(total.outcomes[static_cast<uint32_t>(Outcome::partial_hit)], 1U);
  EXPECT_EQ(total.outcomes[static_cast<uint32_t>(Outcome::full_hit)], 0U);
}

TEST_F(Partial, FailedCopyOfEverythingIsAMissAndHarmsNobody) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(12));
  Lease other = take(cache, tokens(12));
  Lease lease = take(cache, tokens(12));
  ASSERT_EQ(lease.reused(), 11U);
  ok(lease.copies_failed());
  EXPECT_EQ(lease.reused(), 0U);
  EXPECT_EQ(lease.report().outcome, Outcome::miss);
  EXPECT_EQ(lease.report().reason, MissReason::gave_up);
  EXPECT_EQ(lease.report().to_compute_tokens, 12U);
  EXPECT_EQ(other.reused(), 11U) << "others are untouched";
  EXPECT_EQ(other.copies().size(), 1U);
  EXPECT_EQ(hit(cache, tokens(12)), 11U);
}

TEST_F(Partial, RunCopiesMovesTheBytesThroughTheEnginesIo) {
  Options options = grouped({full(10)});
  Engine engine(options.groups);
  options.block_io = &engine.memory;
  PagedCache& cache = cache_with(options);
  const Story story = story_of(tokens(20));
  Lease writer = take(cache, tokens(20));
  engine.run(writer, story, 20);
  ok(writer.release());
  Lease lease = take(cache, tokens(20));
  ASSERT_EQ(lease.reused(), 19U);
  ok(lease.run_copies());
  EXPECT_TRUE(lease.copies().empty());
  engine.expect_right(lease, story, 19);
  ok(lease.commit(20));
}

TEST_F(Partial, RunCopiesWithoutIoIsUnsupported) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(20));
  Lease lease = take(cache, tokens(20));
  EXPECT_EQ(code(lease.run_copies()), Errc::unsupported);
  EXPECT_EQ(lease.copies().size(), 1U) << "still to be done";
}

}  // namespace
}  // namespace stemma::test
