// Layer groups that attend to a window: which blocks they need, which they may lose, what they
// cannot serve.
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Windows : public PagedFixture {
 protected:
  // Takes `count` evictable blocks of the window groups, and frees them.
  void squeeze(PagedCache& cache, uint32_t count, uint32_t block_tokens = 16) {
    const uint32_t free = free_blocks(cache, 1);
    take(cache, tokens((free + count) * block_tokens, 77));
  }
};

TEST_F(Windows, SharerNeedsOnlyTheLastBlocksOfAWindow) {
  const Options options = grouped({full(10), window(32, 10), window(32, 10)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(55);
  Lease a = take(cache, text);
  engine.run(a, story_of(text), 55);
  const Text other = text.first(48) + tokens(7, 2);
  Lease b = take(cache, other);
  EXPECT_EQ(b.reused(), 48U);
  for (GroupIndex g : {1U, 2U}) {
    EXPECT_EQ(blocks_of(b, g)[0], kNoBlock) << "out of the window";
    EXPECT_EQ(blocks_of(b, g)[1], blocks_of(a, g)[1]);
    EXPECT_EQ(blocks_of(b, g)[2], blocks_of(a, g)[2]);
  }
  engine.run(b, story_of(other), 55);
}

TEST_F(Windows, BlockOutOfReachMayGo) {
  PagedCache& cache = cache_with(grouped({full(20), window(32, 6)}));
  const Text text = tokens(55);
  fill(cache, text);
  squeeze(cache, 1);
  EXPECT_EQ(cached_blocks(cache, 1), 3U);
  EXPECT_EQ(hit(cache, text.first(48) + tokens(7, 2)), 48U);
  EXPECT_EQ(hit(cache, text.first(20) + tokens(7, 2)), 0U) << "20 would need the block that went";
}

TEST_F(Windows, LastBlockOfAnyGroupThatIsGoneShortensTheHit) {
  const Text text = tokens(48);
  {
    PagedCache& cache = cache_with(grouped({full(20), window(32, 6)}));
    fill(cache, text);
    EXPECT_EQ(cache.evict(1), 1U);
    EXPECT_EQ(kept(cache, text), 32U) << "the full group's last block";
  }
  {
    PagedCache& cache = cache_with(grouped({full(20), window(32, 6)}));
    fill(cache, text);
    Lease keeps_two = hold(cache, text.first(32) + tokens(1, 2));
    squeeze(cache, 1);
    const Report report = look(cache, text + tokens(1, 3));
    EXPECT_EQ(report.reused_tokens, 32U) << "the window group's last block";
    EXPECT_EQ(report.matched_tokens, 48U);
    EXPECT_EQ(report.limiting_group, 1U);
    EXPECT_EQ(report.reason, MissReason::group_hole);
  }
}

TEST_F(Windows, WithoutItsFirstFullBlockNothingIsServed) {
  PagedCache& cache = cache_with(grouped({full(20), window(32, 6)}));
  fill(cache, tokens(48));
  EXPECT_EQ(cache.evict(3), 3U);
  EXPECT_EQ(kept(cache, tokens(48)), 0U);
  EXPECT_EQ(free_blocks(cache, 1), 6U) << "window blocks go with the path they belong to";
}

TEST_F(Windows, AnyCombinationOfGroupsServesAPrefixTheyAllHold) {
  const GroupOptions kinds[] = {full(12), window(32, 12), window(64, 12), recurrent(4)};
  for (uint32_t count = 2; count <= 4; ++count) {
    for (uint32_t code = 0; code < 1U << (2 * count); ++code) {
      std::vector<GroupOptions> groups;
      for (uint32_t i = 0; i < count; ++i) groups.push_back(kinds[code >> (2 * i) & 3]);
      SCOPED_TRACE(testing::Message() << count << " groups, code " << code);
      PagedCache& cache = cache_with(grouped(groups));
      Engine engine(groups);
      const Text text = tokens(55);
      const Story story = story_of(text);
      Lease lease = take(cache, text);
      engine.run(lease, story, 48);
      for (GroupIndex g = 0; g < count; ++g) {
        if (groups[g].attention == Attention::recurrent) {
          engine.save(lease, story, g);
        }
      }
      engine.run(lease, story, 55);
      ok(lease.release());
      const Text other = text.first(48) + tokens(7, 2);
      Lease sharer = take(cache, other);
      EXPECT_EQ(sharer.reused(), 48U);
      engine.run(sharer, story_of(other), 55);
      if (HasFailure()) return;
    }
  }
}

TEST_F(Windows, GroupsWithDifferentBlockSizesMeetAtTheToken) {
  const Options options = grouped({full(10, 32), window(32, 20, 16)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(112);
  const Story story = story_of(text + tokens(1, 2));
  Lease lease = take(cache, text);
  engine.run(lease, story, 112);
  ok(lease.release());
  LookupOptions in_place;
  in_place.allow_copy = false;
  EXPECT_EQ(hit(cache, text + tokens(1, 2)), 112U);
  EXPECT_EQ(hit(cache, tokens(97)), 96U);
  EXPECT_EQ(hit(cache, text + tokens(1, 2), in_place), 96U);
  EXPECT_EQ(hit(cache, tokens(97), in_place), 96U);
  Lease reader = take(cache, text + tokens(1, 2));
  engine.run(reader, story, 113);
}

TEST_F(Windows, PartBlockOfALargerGroupOutlivesTheOneBesideIt) {
  // Blocks of 8 over cells of 2. Two prompts share their first cell; each has a part-block over it.
  const Options options = grouped({full(20, 8), window(8, 40, 2)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text a = tokens(6);
  const Text b = a.first(2) + tokens(4, 2);
  for (const Text& text : {a, b}) {
    Lease lease = take(cache, text);
    engine.run(lease, story_of(text), 6);
    ok(lease.release());
  }
  EXPECT_EQ(cache.evict(2), 2U);
  EXPECT_EQ(kept(cache, a), 2U);
  LeaseOptions two;
  two.lookup.at_most = 2;
  Lease lease = take(cache, b, two);
  EXPECT_EQ(lease.reused(), 2U) << "the other prompt's part-block still covers it";
  engine.run(lease, story_of(b), 6);
}

TEST_F(Windows, EntryThatCannotRewindDoesNotHideAShorterOneThatServes) {
  // A window of 4. First 1..10, whose window has moved on; then 1 2 3 4 5 9.
  const Options options = grouped({full(40, 1), window(4, 10, 1)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text a = counting(1, 11);
  Lease first = take(cache, a);
  engine.run(first, story_of(a), 10);
  ok(first.release());
  squeeze(cache, 6, 1);
  const Text query = counting(1, 8) + of({99});
  EXPECT_EQ(hit(cache, query), 0U) << "7 is matched, but its window is gone";
  EXPECT_EQ(look(cache, query).matched_tokens, 7U);
  EXPECT_EQ(hit(cache, counting(1, 12)), 10U) << "the exact continuation is still there";

  const Text b = counting(1, 6) + of({9});
  Lease second = take(cache, b);
  engine.run(second, story_of(b), 6);
  ok(second.release());
  Lease lease = take(cache, query);
  EXPECT_EQ(lease.reused(), 5U);
  EXPECT_EQ(lease.report().to_compute_tokens, 3U) << "6, 7 and 99";
  engine.run(lease, story_of(query), 8);
}

TEST_F(Windows, ExactContinuationAfterRollOverHits) {
  const Options options = grouped({full(40, 1), window(4, 10, 1)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  Lease first = take(cache, counting(1, 11));
  engine.run(first, story_of(counting(1, 11)), 10);
  ok(first.release());
  squeeze(cache, 6, 1);
  Lease next = take(cache, counting(1, 12));
  EXPECT_EQ(next.reused(), 10U);
  EXPECT_EQ(next.report().to_compute_tokens, 1U);
  engine.run(next, story_of(counting(1, 12)), 11);
}

TEST_F(Windows, ComputingAPrefixAgainFillsItsHoles) {
  const Options options = grouped({full(20), window(32, 4)});
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(64));
  squeeze(cache, 4);
  EXPECT_EQ(kept(cache, tokens(64)), 0U);
  fill(cache, tokens(64));
  EXPECT_EQ(kept(cache, tokens(64)), 64U);
  EXPECT_EQ(cached_blocks(cache, 0), 4U) << "and the full group still has one copy";
}

TEST_F(Windows, RewindIsRefusedWhenTheWindowHasMovedOn) {
  PagedCache& cache = cache_with(grouped({full(40, 4), window(8, 8, 4)}));
  Lease lease = take(cache, tokens(32));
  compute(lease);
  squeeze(cache, 6, 4);  // Other requests take the blocks that fell out of the window.
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(lease.rewind(20)), Errc::out_of_range);
  EXPECT_EQ(books(cache) + position(lease), before) << "no group was rewound alone";
  ok(lease.rewind(32));
  EXPECT_EQ(lease.committed(), 32U);
}

TEST_F(Windows, RewindWithinTheWindowIsAllowed) {
  const Options options = grouped({full(40, 4), window(8, 12, 4)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(12);
  Lease lease = take(cache, text);
  engine.run(lease, story_of(text), 12);
  ok(lease.rewind(6));
  const Text other = text.first(6) + tokens(6, 2);
  ok(lease.extend(tokens(6, 2).tokens));
  engine.run(lease, story_of(other), 12);
}

TEST_F(Windows, ForkThatShrinksIntoItsFirstWindowHasEveryBlockItWillWrite) {
  PagedCache& cache = cache_with(grouped({full(20), window(16, 20)}));
  LeaseOptions private_options;
  private_options.lookup.write = false;  // Unpublished: a fork copies all that is left.
  Lease parent = take(cache, tokens(80), private_options);
  compute(parent);
  Lease twin = ok(parent.fork());
  ok(twin.copies_done());
  EXPECT_LE(ok(twin.shrink_to(8)), 8U);
  if (!twin.copies().empty()) ok(twin.copies_done());
  const std::vector<BlockId> blocks = blocks_of(twin, 1);
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_NE(blocks[i], kNoBlock) << "block " << i;
}

TEST_F(Windows, SinksAreAlwaysNeeded) {
  const Options options = grouped({full(40), window(32, 8, 16, 4)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(96);
  Lease lease = take(cache, text);
  engine.run(lease, story_of(text), 96);
  EXPECT_NE(blocks_of(lease, 1)[0], kNoBlock) << "the sinks stay pinned";
  EXPECT_EQ(blocks_of(lease, 1)[1], kNoBlock);
  ok(lease.release());
  const Text other = text + tokens(2, 2);
  Lease reader = take(cache, other);
  EXPECT_EQ(reader.reused(), 96U);
  EXPECT_NE(blocks_of(reader, 1)[0], kNoBlock);
  engine.run(reader, story_of(other), 98);
}

TEST_F(Windows, ReuseThatLacksItsSinksIsNone) {
  PagedCache& cache = cache_with(grouped({full(40), window(32, 8, 16, 4)}));
  const Text text = tokens(96);
  fill(cache, text);
  squeeze(cache, 4);  // The three passed blocks, then the first of the others: the sinks.
  EXPECT_EQ(cached_blocks(cache, 1), 2U);
  EXPECT_EQ(kept(cache, text), 0U);
  EXPECT_EQ(look(cache, text).matched_tokens, 96U);
}

TEST_F(Windows, BlocksThatFellBehindGoBeforeOthers) {
  PagedCache& cache = cache_with(grouped({full(40), window(32, 12)}));
  fill(cache, tokens(32, 1));
  fill(cache, tokens(96, 2));  // Four blocks fall behind its window.
  squeeze(cache, 4);
  EXPECT_EQ(kept(cache, tokens(32, 1)), 32U) << "older, but never passed";
  EXPECT_EQ(kept(cache, tokens(96, 2)), 96U);
}

TEST_F(Windows, LongPromptRunsInAPoolTheSizeOfItsWindow) {
  const Options options = grouped({full(64), window(32, 6)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(640);
  const Story story = story_of(text);
  LeaseOptions chunked;
  chunked.draft_tokens = 32;
  Lease lease = take(cache, text, chunked);
  for (uint32_t end = 32; end <= 640; end += 32) {
    ok(lease.reserve(end));
    engine.run(lease, story, end);
    ASSERT_FALSE(HasFailure()) << "at " << end;
  }
  ok(lease.release());
  EXPECT_EQ(kept(cache, text), 640U);
  EXPECT_EQ(hit(cache, text.first(400)), 0U) << "that window is long gone";
}

TEST_F(Windows, OneLongRequestNeedsNoMoreBlocksThanItsWindow) {
  // 300,000 tokens through 64 blocks of 16, with the default size of the index.
  PagedCache& cache = cache_with(grouped({window(256, 64)}));
  LeaseOptions chunked;
  chunked.draft_tokens = 512;
  const Text text = tokens(300'000);
  Lease lease = take(cache, text, chunked);
  for (uint32_t end = 512; end <= 300'000; end += 512) {
    ok(lease.reserve(end));
    ok(lease.commit(end));
  }
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 299'999 / 512 * 512U);
}

TEST_F(Windows, BudgetBoundsTheIndexThatIsChosen) {
  // With tiny block_bytes, an index of the usual size would be most of the budget.
  Options options = grouped({window(256, 0)});
  options.budget_bytes = 4 << 20;
  PagedCache& cache = cache_with(options);
  EXPECT_GT(cache.stats().groups[0].capacity_blocks, 1000U);
  for (uint32_t i = 0; i < 3000; ++i) fill(cache, tokens(256, i));
  const Stats stats = cache.stats();
  EXPECT_LE(stats.index_bytes + stats.kv_bytes_capacity, options.budget_bytes);
}

TEST_F(Windows, PriorityReachesWindowBlocks) {
  // The full group has room for all; only window blocks are short.
  for (const bool go_on_from_it : {false, true}) {
    PagedCache& cache = cache_with(grouped({full(256), window(64, 24)}));
    const Text system = tokens(128);
    fill(cache, system, {.priority = 100});
    for (uint32_t i = 1; i <= 12; ++i) {
      const Text user = tokens(96, 100 + i);
      fill(cache, go_on_from_it ? system + user : user, {.priority = 0});
    }
    EXPECT_GT(free_blocks(cache), 100U);
    EXPECT_EQ(kept(cache, system), 128U);
  }
}

TEST_F(Windows, RangesReachWindowBlocksThatARequestPasses) {
  PagedCache& cache = cache_with(grouped({full(256), window(64, 24)}));
  const Text system = tokens(128);
  const PriorityRange ranges[] = {{.begin = 0, .end = 128, .priority = 90}};
  fill(cache, system + tokens(96, 1), {.priority = 10, .ranges = ranges});
  for (uint32_t i = 2; i <= 12; ++i) fill(cache, tokens(96, i), {.priority = 20});
  EXPECT_EQ(kept(cache, system), 128U);
  EXPECT_LT(kept(cache, system + tokens(96, 1)), 224U);
}

TEST_F(Windows, PriorityOfWindowBlocksEndsWithItsTime) {
  PagedCache& cache = cache_with(grouped({full(256), window(64, 12)}));
  const Text text = tokens(64);
  fill(cache, text, {.priority = 100, .ttl_ns = 1000});
  fill(cache, tokens(128, 2));
  fill(cache, tokens(128, 3));
  EXPECT_EQ(kept(cache, text), 64U);
  clock.advance_ns(1000);
  fill(cache, tokens(128, 4));
  fill(cache, tokens(128, 5));
  EXPECT_LT(kept(cache, text), 64U);
}

TEST_F(Windows, SamePriorityGivesUpWhatRequestsPassedFirst) {
  PagedCache& cache = cache_with(grouped({full(256), window(32, 24)}));
  const Text first = tokens(160, 1);
  const Text second = tokens(160, 2);
  fill(cache, first, {.priority = 50});
  fill(cache, second, {.priority = 50});
  fill(cache, tokens(160, 3), {.priority = 50});  // Six more than there are.
  EXPECT_EQ(kept(cache, first), 160U);
  EXPECT_EQ(kept(cache, second), 160U);
}

TEST_F(Windows, TenantAtItsQuotaGivesUpWhatItsOwnWindowPassed) {
  for (const bool with_full : {false, true}) {
    std::vector<GroupOptions> groups;
    if (with_full) groups.push_back(full(1024, 16));
    groups.push_back(window(64, 256));
    for (GroupOptions& group : groups)
      group.block_bytes = group.attention == Attention::full ? 1 : 100;
    Options options = grouped(groups);
    options.quotas = {{TenantId{1}, 1600}};
    PagedCache& cache = cache_with(options);
    LeaseOptions mine;
    mine.tenant = TenantId{1};
    mine.draft_tokens = 16;
    Lease lease = take(cache, tokens(16), mine);
    ok(lease.commit(16));
    for (uint32_t n = 32; n <= 4000; n += 16) {
      ok(lease.extend(tokens(16, n).tokens));
      ok(lease.commit(n));
      ASSERT_LE(cache.tenant_bytes(TenantId{1}), 1600U) << "at " << n;
    }
    ok(lease.release());
  }
}

TEST_F(Windows, TenantAtItsQuotaGivesUpPassedBlocksBeforeOtherPrompts) {
  Options options = grouped({full(64), window(32, 64)});
  options.groups[0].block_bytes = options.groups[1].block_bytes = 1;
  options.quotas = {{TenantId{1}, 40}};
  PagedCache& cache = cache_with(options);
  LeaseOptions mine;
  mine.tenant = TenantId{1};
  const Text other = tokens(32, 7);
  {
    Lease lease = take(cache, other, mine);  // 4 bytes.
    compute(lease);
    ok(lease.release());
  }
  mine.draft_tokens = 16;
  Lease lease = take(cache, tokens(16), mine);
  ok(lease.commit(16));
  for (uint32_t n = 32; n <= 480; n += 16) {  // 30 + 30 bytes, all but 3 of the latter passed.
    ok(lease.extend(tokens(16, n).tokens));
    ok(lease.commit(n));
  }
  ok(lease.release());
  EXPECT_EQ(kept(cache, other), 32U);
}

TEST_F(Windows, PressureOnOneGroupLeavesTheOthersAlone) {
  PagedCache& cache = cache_with(grouped({full(40), window(32, 6), window(32, 30)}));
  fill(cache, tokens(64));
  squeeze(cache, 4);
  EXPECT_EQ(cached_blocks(cache, 0), 4U);
  EXPECT_EQ(cached_blocks(cache, 2), 4U);
  EXPECT_EQ(cached_blocks(cache, 1), 0U);
}

TEST_F(Windows, RefusalByOneGroupTakesNothingFromTheOthers) {
  PagedCache& cache = cache_with(grouped({full(40), window(32, 4)}));
  fill(cache, tokens(32));
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.lease(scope, tokens(80, 2))), Errc::out_of_blocks);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(32)), 32U);
}

TEST_F(Windows, LeaseIsRewoundAgainAndAgain) {
  // Sinks stay when the window has passed them, so a lease may go back into them twice.
  for (const bool write : {true, false}) {
    PagedCache& cache = cache_with(grouped({full(64), window(4, 64, 16, 64)}));
    LeaseOptions options;
    options.lookup.write = write;
    Lease lease = take(cache, tokens(100), options);
    ok(lease.commit(80));
    if (!write) {
      ok(lease.rewind(20));
      ok(lease.rewind(10));
      ok(lease.extend(tokens(90, 3).tokens));
      ok(lease.commit(100));
      EXPECT_EQ(blocks_of(lease, 1)[0] == kNoBlock, false) << "a sink";
      EXPECT_EQ(blocks_of(lease, 1)[4], kNoBlock) << "passed again";
      ok(lease.rewind(64));
    }
    ok(lease.rewind(0));
    EXPECT_EQ(lease.length(), 0U);
  }
}

}  // namespace
}  // namespace stemma::test
