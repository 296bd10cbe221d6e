// Blocks and hits: what is found again, when it becomes findable, and what goes first.
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Blocks : public PagedFixture {};

TEST_F(Blocks, PromptSharingThreeBlocksHits48) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text first = tokens(55);
  Lease a = take(cache, first);
  EXPECT_EQ(a.reused(), 0U);
  EXPECT_EQ(a.block_count(0), 4U);
  EXPECT_EQ(free_blocks(cache), 6U);
  compute(a);

  Lease b = take(cache, first.first(48) + tokens(7, 2));
  EXPECT_EQ(b.reused(), 48U);
  EXPECT_EQ(b.report().outcome, Outcome::partial_hit);
  EXPECT_EQ(free_blocks(cache), 5U) << "one new block is drawn";
  const std::vector<BlockId> of_a = blocks_of(a);
  const std::vector<BlockId> of_b = blocks_of(b);
  EXPECT_TRUE(std::equal(of_a.begin(), of_a.begin() + 3, of_b.begin()));
  EXPECT_NE(of_a[3], of_b[3]);
}

TEST_F(Blocks, FreedBlocksStayFindableAndAreAllAvailable) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text first = tokens(55);
  fill(cache, first);
  fill(cache, first.first(48) + tokens(7, 2));
  EXPECT_EQ(free_blocks(cache) + cached_blocks(cache), 10U);
  {
    Lease third = take(cache, first.first(48) + tokens(7, 3));
    EXPECT_EQ(third.reused(), 48U);
  }
  EXPECT_EQ(take(cache, tokens(160, 4)).block_count(0), 10U);
}

TEST_F(Blocks, DeepestBlocksGoBeforeTheSharedHead) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text shared = tokens(48);
  fill(cache, shared + tokens(7, 2));
  fill(cache, shared + tokens(7, 3));
  ASSERT_EQ(free_blocks(cache), 5U);
  // Five blocks have no contents; each further one costs the deepest leaf, older tails first.
  const uint32_t left[] = {48, 48, 48, 32, 16, 0};
  for (uint32_t i = 0; i < 6; ++i) {
    take(cache, tokens((5 + i) * 16, 10 + i));
    EXPECT_EQ(kept(cache, shared), left[i]) << "after a miss of " << 5 + i << " blocks";
    EXPECT_EQ(kept(cache, shared + tokens(7, 2)), i == 0 ? 55U : left[i]);
    EXPECT_EQ(kept(cache, shared + tokens(7, 3)), i <= 1 ? 55U : left[i]);
    EXPECT_EQ(cache.stats().evicted_blocks, i);
  }
}

TEST_F(Blocks, DecodedBlockIsSharedWhenItsLastTokenIsWritten) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text whole = tokens(64);
  Lease lease = take(cache, whole.first(55));
  compute(lease);
  for (uint32_t n = 56; n <= 64; ++n) {
    EXPECT_EQ(kept(cache, whole), 48U) << "while " << n - 1 << " are written";
    ok(lease.extend({&whole.tokens[n - 1], 1}));
    EXPECT_EQ(kept(cache, whole), 48U) << "position " << n - 1 << " is not written yet";
    const Commit commit = ok(lease.commit(n));
    EXPECT_EQ(commit.published, n == 64 ? 1U : 0U);
  }
  EXPECT_EQ(in_place(cache, whole), 64U);
}

TEST_F(Blocks, AnswersAreFoundByTheNextTurn) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Text question = tokens(40);
  const Text answer = tokens(50, 2);
  Lease lease = take(cache, question);
  compute(lease);
  ok(lease.extend(answer.tokens));
  ok(lease.commit(89));  // The last sampled token was never evaluated.
  ok(lease.release());
  EXPECT_EQ(hit(cache, question + answer + tokens(30, 3)), 89U);
}

