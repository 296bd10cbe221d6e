// Reclaiming: blocks that are evicted to make room can still be saved.
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "support/cache_fixture.h"
#include "support/environment.h"

namespace stemma::test {
namespace {

constexpr uint32_t kAll = 0xFFFF'FFFFU;

class Reclaim : public PagedFixture {
 protected:
  static std::vector<BlockId> ids(const Reclaimed& reclaimed, GroupIndex group = 0) {
    std::vector<BlockId> ids;
    for (const Reclaimed::Block& block : reclaimed.blocks()) {
      if (block.group == group) ids.push_back(block.block);
    }
    return ids;
  }
};

TEST_F(Reclaim, WhatGoesIsNobodysUntilItIsLetGo) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease filling = take(cache, tokens(64, 1));
  compute(filling);
  const std::vector<BlockId> blocks = blocks_of(filling);
  ok(filling.release());
  {
    const Reclaimed reclaimed = ok(cache.reclaim(32, 100));
    // The deepest block first, and no more than requested.
    EXPECT_EQ(ids(reclaimed), (std::vector{blocks[3], blocks[2]}));
    EXPECT_EQ(kept(cache, tokens(64, 1)), 32U);
    const Reclaimed::Block& last = reclaimed.blocks()[0];
    EXPECT_EQ(last.begin, 48U);
    EXPECT_EQ(last.end, 64U);
    const auto words = reclaimed.words(last);
    ASSERT_EQ(words.size(), 16U);
    EXPECT_EQ(words[0], tokens(64, 1).tokens[48]);
    EXPECT_EQ(words[15], tokens(64, 1).tokens[63]);
    EXPECT_EQ(free_blocks(cache), 0U);
    // A block that is being saved counts as free, so no more need be saved.
    EXPECT_TRUE(ok(cache.reclaim(32, 100)).blocks().empty());
    Lease other = take(cache, tokens(32, 2));
    EXPECT_EQ(blocks_of(other), (std::vector{blocks[0], blocks[1]}));
    EXPECT_EQ(code(cache.lease(scope, tokens(16, 3))), Errc::out_of_blocks);
  }
  EXPECT_EQ(free_blocks(cache), 4U);
}

TEST_F(Reclaim, NothingGoesWhereThereIsRoom) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(32, 1));
  EXPECT_TRUE(ok(cache.reclaim(32, 100)).blocks().empty());
  EXPECT_EQ(ok(cache.reclaim(33, 100)).blocks().size(), 1U);
  EXPECT_EQ(kept(cache, tokens(32, 1)), 16U);
}

TEST_F(Reclaim, NoMoreThanAskedForAndNothingThatIsHeld) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(64, 1));
  fill(cache, tokens(64, 2));
  Lease held = hold(cache, tokens(64, 1) + of({1}));
  EXPECT_EQ(ok(cache.reclaim(kAll, 3)).blocks().size(), 3U);
  EXPECT_EQ(ok(cache.reclaim(kAll, kAll)).blocks().size(), 1U);
  EXPECT_EQ(hit(cache, tokens(64, 1) + of({1})), 64U);
  EXPECT_EQ(cache.stats().evicted_blocks, 4U);
}

TEST_F(Reclaim, PartBlocksAreNotAmongThem) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(40, 1));  // Its last 8 words are a tail.
  const Reclaimed reclaimed = ok(cache.reclaim(kAll, kAll));
  EXPECT_EQ(reclaimed.evicted(), 3U);
  ASSERT_EQ(reclaimed.blocks().size(), 2U);
  EXPECT_EQ(reclaimed.blocks()[0].end, 32U);
  EXPECT_EQ(free_blocks(cache), 2U);
}

