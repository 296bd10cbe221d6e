// What requests under way leave after a purge: nothing, wherever they were when it came.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/scheduler_rig.h"

namespace stemma::server {
namespace {

constexpr const char* kTenant = "a tenant's";

void of_tenant(Generation& asked) {
  asked.salt = kTenant;
  asked.sampling.ignore_eos = true;
}

uint64_t in_a_minute() { return Clock::monotonic().now_ns() + 60'000'000'000; }

// How many entries the cache has in the tenant's scope.
size_t entries_of_tenant(Rig& rig) {
  const Scope scope = rig.scheduler->scope(kTenant).value();
  size_t count = 0;
  EXPECT_TRUE(rig.scheduler->run([&](SequenceCache& cache) {
    const std::vector<SequenceContent> contents = cache.contents().value();
    count = static_cast<size_t>(
        std::ranges::count_if(contents, [&](const auto& each) { return each.scope == scope; }));
  }));
  return count;
}

// Purges on a thread of its own, between two passes of the engine.
class Purging {
 public:
  Purging(Rig& rig, bool everything) : rig_(rig), everything_(everything) {}
  ~Purging() {
    if (thread_.joinable()) thread_.join();
  }
  void begin() {
    thread_ = std::thread([this] {
      const Scope scope = rig_.scheduler->scope(kTenant).value();
      rig_.scheduler->purges().add_all();
      EXPECT_TRUE(rig_.scheduler->purge(everything_ ? nullptr : &scope, in_a_minute()).ran);
    });
  }
  void join() { thread_.join(); }

 private:
  Rig& rig_;
  bool everything_;
  std::thread thread_;
};

TEST(PurgeLog, KnowsWhoArrivedBeforeAPurge) {
  PurgeLog log;
  const uint64_t before = log.count();
  EXPECT_FALSE(log.purged_since(before, "a"));
  log.add("a");
  EXPECT_TRUE(log.purged_since(before, "a"));
  EXPECT_FALSE(log.purged_since(before, "b"));
  const uint64_t after = log.count();
  EXPECT_FALSE(log.purged_since(after, "a"));
  log.add_all();
  EXPECT_TRUE(log.purged_since(after, "a"));
  EXPECT_TRUE(log.purged_since(after, "b"));
}

// Two of four answers have given up their places when the purge comes. They begin again.
TEST(SchedulerPurge, SuspendedAnswersLeaveNothing) {
  for (const bool everything : {false, true}) {
    FakeSequences::Options engine = test::full_engine();
    engine.context_tokens = 300;
    SchedulerOptions options;
    options.answer_tokens = 8;
    Rig rig(engine, options);
    rig.model.pass_us = 2'000;
    Purging purging(rig, everything);
    std::vector<std::shared_ptr<Ear>> ears;
    rig.together([&] {
      for (uint32_t i = 0; i < 4; ++i) ears.push_back(rig.ask(words(50, i), 100, of_tenant));
      ears[0]->at_piece(60, [&] { purging.begin(); });
    });
    for (uint32_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(ears[i]->wait()) << i;
      EXPECT_EQ(ears[i]->failure, "");
      EXPECT_EQ(ears[i]->summary.generated_tokens, 100U);
    }
    purging.join();
    EXPECT_GT(rig.scheduler->stats().suspensions, 0U);
    EXPECT_EQ(entries_of_tenant(rig), 0U);
    rig.expect_quiet();
  }
}

TEST(SchedulerPurge, RequestsThatWaitLeaveNothing) {
  for (const bool everything : {false, true}) {
    FakeSequences::Options engine = test::full_engine();
    engine.sequences = 1;
    Rig rig(engine);
    rig.model.pass_us = 2'000;
    Purging purging(rig, everything);
    std::shared_ptr<Ear> first;
    std::shared_ptr<Ear> second;
    rig.together([&] {
      first = rig.ask(words(50, 1), 60, [](Generation& g) { g.sampling.ignore_eos = true; });
      second = rig.ask(words(50, 2), 20, of_tenant);
      first->at_piece(5, [&] { purging.begin(); });
    });
    ASSERT_TRUE(first->wait());
    ASSERT_TRUE(second->wait());
    purging.join();
    EXPECT_EQ(second->summary.generated_tokens, 20U);
    EXPECT_EQ(entries_of_tenant(rig), 0U);
    rig.expect_quiet();
    // Later requests are saved again.
    ASSERT_TRUE(rig.ask(words(50, 2), 20, of_tenant)->wait());
    EXPECT_NE(entries_of_tenant(rig), 0U);
  }
}

// The first prompt fills the pass, so the second request has computed nothing when the purge comes.
TEST(SchedulerPurge, ATurnThatHasComputedNothingLeavesNothing) {
  Rig rig;
  rig.model.pass_us = 50'000;
  Purging purging(rig, true);
  std::shared_ptr<Ear> first;
  std::shared_ptr<Ear> second;
  rig.together([&] {
    first = rig.ask(words(300, 1), 2);
    second = rig.ask(words(50, 2), 2, of_tenant);
    purging.begin();
  });
  ASSERT_TRUE(first->wait());
  ASSERT_TRUE(second->wait());
  purging.join();
  EXPECT_EQ(entries_of_tenant(rig), 0U);
  rig.expect_quiet();
}

// It was still being read when the purge came.
TEST(SchedulerPurge, ARequestThatArrivedBeforeLeavesNothing) {
  Rig rig;
  const uint64_t arrived = rig.scheduler->purges().count();
  rig.scheduler->purges().add(kTenant);
  const auto late = [&](Generation& asked) {
    of_tenant(asked);
    asked.purges = arrived;
    asked.choices = 3;
  };
  const std::shared_ptr<Ear> ear = rig.ask(words(100, 1), 20, late);
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->summary.generated_tokens, 60U);
  EXPECT_EQ(entries_of_tenant(rig), 0U);
  ASSERT_TRUE(rig.ask(words(100, 1), 20, of_tenant)->wait());
  EXPECT_NE(entries_of_tenant(rig), 0U);
  rig.expect_quiet();
}

}  // namespace
}  // namespace stemma::server
