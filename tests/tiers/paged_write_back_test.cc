// Write-back under a PagedCache: blocks are stored when they are evicted, and not before.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "stemma/tier/disk_tier.h"
#include "support/environment.h"
#include "support/temporary_directory.h"
#include "tiers/paged_rig.h"

namespace stemma::test {
namespace {

class PagedWriteBack : public PagedTiersTest {
 protected:
  void make_back(std::vector<GroupOptions> groups) {
    make(std::move(groups), {}, WritePolicy::write_back);
  }
  uint32_t everything() { return ok(tiers->make_room(PagedTiers::kEverything)); }

  const TemporaryDirectory directory;  // Outlives the flush of the tier.
};

}  // namespace

TEST_F(PagedWriteBack, WhatHasToGoIsStoredAndNothingBefore) {
  make_back({full(8, 4)});
  const Text first = text_of(17, 1);
  serve(first);
  serve(text_of(12, 2));
  settle();
  EXPECT_EQ(stored(), 0U) << "there is room for both";
  serve(text_of(29, 3));
  settle();
  EXPECT_EQ(stored(), 4U + 3U);
  EXPECT_EQ(tiers->stack().stats().levels[0].written_back, 4U + 3U);
  Restored restored;
  EXPECT_EQ(serve(first, &restored), 16U);
  EXPECT_EQ(restored.restored_tokens, 16U);
  EXPECT_EQ(gets(), 4U);
}

TEST_F(PagedWriteBack, WhatThePromptItselfReusesStays) {
  make_back({full(8, 4)});
  const Text first = text_of(16, 1);
  serve(first);
  serve(text_of(12, 2));
  // The first one is older, but this request continues it.
  EXPECT_EQ(serve(first + text_of(13, 3)), 16U);
  settle();
  EXPECT_EQ(stored(), 3U);
  EXPECT_EQ(gets(), 0U);
}

TEST_F(PagedWriteBack, TheCheckpointThatThePromptGoesOnFromStays) {
  for (const uint32_t blocks : {64U, 12U}) {
    for (const uint32_t depth : {16U, 17U}) {  // The second inside a block.
      make_back({full(blocks, 4), recurrent(2)});
      const Text first = text_of(depth, 1);
      serve(first);
      serve(text_of(16, 2));
      // A slot is needed, of the small pool blocks as well, and its own are the oldest.
      EXPECT_EQ(serve(first + text_of(12, 3)), depth) << blocks;
      settle();
      EXPECT_GE(stored(), 1U) << "the other's checkpoint";
      EXPECT_EQ(gets(), 0U);
    }
  }
}

TEST_F(PagedWriteBack, NothingGoesForAPromptThatNeverFits) {
  make_back({full(8, 4), recurrent(1)});
  serve(text_of(17, 1));
  ok(tiers->restore(scope, text_of(33, 2)));
  EXPECT_EQ(code(cache->lease(scope, text_of(33, 2))), Errc::out_of_blocks);
  settle();
  EXPECT_EQ(stored(), 0U);
  EXPECT_EQ(cache->stats().checkpoints, 1U);
  EXPECT_EQ(cache->stats().groups[0].cached_blocks, 5U);
}

TEST_F(PagedWriteBack, WhatCameFromThereIsNotWrittenAgain) {
  make_back({full(8, 4)});
  serve(text_of(17, 1));
  EXPECT_EQ(everything(), 4U);
  settle();
  EXPECT_EQ(serve(text_of(17, 1)), 16U);
  EXPECT_EQ(everything(), 0U);
  settle();
  EXPECT_EQ(host->stats().puts, 4U);
}

TEST_F(PagedWriteBack, EverythingIsThereAfterACleanEnd) {
  const std::vector<std::vector<GroupOptions>> mixes = {
      {full(64, 4)},
      {full(32, 8), full(64, 4)},
      {full(64, 4), recurrent(8)},
      {full(64, 4), window(8, 32, 8)},
      {window(8, 32, 8, 3), full(64, 4), recurrent(8)},
  };
  for (size_t m = 0; m < mixes.size(); ++m) {
    make_back(mixes[m]);
    chunk = 8;
    const Text text = text_of(45, 1);
    serve(text);
    serve(text_of(21, 2));
    settle();
    EXPECT_EQ(stored(), 0U);
    EXPECT_GT(everything(), 10U);
    EXPECT_EQ(cache->stats().groups[0].cached_blocks, 0U);
    forget();
    Restored restored;
    EXPECT_EQ(serve(text, &restored), mixes[m].size() == 1 ? 44U : 40U) << m;
    restored.hold = {};
    EXPECT_EQ(serve(text_of(21, 2)), mixes[m].size() == 1 ? 20U : 16U) << m;
  }
}

TEST_F(PagedWriteBack, HeldByALeaseItStays) {
  make_back({full(8, 4)});
  serve(text_of(17, 1));
  Lease held = ok(cache->lease(scope, text_of(17, 1), {.draft_tokens = 0}));
  EXPECT_EQ(everything(), 0U);
  ok(held.release());
  EXPECT_EQ(everything(), 4U);
}

TEST_F(PagedWriteBack, WhatTheEngineCannotReadIsLostAndSaid) {
  make_back({full(8, 4)});
  serve(text_of(17, 1));
  engine->set_mode(FakeEngine::Mode::failing);
  const Result<uint32_t> room = tiers->make_room(PagedTiers::kEverything);
  ASSERT_FALSE(room.has_value());
  EXPECT_EQ(room.error().code(), Errc::copy_failed);
  EXPECT_EQ(room.error().value(), 4U);
  engine->set_mode(FakeEngine::Mode::at_once);
  settle();
  EXPECT_EQ(stored(), 0U);
  EXPECT_EQ(free_blocks(*cache), 8U) << "room was made all the same";
}

TEST_F(PagedWriteBack, ResettingStoresNothing) {
  make_back({full(8, 4)});
  serve(text_of(17, 1));
  forget();
  EXPECT_EQ(everything(), 0U);
  EXPECT_EQ(stored(), 0U);
}

TEST_F(PagedWriteBack, WordsAreKeptOnlyIfAsked) {
  for (const bool asked : {false, true}) {
    keep_words = asked;
    make_tier = [&] {
      return std::unique_ptr<Tier>(
          tier::disk::DiskTier::open({.path = directory / (asked ? "with" : "without"),
                                      .capacity_bytes = 16U << 20U,
                                      .max_entry_bytes = 1U << 16U})
              .value());
    };
    make_back({full(8, 4)});
    serve(text_of(17, 1));
    everything();
    settle();
    const Text text = text_of(17, 1);
    tier::PromptKeys keys = ok(tier::PromptKeys::of(scope, text));
    std::vector<uint8_t> into(full(8, 4).block_bytes);
    const auto batch = ok(TierBatch::make(TierOp::get, 1));
    TierItem& item = batch->items()[0];
    item.key = entry_key(keys.chain(4, 2)[1], EntryKind::block, 0, kLayout);
    item.info = {.begin = 4, .end = 8, .layout = 7, .bytes = into.size()};
    item.into = into;
    host->submit(batch);
    ASSERT_TRUE(batch->wait(soon()));
    ASSERT_EQ(item.outcome, TierOutcome::done);
    EXPECT_EQ(item.info.words, asked ? 4U : 0U);
  }
}

// Requests return after their blocks were evicted from a pool that is too small: every reused block
// is right, and nearly all come back.
TEST_F(PagedWriteBack, UnderPressureEveryStampIsRight) {
  const uint64_t seed = from_environment("STEMMA_TIER_SEED", 11);
  std::mt19937_64 random(seed);
  make_back({full(24, 4), window(8, 20, 4), recurrent(6)});
  chunk = 4;
  make_room = true;
  uint64_t restored_tokens = 0;
  for (uint32_t round = 0; round < 300; ++round) {
    const auto which = static_cast<uint32_t>(random() % 9);
    Restored told;
    serve(text_of(24, which) + text_of(static_cast<uint32_t>(random() % 11), 100 + round), &told);
    restored_tokens += told.restored_tokens;
    told.hold = {};
    if (round % 10 == 9) settle();  // So that even on a slow machine something is stored by now.
  }
  EXPECT_GT(restored_tokens, 1000U);
}

TEST_F(PagedWriteBack, ManyThreadsAtOnceAreRight) {
  make_back({full(96, 4)});
  std::atomic<uint64_t> restored_tokens{0};
  std::vector<std::thread> threads;
  for (uint32_t self = 0; self < 3; ++self) {
    threads.emplace_back([&, self] {
      for (uint32_t round = 0; round < 60; ++round) {
        const uint32_t which = (self * 31 + round * 7) % 25;
        Restored told;
        serve(text_of(24, which) + text_of(round % 11, 100 + round), &told);
        restored_tokens += told.restored_tokens;
        told.hold = {};
        if (round % 10 == 9) settle();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(restored_tokens.load(), 100U);
}

}  // namespace stemma::test