TEST_F(Reclaim, BlocksThatAWindowGivesUpAreOnePathWhereTheyLieOnOne) {
  // All blocks share one walk and one chain of keys.
  PagedCache& cache = cache_with(grouped({full(200), window(512, 40)}));
  fill(cache, tokens(16 * 38, 1));
  const Reclaimed reclaimed = ok(cache.reclaim(512, kAll));
  ASSERT_EQ(reclaimed.evicted(), 31U) << "room for a window and a block; two are free";
  ASSERT_EQ(reclaimed.blocks().size(), 31U);
  uint32_t above = 0xFFFF'FFFFU;
  for (const Reclaimed::Block& block : reclaimed.blocks()) {
    EXPECT_EQ(block.group, 1U);
    EXPECT_EQ(block.path, 0U);
    EXPECT_LT(block.end, above) << "the deepest first";
    above = block.end;
    const std::span<const Token> words = reclaimed.words(block);
    ASSERT_EQ(words.size(), 16U);
    EXPECT_EQ(words[0], tokens(16 * 38, 1).tokens[block.begin]);
  }
  EXPECT_EQ(cache.stats().groups[0].cached_blocks, 38U) << "their prefix stays";
}

// The keys are those in the events of removed blocks, whatever else is on the path; other groups
// have keys of their own.
TEST_F(Reclaim, KeysAreThoseOfThePrefixInEveryGroup) {
  Options options = grouped({full(256, 8), full(256, 32), window(64, 256, 16)});
  options.content_keys = true;
  options.event_capacity = 4096;
  PagedCache& cache = cache_with(options);
  const Text plain = tokens(256, 1);
  const Text seen =
      tokens(256, 2).with(image(1, 5, 40)).with(audio(2, 60, 3)).with(image(1, 63, 40));
  fill(cache, plain);
  fill(cache, plain.first(128) + tokens(128, 3));
  fill(cache, seen);
  std::vector<Event> events;
  const uint64_t before = cache.events(0, 10'000, events);
  std::vector<std::vector<ContentKey>> keys(3);
  std::set<std::pair<GroupIndex, BlockId>> blocks;
  for (;;) {
    const Reclaimed reclaimed = ok(cache.reclaim(kAll, 7));
    if (reclaimed.blocks().empty()) break;
    for (const Reclaimed::Block& block : reclaimed.blocks()) {
      keys[block.group].push_back(block.key);
      blocks.emplace(block.group, block.block);
      EXPECT_EQ(block.end - block.begin, options.groups[block.group].block_tokens);
    }
  }
  events.clear();
  cache.events(before, 10'000, events);
  std::vector<ContentKey> gone;
  for (const Event& event : events) {
    if (event.group == 0) gone.insert(gone.end(), event.keys.begin(), event.keys.end());
  }
  EXPECT_EQ(keys[0], gone);
  EXPECT_EQ(keys[0].size(), (256U + 128 + 256) / 8);
  EXPECT_EQ(keys[1].size(), (256U + 128 + 256) / 32);
  EXPECT_EQ(blocks.size(), keys[0].size() + keys[1].size() + keys[2].size());
  // A cache whose index uses the other groups' grid gives the same keys.
  for (const auto& [group, size] : {std::pair{1U, 32U}, std::pair{2U, 16U}}) {
    Options alone = grouped({full(256, size)});
    alone.content_keys = true;
    alone.event_capacity = 4096;
    PagedCache& other = cache_with(alone);
    for (const Text& text : {plain, plain.first(128) + tokens(128, 3), seen}) fill(other, text);
    std::set<ContentKey> known;
    for (const Event& event : other.event_dump().events)
      known.insert(event.keys.begin(), event.keys.end());
    EXPECT_FALSE(keys[group].empty());
    for (const ContentKey& key : keys[group]) EXPECT_TRUE(known.contains(key)) << group;
    EXPECT_EQ(std::set(keys[group].begin(), keys[group].end()).size(), keys[group].size());
  }
}

TEST_F(Reclaim, ACheckpointGoesWithItsPath) {
  PagedCache& cache = cache_with(grouped({full(8), recurrent(4)}));
  Lease lease = take(cache, tokens(48, 1));
  ok(lease.commit(32));
  const BlockId slot = save_checkpoint(lease, 1);
  compute(lease);
  ok(lease.release());
  const Reclaimed reclaimed = ok(cache.reclaim(kAll, kAll));
  ASSERT_EQ(ids(reclaimed, 1), std::vector{slot});
  ASSERT_EQ(ids(reclaimed, 0).size(), 3U);
  EXPECT_EQ(cache.stats().groups[1].free_blocks, 3U);
  for (const Reclaimed::Block& block : reclaimed.blocks()) {
    if (block.group == 1) {
      EXPECT_EQ(block.end, 32U);
      EXPECT_EQ(block.begin, 32U);
      EXPECT_EQ(block.key, reclaimed.blocks()[1].key) << "that of the block that ends there";
    }
  }
}

TEST_F(Reclaim, ItOutlivesTheCache) {
  Reclaimed reclaimed;
  {
    PagedCache cache = ok(PagedCache::create(grouped({full(4)})));
    fill(cache, tokens(64, 1));
    reclaimed = ok(cache.reclaim(16, 100));
    const Reclaimed moved = std::move(reclaimed);
    EXPECT_EQ(moved.blocks().size(), 1U);
    reclaimed = ok(cache.reclaim(48, 100));
  }
  EXPECT_EQ(reclaimed.blocks().size(), 2U);
  PagedCache gone = ok(PagedCache::create(grouped({full(4)})));
  const PagedCache taken = std::move(gone);
  EXPECT_EQ(code(gone.reclaim(1, 1)), Errc::wrong_state);  // NOLINT: on purpose
}

// A dump gives each block's contents, so no block in it may still belong to a lease.
TEST_F(Reclaim, NoDumpIsLoadedOverWhatIsHeld) {
  for (const Options& options : {grouped({full(8), window(32, 4)}), grouped({window(32, 4)})}) {
    PagedCache& cache = cache_with(options);
    fill(cache, tokens(64, 1));
    const std::vector<uint8_t> dump = cache.dump();
    {
      const Reclaimed reclaimed = ok(cache.reclaim(16, 1));
      ASSERT_EQ(reclaimed.blocks().size(), 1U);
      EXPECT_EQ(reclaimed.blocks()[0].group, options.groups.size() - 1);
      EXPECT_GT(cache.drop_scope(scope), 0U);
      EXPECT_EQ(code(cache.load(dump)), Errc::wrong_state);
    }
    ok(cache.load(dump));
    cache.check_invariants();
    EXPECT_EQ(cache.dump(), dump);
  }
}

// Among leases of all kinds no block ever has two owners, and the books balance.
TEST_F(Reclaim, RandomRunsKeepEveryBlockInOneHand) {
  PagedCache& cache = cache_with(grouped({full(64, 4), full(32, 8), window(16, 48, 4)}));
  std::mt19937_64 random(from_environment("STEMMA_RECLAIM_SEED", 7));
  const auto below = [&random](uint64_t limit) { return random() % limit; };
  std::vector<Lease> leases;
  std::vector<Reclaimed> saved;
  for (uint32_t step = 0; step < 4'000; ++step) {
    const uint64_t what = below(10);
    if (what < 5) {
      const auto seed = static_cast<uint32_t>(1 + below(6));
      const auto length = static_cast<uint32_t>(1 + below(80));
      auto lease = cache.lease(scope, tokens(length, seed));
      if (lease) {
        compute(*lease);
        leases.push_back(*std::move(lease));
      }
    } else if (what < 7) {
      saved.push_back(
          ok(cache.reclaim(static_cast<uint32_t>(below(200)), static_cast<uint32_t>(below(20)))));
    } else if (what == 7 && !saved.empty()) {
      saved.erase(saved.begin() + static_cast<ptrdiff_t>(below(saved.size())));
    } else if (!leases.empty()) {
      leases.erase(leases.begin() + static_cast<ptrdiff_t>(below(leases.size())));
    }
    std::set<std::pair<GroupIndex, BlockId>> held;
    for (const Reclaimed& one : saved) {
      for (const Reclaimed::Block& block : one.blocks())
        ASSERT_TRUE(held.emplace(block.group, block.block).second) << "step " << step;
    }
    for (const Lease& lease : leases) {
      for (GroupIndex g = 0; g < 3; ++g) {
        for (const BlockId block : blocks_of(lease, g))
          ASSERT_FALSE(held.contains({g, block})) << "step " << step;
      }
    }
    if (step % 100 == 0) cache.check_invariants();
  }
}

}  // namespace
}  // namespace stemma::test
