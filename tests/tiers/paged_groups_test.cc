// Tiers under a PagedCache whose groups do not all have full attention: a restored depth brings
// exactly what each group needs there.
#include <gtest/gtest.h>

#include <atomic>

#include "tiers/paged_rig.h"

namespace stemma::test {
namespace {

class PagedGroups : public PagedTiersTest {};

// Window blocks that the requests of these tests leave in the tier: those of the last window.
constexpr uint32_t kLastWindow = 2;

}  // namespace

TEST_F(PagedGroups, AWindowAloneComesBackWithoutWhatIsBehindIt) {
  make({window(8, 5, 4)});
  chunk = 4;
  const Text text = text_of(40, 1);
  EXPECT_EQ(serve(text), 0U);
  settle();
  EXPECT_EQ(stored(), kLastWindow) << "what the lease no longer had";
  forget();
  Restored restored;
  EXPECT_EQ(serve(text + text_of(3, 2), &restored), 40U);
  EXPECT_EQ(restored.stored_tokens, 40U);
  EXPECT_EQ(restored.restored_tokens, 40U);
  EXPECT_EQ(restored.level_tokens[0], 40U);
  EXPECT_EQ(gets(), kLastWindow);
}

TEST_F(PagedGroups, SinksComeBackToo) {
  make({full(64, 4), window(8, 16, 4, 5)});
  chunk = 4;
  const Text text = text_of(40, 1);
  serve(text);
  forget();
  EXPECT_EQ(stored(), 10U + 2U + kLastWindow);
  EXPECT_EQ(serve(text + text_of(3, 2)), 40U);
  EXPECT_EQ(gets(), 10U + 2U + kLastWindow);
}

TEST_F(PagedGroups, FullAndWindowOfOtherBlocksComeBackToOneDepth) {
  make({full(64, 4), window(8, 16, 8)});
  chunk = 8;
  const Text text = text_of(44, 1);
  serve(text);
  forget();
  // 44 is inside a block of the window group, 40 needs [32, 40).
  EXPECT_EQ(serve(text + text_of(3, 2)), 40U);
  EXPECT_EQ(gets(), 10U + 1U);
}

TEST_F(PagedGroups, FullAndRecurrentComeBackToACheckpoint) {
  make({full(64, 4), recurrent(8)});
  chunk = 8;
  const Text text = text_of(30, 1);
  serve(text);
  settle();
  EXPECT_EQ(stored(), 7U + 3U) << "that at 30 is on no block's border";
  forget();
  Restored restored;
  EXPECT_EQ(serve(text, &restored), 24U);
  EXPECT_EQ(restored.restored_tokens, 24U);
  EXPECT_EQ(restored.level_tokens[0], 24U);
  EXPECT_EQ(gets(), 6U + 1U) << "one checkpoint";
}

TEST_F(PagedGroups, RecurrentAloneNeedsOneCheckpoint) {
  make({recurrent(8)});
  chunk = 16;
  const Text text = text_of(70, 1);
  serve(text);
  forget();
  EXPECT_EQ(serve(text), 64U);
  EXPECT_EQ(gets(), 1U);
  forget();
  EXPECT_EQ(serve(text.first(64)), 48U) << "one token is computed anyway";
}

TEST_F(PagedGroups, AllThreeComeBackTogether) {
  make({window(12, 16, 8, 3), full(64, 4), recurrent(8)});
  chunk = 8;
  const Text text = text_of(61, 1);
  serve(text);
  forget();
  Restored restored;
  // At 61 the lease had [48, ...) and the sinks: 56 would need the block before, which it let go,
  // and the sinks are all that 8 needs.
  EXPECT_EQ(serve(text, &restored), 8U);
  EXPECT_EQ(restored.stored_tokens, 8U);
  restored.hold = {};
  forget();
  // Stored as it went, there is every depth.
  store_along = true;
  serve(text_of(61, 2));
  forget();
  const uint64_t before = gets();
  EXPECT_EQ(serve(text_of(61, 2), &restored), 56U);
  // Window: the sinks' block and [40, 56).
  EXPECT_EQ(gets() - before, 1U + 2U + 14U + 1U);
  EXPECT_EQ(restored.level_tokens[0], 56U);
}

TEST_F(PagedGroups, AHoleInTheWindowGivesAShallowerDepth) {
  make({full(64, 4), window(8, 16, 4)});
  chunk = 4;
  store_along = true;
  const Text text = text_of(41, 1);
  serve(text);
  lose(text, 1, 4, 36);
  forget();
  // 40 and 36 need [32, 36); 32 does not.
  EXPECT_EQ(serve(text), 32U);
  forget();
  // A hole in the full group stops everything behind it.
  lose(text, 0, 4, 12);
  EXPECT_EQ(serve(text), 8U);
  forget();
  // A hole behind the window does not matter.
  lose(text_of(41, 1), 1, 4, 16);
  EXPECT_EQ(serve(text), 40U) << "the others were stored again";
}

TEST_F(PagedGroups, AMissingCheckpointGivesAShallowerOne) {
  make({full(64, 4), recurrent(8)});
  chunk = 8;
  const Text text = text_of(41, 1);
  serve(text);
  lose(text, 1, 4, 40);
  lose(text, 1, 4, 32);
  forget();
  Restored restored;
  EXPECT_EQ(serve(text, &restored), 24U);
  EXPECT_EQ(restored.stored_tokens, 24U);
  EXPECT_EQ(gets(), 6U + 1U);
}

TEST_F(PagedGroups, WhatTheCacheStillHasIsNotLoadedAgain) {
  make({full(64, 4), recurrent(2)});
  chunk = 8;
  const Text text = text_of(41, 1);
  serve(text);
  serve(text_of(41, 2));  // Its checkpoints take the slots of the first.
  settle();
  ASSERT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 0U);
  ASSERT_EQ(ok(cache->lookup(scope, text)).matched_tokens, 41U);
  Restored restored;
  EXPECT_EQ(serve(text, &restored), 40U);
  EXPECT_EQ(gets(), 1U) << "the checkpoint";
  EXPECT_EQ(restored.restored_tokens, 40U);
  EXPECT_EQ(restored.level_tokens[0], 40U);
  EXPECT_EQ(cache->stats().duplicate_blocks, 0U);
}

