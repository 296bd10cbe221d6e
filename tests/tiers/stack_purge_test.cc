// A stack that forgets: nothing that waits, is loaded or is put comes back afterwards.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/tier_stack.h"
#include "support/now.h"
#include "tiers/tier_suite.h"

namespace stemma::test::stack_purge {
namespace {

using enum TierOutcome;
using tier::LevelPurged;
using tier::Loaded;
using tier::Payload;
using tier::StackOptions;
using tier::StoreItem;
using tier::TierStack;
using tier::Wanted;

// A host tier whose gets read at once but complete only when the gate is opened.
class Gated final : public Tier {
 public:
  const TierTraits& traits() const noexcept override { return inner_->traits(); }
  void submit(std::shared_ptr<TierBatch> batch) override {
    if (batch->op() != TierOp::get) return inner_->submit(std::move(batch));
    auto inner = TierBatch::make(TierOp::get, batch->items().size()).value();
    std::copy(batch->items().begin(), batch->items().end(), inner->items().begin());
    inner_->submit(inner);
    const std::lock_guard lock(mutex_);
    held_.emplace_back(std::move(batch), std::move(inner));
    changed_.notify_all();
  }
  TierStats stats() const override { return inner_->stats(); }
  bool flush(uint64_t until_ns) override { return inner_->flush(until_ns); }
  Purged purge(const Purge& what, uint64_t until_ns) override {
    return inner_->purge(what, until_ns);
  }

  void wait_for_a_get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_.empty(); });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    for (auto& [outer, inner] : held_) {
      for (size_t i = 0; i < inner->items().size(); ++i) {
        outer->items()[i].info = inner->items()[i].info;
        outer->end(i, inner->items()[i].outcome);
      }
    }
    held_.clear();
  }

 private:
  const std::unique_ptr<Tier> inner_ = make_host_tier({.capacity_bytes = kRoomy}).value();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::shared_ptr<TierBatch>, std::shared_ptr<TierBatch>>> held_;
};

uint64_t soon() { return now_ns() + kPatienceNs; }

std::vector<Entry> owned(uint64_t owner, uint64_t prompt, uint32_t count) {
  std::vector<Entry> made = entries(prompt, count, 5000);
  for (Entry& one : made) std::memcpy(one.key.chain.bytes.data() + 24, &owner, sizeof owner);
  return made;
}

StoreItem item(const Entry& one) {
  auto payload = Payload::make(one.bytes.size());
  std::memcpy(payload->data.get(), one.bytes.data(), one.bytes.size());
  return {one.key, one.info, payload, {}};
}

// Two levels; `lower` is the second.
std::unique_ptr<TierStack> stack_over(std::unique_ptr<Tier> lower) {
  StackOptions options;
  options.query_ns = options.load_ns = options.store_ns = kPatienceNs;
  options.levels.push_back({.tier = make_host_tier({.capacity_bytes = kRoomy}).value()});
  options.levels.push_back({.tier = std::move(lower)});
  return TierStack::create(std::move(options)).value();
}

const std::vector<Entry> kMine = owned(7, 1, 6), kOther = owned(8, 2, 6);
const Purge kMineGoes{.owner = 7};

}  // namespace

