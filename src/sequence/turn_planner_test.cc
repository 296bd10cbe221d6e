#include "sequence/turn_planner.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// Finds, plans and explains, as lookup() does.
bool plan_for(PartsRig& rig, TurnRecord& turn) {
  Found found;
  rig.finder.find(turn, found, Holding::no, kNoSequence, {});
  const bool planned = rig.planner.plan(turn, found);
  rig.planner.explain(turn, found);
  if (planned) rig.planner.describe(turn);
  return planned;
}

uint32_t step_of(const TurnRecord& turn, Step step) {
  return turn.report.steps[static_cast<size_t>(step)];
}

TEST(TurnPlanner, GoesOnInTheSequenceThatHasTheWords) {
  PartsRig rig;
  rig.put(2, tokens(100));
  TurnRecord& turn = rig.read(tokens(100) + tokens(9, 2));
  ASSERT_TRUE(plan_for(rig, turn));
  EXPECT_EQ(turn.plan.sequence, 2U);
  EXPECT_EQ(turn.plan.available, 100U);
  EXPECT_EQ(step_of(turn, Step::stay), 100U);
  EXPECT_EQ(turn.report.evaluated_tokens, 9U);
}

TEST(TurnPlanner, ReportTellsACutFromStaying) {
  PartsRig rig({.fork = Fork::restore});
  rig.put(2, tokens(100));
  TurnRecord& turn = rig.read(tokens(99) + tokens(9, 2));
  ASSERT_TRUE(plan_for(rig, turn));
  EXPECT_EQ(step_of(turn, Step::trim), 99U);
  EXPECT_EQ(step_of(turn, Step::stay), 0U);
}

TEST(TurnPlanner, NoPlanWhereLeasedSequencesLeaveTooLittle) {
  PartsRig rig;
  rig.begin(tokens(900));
  EXPECT_TRUE(plan_for(rig, rig.read(tokens(124, 2))));
  EXPECT_FALSE(plan_for(rig, rig.read(tokens(125, 2))));
}

TEST(TurnPlanner, PlanThatFitsIsTakenWhereTheBestDoesNot) {
  PartsRig rig;
  rig.run(tokens(600, 1));  // In use: it can only be copied, and stays.
  TurnRecord& turn = rig.read(tokens(500, 1) + tokens(400, 2));
  ASSERT_TRUE(plan_for(rig, turn));
  EXPECT_EQ(turn.plan.base, Base::fork) << "shared positions need no room";
  PartsRig copies({.fork = Fork::copy});
  copies.run(tokens(600, 1));
  EXPECT_FALSE(plan_for(copies, copies.read(tokens(500, 1) + tokens(400, 2))));
}

TEST(TurnPlanner, ReasonSaysWhyNoMoreIsReused) {
  PartsRig rig;
  const auto reason = [&](TurnRecord& turn) {
    plan_for(rig, turn);
    return turn.report.reason;
  };
  EXPECT_EQ(reason(rig.read(tokens(100))), SequenceMiss::unknown_scope);
  rig.put(0, tokens(100));
  EXPECT_EQ(reason(rig.read(tokens(100) + tokens(1, 2))), SequenceMiss::none);
  EXPECT_EQ(reason(rig.read(tokens(100, 2))), SequenceMiss::first_use);
  EXPECT_EQ(reason(rig.read(tokens(1))), SequenceMiss::too_short);
  TurnRecord& saved_only = rig.read(tokens(100));
  saved_only.reuse = Reuse::saved;
  EXPECT_EQ(reason(saved_only), SequenceMiss::mode);
  TurnRecord& bounded = rig.read(tokens(100));
  bounded.limit = 50;
  EXPECT_EQ(reason(bounded), SequenceMiss::at_most);
  TurnRecord& nothing = rig.read(tokens(100));
  nothing.reuse = Reuse::disabled;
  EXPECT_EQ(reason(nothing), SequenceMiss::bypassed);
}

TEST(TurnPlanner, MemoryThatDoesNotGoBackIsTheReasonWhereItIs) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(100));
  TurnRecord& turn = rig.read(tokens(50) + tokens(9, 2));
  ASSERT_TRUE(plan_for(rig, turn));
  EXPECT_EQ(turn.report.reason, SequenceMiss::no_rewind);
  EXPECT_EQ(turn.report.matched_tokens, 50U);
  EXPECT_EQ(turn.report.outcome, Outcome::miss);
}

TEST(TurnPlanner, MediaThatReuseDoesNotCoverAreToBeProcessed) {
  TurnRecord turn;
  turn.item_ends = {10, 20, 30};
  turn.report.reused_tokens = 20;
  sequence::TurnPlanner::note_media(turn);
  EXPECT_EQ(turn.media_to_process, (std::vector<uint32_t>{2}));
  EXPECT_EQ(turn.report.media_to_process, 1U);
}

TEST(TurnPlanner, StopsAreChosenWhereMemoryDoesNotGoBack) {
  PartsRig full;
  TurnRecord& free = full.read(tokens(500));
  full.planner.choose_stops(free, {});
  EXPECT_TRUE(free.stops.empty());
  PartsRig hybrid(hybrid_engine());
  TurnRecord& turn = hybrid.read(tokens(500));
  hybrid.planner.choose_stops(turn, {});
  ASSERT_FALSE(turn.stops.empty());
  EXPECT_EQ(turn.stops.back(), 499U) << "where the prompt can be resumed";
}

TEST(TurnPlanner, NewPlanAfterFailuresUsesNothingThatIsExcluded) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.begin(tokens(200) + tokens(9, 2));
  ASSERT_EQ(turn.plan.segments_to, 200U);
  rig.planner.replan(turn, {.segments = true}, false);
  EXPECT_EQ(turn.plan.available, 0U);
  EXPECT_EQ(turn.report.matched_tokens, 200U) << "what was known stays known";
  rig.planner.replan(turn, {}, false);
  EXPECT_EQ(turn.plan.available, 200U);
  rig.planner.replan(turn, {}, true);
  EXPECT_EQ(turn.plan.available, 0U) << "cold";
  EXPECT_EQ(turn.plan.sequence, turn.sequence);
}

}  // namespace
}  // namespace stemma::test