TEST_F(PagedGroups, TheHoldKeepsTheCheckpointToo) {
  make({full(64, 4), recurrent(1)});
  chunk = 8;
  store_along = true;
  const Text text = text_of(17, 1);
  serve(text);
  lose(text, 1, 4, 8);
  forget();
  Restored restored = ok(tiers->restore(scope, text));
  EXPECT_EQ(restored.restored_tokens, 16U);
  EXPECT_EQ(serve(text_of(9, 2)), 0U);  // Finds no slot for its own.
  EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 16U);
  restored.hold = {};
  EXPECT_EQ(serve(text_of(9, 3)), 0U);
  EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 0U);
}

TEST_F(PagedGroups, WithoutASlotNothingIsRestored) {
  make({full(64, 4), recurrent(1)});
  chunk = 8;
  store_along = true;
  const Text text = text_of(17, 1);
  serve(text);
  forget();
  Lease taker = ok(cache->lease(scope, text_of(8, 2)));
  ok(taker.draft_checkpoint(1));
  Restored restored = ok(tiers->restore(scope, text));
  EXPECT_EQ(restored.stored_tokens, 16U);
  EXPECT_EQ(restored.restored_tokens, 0U);
  EXPECT_EQ(cache->stats().groups[0].cached_blocks, 0U);
  ok(taker.release());
  EXPECT_EQ(ok(tiers->restore(scope, text)).restored_tokens, 16U);
}

TEST_F(PagedGroups, AnotherTenantFindsNothing) {
  make({full(64, 4), window(8, 16, 4), recurrent(8)});
  chunk = 4;
  const Text text = text_of(33, 1);
  serve(text);
  forget();
  Restored restored;
  EXPECT_EQ(serve(text, other, &restored), 0U);
  EXPECT_EQ(restored.stored_tokens, 0U);
  restored.hold = {};
  EXPECT_EQ(serve(text), 32U);
}

TEST_F(PagedGroups, NoDepthIsInsideAMediaItem) {
  make({full(64, 4), recurrent(8)});
  MediaItem item{.offset = 14, .length = 5};
  item.digest.fill(3);
  const Text text = text_of(30, 1).with(item);
  chunk = 4;
  // States are saved where units end, and 16 is inside the item.
  const auto computed_to = [&](uint32_t end) {
    Lease lease = ok(cache->lease(scope, text));
    const Story story(1, text);
    for (const uint32_t depth : {12U, 20U, 24U}) {
      if (depth > end) break;
      engine->compute(lease, lease.committed(), depth, story);
      ok(lease.commit(depth));
      save_states(lease, story);
    }
    ok(tiers->store(scope, text, lease));
  };
  computed_to(24);
  lose(text, 1, 4, 20);
  lose(text, 1, 4, 24);
  forget();
  Restored restored = ok(tiers->restore(scope, text));
  EXPECT_EQ(restored.restored_tokens, 12U);
  EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 12U);
}