TEST(StackPurge, EveryLevelForgetsOneScopeAndSaysWhat) {
  const auto stack =
      stack_over(make_host_tier({.name = "second", .capacity_bytes = kRoomy}).value());
  for (const auto* some : {&kMine, &kOther}) {
    for (const Entry& one : *some) stack->store(item(one), 0b11);
  }
  ASSERT_TRUE(stack->flush(soon()));
  const std::vector<LevelPurged> purged = stack->purge(kMineGoes, soon());
  ASSERT_EQ(purged.size(), 2U);
  EXPECT_EQ(purged[1].name, "second");
  for (size_t level = 0; level < 2; ++level) {
    EXPECT_TRUE(purged[level].purged.complete) << purged[level].purged.error;
    EXPECT_EQ(purged[level].purged.entries, 6U);
    EXPECT_EQ(purged[level].purged.bytes, 30'000U);
    EXPECT_EQ(Client(stack->tier(level)).contains(kMine), all(6, absent));
    EXPECT_EQ(Client(stack->tier(level)).contains(kOther), all(6, done));
  }
  // It may be put again: no level assumes that it is there.
  EXPECT_EQ(stack->wanting(kMine[0].key, tier::Sighting::computed), 0b11U);
}

TEST(StackPurge, WhatWaitsToBePutNeverIs) {
  auto slow = std::make_unique<FaultyTier>(make_host_tier({.capacity_bytes = kRoomy}).value(),
                                           FaultPlan{.stall = true});
  FaultyTier& lower = *slow;
  const auto stack = stack_over(std::move(slow));
  const auto waiting = [&] { return stack->stats().levels[1].waiting; };
  stack->store(item(kMine[0]), 0b10);
  // It is being put, and all that follow wait behind it.
  while (lower.faults().delayed_batches == 0) std::this_thread::yield();
  for (size_t i = 1; i < kMine.size(); ++i) stack->store(item(kMine[i]), 0b10);
  stack->store(item(kOther[0]), 0b10);
  ASSERT_EQ(waiting(), 7U);
  std::vector<LevelPurged> purged;
  std::thread purging([&] { purged = stack->purge(kMineGoes, soon()); });
  const uint64_t end_ns = soon();
  while (waiting() != 2 && now_ns() < end_ns) std::this_thread::yield();
  EXPECT_EQ(waiting(), 2U) << "what waits is let go before the one under way has ended";
  lower.set_plan({});
  purging.join();
  EXPECT_TRUE(purged[1].purged.complete) << purged[1].purged.error;
  EXPECT_EQ(purged[1].purged.entries, 1U) << "the one that was being put";
  ASSERT_TRUE(stack->flush(soon()));
  EXPECT_EQ(Client(lower).contains(kMine), all(6, absent));
  EXPECT_EQ(Client(lower).contains(kOther[0]), done);
  EXPECT_EQ(lower.stats().puts, 2U);
}

TEST(StackPurge, WhatWasLoadedBeforeIsNotPutAnywhereAfterwards) {
  for (const bool is_purged : {false, true}) {
    auto gated = std::make_unique<Gated>();
    Gated& lower = *gated;
    const auto stack = stack_over(std::move(gated));
    Client(lower).put(kMine);
    std::vector<Wanted> wanted;
    for (const Entry& one : kMine) wanted.push_back({one.key, one.info, 16});
    const std::vector<tier::LevelMask> levels(wanted.size(), 0b10);
    std::vector<Loaded> loaded;
    std::thread loading([&] { loaded = stack->load(wanted, levels); });
    lower.wait_for_a_get();
    if (is_purged) {
      for (const LevelPurged& level : stack->purge(kMineGoes, soon())) {
        EXPECT_TRUE(level.purged.complete) << level.purged.error;
      }
    }
    lower.open();
    loading.join();
    ASSERT_NE(loaded[0].payload, nullptr) << "it had been read";
    ASSERT_TRUE(stack->flush(soon()));
    EXPECT_EQ(Client(stack->tier(0)).contains(kMine), all(6, is_purged ? absent : done));
  }
}

TEST(StackPurge, ALevelThatFailsSaysSoAndTheOthersForgetAllTheSame) {
  const auto stack = stack_over(std::make_unique<FaultyTier>(
      make_host_tier({.capacity_bytes = kRoomy}).value(), FaultPlan{.fail = 1000}));
  stack->store(item(kMine[0]), 0b01);
  ASSERT_TRUE(stack->flush(soon()));
  const std::vector<LevelPurged> purged = stack->purge(kMineGoes, soon());
  EXPECT_TRUE(purged[0].purged.complete);
  EXPECT_EQ(purged[0].purged.entries, 1U);
  EXPECT_FALSE(purged[1].purged.complete);
  EXPECT_NE(purged[1].purged.error, "");
}

}  // namespace stemma::test::stack_purge
