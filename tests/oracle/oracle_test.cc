// With the cache and without it, the same logits, bit by bit: random schedules over the reference
// engine. run_length.h says how to replay one and how to let them run longer.
#include <gtest/gtest.h>

#include <cstdio>

#include "oracle/run_length.h"
#include "oracle/world.h"

namespace stemma::oracle {
namespace {

Tally run_schedules(double share, bool threads) {
  WorldConfig config;
  Tally tally;
  for (RunLength run(share); run.next();) {
    config.seed = run.seed();
    if (threads) config.threads = 2 + static_cast<uint32_t>(run.seed() % 3);
    const Outcome outcome = run_world(config);
    tally += outcome.tally;
    if (outcome.wrong.empty()) continue;
    ADD_FAILURE() << outcome.wrong << "\n" << run.replay();
    return tally;
  }
  std::printf("%s\n", tally.text().c_str());
  return tally;
}

// A set that did not do these things has not tested what it says.
void expect_all_happened(const Tally& tally) {
  if (RunLength::only_one() || ::testing::Test::HasFailure()) return;
  EXPECT_GE(tally.reuse_percent(), 30.0);
  EXPECT_GT(tally.evictions, 0U);
  EXPECT_GT(tally.engines.forks, 0U);
  EXPECT_GT(tally.engines.rewinds, 0U);
  EXPECT_GT(tally.engines.preemptions, 0U);
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
}

TEST(Oracle, ThreadsOverOneCacheGiveBitIdenticalLogits) {
  expect_all_happened(run_schedules(0.3, true));
}

}  // namespace
}  // namespace stemma::oracle
