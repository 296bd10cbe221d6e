#include "stemma/tier/faulty_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "stemma/tier/host_tier.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using enum TierOutcome;

std::unique_ptr<Tier> host(uint64_t capacity_bytes) {
  return make_host_tier({.capacity_bytes = capacity_bytes}).value();
}

class FaultyPlace final : public TierPlace {
 public:
  explicit FaultyPlace(const FaultPlan& plan) : plan_(plan) {}
  std::unique_ptr<Tier> open(uint64_t capacity_bytes) override {
    return std::make_unique<FaultyTier>(host(capacity_bytes), plan_);
  }
  bool keeps_words() const override { return false; }

 private:
  FaultPlan plan_;
};

TierCase faulty(const char* name, const FaultPlan& plan) {
  return {name, [plan] { return std::make_unique<FaultyPlace>(plan); }};
}

class FaultyTierTest : public ::testing::Test {
 protected:
  void plan(const FaultPlan& plan) { tier.set_plan(plan); }
  size_t count(const Outcomes& outcomes, TierOutcome outcome) {
    return static_cast<size_t>(std::count(outcomes.begin(), outcomes.end(), outcome));
  }
  FaultyTier tier{host(kRoomy), {}};
  Client client{tier};
  std::vector<Entry> prompt = entries(1, 200, 1000);
};

}  // namespace

// A FaultyTier without faults, or one that is only slow, keeps the contract of tiers.
INSTANTIATE_TEST_SUITE_P(Faulty, TierContract,
                         ::testing::Values(faulty("WithoutFaults", {}),
                                           faulty("Slow", {.jitter_ns = 300'000})),
                         case_name);

TEST_F(FaultyTierTest, TheSameCallsMeetTheSameFaults) {
  const FaultPlan some{.seed = 7, .fail = 200, .lose_answer = 100, .tear = 100, .flip = 100};
  std::vector<Outcomes> runs;
  for (int run = 0; run < 3; ++run) {
    plan({});
    client.put(prompt);
    FaultPlan again = some;
    again.seed += run == 2 ? 1 : 0;
    plan(again);
    Outcomes outcomes;
    for (const Got& got : client.get(prompt)) outcomes.push_back(got.outcome);
    runs.push_back(outcomes);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
  // About as often as the plan says.
  EXPECT_NEAR(static_cast<double>(count(runs[0], failed)), 60, 25);
  EXPECT_NEAR(static_cast<double>(count(runs[0], corrupt)), 40, 25);
}

TEST_F(FaultyTierTest, WhatFailsIsNotDone) {
  plan({.fail = 1000});
  EXPECT_EQ(count(client.put(prompt), failed), prompt.size());
  EXPECT_EQ(count(client.contains(prompt), failed), prompt.size());
  EXPECT_EQ(tier.faults().failed, 2 * prompt.size());
  plan({});
  EXPECT_EQ(count(client.contains(prompt), absent), prompt.size());
}

TEST_F(FaultyTierTest, WhatLosesItsAnswerIsDone) {
  plan({.lose_answer = 1000});
  EXPECT_EQ(count(client.put(prompt), failed), prompt.size());
  plan({});
  for (const Entry& one : prompt) EXPECT_TRUE(client.whole_or_absent(one));
}

// Damage is found, as in every tier: the bytes in the room are wrong, and nobody may use them.
TEST_F(FaultyTierTest, DamageIsCorruptAndTheEntryGoes) {
  for (const FaultPlan& damage : {FaultPlan{.tear = 1000}, FaultPlan{.flip = 1000}}) {
    plan({});
    client.put(prompt);
    plan(damage);
    const auto got = client.get(prompt);
    for (size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_EQ(got[i].outcome, corrupt);
      EXPECT_NE(got[i].bytes, prompt[i].bytes);
    }
    plan({});
    EXPECT_EQ(count(client.contains(prompt), absent), prompt.size());
  }
  EXPECT_EQ(tier.faults().torn, prompt.size());
  EXPECT_EQ(tier.faults().flipped, prompt.size());
}

TEST_F(FaultyTierTest, WhatIsForgottenWasDone) {
  plan({.forget = 1000});
  EXPECT_EQ(count(client.put(prompt), done), prompt.size());
  EXPECT_EQ(count(client.contains(prompt), absent), prompt.size());
}

TEST_F(FaultyTierTest, ALieSaysDone) {
  client.put(prompt);
  plan({.lie = 1000});
  const Got got = client.get(prompt[3]);
  EXPECT_EQ(got.outcome, done);
  EXPECT_NE(got.bytes, prompt[3].bytes);
  EXPECT_EQ(tier.faults().lies, 1U);
}

TEST_F(FaultyTierTest, AnOutageIsForSomeBatches) {
  plan({.outage_begin = 1, .outage_end = 3});
  EXPECT_EQ(client.put(prompt[0]), done);
  EXPECT_EQ(client.put(prompt[1]), failed);
  EXPECT_EQ(client.get(prompt[0]).outcome, failed);
  EXPECT_EQ(client.put(prompt[1]), done);
}

TEST_F(FaultyTierTest, AStalledTierEndsWhatIsLateOrCancelled) {
  plan({.stall = true});
  Work late_one(TierOp::put, prompt), cancelled_one(TierOp::put, prompt);
  Work last(TierOp::put, prompt);
  late_one.batch->deadline_ns = Clock::monotonic().now_ns() + 5'000'000;
  late_one.submit_to(tier);
  cancelled_one.submit_to(tier);
  last.submit_to(tier);
  EXPECT_FALSE(tier.flush(Clock::monotonic().now_ns() + 1'000'000));
  EXPECT_EQ(count(late_one.finish().outcomes(), late), prompt.size());
  cancelled_one.batch->cancel();
  EXPECT_EQ(count(cancelled_one.finish().outcomes(), cancelled), prompt.size());
  EXPECT_FALSE(last.batch->finished());
  plan({});
  EXPECT_EQ(count(last.finish().outcomes(), done), prompt.size());
}

TEST_F(FaultyTierTest, ASlowTierTakesItsTime) {
  plan({.delay_ns = 3'000'000, .bytes_per_second = 10'000'000});
  const uint64_t begin_ns = Clock::monotonic().now_ns();
  client.put(prompt);  // 200,000 bytes: 20 ms.
  EXPECT_GE(Clock::monotonic().now_ns() - begin_ns, 23'000'000U);
  EXPECT_EQ(tier.faults().delayed_batches, 1U);
}

TEST_F(FaultyTierTest, EveryItemIsCountedOnceWhateverHappens) {
  plan({.fail = 150,
        .lose_answer = 100,
        .tear = 100,
        .flip = 100,
        .forget = 100,
        .jitter_ns = 200'000});
  std::vector<std::thread> threads;
  std::atomic<uint64_t> items{0};
  for (uint64_t self = 0; self < 3; ++self) {
    threads.emplace_back([&, self] {
      Client mine(tier);
      for (uint64_t round = 0; round < 10; ++round) {
        const auto some = entries(self, 12, 500);
        mine.put(some);
        const auto got = mine.get(some);
        for (size_t i = 0; i < some.size(); ++i) {
          if (got[i].outcome == done) {
            EXPECT_EQ(got[i].bytes, some[i].bytes);
          }
        }
        mine.remove(some);
      }
      items += mine.items();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(tier.flush(kNever));
  EXPECT_EQ(counted(tier.stats()), items.load());
}

}  // namespace stemma::test
