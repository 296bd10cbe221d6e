// The planner's choices: a table for each way in which a memory goes back and is copied.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "support/plan_scene.h"

namespace stemma::test {
namespace {

// Sequence 0 is free; sequence 1 has 300 words in common with the prompt, and as many as the row
// says. Saved are segments up to 500, checkpoints at 250 and 500, or a state of 500. In the cells:
// S300 stays with 300 words, F300 copies them, G500 loads segments up to 500, C500 a checkpoint,
// A500 a state.
struct Row {
  const char* live;
  std::array<const char*, 6> plans;
};
constexpr std::array<const char*, 6> kColumns{"nothing",       "segments",           "C250",
                                              "segments C250", "segments C250 C500", "state"};

std::string cell(const Plan& plan) {
  const auto depth = [](const char* what, uint32_t n) { return what + std::to_string(n) + " "; };
  std::string out;
  if (plan.base == Base::stay) out += depth("S", plan.base_tokens);
  if (plan.base == Base::fork) out += depth("F", plan.base_tokens);
  if (plan.segments_to != 0) out += depth("G", plan.segments_to);
  if (plan.checkpoint != 0) out += depth("C", plan.checkpoint);
  if (plan.state_depth != 0) out += depth("A", plan.state_depth);
  if (out.empty()) return "-";
  out.pop_back();
  return out;
}

Scene scene_of(Rewind rewind, Fork fork, const std::string& live, const std::string& saved) {
  Scene scene(rewind, fork);
  scene.free(kFree);
  if (live != "nothing") {
    const auto end = static_cast<uint32_t>(std::stoul(live.substr(live.find(' '))));
    if (live.starts_with("own")) scene.own(kOther, 300, end);
    if (live.starts_with("other")) scene.idle(kOther, 300, end);
    if (live.starts_with("leased")) scene.leased(kOther, 300, end);
  }
  if (saved.starts_with("segments")) scene.segments(500);
  if (saved.find("C250") != std::string::npos) scene.checkpoint(250);
  if (saved.find("C500") != std::string::npos) scene.checkpoint(500);
  if (saved == "state") scene.state(500);
  return scene;
}

void expect_table(Rewind rewind, Fork fork, const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns.size(); ++i) {
      const Plan plan = scene_of(rewind, fork, row.live, kColumns[i]).plan();
      EXPECT_EQ(cell(plan), row.plans[i]) << row.live << ", saved: " << kColumns[i];
      EXPECT_EQ(plan.sequence, plan.base == Base::stay ? kOther : kFree) << show(plan);
    }
  }
}

TEST(PlanTable, FullAttentionThatShares) {
  expect_table(Rewind::any, Fork::shared,
               {{"nothing", {"-", "G500", "-", "G500", "G500", "A500"}},
                {"own 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"own 400", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}},
                {"other 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 400", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}},
                {"leased 300", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}},
                {"leased 400", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}}});
}

TEST(PlanTable, FullAttentionThatCopies) {
  expect_table(Rewind::any, Fork::copy,
               {{"nothing", {"-", "G500", "-", "G500", "G500", "A500"}},
                {"own 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"own 310", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"own 400", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 310", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 400", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}},
                {"leased 300", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}},
                {"leased 400", {"F300", "F300 G500", "F300", "F300 G500", "F300 G500", "A500"}}});
}

TEST(PlanTable, FullAttentionThatOnlyRestores) {
  expect_table(Rewind::any, Fork::restore,
               {{"nothing", {"-", "G500", "-", "G500", "G500", "A500"}},
                {"own 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"own 400", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 300", {"S300", "S300 G500", "S300", "S300 G500", "S300 G500", "A500"}},
                {"other 400", {"S300", "G500", "S300", "G500", "G500", "A500"}},
                {"leased 300", {"-", "G500", "-", "G500", "G500", "A500"}},
                {"leased 400", {"-", "G500", "-", "G500", "G500", "A500"}}});
}

TEST(PlanTable, AWindowThatShares) {
  expect_table(Rewind::window, Fork::shared,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"other 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"other 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"leased 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"leased 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}}});
}

TEST(PlanTable, AWindowThatOnlyRestores) {
  expect_table(Rewind::window, Fork::restore,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "S250 C250", "S250 C250", "S300 G500 C500", "A500"}},
                {"other 300", {"S300", "S300", "S300", "S300", "G500 C500", "A500"}},
                {"other 400", {"-", "-", "S250 C250", "G250 C250", "G500 C500", "A500"}},
                {"leased 300", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"leased 400", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}}});
}

TEST(PlanTable, AFewRecurrentStatesThatShare) {
  expect_table(Rewind::bounded, Fork::shared,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 310", {"S300", "S300", "S300", "S300", "F300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"other 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"other 310", {"S300", "S300", "S300", "S300", "F300 G500 C500", "A500"}},
                {"other 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"leased 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"leased 310", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}}});
}

TEST(PlanTable, AFewRecurrentStatesThatOnlyRestore) {
  expect_table(Rewind::bounded, Fork::restore,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 310", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "S250 C250", "S250 C250", "G500 C500", "A500"}},
                {"other 300", {"S300", "S300", "S300", "S300", "G500 C500", "A500"}},
                {"other 310", {"S300", "S300", "S300", "S300", "G500 C500", "A500"}},
                {"other 400", {"-", "-", "S250 C250", "G250 C250", "G500 C500", "A500"}},
                {"leased 300", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"leased 310", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}}});
}

TEST(PlanTable, ARecurrentStateThatShares) {
  expect_table(Rewind::exact, Fork::shared,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"other 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"other 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"leased 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"leased 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}}});
}

TEST(PlanTable, ARecurrentStateThatCopies) {
  expect_table(Rewind::exact, Fork::copy,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "S250 C250", "S250 C250", "F300 G500 C500", "A500"}},
                {"other 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"other 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}},
                {"leased 300", {"F300", "F300", "F300", "F300", "F300 G500 C500", "A500"}},
                {"leased 400", {"-", "-", "F250 C250", "F250 C250", "F300 G500 C500", "A500"}}});
}

TEST(PlanTable, ARecurrentStateThatOnlyRestores) {
  expect_table(Rewind::exact, Fork::restore,
               {{"nothing", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"own 300", {"S300", "S300", "S300", "S300", "S300 G500 C500", "A500"}},
                {"own 400", {"-", "-", "S250 C250", "S250 C250", "G500 C500", "A500"}},
                {"other 300", {"S300", "S300", "S300", "S300", "G500 C500", "A500"}},
                {"other 400", {"-", "-", "S250 C250", "G250 C250", "G500 C500", "A500"}},
                {"leased 300", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}},
                {"leased 400", {"-", "-", "-", "G250 C250", "G500 C500", "A500"}}});
}

}  // namespace
}  // namespace stemma::test
