#include "sequence/turn_end.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(TurnEnd, FinishedTurnLeavesItsWordsIdleAndWaiting) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100), {.session = "a"});
  const uint32_t s = turn.sequence;
  ok(rig.end.finish(turn, nullptr));
  EXPECT_EQ(rig.state(s), SequenceState::idle);
  EXPECT_EQ(rig.books.at(s).turn, nullptr);
  EXPECT_EQ(rig.books.at(s).capture, 100U);
  EXPECT_EQ(rig.look(tokens(100) + tokens(1, 2)).reused_tokens, 100U);
  EXPECT_TRUE(rig.inspector.session("a").resident);
  rig.inspector.check_invariants();
}

TEST(TurnEnd, TurnThatKeepsNothingLeavesNothing) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100), {.keep = false});
  const uint32_t s = turn.sequence;
  ok(rig.end.finish(turn, nullptr));
  EXPECT_EQ(rig.state(s), SequenceState::free);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
}

TEST(TurnEnd, TurnThatReusesOnlySavedPartsIsSavedAtOnce) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100), {.reuse = Reuse::saved});
  const uint32_t s = turn.sequence;
  ok(rig.end.finish(turn, nullptr));
  EXPECT_EQ(rig.state(s), SequenceState::free);
  EXPECT_EQ(rig.saved(tokens(100)), 100U);
}

TEST(TurnEnd, AbandonedTurnLeavesWhatItFound) {
  PartsRig rig;
  rig.put(0, tokens(100));
  TurnRecord& turn = rig.run(tokens(100) + tokens(50, 2));
  ASSERT_EQ(turn.sequence, 0U);
  ok(rig.end.abandon(turn));
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  EXPECT_EQ(rig.books.known(0), 100U);
  EXPECT_EQ(rig.right(0, tokens(100)), "");
  EXPECT_EQ(rig.books.at(0).text.length(), 100U);
}

TEST(TurnEnd, AbandonedTurnThatFoundNothingLeavesNothing) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100));
  const uint32_t s = turn.sequence;
  ok(rig.end.abandon(turn));
  EXPECT_EQ(rig.state(s), SequenceState::free);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
}

TEST(TurnEnd, TurnThatWasNeverCarriedOutGivesItsSequenceBack) {
  PartsRig rig;
  rig.put(0, tokens(100));
  TurnRecord& turn = rig.begin(tokens(100) + tokens(9, 2), {.session = "a"});
  ok(rig.end.finish(turn, nullptr));
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  EXPECT_EQ(rig.right(0, tokens(100)), "");
  EXPECT_EQ(rig.books.stats.outcomes[static_cast<size_t>(Outcome::refused)], 1U);
  EXPECT_FALSE(rig.inspector.session("a").in_flight);
}

TEST(TurnEnd, RoomThatOthersWerePromisedIsMadeWhenASequenceIsGivenBack) {
  EngineOptions small = full_engine();
  small.sequences = 2;
  small.context_tokens = 300;
  PartsRig rig(small);
  rig.put(0, tokens(200, 1));
  TurnRecord& first = rig.begin(tokens(150, 2));
  TurnRecord& second = rig.begin(tokens(80, 3));
  ASSERT_EQ(second.sequence, 0U) << "in the place of what is idle";
  ok(rig.executor.execute(first));
  ok(rig.end.abandon(second));
  EXPECT_EQ(rig.state(0), SequenceState::free) << "its 200 positions were in the way";
}

TEST(TurnEnd, TurnOfALostContextEndsAndSaysThatItIsStale) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100), {.session = "a"});
  rig.forgetter.forget_context();
  EXPECT_EQ(code(rig.end.finish(turn, nullptr)), Errc::stale);
  EXPECT_EQ(turn.text.length(), 0U);
  EXPECT_EQ(rig.books.stats.stale_calls, 1U);
}

TEST(TurnEnd, RetainThatIsBadKeepsTheTurnGoing) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100));
  Retain bad;
  bad.priority = 101;
  EXPECT_EQ(code(rig.end.finish(turn, &bad)), Errc::invalid_argument);
  EXPECT_EQ(rig.state(turn.sequence), SequenceState::leased);
  ok(rig.end.finish(turn, nullptr));
}

}  // namespace
}  // namespace stemma::test
