#include "tier/late_tier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "stemma/tier/host_tier.h"
#include "support/now.h"

namespace stemma::tier {
namespace {

using test::now_ns;

constexpr uint64_t kPatienceNs = 60'000'000'000;

EntryKey key_of(uint8_t number) {
  EntryKey key;
  key.chain.bytes[0] = number;
  return key;
}

TierOutcome put(Tier& tier, uint8_t number) {
  static const std::vector<uint8_t> bytes(100, 7);
  const auto batch = TierBatch::make(TierOp::put, 1).value();
  TierItem& item = batch->items()[0];
  item.key = key_of(number);
  item.info = {.begin = 0, .end = 16, .layout = 1, .bytes = bytes.size(), .words = 0};
  item.source = bytes;
  tier.submit(batch);
  EXPECT_TRUE(batch->wait(now_ns() + kPatienceNs));
  return item.outcome;
}

TierOutcome contains(Tier& tier, uint8_t number) {
  const auto batch = TierBatch::make(TierOp::contains, 1).value();
  batch->items()[0].key = key_of(number);
  tier.submit(batch);
  EXPECT_TRUE(batch->wait(now_ns() + kPatienceNs));
  return batch->items()[0].outcome;
}

// The test decides whether the real tier can be opened.
struct Gate {
  std::atomic<bool> works{false};
  std::atomic<uint32_t> tries{0};
  OpenTier open() {
    return [this]() -> Result<std::unique_ptr<Tier>> {
      const bool open_now = works;
      ++tries;  // Afterwards: whoever sees the number knows that this try has read `works`.
      if (!open_now) return Error(Errc::busy, "another process has it");
      return make_host_tier({.capacity_bytes = 1U << 20U});
    };
  }
};

TEST(LateTier, APurgeIsNotCompleteBeforeItIsThere) {
  Gate gate;
  const auto tier = make_late_tier({.name = "late"}, gate.open(), 1'000'000).value();
  const Purged away = tier->purge({}, now_ns() + kPatienceNs);
  EXPECT_FALSE(away.complete);
  EXPECT_NE(away.error, "");
  gate.works = true;
  while (put(*tier, 1) != TierOutcome::done) std::this_thread::yield();
  const Purged there = tier->purge({}, now_ns() + kPatienceNs);
  EXPECT_TRUE(there.complete) << there.error;
  EXPECT_EQ(there.entries, 1U);
  EXPECT_EQ(contains(*tier, 1), TierOutcome::absent);
}

TEST(LateTier, FailsAtOnceUntilItIsThereAndServesFromThenOn) {
  Gate gate;
  const auto tier = make_late_tier({.name = "disk"}, gate.open(), 1'000'000).value();
  EXPECT_EQ(tier->traits().name, "disk");
  EXPECT_EQ(put(*tier, 1), TierOutcome::failed);
  EXPECT_EQ(contains(*tier, 1), TierOutcome::failed);
  EXPECT_FALSE(tier->stats().reachable);
  EXPECT_EQ(tier->stats().failed, 2U);
  EXPECT_TRUE(tier->flush(now_ns() + kPatienceNs));
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  while (gate.tries == 0 && now_ns() < give_up_ns) std::this_thread::yield();
  gate.works = true;
  while (!tier->stats().reachable && now_ns() < give_up_ns) std::this_thread::yield();
  ASSERT_TRUE(tier->stats().reachable);
  EXPECT_GE(gate.tries, 2U);
  EXPECT_EQ(contains(*tier, 1), TierOutcome::absent) << "what failed was not kept";
  EXPECT_EQ(put(*tier, 1), TierOutcome::done);
  EXPECT_EQ(contains(*tier, 1), TierOutcome::done);
  // Items that ended before are still counted.
  EXPECT_EQ(tier->stats().failed, 2U);
  EXPECT_EQ(tier->stats().puts, 1U);
  EXPECT_EQ(tier->traits().name, "disk");
}

TEST(LateTier, ItIsNotOpenedAgain) {
  Gate gate;
  gate.works = true;
  const auto tier = make_late_tier({}, gate.open(), 0).value();
  const uint64_t give_up_ns = now_ns() + kPatienceNs;
  while (!tier->stats().reachable && now_ns() < give_up_ns) std::this_thread::yield();
  for (uint8_t i = 0; i < 50; ++i) EXPECT_EQ(put(*tier, i), TierOutcome::done);
  EXPECT_EQ(gate.tries, 1U);
}

TEST(LateTier, OneThatNeverComesEndsWithoutWaitingForIt) {
  Gate gate;
  const uint64_t begun_ns = now_ns();
  {
    const auto tier = make_late_tier({}, gate.open(), 3'600'000'000'000).value();
    EXPECT_EQ(put(*tier, 1), TierOutcome::failed);
  }
  EXPECT_LT(now_ns() - begun_ns, kPatienceNs);
  EXPECT_LE(gate.tries, 1U);
}

TEST(LateTier, CancelledAndLateItemsEndAsSuch) {
  Gate gate;
  const auto tier = make_late_tier({}, gate.open(), 1'000'000).value();
  const auto cancelled = TierBatch::make(TierOp::get, 2).value();
  cancelled->cancel();
  tier->submit(cancelled);
  EXPECT_EQ(cancelled->items()[1].outcome, TierOutcome::cancelled);
  const auto late = TierBatch::make(TierOp::get, 1).value();
  late->deadline_ns = now_ns();
  tier->submit(late);
  EXPECT_EQ(late->items()[0].outcome, TierOutcome::late);
  EXPECT_EQ(tier->stats().cancelled, 2U);
  EXPECT_EQ(tier->stats().late, 1U);
}

}  // namespace
}  // namespace stemma::tier
