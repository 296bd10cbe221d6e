// The checks can fail: they notice an engine that breaks its contract, a cache that is not told
// what it has to know, and books that do not add up; the same schedules without these faults pass.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "sequences/judge.h"
#include "sequences/plants.h"

namespace stemma::schedules {
namespace {

constexpr uint64_t kSchedules = 300;  // At most; most bugs show in the first few that fit.

struct Planting {
  const char* name;
  Plant plant;
  Hidden hidden;
  const char* seen;                          // Part of the message of the check that notices it.
  bool (*fits)(const Situation&) = nullptr;  // Schedules in which it can do harm at all.
};

void PrintTo(const Planting& planting, std::ostream* out) { *out << planting.name; }

class PlantedSequences : public ::testing::TestWithParam<Planting> {};

TEST_P(PlantedSequences, BugIsSeen) {
  const Planting& p = GetParam();
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const Situation situation = Situation::random(seed, Faults::none);
    if (p.fits != nullptr && !p.fits(situation)) continue;
    const Finding finding = run_schedule(situation, planted(p.plant), p.hidden);
    // Another check may have noticed it first; this test needs this one.
    if (finding.wrong.find(p.seen) == std::string::npos) continue;
    std::printf("seen in schedule %llu: %s\n", static_cast<unsigned long long>(seed),
                finding.wrong.c_str());
    EXPECT_EQ(run_schedule(situation).wrong, "") << "without it the schedule is right";
    return;
  }
  FAIL() << "not seen in " << kSchedules << " schedules";
}

bool copies(const Situation& situation) { return situation.engine.fork == Fork::shared; }
bool windowed(const Situation& situation) { return situation.engine.rewind == Rewind::window; }

INSTANTIATE_TEST_SUITE_P(
    Sequences, PlantedSequences,
    ::testing::Values(
        Planting{"LoadWritesToAnotherSequence", Plant::load_elsewhere, {}, "another's operation"},
        Planting{"LoadPutsOtherWords", Plant::load_other_words, {}, "wrong contents"},
        Planting{"CopyPutsOtherWords", Plant::copy_other_words, {}, "wrong contents", copies},
        Planting{"TrimPutsOtherWords", Plant::trim_other_words, {}, "wrong contents"},
        Planting{"SaveWritesWhatAnotherHas", Plant::save_of_another, {}, "wrong contents"},
        Planting{"ClearDoesNothingUnseen", Plant::clear_nothing, {}, "wrong contents"},
        Planting{"WindowIsGoneUnseen", Plant::window_hidden, {}, "window, position", windowed},
        Planting{"ClearTakesRoomElsewhere", Plant::clear_leaks, {}, "positions as taken"},
        Planting{"CopyEmptiesItsSource", Plant::copy_takes, {}, "is idle, and another's", copies},
        Planting{"ScopesAreMixed", Plant::none, {.scopes = true}, "wrong contents"},
        Planting{"MediaAreMixed", Plant::none, {.media = true}, "wrong contents"}),
    [](const auto& planting) { return std::string(planting.param.name); });

// ---- Books --------------------------------------------------------------------------------------

// A whole report of a prompt of 10, of which 6 were found.
SequenceReport some_report() {
  SequenceReport report;
  report.prompt_tokens = 10;
  report.matched_tokens = 7;
  report.reused_tokens = 6;
  report.evaluated_tokens = 4;
  report.steps[static_cast<uint32_t>(Step::fork)] = 4;
  report.steps[static_cast<uint32_t>(Step::segments)] = 2;
  report.outcome = Outcome::partial_hit;
  report.reason = SequenceMiss::first_use;
  return report;
}

TEST(SequenceJudge, SeesReportsThatDoNotAddUp) {
  const Text prompt = test::tokens(10);
  const TurnOptions options;
  Situation situation;
  ASSERT_EQ(judge_report(some_report(), prompt, options, situation), "");
  const std::vector<std::function<void(SequenceReport&)>> mistakes = {
      [](SequenceReport& r) { ++r.evaluated_tokens; },
      [](SequenceReport& r) { ++r.steps[0]; },
      [](SequenceReport& r) { r.matched_tokens = 5; },
      [](SequenceReport& r) { ++r.media_to_process; },
      [](SequenceReport& r) { r.logits = true; },
      [](SequenceReport& r) { r.outcome = Outcome::full_hit; },
      [](SequenceReport& r) { r.outcome = Outcome::miss; },
      [](SequenceReport& r) { r.reason = SequenceMiss::none; },
      [](SequenceReport& r) { r.steps[static_cast<uint32_t>(Step::checkpoint)] = 6; },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SequenceReport report = some_report();
    mistakes[i](report);
    EXPECT_NE(judge_report(report, prompt, options, situation), "") << "mistake " << i;
  }
  const Text picture = prompt.with(test::image(1, 4, 4));
  EXPECT_NE(judge_report(some_report(), picture, options, situation), "") << "inside a unit";
  TurnOptions limited;
  limited.at_most = 5;
  EXPECT_NE(judge_report(some_report(), prompt, limited, situation), "") << "the caller's limit";
  limited = {};
  limited.evaluate_at_least = 5;
  EXPECT_NE(judge_report(some_report(), prompt, limited, situation), "") << "too little evaluated";
  situation.cache.reuse = Reuse::live;
  EXPECT_NE(judge_report(some_report(), prompt, options, situation), "") << "against the mode";
  situation.cache.reuse = Reuse::everything;
  situation.engine.fork = Fork::restore;
  EXPECT_NE(judge_report(some_report(), prompt, options, situation), "") << "against the traits";
}

TEST(SequenceJudge, SeesBudgetsThatDoNotHoldAndSumsThatAreWrong) {
  Situation situation;
  situation.engine.sequences = 3;
  SequenceStats right;
  right.sequences = 3;
  right.free_sequences = 2;
  right.idle_sequences = 1;
  ASSERT_EQ(judge_stats(right, {}, situation, false), "");
  const std::vector<std::function<void(SequenceStats&)>> mistakes = {
      [&](SequenceStats& s) { s.saved_bytes = situation.cache.saved_bytes + 1; },
      [](SequenceStats& s) { s.segment_bytes = s.saved_bytes + 1; },
      [](SequenceStats& s) { s.logits_bytes = 1; },
      [&](SequenceStats& s) { s.pending = situation.cache.pending_captures + 2; },
      [&](SequenceStats& s) { s.sessions = situation.cache.sessions + 1; },
      [](SequenceStats& s) { ++s.free_sequences; },
      [](SequenceStats& s) { --s.idle_sequences, ++s.leased_sequences; },
      [](SequenceStats& s) { ++s.turns; },
      [](SequenceStats& s) { ++s.outcomes[0]; },
      [](SequenceStats& s) { ++s.reused_tokens; },
      [](SequenceStats& s) { ++s.failures[0]; },
      [](SequenceStats& s) { ++s.broken; },
  };
  for (size_t i = 0; i < mistakes.size(); ++i) {
    SequenceStats stats = right;
    mistakes[i](stats);
    EXPECT_NE(judge_stats(stats, {}, situation, false), "") << "mistake " << i;
  }
}

}  // namespace
}  // namespace stemma::schedules