TEST_F(Blocks, TheOnlyBlockIsReusedAndItsContentsForgotten) {
  for (const Text& second : {tokens(15, 2), tokens(16).first(15)}) {
    PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 1});
    fill(cache, tokens(16));
    EXPECT_EQ(kept(cache, tokens(16)), 16U);
    Lease lease = take(cache, second);
    const bool same = second.tokens == tokens(16).first(15).tokens;
    EXPECT_EQ(lease.reused(), same ? 14U : 0U) << "taken over: there is no second one to copy into";
    EXPECT_TRUE(lease.copies().empty());
    EXPECT_EQ(blocks_of(lease), std::vector{BlockId{0}});
    EXPECT_EQ(kept(cache, tokens(16)), 0U);
  }
}

TEST_F(Blocks, SwitchedOffCacheLendsBlocksAndKeepsNothing) {
  Options options = grouped({full(4, 4)});
  options.enabled = false;
  PagedCache& cache = cache_with(options);
  {
    Lease lease = take(cache, tokens(10));
    EXPECT_EQ(lease.block_count(0), 3U);
    EXPECT_EQ(compute(lease).published, 0U);
  }
  EXPECT_EQ(free_blocks(cache), 4U);
  EXPECT_EQ(hit(cache, tokens(10)), 0U);

  Lease lease = take(cache, tokens(16));
  EXPECT_EQ(lease.report().outcome, Outcome::bypassed);
  EXPECT_EQ(lease.block_count(0), 4U);
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(lease.extend(tokens(4, 2).tokens)), Errc::out_of_blocks);
  EXPECT_EQ(books(cache) + position(lease), before);
}

TEST_F(Blocks, NothingIsFoundBeforeItIsWritten) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(64);
  Lease lease = take(cache, text);
  EXPECT_EQ(kept(cache, text), 0U);
  ok(lease.commit(15));
  EXPECT_EQ(kept(cache, text), 0U);
  ok(lease.commit(40));
  EXPECT_EQ(kept(cache, text), 32U) << "a part-block is not found while it is being written";
}

TEST_F(Blocks, RequestThatDiesHalfWayLeavesOnlyWhatWasWritten) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(64);
  {
    Lease dies = take(cache, text);
    ok(dies.commit(40));
  }
  EXPECT_EQ(kept(cache, text), 40U);
  EXPECT_EQ(cached_blocks(cache), 3U);

  const Text other = tokens(64, 2);
  Lease gives_up = take(cache, other);
  ok(gives_up.commit(40));
  ok(gives_up.abandon());
  EXPECT_EQ(kept(cache, other), 32U) << "an abandoned part-block is not published";
  EXPECT_EQ(cached_blocks(cache), 5U);
}

TEST_F(Blocks, ChunkingDoesNotChangeWhatIsFound) {
  const Text text = tokens(100);
  const std::vector<std::vector<uint32_t>> chunkings = {{100},
                                                        {16, 32, 48, 64, 80, 96, 100},
                                                        {1, 2, 17, 31, 32, 33, 99, 100},
                                                        {50, 100},
                                                        {0, 64, 100}};
  std::vector<std::vector<ContentKey>> keys;
  for (const std::vector<uint32_t>& chunks : chunkings) {
    Options options = grouped({full(10)});
    options.content_keys = true;
    options.event_capacity = 64;
    PagedCache& cache = cache_with(options);
    Engine engine(options.groups);
    const Story story = story_of(text);
    Lease lease = take(cache, text);
    uint32_t published = 0;
    for (uint32_t end : chunks) {
      engine.write(lease, story, lease.committed(), end);
      published += ok(lease.commit(end)).published;
    }
    EXPECT_EQ(published, 6U);
    ok(lease.abandon());
    Lease reader = take(cache, text);
    EXPECT_EQ(reader.reused(), 96U);
    engine.expect_right(reader, story, 96);

    std::vector<Event> events;
    cache.events(0, 64, events);
    std::vector<ContentKey>& found = keys.emplace_back();
    for (const Event& event : events) {
      found.insert(found.end(), event.keys.begin(), event.keys.end());
    }
    EXPECT_EQ(found, keys.front()) << "keys depend on positions, not on chunks";
  }
  EXPECT_EQ(keys.front().size(), 6U);
}

