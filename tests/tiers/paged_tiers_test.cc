// Tiers under a PagedCache: restored blocks equal the computed ones, to the stamp.
#include "stemma/tier/paged_tiers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tiers/paged_rig.h"

namespace stemma::test {

TEST_F(PagedTiersTest, WhatTheDeviceLostComesBack) {
  make({full(16, 4)});
  const Text text = text_of(30, 1);
  EXPECT_EQ(serve(text), 0U);
  settle();
  EXPECT_EQ(stored(), 7U);
  EXPECT_EQ(serve(text), 29U);
  EXPECT_EQ(gets(), 0U) << "what is cached is not asked for";
  forget();
  Restored restored;
  EXPECT_EQ(serve(text, &restored), 28U);
  EXPECT_EQ(restored.cached_tokens, 0U);
  EXPECT_EQ(restored.stored_tokens, 28U);
  EXPECT_EQ(restored.restored_tokens, 28U);
  EXPECT_EQ(restored.level_tokens[0], 28U);
  EXPECT_EQ(gets(), 7U);
}

TEST_F(PagedTiersTest, ForWhatIsCachedNobodyIsAsked) {
  make({full(16, 4)});
  for (const uint32_t length : {16U, 17U, 18U}) {
    const Text text = text_of(length, length);
    serve(text);
    settle();
    const uint64_t queries = tiers->stack().stats().queries;
    EXPECT_EQ(serve(text), length - 1);
    EXPECT_EQ(tiers->stack().stats().queries, queries) << length;
    LeaseOptions in_place;
    in_place.lookup.allow_copy = false;
    EXPECT_EQ(ok(tiers->restore(scope, text, in_place)).restored_tokens, 0U);
    EXPECT_EQ(gets(), 0U) << length;
  }
}

// Scenario 41: the pool holds 4 blocks, the parent is on the device and its continuation is not.
TEST_F(PagedTiersTest, APrefixIsRecoveredAcrossDeviceAndHost) {
  make({full(4, 4)});
  const Text text = text_of(12, 1);
  EXPECT_EQ(serve(text), 0U);
  EXPECT_EQ(serve(text_of(8, 2)), 0U);  // Takes the place of the deepest block.
  settle();
  const Text longer = text + text_of(1, 9);
  EXPECT_EQ(ok(cache->lookup(scope, longer)).reused_tokens, 8U);
  Restored restored;
  EXPECT_EQ(serve(longer, &restored), 12U);
  EXPECT_EQ(restored.cached_tokens, 8U);
  EXPECT_EQ(restored.restored_tokens, 4U);
  // A prompt that ends inside the block that came back: all but its last token.
  EXPECT_EQ(serve(text.first(10)), 9U);
}

// Scenario 42.
TEST_F(PagedTiersTest, TwoRequestsForOneStoredPrefixShareOneTransfer) {
  StackOptions patient;
  patient.load_ns = kNever;
  make({full(32, 4)}, std::move(patient));
  const Text text = text_of(24, 1);
  serve(text);
  forget();
  host->set_plan({.delay_ns = 400'000'000});
  std::atomic<uint32_t> reused{0}, waited{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Restored restored;
      reused += serve(text + text_of(3, 5 + i), &restored);
      waited += restored.shared ? 1U : 0U;
      restored.hold = {};
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reused.load(), 48U);
  EXPECT_EQ(gets(), 6U) << "each block came once";
  EXPECT_EQ(waited.load(), 1U);
  EXPECT_EQ(cache->stats().duplicate_blocks, 0U);
}

// A device that only records the memory pinned for it, under an engine that checks where its bytes
// come from.
class PinnedTransfers : public HostMemoryHook, public PagedTiersTest {
 public:
  bool pin(void* memory, uint64_t bytes) noexcept override {
    pinned_ = {static_cast<const uint8_t*>(memory), bytes};
    return true;
  }
  void unpin(void*, uint64_t) noexcept override { pinned_ = {}; }

