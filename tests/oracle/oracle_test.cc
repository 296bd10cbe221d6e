// With the cache and without it, the same logits, bit by bit: random schedules over the reference
// engine.
//
//   STEMMA_ORACLE_SEED=n        replay schedule n and no other
//   STEMMA_ORACLE_FIRST_SEED=n  begin with schedule n (1)
//   STEMMA_ORACLE_SECONDS=s     how long all schedule sets together take (60; under a sanitizer 14)
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "oracle/world.h"

namespace stemma::oracle {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(STEMMA_TSAN)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Runs schedules for `share` of the time that all sets have together.
Tally run_schedules(double share, WorldConfig config) {
  using Clock = std::chrono::steady_clock;
  const auto all = from_environment("STEMMA_ORACLE_SECONDS", kSanitized ? 14 : 60);
  const auto end = Clock::now() + std::chrono::duration<double>(static_cast<double>(all) * share);
  const uint64_t only = from_environment("STEMMA_ORACLE_SEED", 0);
  config.seed = only != 0 ? only : from_environment("STEMMA_ORACLE_FIRST_SEED", 1);
  Tally tally;
  do {
    const Outcome outcome = run_world(config);
    tally += outcome.tally;
    if (!outcome.wrong.empty()) {
      ADD_FAILURE() << outcome.wrong << "\nreplay with STEMMA_ORACLE_SEED=" << config.seed
                    << " oracle_test --gtest_filter="
                    << ::testing::UnitTest::GetInstance()->current_test_info()->test_suite_name()
                    << "." << ::testing::UnitTest::GetInstance()->current_test_info()->name();
      return tally;
    }
    ++config.seed;
  } while (only == 0 && Clock::now() < end);
  std::printf("%s\n", tally.text().c_str());
  return tally;
}

// A set that did not do these things has not tested what it says.
void expect_all_happened(const Tally& tally) {
  if (from_environment("STEMMA_ORACLE_SEED", 0) != 0 || ::testing::Test::HasFailure()) return;
  EXPECT_GE(tally.reuse_percent(), 30.0);
  EXPECT_GT(tally.evictions, 0U);
  EXPECT_GT(tally.engines.forks, 0U);
  EXPECT_GT(tally.engines.rewinds, 0U);
  EXPECT_GT(tally.engines.preemptions, 0U);
}

TEST(Oracle, RandomSchedulesGiveBitIdenticalLogits) {
  const Tally tally = run_schedules(0.6, {});
  expect_all_happened(tally);
  if (tally.schedules < 50) return;
  EXPECT_GT(tally.engines.part_copies, 0U);
  EXPECT_GT(tally.engines.copies_failed, 0U);
  EXPECT_GT(tally.engines.checkpoints_loaded, 0U);
  EXPECT_GT(tally.engines.logits_hits, 0U);
  EXPECT_GT(tally.engines.refusals, 0U);
  EXPECT_GT(tally.engines.guesses_accepted, 0U);
  EXPECT_GT(tally.engines.late_steps, 0U);
  EXPECT_GT(tally.resets, 0U);
}

TEST(Oracle, ThreadsOverOneCacheGiveBitIdenticalLogits) {
  expect_all_happened(run_schedules(0.3, {.threads = 3}));
}

}  // namespace
}  // namespace stemma::oracle
