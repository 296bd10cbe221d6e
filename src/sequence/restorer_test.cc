#include "sequence/restorer.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(Restorer, SegmentsComeBackAsTheyWereSaved) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.begin(tokens(200) + tokens(9, 2));
  Excluded excluded;
  ASSERT_EQ(code(rig.restorer.load_segments(turn, {0, 200}, excluded)), kOk);
  EXPECT_EQ(rig.right(turn.sequence, tokens(200)), "");
  EXPECT_EQ(rig.books.room.length(SequenceId{turn.sequence}), 200U);
  EXPECT_GT(turn.report.restored_bytes, 0U);
  EXPECT_EQ(rig.books.stats.restored_bytes, turn.report.restored_bytes);
}

TEST(Restorer, RangesAreLoadedInFewerCalls) {
  EngineOptions ranges = full_engine();
  ranges.range_tokens = 256;
  PartsRig rig(ranges);
  rig.put_away(tokens(256));
  TurnRecord& turn = rig.begin(tokens(256) + tokens(9, 2));
  Excluded excluded;
  ASSERT_EQ(code(rig.restorer.load_segments(turn, {0, 256}, excluded)), kOk);
  EXPECT_EQ(rig.right(turn.sequence, tokens(256)), "");
  EXPECT_EQ(rig.calls(Call::load), 1U);
}

TEST(Restorer, SegmentThatIsNotThereAfterLoadingIsGivenUp) {
  PartsRig rig;
  rig.put_away(tokens(60));
  TurnRecord& turn = rig.begin(tokens(60) + tokens(9, 2));
  rig.engine.faults.next(Call::load, Fault::lie_nothing);
  Excluded excluded;
  EXPECT_EQ(code(rig.restorer.load_segments(turn, {0, 60}, excluded)), Errc::corrupt);
  EXPECT_EQ(rig.saved(tokens(60)), 0U);
  EXPECT_EQ(rig.books.stats.quarantined, 1U);
  EXPECT_FALSE(excluded.segments) << "there is nothing left to exclude";
}

TEST(Restorer, OnlyTheSegmentsFromTheBadOneOnAreGivenUp) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.begin(tokens(200) + tokens(9, 2));
  rig.engine.faults = FaultSchedule({{Call::load, 1, Fault::before}});
  Excluded excluded;
  EXPECT_EQ(code(rig.restorer.load_segments(turn, {0, 200}, excluded)), Errc::copy_failed);
  EXPECT_EQ(rig.saved(tokens(200)), 64U);
}

TEST(Restorer, SegmentsThatFindNoRoomAreKeptForLater) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.begin(tokens(200) + tokens(9, 2));
  ok(rig.engine.compute(SequenceId{turn.sequence == 0 ? 1U : 0U}, tokens(1000, 3).tokens));
  Excluded excluded;
  EXPECT_EQ(code(rig.restorer.load_segments(turn, {0, 200}, excluded)), Errc::out_of_blocks);
  EXPECT_TRUE(excluded.segments);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
  EXPECT_EQ(rig.books.stats.quarantined, 0U);
}

TEST(Restorer, StateComesBackAndABadOneIsGivenUp) {
  PartsRig rig(hybrid_state_engine());
  rig.put_away(tokens(100));
  TurnRecord& turn = rig.begin(tokens(100) + tokens(9, 2));
  ASSERT_EQ(turn.plan.state_depth, 100U);
  Excluded excluded;
  ASSERT_EQ(code(rig.restorer.load_anchor(turn, Part::state, 100, excluded)), kOk);
  EXPECT_EQ(rig.right(turn.sequence, tokens(100)), "");
  rig.engine.faults.next(Call::load, Fault::halfway);
  EXPECT_EQ(code(rig.restorer.load_anchor(turn, Part::state, 100, excluded)), Errc::copy_failed);
  EXPECT_EQ(rig.books.states->stats().removed, 1U);
  EXPECT_EQ(rig.books.stats.quarantined, 1U);
}

}  // namespace
}  // namespace stemma::test