 protected:
  bool is_pinned(std::span<const uint8_t> bytes) const {
    return bytes.data() >= pinned_.data() &&
           bytes.data() + bytes.size() <= pinned_.data() + pinned_.size();
  }
  std::span<const uint8_t> pinned_;
};

TEST_F(PinnedTransfers, WhatTheEngineReadsAndWritesIsPinnedWhileThereIsRoom) {
  for (const uint64_t room : {uint64_t{1} << 20U, uint64_t{3} * 4096}) {
    StackOptions stack;
    stack.transfer_bytes = room;
    stack.hook = this;
    make({full(32, 4)}, std::move(stack));
    EXPECT_EQ(pinned_.size(), room);
    uint32_t inside = 0, outside = 0;
    engine->watch = [&](std::span<const uint8_t> bytes) {
      ++(is_pinned(bytes) ? inside : outside);
    };
    const Text text = text_of(24, 1);
    EXPECT_EQ(serve(text), 0U);
    forget();
    EXPECT_EQ(serve(text + text_of(1, 9)), 24U);
    engine->watch = nullptr;
    EXPECT_EQ(inside + outside, 12U);
    EXPECT_EQ(outside != 0, room < 6 * 4096U);
    EXPECT_GE(inside, 3U);
    EXPECT_EQ(tiers->stack().stats().crowded, outside);
  }
  tiers.reset();
  cache.reset();
  EXPECT_TRUE(pinned_.empty());
}

// Scenario 43.
TEST_F(PagedTiersTest, AFailedLoadEndsTheReuseBeforeTheFirstBadBlock) {
  const Text text = text_of(49, 1);
  uint32_t partial = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    make({full(32, 4)});
    serve(text);
    forget();
    host->set_plan({.seed = seed, .tear = 70, .flip = 70});
    Restored restored;
    const uint32_t reused = serve(text, &restored);
    EXPECT_EQ(restored.stored_tokens, 48U);
    EXPECT_EQ(reused, restored.restored_tokens) << "the bad block and all after it are computed";
    restored.hold = {};
    partial += reused > 0 && reused < 48 ? 1U : 0U;
    const uint64_t bad = host->faults().torn + host->faults().flipped;
    EXPECT_EQ(reused == 48, bad == 0);
  }
  EXPECT_GE(partial, 5U);
}

TEST_F(PagedTiersTest, ABlockThatTheEngineCannotWriteIsNotFound) {
  make({full(16, 4)});
  const Text text = text_of(17, 1);
  serve(text);
  forget();
  engine->set_mode(FakeEngine::Mode::failing);
  EXPECT_EQ(ok(tiers->restore(scope, text)).restored_tokens, 0U);
  EXPECT_EQ(ok(cache->lookup(scope, text)).reused_tokens, 0U);
  EXPECT_EQ(cache->stats().groups[0].free_blocks, 16U);
  engine->set_mode(FakeEngine::Mode::at_once);
  EXPECT_EQ(serve(text), 16U);
}

TEST_F(PagedTiersTest, ABlockThatTheEngineCannotReadIsNotStored) {
  make({full(16, 4)});
  const Text text = text_of(9, 1);
  Lease lease = ok(cache->lease(scope, text));
  engine->compute(lease, 0, 9, Story(1, text));
  ok(lease.commit(9));
  engine->set_mode(FakeEngine::Mode::failing);
  EXPECT_EQ(code(tiers->store(scope, text, lease)), Errc::copy_failed);
  settle();
  EXPECT_EQ(stored(), 0U);
  engine->set_mode(FakeEngine::Mode::at_once);
  EXPECT_EQ(ok(tiers->store(scope, text, lease)), 2U);
}

