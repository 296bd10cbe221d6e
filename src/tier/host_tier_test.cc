#include "stemma/tier/host_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "fault/failing_new.h"
#include "retain/policies.h"
#include "support/rooms/tier_keys.h"
#include "tier/host_store.h"

namespace stemma {
namespace {

using enum TierOutcome;
using test::numbered_key;
using tier::HostStore;

// A device that only remembers the memory's address.
class Hook final : public HostMemoryHook {
 public:
  bool pin(void* memory, uint64_t bytes) noexcept override {
    at = static_cast<uint8_t*>(memory);
    pinned += bytes;
    return true;
  }
  void unpin(void* memory, uint64_t bytes) noexcept override {
    EXPECT_EQ(memory, at);
    pinned -= bytes;
  }
  uint8_t* at = nullptr;
  uint64_t pinned = 0;
};

TierOutcome run(Tier& tier, TierBatch& batch, std::shared_ptr<TierBatch> shared) {
  tier.submit(std::move(shared));
  EXPECT_TRUE(batch.finished());
  return batch.items()[0].outcome;
}

TierOutcome put(Tier& tier, uint64_t number, std::span<const uint8_t> bytes) {
  auto batch = TierBatch::make(TierOp::put, 1).value();
  batch->items()[0].key = numbered_key(number);
  batch->items()[0].info = {.end = 16, .layout = 1, .bytes = bytes.size()};
  batch->items()[0].source = bytes;
  return run(tier, *batch, batch);
}

TierOutcome get(Tier& tier, uint64_t number, std::span<uint8_t> room) {
  auto batch = TierBatch::make(TierOp::get, 1).value();
  batch->items()[0].key = numbered_key(number);
  batch->items()[0].info.layout = 1;
  batch->items()[0].into = room;
  return run(tier, *batch, batch);
}

TEST(HostTier, OptionsThatCannotBeAreNamed) {
  const auto code = [](const HostTierOptions& options) {
    return make_host_tier(options).error().code();
  };
  EXPECT_EQ(code({.capacity_bytes = 0}), Errc::invalid_argument);
  EXPECT_EQ(code({.capacity_bytes = 100'000}), Errc::invalid_argument);
  EXPECT_EQ(code({.capacity_bytes = 1U << 20U, .chunk_bytes = 1000}), Errc::invalid_argument);
  EXPECT_EQ(code({.capacity_bytes = 1U << 20U, .chunk_bytes = 128}), Errc::invalid_argument);
  EXPECT_EQ(code({.capacity_bytes = 1U << 20U, .policy = "mru"}), Errc::invalid_argument);
}

// Measures the pages that the system gave, not only the bytes in use.
class HostTierOfPolicy : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(Policies, HostTierOfPolicy, ::testing::ValuesIn(retain::policy_names()),
                         [](const auto& policy) { return std::string(policy.param); });

TEST_P(HostTierOfPolicy, MemoryStaysWithinItsCapacityBooksIncluded) {
  for (const uint32_t chunk : {256U, 4096U, 16U << 10U, 1U << 20U}) {
    for (const uint64_t capacity : {uint64_t{4} << 20U, uint64_t{33'000'001}}) {
      tier::Counters counters;
      auto store =
          HostStore::create(
              {.capacity_bytes = capacity, .chunk_bytes = chunk, .policy = std::string(GetParam())},
              counters)
              .value();
      // Entries of one chunk need the most bookkeeping, in many classes of priority.
      for (uint64_t i = 0; i < capacity / chunk + 10; ++i) {
        const uint32_t cell = store->reserve(chunk);
        ASSERT_NE(cell, HostStore::kNone);
        store->publish(cell, numbered_key(i), {.end = 16, .layout = 1, .bytes = chunk}, 0,
                       static_cast<Priority>(i % 50));
        store->touch(cell);
        ASSERT_LE(store->used_bytes(), capacity);
      }
      store->check_invariants();
      EXPECT_LE(store->memory_bytes(), capacity) << chunk << " of " << capacity;
      // And most of it is for payloads.
      const uint64_t left = capacity - retain::most_bytes(GetParam()).fixed;
      EXPECT_GE(store->most_bytes(), chunk >= 16U << 10U ? left * 6 / 10 : left / 2);
    }
  }
}

TEST(HostTier, InSteadyStateNothingIsAllocated) {
  auto tier = make_host_tier({.capacity_bytes = 4U << 20U}).value();
  const std::vector<uint8_t> bytes(100'000, 7);
  std::vector<uint8_t> room(100'000);
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(put(*tier, i, bytes), done);
  std::vector<std::shared_ptr<TierBatch>> batches;
  for (uint64_t i = 0; i < 100; ++i) {
    batches.push_back(TierBatch::make(i % 2 == 0 ? TierOp::put : TierOp::get, 1).value());
    TierItem& item = batches.back()->items()[0];
    item.key = numbered_key(1000 + i / 2);
    item.info = {.end = 16, .layout = 1, .bytes = bytes.size()};
    item.source = bytes;
    item.into = room;
  }
  {
    const test::NoMemory none;
    for (auto& batch : batches) tier->submit(batch);
  }
  for (auto& batch : batches) EXPECT_EQ(batch->items()[0].outcome, done);
  EXPECT_GE(tier->stats().evictions, 50U);
}

TEST(HostTier, AFlippedBitInTheArenaIsNoticed) {
  Hook hook;
  auto tier = make_host_tier({.capacity_bytes = 1U << 20U, .hook = &hook}).value();
  ASSERT_NE(hook.at, nullptr);
  const std::vector<uint8_t> bytes(50'000, 0x5A);
  std::vector<uint8_t> room(50'000);
  for (const uint32_t at : {0U, 16'384U, 49'999U}) {
    ASSERT_EQ(put(*tier, 1, bytes), done);
    ASSERT_EQ(get(*tier, 1, room), done);
    hook.at[at] ^= 0x10U;  // The only entry lies at the front.
    EXPECT_EQ(get(*tier, 1, room), corrupt) << at;
    EXPECT_EQ(get(*tier, 1, room), absent) << at;
  }
  EXPECT_EQ(tier->stats().corrupt, 3U);
  EXPECT_EQ(tier->stats().entries, 0U);
}

// Several threads share a large batch.
TEST(HostTier, ALargeBatchComesBackWholeAndEveryDamageIsFound) {
  constexpr size_t kEntries = 9, kBytes = size_t{2} << 20U;
  Hook hook;
  const auto tier = make_host_tier({.capacity_bytes = 32U << 20U, .hook = &hook}).value();
  std::vector<std::vector<uint8_t>> stored;
  for (size_t i = 0; i < kEntries; ++i) {
    stored.emplace_back(kBytes, static_cast<uint8_t>(i + 1));
    ASSERT_EQ(put(*tier, i, stored[i]), done);
  }
  // One byte of one entry.
  uint8_t* const end = hook.at + hook.pinned;
  uint8_t* const wrong = std::find(hook.at, end, uint8_t{6});
  ASSERT_NE(wrong, end);
  wrong[1000] ^= 1;
  std::vector<std::vector<uint8_t>> back(kEntries + 1, std::vector<uint8_t>(kBytes));
  const auto batch = TierBatch::make(TierOp::get, kEntries + 1).value();
  for (size_t i = 0; i <= kEntries; ++i) {
    batch->items()[i].key = numbered_key(i);
    batch->items()[i].into = back[i];
    batch->items()[i].info = {.end = 16, .layout = 1, .bytes = kBytes};
  }
  tier->submit(batch);
  ASSERT_TRUE(batch->finished());
  for (size_t i = 0; i <= kEntries; ++i) {
    const TierOutcome wanted = i == 5 ? corrupt : i == kEntries ? absent : done;
    EXPECT_EQ(batch->items()[i].outcome, wanted) << i;
    if (wanted == done) {
      EXPECT_EQ(back[i], stored[i]) << i;
    }
  }
}

TEST(HostTier, WhatIsPinnedIsUnpinned) {
  Hook hook;
  {
    auto tier = make_host_tier({.capacity_bytes = 1U << 20U, .hook = &hook}).value();
    EXPECT_GE(hook.pinned, tier->traits().max_entry_bytes);
  }
  EXPECT_EQ(hook.pinned, 0U);
}

// The bytes of an entry that is removed while it is read stay until the reader is done.
TEST(HostStoreTest, WhatIsReadStaysWhenItGoes) {
  tier::Counters counters;
  auto store = HostStore::create({.capacity_bytes = 1U << 20U}, counters).value();
  const uint64_t empty = store->used_bytes();
  const uint32_t cell = store->reserve(20'000);
  store->publish(cell, numbered_key(1), {.end = 16, .layout = 1, .bytes = 20'000}, 0, 35);
  store->touch(cell);
  store->pin(cell);
  store->unlist(cell);
  EXPECT_EQ(store->find(numbered_key(1)), HostStore::kNone);
  EXPECT_GT(store->used_bytes(), empty);
  store->check_invariants();
  store->unpin(cell);
  EXPECT_EQ(store->used_bytes(), empty);
  store->check_invariants();
}

TEST(HostStoreTest, WhatIsReadIsNotEvicted) {
  tier::Counters counters;
  auto store = HostStore::create({.capacity_bytes = 1U << 20U}, counters).value();
  const uint64_t half = store->most_bytes() / (2U * 16'384U) * 16'384U;
  const auto add = [&](uint64_t number) {
    const uint32_t cell = store->reserve(half);
    if (cell == HostStore::kNone) return false;
    store->publish(cell, numbered_key(number), {.end = 16, .layout = 1, .bytes = half}, 0, 35);
    store->touch(cell);
    return true;
  };
  ASSERT_TRUE(add(1));
  ASSERT_TRUE(add(2));
  const uint32_t first = store->find(numbered_key(1));
  ASSERT_NE(first, HostStore::kNone);
  store->pin(first);
  EXPECT_TRUE(add(3));
  EXPECT_NE(store->find(numbered_key(1)), HostStore::kNone);
  EXPECT_EQ(store->find(numbered_key(2)), HostStore::kNone);
  store->unpin(first);
  store->touch(first);
  EXPECT_TRUE(add(4));
  EXPECT_EQ(store->find(numbered_key(3)), HostStore::kNone);
  store->check_invariants();
}

}  // namespace
}  // namespace stemma
