#include "tier/wait_until.h"

#include <gtest/gtest.h>

#include <thread>

namespace stemma::tier {
namespace {

struct Signal {
  std::mutex mutex;
  std::condition_variable changed;
  bool given = false;

  bool wait(uint64_t until_ns) {
    std::unique_lock lock(mutex);
    return wait_until(changed, lock, until_ns, [this] { return given; });
  }
  void give() {
    const std::lock_guard lock(mutex);
    given = true;
    changed.notify_all();
  }
};

TEST(WaitUntil, DeadlinesThatClocksCannotSayAreWaitedFor) {
  for (const uint64_t until_ns :
       {kNever, kNever - 1, uint64_t{1} << 63U, (uint64_t{1} << 63U) - 1}) {
    Signal signal;
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      signal.give();
    });
    EXPECT_TRUE(signal.wait(until_ns)) << until_ns;
    later.join();
  }
}

TEST(WaitUntil, EndsAtItsDeadline) {
  Signal signal;
  const uint64_t until_ns = Clock::monotonic().now_ns() + 5'000'000;
  EXPECT_FALSE(signal.wait(until_ns));
  EXPECT_GE(Clock::monotonic().now_ns(), until_ns);
}

TEST(WaitUntil, WhatIsReadyIsReadyWhateverTheTime) {
  Signal signal;
  EXPECT_FALSE(signal.wait(0));
  signal.give();
  EXPECT_TRUE(signal.wait(0));
}

TEST(DeadlineAfter, DoesNotWrap) {
  EXPECT_EQ(deadline_after(5, 7), 12U);
  EXPECT_EQ(deadline_after(5, kNever - 6), kNever - 1);
  EXPECT_EQ(deadline_after(5, kNever - 5), kNever);
  EXPECT_EQ(deadline_after(5, kNever - 4), kNever);
  EXPECT_EQ(deadline_after(5, kNever), kNever);
}

}  // namespace
}  // namespace stemma::tier
