// Tests the work queue and the byte budget.
#include "server/job_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/http/byte_budget.h"

namespace stemma::server {
namespace jobs {
namespace {

// A job that has begun waits until the gate opens.
class Gate {
 public:
  std::function<void()> job() {
    return [this] {
      begun_.set_value();
      opened_.get_future().wait();
    };
  }
  void wait() { begun_.get_future().wait(); }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> begun_;
  std::promise<void> opened_;
};

TEST(JobQueue, NoLaneWaitsForAnother) {
  Gate large;
  Gate errand;
  std::promise<void> small;
  JobQueue queue({.threads = 1, .most_waiting = 8});
  ASSERT_TRUE(queue.push(Lane::large, queue.number(), large.job()));
  ASSERT_TRUE(queue.push(Lane::errand, queue.number(), errand.job()));
  large.wait();
  errand.wait();
  ASSERT_TRUE(queue.push(Lane::small, queue.number(), [&] { small.set_value(); }));
  small.get_future().wait();
  large.open();
  errand.open();
}

TEST(JobQueue, FullLanesTakeNoMore) {
  Gate gate;
  JobQueue queue({.threads = 2, .most_waiting = 2});
  ASSERT_TRUE(queue.push(Lane::large, queue.number(), gate.job()));
  gate.wait();
  EXPECT_TRUE(queue.push(Lane::large, queue.number(), [] {}));
  EXPECT_TRUE(queue.push(Lane::large, queue.number(), [] {}));
  EXPECT_FALSE(queue.push(Lane::large, queue.number(), [] {}));
  EXPECT_EQ(queue.stats()[static_cast<uint32_t>(Lane::large)].waiting, 2U);
  EXPECT_EQ(queue.stats()[static_cast<uint32_t>(Lane::large)].refused, 1U);
  EXPECT_TRUE(queue.push(Lane::errand, queue.number(), [] {}));
  gate.open();
}

TEST(JobQueue, WhatIsTakenBackIsLetGoAtOnceAndNotRun) {
  Gate gate;
  bool ran = false;
  const auto held = std::make_shared<std::string>("a body");
  {
    JobQueue queue({.threads = 2, .most_waiting = 8});
    const uint64_t first = queue.number();
    ASSERT_TRUE(queue.push(Lane::large, first, gate.job()));
    gate.wait();
    const uint64_t number = queue.number();
    ASSERT_TRUE(queue.push(Lane::large, number, [held, &ran] { ran = true; }));
    EXPECT_EQ(held.use_count(), 2);
    EXPECT_TRUE(queue.take_back(number));
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_FALSE(queue.take_back(number));
    EXPECT_FALSE(queue.take_back(first)) << "it has begun";
    EXPECT_EQ(queue.stats()[static_cast<uint32_t>(Lane::large)].taken_back, 1U);
    gate.open();
  }
  EXPECT_FALSE(ran);
}

TEST(JobQueue, JobsThatWaitAtItsEndAreLetGo) {
  const auto held = std::make_shared<std::string>("a body");
  Gate gate;
  std::thread opener;
  {
    JobQueue queue({.threads = 2, .most_waiting = 8});
    ASSERT_TRUE(queue.push(Lane::errand, queue.number(), gate.job()));
    ASSERT_TRUE(queue.push(Lane::errand, queue.number(), [held] {}));
    gate.wait();
    opener = std::thread([&] { gate.open(); });
  }
  opener.join();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(ByteBudget, LargeSharesLeaveTheReserveToSmallOnes) {
  const auto budget = std::make_shared<ByteBudget>(
      ByteBudget::Options{.capacity_bytes = 100, .small_bytes = 10, .reserve_bytes = 30});
  ByteShare large(budget);
  EXPECT_TRUE(large.grow_to(10));
  EXPECT_TRUE(large.grow_to(70));
  EXPECT_FALSE(large.grow_to(71)) << "that is for small ones";
  std::vector<std::unique_ptr<ByteShare>> small;
  for (int i = 0; i < 3; ++i) {
    small.push_back(std::make_unique<ByteShare>(budget));
    EXPECT_TRUE(small.back()->grow_to(5));
    EXPECT_TRUE(small.back()->grow_to(10));
  }
  EXPECT_FALSE(ByteShare(budget).grow_to(1)) << "there is nothing left";
  EXPECT_FALSE(small[0]->grow_to(11));
  small.clear();
  EXPECT_TRUE(ByteShare(budget).grow_to(10));
  EXPECT_FALSE(ByteShare(budget).grow_to(11)) << "a large one counts whole";
}

TEST(ByteBudget, WhatAShareHasComesBackWithIt) {
  const auto budget = std::make_shared<ByteBudget>(
      ByteBudget::Options{.capacity_bytes = 100, .small_bytes = 10, .reserve_bytes = 30});
  for (int i = 0; i < 10; ++i) {
    ByteShare share(budget);
    EXPECT_TRUE(share.grow_to(9));
    EXPECT_TRUE(share.grow_to(12));
    EXPECT_TRUE(share.grow_to(70));
  }
}

}  // namespace
}  // namespace jobs
}  // namespace stemma::server
