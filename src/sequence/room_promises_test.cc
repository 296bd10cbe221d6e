#include "sequence/room_promises.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

Plan keeping(Base base, uint32_t base_tokens) {
  Plan plan;
  plan.sequence = 0;
  plan.base = base;
  plan.base_tokens = base_tokens;
  return plan;
}

TEST(RoomPromises, PlanNeedsRoomForWhatIsNotInTheContextYet) {
  PartsRig rig;
  TurnRecord& turn = rig.read(tokens(100));
  turn.promised_end = 150;
  EXPECT_EQ(needs_room(rig.books, turn, keeping(Base::empty, 0)), 150U);
  EXPECT_EQ(needs_room(rig.books, turn, keeping(Base::stay, 90)), 60U);
  EXPECT_EQ(needs_room(rig.books, turn, keeping(Base::fork, 90)), 60U) << "a copy shares";
  PartsRig split(full_split_engine());
  EXPECT_EQ(needs_room(split.books, turn, keeping(Base::fork, 90)), 150U) << "here it does not";
}

TEST(RoomPromises, SegmentsComeWhole) {
  PartsRig rig;
  const TurnRecord& turn = rig.read(tokens(100));
  Plan plan = keeping(Base::empty, 0);
  plan.segments_to = 90;
  EXPECT_EQ(needs_room(rig.books, turn, plan), 128U);
}

TEST(RoomPromises, TurnIsPromisedItsPromptAndItsAnswerUntilItHasThem) {
  PartsRig rig;
  TurnRecord& turn = rig.begin(tokens(100), {.reserve_tokens = 50});
  const uint32_t other = turn.sequence + 1;
  EXPECT_EQ(promised_to_others(rig.books, other), 150U);
  EXPECT_EQ(promised_to_others(rig.books, turn.sequence), 0U) << "nobody is in his own way";
  ok(rig.executor.execute(turn));
  rig.compute(turn);
  EXPECT_EQ(promised_to_others(rig.books, other), 50U);
}

TEST(RoomPromises, SequencesWithTheirOwnContextOweNothing) {
  PartsRig rig(full_split_engine());
  const TurnRecord& turn = rig.begin(tokens(100), {.reserve_tokens = 50});
  EXPECT_EQ(promised_to_others(rig.books, turn.sequence + 1), 0U);
}

TEST(RoomPromises, IdleSequencesCouldGoUnlessTheyAreSpared) {
  PartsRig rig;  // 1024 positions.
  rig.put(0, tokens(600, 1));
  rig.put(1, tokens(300, 2));
  EXPECT_TRUE(could_have(rig.books, 2, 0, 1024, kNoSequence));
  EXPECT_FALSE(could_have(rig.books, 2, 0, 1025, kNoSequence));
  EXPECT_TRUE(could_have(rig.books, 2, 0, 424, 0));
  EXPECT_FALSE(could_have(rig.books, 2, 0, 425, 0));
}

TEST(RoomPromises, SourceOfACopyThatIsPlannedStays) {
  PartsRig rig;
  rig.put(0, tokens(600, 1));
  TurnRecord& turn = rig.begin(tokens(10, 2));
  turn.plan = keeping(Base::fork, 10);
  turn.plan.sequence = turn.sequence;
  turn.plan.source = 0;
  const uint32_t other = turn.sequence + 1;
  EXPECT_TRUE(is_source(rig.books, 0, other));
  EXPECT_FALSE(is_source(rig.books, 0, turn.sequence)) << "it may do with it what it likes";
  EXPECT_FALSE(could_have(rig.books, other, 0, 500, kNoSequence));
  turn.phase = TurnPhase::ready;
  EXPECT_FALSE(is_source(rig.books, 0, other)) << "it has its copy";
}

TEST(RoomPromises, PlanFitsIfTheRestOfTheContextMayGo) {
  PartsRig rig;
  rig.put(0, tokens(600, 1));
  TurnRecord& turn = rig.read(tokens(1000, 2));
  Plan plan = keeping(Base::empty, 0);
  plan.sequence = 1;
  EXPECT_TRUE(fits(rig.books, turn, plan));
  plan.source = 0;
  EXPECT_FALSE(fits(rig.books, turn, plan)) << "its source has to stay";
}

}  // namespace
}  // namespace stemma::test
