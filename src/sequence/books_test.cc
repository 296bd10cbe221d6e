#include "sequence/books.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(Books, IdleSequencesAreOrderedByWhenTheyBecameIdle) {
  PartsRig rig;
  for (const uint32_t s : {2U, 0U, 1U}) rig.put(s, tokens(10, s + 1));
  EXPECT_EQ(rig.books.idle_order.front(0), 2U);
  rig.books.set_state(2, SequenceState::idle);
  EXPECT_EQ(rig.books.idle_order.front(0), 0U) << "it was used again";
  rig.books.set_state(0, SequenceState::broken);
  EXPECT_EQ(rig.books.idle_order.front(0), 1U) << "only idle ones are in the order";
}

TEST(Books, StateThatChangesMakesPlansOld) {
  PartsRig rig;
  const uint64_t before = rig.books.epoch;
  rig.books.set_state(0, SequenceState::broken);
  EXPECT_NE(rig.books.epoch, before);
}

TEST(Books, OthersMayLookWhileTheLockIsLetGo) {
  PartsRig rig;
  bool looked = false;
  {
    const Books::Unlocked unlocked(rig.books);
    std::thread([&] {
      const base::MutexLock lock(rig.books.mutex);
      looked = true;
    }).join();
  }
  EXPECT_TRUE(looked);
}

TEST(Books, WhatTheEngineSaysIsRemembered) {
  PartsRig rig;
  ok(rig.engine.compute(SequenceId{1}, tokens(40).tokens));
  EXPECT_EQ(rig.books.ask(1), (Held{0, 40}));
  EXPECT_EQ(rig.books.at(1).held, (Held{0, 40}));
}

TEST(Books, OnlyWhatTheEngineHoldsIsVerified) {
  PartsRig rig;
  rig.put(0, tokens(100));
  EXPECT_TRUE(rig.books.verify(0, 100));
  EXPECT_FALSE(rig.books.verify(0, 99));
  rig.engine.faults.next(Call::held, Fault::lie_nothing);
  EXPECT_FALSE(rig.books.verify(0, 100));
}

TEST(Books, RecurrentStateThatWasShiftedIsResumedNowhere) {
  PartsRig rig(bounded_engine());
  rig.put(0, tokens(100));
  EXPECT_LT(rig.books.resumable_part(0).begin, 100U);
  rig.books.at(0).shifted = true;
  EXPECT_EQ(rig.books.resumable_part(0).begin, 100U);
}

TEST(Books, WordsAreTheTurnsWhileItIsReady) {
  PartsRig rig;
  rig.put(0, tokens(100));
  TurnRecord& turn = rig.begin(tokens(100) + tokens(9, 2));
  ASSERT_EQ(turn.sequence, 0U);
  EXPECT_EQ(&rig.books.text_of(0), &rig.books.at(0).text) << "it was not carried out yet";
  ok(rig.executor.execute(turn));
  EXPECT_EQ(&rig.books.text_of(0), &turn.text);
  EXPECT_EQ(&rig.books.scope_of(0), &turn.scope);
}

TEST(Books, WordsOfABypassedTurnAreNotFound) {
  PartsRig rig;
  TurnRecord& plain = rig.run(tokens(100));
  TurnRecord& bypassed = rig.run(tokens(100, 2), {.bypass = true});
  EXPECT_EQ(rig.books.known(plain.sequence), 100U);
  EXPECT_EQ(rig.books.known(bypassed.sequence), 0U);
}

TEST(Books, TurnIsCountedOnce) {
  PartsRig rig;
  TurnRecord& turn = rig.execute(tokens(100));
  rig.books.count(turn);
  EXPECT_EQ(rig.books.stats.turns, 1U);
  EXPECT_EQ(rig.books.stats.prompt_tokens, 100U);
}

TEST(Books, CellsOfOthersAreCountedInOneContextOnly) {
  PartsRig rig;
  rig.put(0, tokens(100));
  const TurnRecord& turn = rig.run(tokens(50, 2));
  EXPECT_EQ(rig.books.cells_of_others(turn.sequence), 100U);
  EXPECT_EQ(rig.books.cells_in_turns(turn.sequence), 0U);
  EXPECT_EQ(rig.books.cells_in_turns(0), 50U);
  PartsRig split(full_split_engine());
  split.put(0, tokens(100));
  EXPECT_EQ(split.books.cells_of_others(1), 0U);
}

TEST(Books, ImpossibleOptionsAndTraitsAreRefused) {
  const EngineTraits traits = FakeSequences(full_engine()).traits();
  EXPECT_EQ(code(Books::check({}, traits)), kOk);
  EXPECT_EQ(code(Books::check({.segment_tokens = 3}, traits)), Errc::invalid_argument);
  EXPECT_EQ(code(Books::check({.sessions = 0}, traits)), Errc::invalid_argument);
  EngineTraits none = traits;
  none.sequences = 0;
  EXPECT_EQ(code(Books::check({}, none)), Errc::invalid_argument);
}

}  // namespace
}  // namespace stemma::test
