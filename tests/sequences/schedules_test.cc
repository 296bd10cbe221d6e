// Random schedules over every mix of what an engine can do, without faults and with faults in every
// call: wrong contents are never served, budgets hold, nothing leaks, and a failure harms no other
// turn. run_length.h says how to replay one and how to let them run longer.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "sequences/run_length.h"
#include "sequences/schedule.h"

namespace stemma::schedules {
namespace {

// Within this many schedules everything happens that should; there are 228 mixes alone.
constexpr uint64_t kEnough = 260;

Tally run_schedules(double share, Faults faults) {
  Tally tally;
  const bool goes_on = from_environment("STEMMA_SEQUENCE_SURVEY", 0) != 0;
  RunLength run(share, kEnough);
  std::printf("first seed %llu\n",
              static_cast<unsigned long long>(from_environment("STEMMA_SEQUENCE_FIRST_SEED", 1)));
  while (run.next(tally.operation_count())) {
    const Finding finding = run_schedule(Situation::random(run.seed(), faults));
    tally += finding.tally;
    if (finding.wrong.empty()) continue;
    if (goes_on) {
      std::printf("seed %llu, step %llu: %s\n", static_cast<unsigned long long>(run.seed()),
                  static_cast<unsigned long long>(finding.tally.operation_count()),
                  finding.wrong.c_str());
      continue;
    }
    ADD_FAILURE() << finding.wrong << "\n" << run.replay() << "\n" << finding.log;
    return tally;
  }
  return tally;
}

// A set that did not do these things has not tested what it claims.
void expect_all_happened(const Tally& tally, bool with_faults) {
  std::printf("%s\n", tally.text().c_str());
  if (!RunLength::full_length() || ::testing::Test::HasFailure()) return;
  EXPECT_GE(tally.schedules, every_mix().size()) << "not every mix had a schedule";
  EXPECT_EQ(tally.missing(with_faults), "") << "never happened";
}

TEST(SequenceSchedules, ServeOnlyWhatIsRight) {
  const Tally tally = run_schedules(0.4, Faults::none);
  expect_all_happened(tally, false);
  if (!RunLength::full_length()) return;
  // Floors below what is measured: under them a kind of memory is served, but not tested. (Of all
  // kinds together 24.9 to 26.6, by how many schedules there is time for.)
  EXPECT_GE(tally.all_able().percent(), 22.0);
  for (const Tally::Able& able : tally.able) EXPECT_GE(able.percent(), 16.0);
}

TEST(SequenceSchedules, ServeOnlyWhatIsRightWhateverCallsFail) {
  const Tally tally = run_schedules(0.45, Faults::calls);
  expect_all_happened(tally, true);
}

TEST(SequenceSchedules, ServeOnlyWhatIsRightWhenHeldLies) {
  const Tally tally = run_schedules(0.15, Faults::held);
  std::printf("%s\n", tally.text().c_str());
  if (!RunLength::full_length() || ::testing::Test::HasFailure()) return;
  EXPECT_GT(tally.reused_tokens, 0U);
  EXPECT_GT(tally.broken, 0U);
  for (const test::Fault fault : {test::Fault::lie_nothing, test::Fault::lie_half}) {
    EXPECT_GT(tally.faults[static_cast<size_t>(test::Call::held)][static_cast<size_t>(fault)], 0U);
  }
}

TEST(SequenceSchedules, AreTheSameWhenRepeated) {
  for (const Faults faults : {Faults::none, Faults::calls, Faults::held}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      const Situation situation = Situation::random(seed, faults);
      const Finding first = run_schedule(situation);
      const Finding second = run_schedule(situation);
      ASSERT_EQ(first.wrong, "") << first.log;
      EXPECT_EQ(first.digest, second.digest) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace stemma::schedules
