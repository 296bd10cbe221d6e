// With the cache and without it, the same logits, bit by bit: random schedules over the reference
// engine. run_length.h says how to replay one and how to let them run longer.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "oracle/run_length.h"
#include "oracle/world.h"

namespace stemma::oracle {
namespace {

Tally run_schedules(double share, bool threads) {
  WorldConfig config;
  Tally tally;
  // How often walks of threads meet a writer is up to the machine.
  for (RunLength run(share); run.next(!threads || tally.stale_walks > 0);) {
    config.seed = run.seed();
    if (threads) {
      config.threads = 2 + static_cast<uint32_t>(run.seed() % 3);
      config.churn = run.seed() % 2 == 0;
    }
    const Outcome outcome = run_world(config);
    tally += outcome.tally;
    if (outcome.wrong.empty()) continue;
    ADD_FAILURE() << outcome.wrong << "\n" << run.replay();
    return tally;
  }
  std::printf("%s\n", tally.text().c_str());
  return tally;
}

// A set that did not do these things has not tested what it claims.
void expect_all_happened(const Tally& tally) {
  ASSERT_GT(tally.schedules, 0U);
  if (RunLength::only_one() || ::testing::Test::HasFailure()) return;
  EXPECT_GE(tally.reuse_percent(), 30.0);
  EXPECT_GT(tally.evictions, 0U);
  EXPECT_GT(tally.engines.forks, 0U);
  EXPECT_GT(tally.engines.rewinds, 0U);
  EXPECT_GT(tally.engines.preemptions, 0U);
}

// Floors of about half of what is measured: below them a kind of model is served, but not tested.
void expect_every_kind_reused(const Tally& tally) {
  for (int kind = 0; kind < kModelKinds; ++kind) {
    SCOPED_TRACE(kKindNames[kind]);
    const Tally::Kind& did = tally.kinds[static_cast<size_t>(kind)];
    if (did.queried_tokens < 20'000) continue;  // Too few to tell.
    const bool recurrent = kind == kRecurrent || kind == kFullRecurrent || kind == kHybrid;
    EXPECT_GE(did.reuse_percent(), recurrent ? 16.0 : 24.0);
    if (recurrent) {
      EXPECT_GE(1000 * did.checkpoints_loaded, 14 * did.queried_tokens);
    }
  }
}

TEST(Oracle, RandomSchedulesGiveBitIdenticalLogits) {
  const Tally tally = run_schedules(0.6, false);
  expect_all_happened(tally);
  if (tally.schedules < 50) return;
  EXPECT_GT(tally.engines.part_copies, 0U);
  EXPECT_GT(tally.engines.copies_failed, 0U);
  EXPECT_GT(tally.engines.checkpoints_loaded, 0U);
  EXPECT_GT(tally.engines.logits_hits, 0U);
  EXPECT_GT(tally.engines.refusals, 0U);
  EXPECT_GT(tally.engines.guesses_accepted, 0U);
  EXPECT_GT(tally.engines.retries, 0U);
  EXPECT_GT(tally.engines.late_steps, 0U);
  EXPECT_GT(tally.resets, 0U);
  expect_every_kind_reused(tally);
}

TEST(Oracle, ThreadsOverOneCacheGiveBitIdenticalLogits) {
  const Tally tally = run_schedules(0.3, true);
  expect_all_happened(tally);
  if (RunLength::only_one() || std::thread::hardware_concurrency() < 2) return;
  EXPECT_GT(tally.stale_walks, 0U);
}

TEST(RunLength, ReplayIsOneScheduleWhicheverComesFirst) {
  class Environment {
   public:
    Environment(const char* name, const char* value) : name_(name) {
      if (const char* text = std::getenv(name)) before_ = text;
      ::setenv(name, value, 1);
    }
    ~Environment() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }

   private:
    const char* name_;
    std::optional<std::string> before_;
  };
  const Environment seed("STEMMA_ORACLE_SEED", "23");
  for (const char* number : {"1", "23", "24"}) {
    const Environment first("STEMMA_ORACLE_FIRST_SEED", number);
    RunLength run(0.1);
    EXPECT_TRUE(run.next());
    EXPECT_EQ(run.seed(), 23U);
    EXPECT_FALSE(run.next()) << "first was " << number;
  }
}

}  // namespace
}  // namespace stemma::oracle