TEST_F(PagedGroups, DamagedEntriesNeverComeBack) {
  uint32_t partial = 0, whole = 0;
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    make({full(64, 4), window(8, 16, 4), recurrent(8)});
    chunk = 4;
    store_along = true;
    const Text text = text_of(49, 1);
    serve(text);
    forget();
    host->set_plan({.seed = seed, .tear = 20, .flip = 20});
    Restored restored;
    const uint32_t reused = serve(text, &restored);  // Which verifies every stamp.
    EXPECT_EQ(restored.stored_tokens, 48U);
    EXPECT_EQ(reused, restored.restored_tokens);
    restored.hold = {};
    whole += reused == 48 ? 1U : 0U;
    partial += reused > 0 && reused < 48 ? 1U : 0U;
    const uint64_t bad = host->faults().torn + host->faults().flipped;
    EXPECT_EQ(reused == 48, bad == 0) << seed;
  }
  EXPECT_GE(partial, 3U);
  EXPECT_GE(whole, 3U);
}

TEST_F(PagedGroups, AStateThatTheEngineCannotReadIsSaid) {
  make({recurrent(8)});
  const Text text = text_of(17, 1);
  Lease lease = ok(cache->lease(scope, text));
  ok(lease.commit(16));
  save_states(lease, Story(1, text));
  engine->set_mode(FakeEngine::Mode::failing);
  const auto failed = tiers->store(scope, text, lease);
  ASSERT_EQ(code(failed), Errc::copy_failed);
  EXPECT_EQ(failed.error().value(), 16U);
  engine->set_mode(FakeEngine::Mode::at_once);
  EXPECT_EQ(ok(tiers->store(scope, text, lease)), 1U);
  EXPECT_EQ(ok(tiers->store(scope, text, lease, 16)), 0U) << "it was told";
}

