#include "sequence/range_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace stemma::sequence {
namespace {

// A driver that pins memory, or refuses from a given call on.
class Driver final : public HostMemoryHook {
 public:
  bool pin(void* memory, uint64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    if (refuses_from == 0) return false;
    --refuses_from;
    pinned.insert({static_cast<uint8_t*>(memory), bytes});
    return true;
  }
  void unpin(void* memory, uint64_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(pinned.erase({static_cast<uint8_t*>(memory), bytes}), 1U);
  }
  std::set<std::pair<uint8_t*, uint64_t>> pinned;
  uint32_t refuses_from = 100;

 private:
  std::mutex mutex_;
};

RangeMover::Options small() {
  return {.buffer_bytes = 10'000, .buffers = 3, .threads = 2, .hook = nullptr};
}

TEST(RangeMover, EveryTaskIsDoneOnce) {
  const auto mover = RangeMover::create(small());
  ASSERT_NE(mover, nullptr);
  for (uint32_t round = 0; round < 200; ++round) {
    std::vector<std::atomic<uint32_t>> done(round % 17);
    RangeMover::Batch batch;
    batch.count = static_cast<uint32_t>(done.size());
    batch.task = [&](uint32_t i) { ++done[i]; };
    mover->start(batch);
    mover->wait(batch);
    EXPECT_TRUE(RangeMover::done(batch));
    for (const auto& each : done) EXPECT_EQ(each.load(), 1U);
  }
}

// Two batches wait for each other's tasks. With one thread this only ends if the waiting caller
// works too.
TEST(RangeMover, WhoWaitsWorksAlong) {
  RangeMover::Options options = small();
  options.threads = 1;
  const auto mover = RangeMover::create(options);
  std::atomic<bool> seen = false;
  RangeMover::Batch first;
  first.count = 1;
  first.task = [&](uint32_t) {
    while (!seen) std::this_thread::yield();
  };
  RangeMover::Batch second;
  second.count = 1;
  second.task = [&](uint32_t) { seen = true; };
  mover->start(first);
  mover->start(second);
  mover->wait(second);
  mover->wait(first);
  EXPECT_TRUE(seen);
}

TEST(RangeMover, BuffersAreTakenOnceAndComeBackClean) {
  const auto mover = RangeMover::create(small());
  EXPECT_GE(mover->buffer_bytes(), 10'000U);
  std::set<uint32_t> taken;
  for (uint32_t i = 0; i < 3; ++i) taken.insert(mover->take());
  EXPECT_EQ(taken.size(), 3U);
  EXPECT_EQ(mover->take(), RangeMover::kNone);
  EXPECT_FALSE(mover->wait_for_buffer());  // No buffer is given back meanwhile.
  for (const uint32_t buffer : taken) {
    std::ranges::fill(mover->bytes(buffer), uint8_t{7});
    mover->give_back(buffer, mover->buffer_bytes());
  }
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(mover->wait_for_buffer());
    const uint32_t buffer = mover->take();
    ASSERT_NE(buffer, RangeMover::kNone);
    EXPECT_TRUE(std::ranges::all_of(mover->bytes(buffer), [](uint8_t byte) { return byte == 0; }));
  }
}

// Large buffers are not overwritten: marks show which parts were not written.
TEST(RangeMover, WhatNobodyHasWrittenIsSeen) {
  RangeMover::Options options = small();
  options.buffer_bytes = 8U << 20U;
  const auto mover = RangeMover::create(options);
  // Every buffer is used once, all at the same time, so no buffer is fresh any more.
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < mover->buffers(); ++i) all.push_back(mover->take());
  for (const uint32_t one : all) std::ranges::fill(mover->bytes(one), uint8_t{7});
  for (const uint32_t one : all) mover->give_back(one, mover->buffer_bytes());
  ASSERT_TRUE(mover->wait_for_buffer());
  const uint32_t buffer = mover->take();
  const std::span<uint8_t> bytes = mover->bytes(buffer);
  EXPECT_TRUE(mover->unwritten(buffer, 0, bytes.size()));
  std::ranges::fill(bytes, uint8_t{9});
  EXPECT_FALSE(mover->unwritten(buffer, 0, bytes.size()));
  mover->give_back(buffer, bytes.size());
  // All but a few kilobytes in the middle.
  std::set<uint32_t> taken;
  while (taken.size() < 3) {
    ASSERT_TRUE(mover->wait_for_buffer());
    taken.insert(mover->take());
  }
  std::ranges::fill(bytes.first(5'000'000), uint8_t{9});
  std::ranges::fill(bytes.subspan(5'003'000), uint8_t{9});
  EXPECT_TRUE(mover->unwritten(buffer, 0, bytes.size()));
  EXPECT_TRUE(mover->unwritten(buffer, 4'999'000, 5'003'000));
  EXPECT_FALSE(mover->unwritten(buffer, 0, 4'999'000));
}

TEST(RangeMover, BuffersArePinnedAndLetGo) {
  Driver driver;
  RangeMover::Options options = small();
  options.hook = &driver;
  {
    const auto mover = RangeMover::create(options);
    mover->wait_until_pinned();
    EXPECT_EQ(driver.pinned.size(), 3U);
    EXPECT_EQ(mover->pinned_bytes(), 3 * mover->buffer_bytes());
    EXPECT_NE(mover->take(), RangeMover::kNone);
  }
  EXPECT_TRUE(driver.pinned.empty());
}

TEST(RangeMover, DriverThatRefusesLeavesPlainMemory) {
  Driver driver;
  driver.refuses_from = 1;
  RangeMover::Options options = small();
  options.hook = &driver;
  const auto mover = RangeMover::create(options);
  mover->wait_until_pinned();
  EXPECT_EQ(mover->pinned_bytes(), mover->buffer_bytes());
  for (uint32_t i = 0; i < 3; ++i) EXPECT_NE(mover->take(), RangeMover::kNone);
}

TEST(RangeMover, EndsWhileBuffersArePinnedOrTaken) {
  for (uint32_t round = 0; round < 50; ++round) {
    Driver driver;
    RangeMover::Options options = small();
    options.hook = &driver;
    {
      const auto mover = RangeMover::create(options);
      if (round % 2 != 0) (void)mover->take();
    }
    EXPECT_TRUE(driver.pinned.empty());
  }
}

}  // namespace
}  // namespace stemma::sequence
