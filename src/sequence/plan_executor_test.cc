#include "sequence/plan_executor.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// Executes a plan, and expects that its numbers are true.
uint32_t carried_out(PartsRig& rig, TurnRecord& turn, const Text& text) {
  const uint32_t n = ok(rig.executor.execute(turn));
  EXPECT_EQ(rig.right(turn.sequence, text.first(n)), "");
  EXPECT_EQ(turn.phase, TurnPhase::ready);
  EXPECT_EQ(turn.available, n);
  EXPECT_EQ(rig.books.known(turn.sequence), n);
  return n;
}

uint64_t failures_of(const PartsRig& rig, Step step) {
  return rig.books.stats.failures[static_cast<size_t>(step)];
}

// What cannot be copied is cut.
EngineOptions without_copies() { return {.fork = Fork::restore}; }

TEST(PlanExecutor, SequenceIsCutToWhatThePromptShares) {
  PartsRig rig(without_copies());
  rig.put(0, tokens(100));
  const Text text = tokens(90) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(carried_out(rig, turn, text), 90U);
  EXPECT_EQ(turn.sequence, 0U);
  EXPECT_EQ(rig.calls(Call::trim), 1U);
}

TEST(PlanExecutor, SequenceInUseIsCopiedAndNotTouched) {
  PartsRig rig;
  const TurnRecord& other = rig.run(tokens(100));
  const Text text = tokens(100) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(carried_out(rig, turn, text), 100U);
  EXPECT_NE(turn.sequence, other.sequence);
  EXPECT_EQ(rig.right(other.sequence, tokens(100)), "");
  EXPECT_EQ(rig.books.room.used(), 100U) << "they share";
}

TEST(PlanExecutor, CheckpointIsLoadedOverItsSegments) {
  PartsRig rig(hybrid_engine());
  rig.put_away(tokens(100));
  const Text text = tokens(100) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(carried_out(rig, turn, text), 100U);
  EXPECT_EQ(turn.report.steps[static_cast<size_t>(Step::checkpoint)], 100U);
}

TEST(PlanExecutor, LongerStateIsCutBehindWhatThePromptShares) {
  PartsRig rig(full_state_engine());
  rig.put_away(tokens(100));
  const Text text = tokens(90) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(carried_out(rig, turn, text), 90U);
}

TEST(PlanExecutor, EngineThatOnlySaysThatItCutIsNotBelieved) {
  PartsRig rig(without_copies());
  rig.put(0, tokens(100));
  rig.put(1, tokens(50, 3));
  const Text text = tokens(90) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  rig.engine.faults.next(Call::trim, Fault::lie_nothing);
  EXPECT_LT(carried_out(rig, turn, text), 90U);
  EXPECT_EQ(failures_of(rig, Step::trim), 1U);
  EXPECT_EQ(turn.report.failures, 1U);
  EXPECT_EQ(turn.report.reason, SequenceMiss::failed);
  EXPECT_EQ(rig.right(1, tokens(50, 3)), "") << "others have nothing to do with it";
}

TEST(PlanExecutor, WhatWasSavedServesWhenACopyFails) {
  PartsRig rig;
  TurnRecord& other = rig.run(tokens(128));
  rig.books.queue.add(other.sequence, 128);
  ASSERT_EQ(rig.capturer.capture(other.sequence).fate, CaptureFate::saved);
  const Text text = tokens(128) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  ASSERT_EQ(turn.plan.base, Base::fork);
  rig.engine.faults.next(Call::copy, Fault::before);
  EXPECT_EQ(carried_out(rig, turn, text), 128U);
  EXPECT_EQ(failures_of(rig, Step::fork), 1U);
  EXPECT_EQ(turn.report.steps[static_cast<size_t>(Step::segments)], 128U);
}

TEST(PlanExecutor, TurnWhoseSequenceIsNotClearedFailsAndSaysSo) {
  PartsRig rig(without_copies());
  rig.put(0, tokens(100));
  TurnRecord& turn = rig.begin(tokens(90) + tokens(9, 2));
  rig.engine.faults = FaultSchedule({{Call::trim, 0, Fault::before},
                                     {Call::clear, 0, Fault::before},
                                     {Call::clear, 1, Fault::before}});
  EXPECT_FALSE(rig.executor.execute(turn).has_value());
  EXPECT_EQ(turn.phase, TurnPhase::failed);
  EXPECT_EQ(turn.report.outcome, Outcome::refused);
  EXPECT_EQ(turn.report.reused_tokens, 0U);
  EXPECT_TRUE(rig.books.at(0).dirty);
}

TEST(PlanExecutor, PlanThatIsOldIsMadeAnew) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.put(1, tokens(100));
  TurnRecord& first = rig.begin(tokens(100) + tokens(9, 2));
  const Text text = tokens(100) + tokens(9, 3);
  TurnRecord& turn = rig.begin(text);
  ASSERT_EQ(turn.plan.available, 100U);
  rig.clearer.forget(turn.sequence);
  ASSERT_TRUE(rig.clearer.empty(turn.sequence)) << "what it was to reuse is gone";
  EXPECT_EQ(carried_out(rig, turn, text), 0U) << "the other sequence is not known to stay";
  EXPECT_EQ(turn.report.failures, 0U) << "the old plan was not tried";
  EXPECT_EQ(ok(rig.executor.execute(first)), 100U);
}

TEST(PlanExecutor, RoomIsMadeAndVictimsAreCounted) {
  PartsRig rig;  // 1024 positions.
  rig.put(0, tokens(600, 1));
  const Text text = tokens(700, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(carried_out(rig, turn, text), 0U);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(turn.report.victims, 1U);
}

TEST(PlanExecutor, WordsThatCannotBeCopiedAreSavedAndLoaded) {
  PartsRig rig(without_copies());
  rig.run(tokens(256));
  const Text text = tokens(256) + tokens(9, 2);
  TurnRecord& turn = rig.begin(text);
  EXPECT_EQ(turn.plan.available, 0U) << "nothing is saved yet";
  EXPECT_EQ(carried_out(rig, turn, text), 256U);
  EXPECT_EQ(rig.saved(tokens(256)), 256U);
}

}  // namespace
}  // namespace stemma::test