// Nothing waits for a level that is too slow; entries on the level before it are used.
TEST(PagedGroupsStack, TheDeepestDepthThatIsWorthItIsTaken) {
  const std::vector<GroupOptions> groups = {full(64, 4), recurrent(8)};
  FakeEngine engine(groups);
  PagedCache cache = ok(PagedCache::create(grouped(groups)));
  auto slow =
      std::make_unique<FaultyTier>(ok(make_host_tier({.capacity_bytes = 8U << 20U})), FaultPlan{});
  FaultyTier& far = *slow;
  StackOptions options;
  options.query_ns = 60'000'000'000;
  options.levels.resize(2);
  options.levels[0].tier = ok(make_host_tier({.capacity_bytes = 8U << 20U}));
  options.levels[1].tier = std::move(slow);
  const auto tiers =
      ok(PagedTiers::create({.cache = &cache, .io = &engine, .groups = groups, .layout = 7},
                            ok(TierStack::create(std::move(options)))));
  TierStack& stack = tiers->stack();
  const Scope scope = scope_of({.model = "a model"});
  const Text text = text_of(41, 1);
  {
    const Story story(1, text);
    Lease lease = ok(cache.lease(scope, text));
    for (uint32_t depth = 8; depth <= 40; depth += 8) {
      engine.compute(lease, depth - 8, depth, story);
      ok(lease.commit(depth));
      const BlockId slot = ok(lease.draft_checkpoint(1));
      engine.save_state(1, slot, story, depth);
      ok(lease.commit_checkpoint(1, depth));
    }
    EXPECT_EQ(ok(tiers->store(scope, text, lease)), 15U);
    EXPECT_TRUE(stack.flush(soon()));
  }
  // The near level has lost the deepest state.
  tier::PromptKeys keys = ok(tier::PromptKeys::of(scope, text));
  const auto batch = ok(TierBatch::make(TierOp::remove, 1));
  batch->items()[0].key = entry_key(keys.chain(4, 10)[9], EntryKind::checkpoint, 1, kLayout);
  stack.tier(0).submit(batch);
  ASSERT_TRUE(batch->wait(soon()));
  ok(cache.reset());
  EXPECT_EQ(ok(tiers->restore(scope, text)).restored_tokens, 40U)
      << "nobody said what computing takes";
  EXPECT_TRUE(stack.flush(soon()));
  stack.tier(0).submit([&] {
    auto again = ok(TierBatch::make(TierOp::remove, 1));
    again->items()[0].key = batch->items()[0].key;
    return again;
  }());
  ok(cache.reset());
  // 2 ms a token, 80 for all of them; a quarter of the delay is what the stack believes at once.
  stack.prefilled(1000, 2'000'000'000);
  far.set_plan({.delay_ns = 500'000'000});
  Restored restored = ok(tiers->restore(scope, text));
  EXPECT_EQ(restored.stored_tokens, 40U);
  EXPECT_EQ(restored.restored_tokens, 32U);
  EXPECT_EQ(restored.level_tokens[0], 32U);
  EXPECT_GT(stack.stats().levels[1].too_slow, 0U);
  EXPECT_EQ(stack.stats().levels[1].misses, 0U) << "nobody waited for it";
  restored.hold = {};
  far.set_plan({});
  EXPECT_TRUE(stack.flush(soon()));
}

// A tier; while its answers are under way, the cache loses its contents.
TEST(PagedGroupsStack, WhatGoesWhileItLoadsIsNotMadeUp) {
  const std::vector<GroupOptions> groups = {full(64, 4), window(8, 16, 4)};
  FakeEngine engine(groups);
  PagedCache cache = ok(PagedCache::create(grouped(groups)));
  class Forgetful final : public Tier {
   public:
    Forgetful(std::unique_ptr<Tier> inner, PagedCache& cache)
        : inner_(std::move(inner)), cache_(cache) {}
    const TierTraits& traits() const noexcept override { return inner_->traits(); }
    void submit(std::shared_ptr<TierBatch> batch) override {
      if (batch->op() == TierOp::get && armed) cache_.evict(64);
      inner_->submit(std::move(batch));
    }
    TierStats stats() const override { return inner_->stats(); }
    bool flush(uint64_t until_ns) override { return inner_->flush(until_ns); }
    Purged purge(const Purge& what, uint64_t until_ns) override {
      return inner_->purge(what, until_ns);
    }
    std::atomic<bool> armed{false};

   private:
    std::unique_ptr<Tier> inner_;
    PagedCache& cache_;
  };
  auto forgetful =
      std::make_unique<Forgetful>(ok(make_host_tier({.capacity_bytes = 8U << 20U})), cache);
  std::atomic<bool>& armed = forgetful->armed;
  StackOptions options;
  options.query_ns = 60'000'000'000;
  options.levels.resize(1);
  options.levels[0].tier = std::move(forgetful);
  const auto tiers =
      ok(PagedTiers::create({.cache = &cache, .io = &engine, .groups = groups, .layout = 7},
                            ok(TierStack::create(std::move(options)))));
  const Scope scope = scope_of({.model = "a model"});
  const Text text = text_of(25, 1);
  const Story story(1, text);
  const auto compute = [&](uint32_t end) {
    Lease lease = ok(cache.lease(scope, text.first(end)));
    engine.compute(lease, lease.committed(), end, story);
    ok(lease.commit(end));
    ok(tiers->store(scope, text, lease));
  };
  compute(25);
  EXPECT_TRUE(tiers->stack().flush(soon()));
  ok(cache.reset());
  compute(9);
  armed = true;
  EXPECT_EQ(ok(tiers->restore(scope, text)).restored_tokens, 0U) << "8 of them were not loaded";
  EXPECT_EQ(ok(cache.lookup(scope, text)).reused_tokens, 0U);
  armed = false;
  EXPECT_EQ(ok(tiers->restore(scope, text)).restored_tokens, 24U);
  Lease lease = ok(cache.lease(scope, text));
  EXPECT_EQ(lease.reused(), 24U);
  EXPECT_EQ(engine.verify(lease, story, 24), "");
}

// Many requests over pools that are too small and a tier with every fault that a tier may have.
TEST_F(PagedGroups, UnderPressureAndFaultsEveryStampIsRight) {
  const std::vector<std::vector<GroupOptions>> mixes = {
      {window(9, 24, 4, 2)},
      {full(64, 4), window(8, 24, 8)},
      {full(64, 4), recurrent(9)},
      {window(6, 48, 2), full(32, 8), recurrent(9), window(16, 24, 4, 5)},
  };
  for (const auto& groups : mixes) {
    make(groups, {.store_ns = 100'000'000});
    chunk = 8;
    store_along = true;
    host->set_plan({.seed = 5,
                    .fail = 20,
                    .lose_answer = 20,
                    .tear = 15,
                    .flip = 15,
                    .forget = 20,
                    .jitter_ns = 100'000});
    EXPECT_GT(serve_at_once(50), 100U);
    cache->check_invariants();
  }
}

}  // namespace stemma::test