TEST_F(Blocks, CommittingTheSameAgainChangesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  Lease lease = take(cache, tokens(40));
  EXPECT_EQ(ok(lease.commit(35)).published, 2U);
  const std::string before = books(cache) + position(lease);
  const Commit again = ok(lease.commit(35));
  EXPECT_EQ(again.committed, 35U);
  EXPECT_EQ(again.published, 0U);
  EXPECT_EQ(again.duplicates, 0U);
  EXPECT_EQ(books(cache) + position(lease), before);
}

TEST_F(Blocks, SecondWriterOfEqualBlocksKeepsItsOwnUntilRelease) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(48);
  Lease a = take(cache, text);
  Lease b = take(cache, text);
  EXPECT_EQ(ok(a.commit(48)).published, 3U);
  const std::vector<BlockId> own = blocks_of(b);
  const Commit second = ok(b.commit(48));
  EXPECT_EQ(second.published, 0U);
  EXPECT_EQ(second.duplicates, 3U);
  EXPECT_EQ(blocks_of(b), own) << "blocks of a running lease never move";
  EXPECT_NE(blocks_of(a), own);
  EXPECT_EQ(cache.stats().duplicate_blocks, 3U);
  const std::vector<BlockId> canonical = blocks_of(a);
  ok(a.release());
  ok(b.release());
  EXPECT_EQ(free_blocks(cache), 7U);
  EXPECT_EQ(cached_blocks(cache), 3U);
  Lease third = take(cache, text + tokens(1, 2));
  EXPECT_EQ(third.reused(), 48U);
  const std::vector<BlockId> found = blocks_of(third);
  EXPECT_TRUE(std::equal(canonical.begin(), canonical.end(), found.begin()));
}

TEST_F(Blocks, SecondWriterMaySwitchToTheCanonicalBlocks) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(52);
  Lease a = take(cache, text);
  Lease b = take(cache, text);
  compute(a);
  compute(b);
  const BlockId last = blocks_of(b)[3];
  EXPECT_EQ(b.adopt_canonical(), 3U);
  EXPECT_EQ(free_blocks(cache), 5U) << "the duplicates went back at once";
  const std::vector<BlockId> of_a = blocks_of(a);
  const std::vector<BlockId> of_b = blocks_of(b);
  EXPECT_TRUE(std::equal(of_a.begin(), of_a.begin() + 3, of_b.begin()));
  EXPECT_EQ(of_b[3], last) << "the block being written stays private";
  EXPECT_EQ(b.adopt_canonical(), 0U);
}

TEST_F(Blocks, AnyPowerOfTwoIsABlockSize) {
  for (uint32_t size = 1; size <= 1024; size *= 2) {
    Options options = grouped({full(40, size)});
    PagedCache& cache = cache_with(options);
    Engine engine(options.groups);
    const Text text = tokens(3 * size + size / 2);
    const Story story = story_of(text);
    Lease lease = take(cache, text);
    engine.run(lease, story, text.size());
    ok(lease.release());
    EXPECT_EQ(in_place(cache, text), 3 * size);
    EXPECT_EQ(kept(cache, text), text.size());
    Lease again = take(cache, text);
    EXPECT_EQ(again.reused(), text.size() - 1) << "blocks of " << size;
    engine.run(again, story, text.size());
  }
}

TEST_F(Blocks, HitLengthDoesNotDependOnMultiplesOfTheBlockSize) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 512});
  fill(cache, tokens(6000));
  for (uint32_t length : {5119U, 5120U, 5121U, 5127U, 5135U, 5136U}) {
    EXPECT_EQ(hit(cache, tokens(length)), length - 1);
    EXPECT_EQ(hit(cache, tokens(length) + tokens(3, 2)), length);
  }
}

}  // namespace
}  // namespace stemma::test
