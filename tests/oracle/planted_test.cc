// The oracle can see: each known bug, planted into the reference engine, makes logits differ within
// a few schedules; the same schedules without it are right.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>
#include <string>

#include "oracle/plants.h"

namespace stemma::oracle {
namespace {

constexpr uint64_t kSchedules = 60;  // At most; most bugs show in the first few.

struct Planting {
  const char* name;
  Plant plant;
  WorldConfig config;  // Worlds in which the bug can do harm at all.
};

void PrintTo(const Planting& planting, std::ostream* out) { *out << planting.name; }

class Planted : public ::testing::TestWithParam<Planting> {};

TEST_P(Planted, BugIsSeen) {
  WorldConfig config = GetParam().config;
  for (config.seed = 1; config.seed <= kSchedules; ++config.seed) {
    const Outcome outcome = run_world(config, planted(GetParam().plant));
    if (outcome.wrong.empty()) continue;
    std::printf("seen in schedule %llu: %s\n", static_cast<unsigned long long>(config.seed),
                outcome.wrong.c_str());
    EXPECT_NE(outcome.wrong.find("wrong logits"), std::string::npos) << "not by its logits";
    // Without the bug the same schedules are right, this one included.
    for (; config.seed > 0; --config.seed) {
      EXPECT_EQ(run_world(config, planted(Plant::none)).wrong, "") << "seed " << config.seed;
    }
    return;
  }
  FAIL() << "not seen in " << kSchedules << " schedules";
}

INSTANTIATE_TEST_SUITE_P(
    Oracle, Planted,
    ::testing::Values(
        Planting{"SharedBlockWrittenInPlace", Plant::written_in_place, {.model_kind = kFull}},
        Planting{"BlockRegisteredAtAWrongPosition", Plant::wrong_position, {.model_kind = kFull}},
        Planting{"RecurrentStateUsedAtAnotherDepth",
                 Plant::state_elsewhere,
                 {.model_kind = kFullRecurrent}},
        Planting{"WindowBlockMissing", Plant::window_hole, {.model_kind = kFullWindow}},
        Planting{"MediaIgnored", Plant::media_ignored, {.model_kind = kFull, .force_media = true}},
        Planting{"BlockPublishedBeforeItIsWritten",
                 Plant::published_unwritten,
                 {.model_kind = kFull, .allow_retries = false}},
        Planting{"FreedBlockReusedBeforeItsFence",
                 Plant::fence_ignored,
                 {.model_kind = kFull, .force_overlap = true}},
        Planting{"ScopesMixed", Plant::scope_ignored, {.model_kind = kFull}}),
    [](const auto& planting) { return std::string(planting.param.name); });

}  // namespace
}  // namespace stemma::oracle
