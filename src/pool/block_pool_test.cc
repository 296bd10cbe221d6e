#include "pool/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace stemma::pool {
namespace {

constexpr uint32_t kNone = BlockPool::kNone;

BlockPool pool_of(uint32_t capacity) {
  BlockPool pool;
  EXPECT_TRUE(pool.create(capacity));
  return pool;
}

TEST(BlockPool, NeverUsedBlocksComeInOrderUntilNoneIsLeft) {
  BlockPool pool = pool_of(4);
  for (uint32_t block = 0; block < 4; ++block) EXPECT_EQ(pool.draft(), block);
  EXPECT_EQ(pool.draft(), kNone);
  EXPECT_EQ(pool.free_blocks(), 0U);
  pool.check_invariants();
}

TEST(BlockPool, FreedBlocksAreReusedLastInFirstOut) {
  BlockPool pool = pool_of(4);
  for (uint32_t i = 0; i < 4; ++i) (void)pool.draft();
  pool.release(1);
  pool.release(3);
  EXPECT_EQ(pool.draft(), 3U);
  EXPECT_EQ(pool.draft(), 1U);
  EXPECT_EQ(pool.draft(), kNone);
}

TEST(BlockPool, FreedBlocksGoBeforeNeverUsedOnes) {
  BlockPool pool = pool_of(10);
  for (uint32_t i = 0; i < 3; ++i) (void)pool.draft();
  pool.release(0);
  EXPECT_EQ(pool.draft(), 0U);
  EXPECT_EQ(pool.draft(), 3U);
}

TEST(BlockPool, ABlockIsInExactlyOneState) {
  BlockPool pool = pool_of(2);
  const auto states = [&](uint32_t block) {
    return std::vector<bool>{pool.is_free(block), pool.is_draft(block), pool.is_cached(block),
                             pool.is_dying(block)};
  };
  EXPECT_EQ(states(0), (std::vector<bool>{true, false, false, false}));
  ASSERT_EQ(pool.draft(), 0U);
  EXPECT_EQ(states(0), (std::vector<bool>{false, true, false, false}));
  pool.publish(0);
  EXPECT_EQ(states(0), (std::vector<bool>{false, false, true, false}));
  pool.pin(0);
  pool.release(0);
  EXPECT_EQ(states(0), (std::vector<bool>{false, false, false, true}));
  EXPECT_TRUE(pool.unpin(0));
  EXPECT_EQ(states(0), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(states(1), (std::vector<bool>{true, false, false, false})) << "never used is free";
}

TEST(BlockPool, PublishingKeepsTheHolds) {
  BlockPool pool = pool_of(1);
  (void)pool.draft();
  pool.pin(0);
  pool.pin(0);
  EXPECT_EQ(pool.pins(0), 2U);
  pool.publish(0);
  EXPECT_EQ(pool.pins(0), 2U);
  EXPECT_EQ(pool.cached_blocks(), 1U);
  EXPECT_FALSE(pool.unpin(0));
  EXPECT_TRUE(pool.unpin(0));
  EXPECT_TRUE(pool.is_cached(0)) << "a cached block stays when nobody holds it";
  EXPECT_EQ(pool.free_blocks(), 0U);
}

TEST(BlockPool, AHeldBlockIsNeverHandedOutAgain) {
  for (const bool cached : {false, true}) {
    BlockPool pool = pool_of(2);
    (void)pool.draft();
    (void)pool.draft();
    if (cached) pool.publish(0);
    pool.pin(0);
    pool.pin(0);
    pool.release(0);
    EXPECT_TRUE(pool.is_dying(0));
    EXPECT_EQ(pool.pins(0), 2U);
    EXPECT_EQ(pool.cached_blocks(), 0U);
    EXPECT_EQ(pool.draft(), kNone);
    EXPECT_FALSE(pool.unpin(0));
    EXPECT_EQ(pool.draft(), kNone);
    pool.check_invariants();
    EXPECT_TRUE(pool.unpin(0)) << "the last hold ends";
    EXPECT_EQ(pool.draft(), 0U);
    EXPECT_EQ(pool.pins(0), 0U);
    pool.check_invariants();
  }
}

TEST(BlockPool, PeakOnlyRises) {
  BlockPool pool = pool_of(8);
  EXPECT_EQ(pool.peak_used_blocks(), 0U);
  for (uint32_t i = 0; i < 5; ++i) (void)pool.draft();
  for (uint32_t i = 0; i < 5; ++i) pool.release(i);
  EXPECT_EQ(pool.used_blocks(), 0U);
  EXPECT_EQ(pool.peak_used_blocks(), 5U);
  for (uint32_t i = 0; i < 3; ++i) (void)pool.draft();
  EXPECT_EQ(pool.peak_used_blocks(), 5U);
  for (uint32_t i = 0; i < 3; ++i) (void)pool.draft();
  EXPECT_EQ(pool.peak_used_blocks(), 6U);
}

TEST(BlockPool, MemoryIsTakenAsBlocksAreFirstUsed) {
  BlockPool pool = pool_of(100'000'000);
  EXPECT_EQ(pool.bytes(), 0U);
  EXPECT_EQ(pool.free_blocks(), 100'000'000U);
  (void)pool.draft();
  const uint64_t one = pool.bytes();
  EXPECT_LE(one, 1U << 16U);
  EXPECT_EQ(pool.fresh_after(0), 1U);
  EXPECT_EQ(pool.fresh_after(100'000), 100'001U);
  ASSERT_TRUE(pool.prepare(100'000));
  const uint64_t prepared = pool.bytes();
  EXPECT_GE(prepared, 400'000U);
  for (uint32_t i = 0; i < 100'000; ++i) ASSERT_EQ(pool.draft(), i + 1);
  EXPECT_EQ(pool.bytes(), prepared) << "prepared drafts need no memory";
}

TEST(BlockPool, FreshBlocksAreCountedAfterTheFreedOnes) {
  BlockPool pool = pool_of(10);
  for (uint32_t i = 0; i < 6; ++i) (void)pool.draft();
  pool.release(2);
  pool.release(4);
  EXPECT_EQ(pool.fresh_after(2), 6U);
  EXPECT_EQ(pool.fresh_after(3), 7U);
  EXPECT_EQ(pool.fresh_after(100), 10U) << "there are no more";
  EXPECT_TRUE(pool.prepare(100));
}

TEST(BlockPool, ExactBlocksMayBeTakenAndTheRestListedAnew) {
  BlockPool pool = pool_of(8);
  EXPECT_TRUE(pool.draft_exactly(5));
  EXPECT_TRUE(pool.draft_exactly(2));
  EXPECT_FALSE(pool.draft_exactly(5)) << "not free";
  EXPECT_FALSE(pool.draft_exactly(8)) << "no such block";
  EXPECT_FALSE(pool.draft_exactly(0xFFFF'FFFF));
  pool.publish(5);
  pool.relist();
  pool.check_invariants();
  EXPECT_EQ(pool.peak_used_blocks(), 2U);
  std::vector<uint32_t> rest;
  for (uint32_t b = pool.draft(); b != kNone; b = pool.draft()) rest.push_back(b);
  EXPECT_EQ(rest, (std::vector<uint32_t>{0, 1, 3, 4, 6, 7})) << "lowest first";
  pool.check_invariants();
}

TEST(BlockPool, BlocksFreedWhileLoadingAreListedToo) {
  BlockPool pool = pool_of(6);
  EXPECT_TRUE(pool.draft_exactly(3));
  EXPECT_TRUE(pool.draft_exactly(1));
  pool.release(3);
  EXPECT_TRUE(pool.draft_exactly(3)) << "given back, taken again";
  pool.release(1);
  pool.relist();
  pool.check_invariants();
  EXPECT_EQ(pool.draft(), 0U);
  EXPECT_EQ(pool.draft(), 1U);
  EXPECT_EQ(pool.draft(), 2U);
  EXPECT_EQ(pool.draft(), 4U);
}

TEST(BlockPool, EmptyPoolHasNothingToGive) {
  BlockPool pool = pool_of(0);
  EXPECT_EQ(pool.draft(), kNone);
  EXPECT_TRUE(pool.prepare(5));
  EXPECT_FALSE(pool.draft_exactly(0));
  pool.relist();
  pool.check_invariants();
}

TEST(BlockPool, AgreesWithPlainBooksOverRandomUse) {
  constexpr uint32_t kCapacity = 40;
  enum class State { free, draft, cached, dying };
  struct Block {
    State state = State::free;
    uint32_t holds = 0;
  };
  BlockPool pool = pool_of(kCapacity);
  std::vector<Block> plain(kCapacity);
  std::vector<uint32_t> freed;  // Last in, first out.
  uint32_t fresh = 0;
  uint32_t peak = 0;
  std::mt19937 random(21);
  for (int step = 0; step < 100'000; ++step) {
    const uint32_t block = random() % kCapacity;
    Block& b = plain[block];
    switch (random() % 6) {
      case 0:
      case 1: {
        uint32_t expected = kNone;
        if (!freed.empty()) {
          expected = freed.back();
          freed.pop_back();
        } else if (fresh < kCapacity) {
          expected = fresh++;
        }
        ASSERT_EQ(pool.draft(), expected);
        if (expected != kNone) plain[expected] = {State::draft, 0};
        break;
      }
      case 2:
        if (b.state != State::draft) break;
        pool.publish(block);
        b.state = State::cached;
        break;
      case 3:
        if (b.state != State::draft && b.state != State::cached) break;
        pool.release(block);
        b.state = b.holds == 0 ? State::free : State::dying;
        if (b.holds == 0) freed.push_back(block);
        break;
      case 4:
        if (b.state == State::free) break;
        pool.pin(block);
        ++b.holds;
        break;
      default:
        if (b.holds == 0) break;
        ASSERT_EQ(pool.unpin(block), --b.holds == 0);
        if (b.holds == 0 && b.state == State::dying) {
          b.state = State::free;
          freed.push_back(block);
        }
    }
    ASSERT_EQ(pool.is_free(block), b.state == State::free);
    ASSERT_EQ(pool.is_draft(block), b.state == State::draft);
    ASSERT_EQ(pool.is_cached(block), b.state == State::cached);
    ASSERT_EQ(pool.is_dying(block), b.state == State::dying);
    ASSERT_EQ(pool.pins(block), b.holds);
    const auto count = [&](State state) {
      return static_cast<uint32_t>(
          std::ranges::count_if(plain, [&](const Block& x) { return x.state == state; }));
    };
    peak = std::max(peak, kCapacity - count(State::free));
    ASSERT_EQ(pool.free_blocks(), count(State::free));
    ASSERT_EQ(pool.cached_blocks(), count(State::cached));
    ASSERT_EQ(pool.used_blocks(), kCapacity - count(State::free));
    ASSERT_EQ(pool.peak_used_blocks(), peak);
    if (step % 100 == 0) pool.check_invariants();
  }
}

// ---- Misuse by our own code stops the process ---------------------------------------------------

TEST(BlockPoolDeathTest, OnlyDraftsArePublished) {
  BlockPool pool = pool_of(4);
  EXPECT_DEATH(pool.publish(0), "block_pool");
  (void)pool.draft();
  pool.publish(0);
  EXPECT_DEATH(pool.publish(0), "block_pool");
  pool.pin(0);
  pool.release(0);
  EXPECT_DEATH(pool.publish(0), "block_pool");
}

TEST(BlockPoolDeathTest, NothingIsReleasedTwice) {
  BlockPool pool = pool_of(4);
  EXPECT_DEATH(pool.release(2), "block_pool");
  (void)pool.draft();
  pool.release(0);
  EXPECT_DEATH(pool.release(0), "block_pool");
  (void)pool.draft();
  pool.pin(0);
  pool.release(0);
  EXPECT_DEATH(pool.release(0), "block_pool");
}

TEST(BlockPoolDeathTest, HoldsBalance) {
  BlockPool pool = pool_of(4);
  EXPECT_DEATH(pool.pin(0), "block_pool");
  EXPECT_DEATH(pool.unpin(0), "block_pool");
  (void)pool.draft();
  EXPECT_DEATH(pool.unpin(0), "block_pool");
}

TEST(BlockPoolDeathTest, BlocksBeyondTheNumbersAreRefused) {
  BlockPool pool;
  EXPECT_DEATH((void)pool.create(BlockPool::kMaxBlocks + 1), "block_pool");
}

TEST(BlockPoolDeathTest, ForgottenRelistIsFound) {
  BlockPool pool = pool_of(8);
  EXPECT_TRUE(pool.draft_exactly(5));
  EXPECT_DEATH(pool.check_invariants(), "block_pool");
}

}  // namespace
}  // namespace stemma::pool
