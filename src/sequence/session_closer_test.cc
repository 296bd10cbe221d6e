#include "sequence/session_closer.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(SessionCloser, SequenceOfASessionThatEndsIsTheNextToGo) {
  PartsRig rig;
  rig.chat(tokens(10, 1), {.session = "a"});
  const uint32_t s = rig.chat(tokens(10, 2), {.session = "b"});
  ASSERT_NE(rig.books.idle_order.front(0), s);
  rig.sessions.end_session("b");
  EXPECT_EQ(rig.books.idle_order.front(0), s);
  EXPECT_FALSE(rig.inspector.session("b").known);
  EXPECT_TRUE(rig.inspector.session("a").known);
  EXPECT_EQ(rig.books.at(s).session, kNoSession);
}

TEST(SessionCloser, WhatIsStillToBeSavedCountsAsEnded) {
  PartsRig rig;
  const uint32_t s = rig.chat(tokens(10), {.session = "a"});
  rig.sessions.end_session("a");
  EXPECT_EQ(rig.books.at(s).retain.retain.phase, SessionPhase::ended);
}

TEST(SessionCloser, SessionUnderWayEndsWithItsLastTurn) {
  PartsRig rig;
  TurnRecord& one = rig.begin(tokens(10, 1), {.session = "a"});
  TurnRecord& two = rig.begin(tokens(10, 2), {.session = "a", .exclusive = false});
  rig.sessions.end_session("a");
  rig.sessions.leave_session(one);
  EXPECT_TRUE(rig.inspector.session("a").known);
  rig.sessions.leave_session(two);
  EXPECT_FALSE(rig.inspector.session("a").known);
  rig.sessions.leave_session(two);  // It has no sequence any more.
}

TEST(SessionCloser, SessionThatNobodyEndedIsRemembered) {
  PartsRig rig;
  TurnRecord& turn = rig.begin(tokens(10), {.session = "a"});
  rig.sessions.leave_session(turn);
  EXPECT_TRUE(rig.inspector.session("a").known);
  EXPECT_FALSE(rig.inspector.session("a").in_flight);
}

TEST(SessionCloser, NameThatIsNotKnownChangesNothing) {
  PartsRig rig;
  rig.chat(tokens(10), {.session = "a"});
  const uint64_t epoch = rig.books.epoch;
  rig.sessions.end_session("b");
  EXPECT_EQ(rig.books.epoch, epoch);
}

}  // namespace
}  // namespace stemma::test