// Scenario 44.
TEST_F(PagedTiersTest, AnUnfinishedStoreIsNeverVisible) {
  make({full(16, 4)}, {.query_ns = 20'000'000, .store_ns = 2'000'000'000, .rest_ns = 1});
  const Text text = text_of(17, 1);
  host->set_plan({.stall = true});
  serve(text);
  settle();  // Given up: its deadline passed before it began.
  host->set_plan({});
  ok(cache->reset());
  Restored restored = ok(tiers->restore(scope, text));
  EXPECT_EQ(restored.stored_tokens, 0U);
  EXPECT_EQ(tiers->stack().stats().levels[0].lost, 4U);
  // It is stored when it is seen again.
  serve(text);
  settle();
  EXPECT_EQ(stored(), 4U);
}

// Scenario 45; write-back is in paged_write_back_test.cc.
TEST_F(PagedTiersTest, BlocksAreStoredOnFirstOrOnSecondUseAsConfigured) {
  const Text text = text_of(17, 1);
  make({full(16, 4)});
  serve(text);
  settle();
  EXPECT_EQ(stored(), 4U);
  make({full(16, 4)}, {}, WritePolicy::on_second_use);
  serve(text);
  settle();
  EXPECT_EQ(stored(), 0U);
  serve(text);
  settle();
  EXPECT_EQ(stored(), 4U);
}

TEST_F(PagedTiersTest, AnotherTenantFindsNothing) {
  make({full(16, 4)});
  const Text text = text_of(17, 1);
  serve(text);
  forget();
  Restored restored;
  EXPECT_EQ(serve(text, other, &restored), 0U);
  EXPECT_EQ(restored.stored_tokens, 0U);
  restored.hold = {};
  EXPECT_EQ(serve(text), 16U);
}

TEST_F(PagedTiersTest, AllGroupsComeBackToTheSameDepth) {
  make({full(32, 4), full(16, 8)});
  const Text text = text_of(29, 1);
  serve(text);
  forget();
  EXPECT_EQ(stored(), 7U + 3U);
  Restored restored;
  EXPECT_EQ(serve(text, &restored), 24U);
  EXPECT_EQ(restored.restored_tokens, 24U);
}

TEST_F(PagedTiersTest, MediaAreToldApartByContent) {
  make({full(32, 4)});
  const auto picture = [](uint8_t seed) {
    MediaItem item{.offset = 6, .length = 5};
    item.digest.fill(seed);
    return item;
  };
  const Text seen = text_of(21, 1).with(picture(1));
  serve(seen);
  forget();
  Restored restored;
  EXPECT_EQ(serve(text_of(21, 1).with(picture(2)), &restored), 4U);
  restored.hold = {};
  forget();
  EXPECT_EQ(serve(seen), 20U);
}

TEST_F(PagedTiersTest, AStoreThatHasLessRoomThanNeededChangesNothing) {
  make({full(4, 4)});
  serve(text_of(16, 1));
  forget();
  Lease all = ok(cache->lease(scope, text_of(12, 2)));
  Restored restored = ok(tiers->restore(scope, text_of(16, 1)));
  EXPECT_EQ(restored.stored_tokens, 16U);
  EXPECT_EQ(restored.restored_tokens, 0U);
  ok(all.release());
  EXPECT_EQ(ok(tiers->restore(scope, text_of(16, 1))).restored_tokens, 16U);
}

TEST_F(PagedTiersTest, WhatTheCallerDoesNotWantReadIsNotRestored) {
  make({full(16, 4)});
  serve(text_of(16, 1));
  forget();
  LeaseOptions unread;
  unread.lookup.read = false;
  EXPECT_EQ(ok(tiers->restore(scope, text_of(16, 1), unread)).restored_tokens, 0U);
  LeaseOptions some;
  some.lookup.at_most = 9;
  EXPECT_EQ(ok(tiers->restore(scope, text_of(16, 1), some)).restored_tokens, 8U);
}

TEST_F(PagedTiersTest, WhatCannotBeStoredIsSaidAtCreation) {
  make({full(16, 4)});
  const auto try_with = [&](std::vector<GroupOptions> groups, WritePolicy policy) {
    StackOptions stack;
    StackLevel level;
    level.tier = ok(make_host_tier({.capacity_bytes = 1U << 20U}));
    level.write = policy;
    stack.levels.push_back(std::move(level));
    PagedTiersOptions options{.cache = cache.get(), .io = engine.get()};
    options.groups = std::move(groups);
    return code(PagedTiers::create(options, ok(TierStack::create(std::move(stack)))));
  };
  EXPECT_EQ(try_with({full(4, 4), window(8, 4, 4)}, {}), kOk);
  EXPECT_EQ(try_with({full(4, 4), recurrent(4)}, {}), kOk);
  EXPECT_EQ(try_with({full(4, 4)}, WritePolicy::write_back), kOk);
  EXPECT_EQ(try_with({}, {}), Errc::invalid_argument);
  EXPECT_EQ(try_with({full(4, 4)}, {}), kOk);
}

// Many requests over a pool that is too small and a tier with every fault that a tier may have.
TEST_F(PagedTiersTest, UnderPressureAndFaultsEveryStampIsRight) {
  make({full(64, 4)}, {.store_ns = 100'000'000});
  host->set_plan({.seed = 5,
                  .fail = 50,
                  .lose_answer = 30,
                  .tear = 30,
                  .flip = 30,
                  .forget = 30,
                  .jitter_ns = 100'000});
  EXPECT_GT(serve_at_once(60), 100U);
}

}  // namespace stemma::test
