#include "sequence/forgetter.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(Forgetter, ContextThatIsMadeAnewHoldsNothingAndItsTurnsAreStale) {
  PartsRig rig;
  rig.put(0, tokens(100, 1));
  rig.save(0);
  TurnRecord& turn = rig.run(tokens(100, 2));
  rig.forgetter.forget_context();
  for (uint32_t s = 0; s < 4; ++s) EXPECT_EQ(rig.state(s), SequenceState::free);
  EXPECT_EQ(rig.books.room.used(), 0U);
  EXPECT_EQ(turn.sequence, kNoSequence);
  EXPECT_EQ(code(rig.books.check_turn(turn)), Errc::stale);
  EXPECT_EQ(rig.saved(tokens(100, 1)), 100U) << "what was saved stays";
  EXPECT_EQ(rig.calls(Call::clear), 0U) << "there is nothing to clear";
}

TEST(Forgetter, DroppedScopeIsNotFoundAndOthersAre) {
  PartsRig rig;
  rig.put(0, tokens(100, 1));
  rig.save(0);
  const Scope mine = rig.scope;
  rig.scope = scope_of({.model = "another model"});
  rig.put(1, tokens(100, 1));
  rig.save(1);
  const Scope other = rig.scope;
  rig.forgetter.drop_scope(mine);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(rig.state(1), SequenceState::idle);
  EXPECT_EQ(rig.intake.saved_tokens(mine, tokens(100, 1)), 0U);
  EXPECT_EQ(rig.intake.saved_tokens(other, tokens(100, 1)), 100U);
}

TEST(Forgetter, TurnOfADroppedScopeGoesOnAndLeavesNothing) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100));
  rig.forgetter.drop_scope(rig.scope);
  EXPECT_EQ(rig.right(turn.sequence, tokens(100)), "");
  EXPECT_EQ(rig.books.known(turn.sequence), 0U);
  const uint32_t s = turn.sequence;
  ok(rig.end.finish(turn, nullptr));
  EXPECT_EQ(rig.state(s), SequenceState::free);
}

TEST(Forgetter, WhatWasSavedIsForgottenAndSequencesStay) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(100));
  rig.save(0);
  rig.forgetter.drop_saved();
  EXPECT_EQ(rig.saved(tokens(100)), 0U);
  EXPECT_EQ(rig.books.checkpoints->stats().entries, 0U);
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  EXPECT_EQ(rig.books.at(0).saved, 0U) << "it can be saved again";
}

TEST(Forgetter, TruncatedPrefixStaysAndWhatFollowsItGoes) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.save(0);
  const Truncated done = ok(rig.forgetter.truncate(rig.scope, tokens(200), 130));
  EXPECT_EQ(done.sequences, 1U);
  EXPECT_EQ(done.live_tokens, 70U);
  EXPECT_EQ(rig.books.known(0), 130U);
  EXPECT_EQ(rig.right(0, tokens(130)), "");
  EXPECT_EQ(rig.saved(tokens(200)), 128U) << "segments go whole";
  EXPECT_LE(rig.books.at(0).saved, 128U);
}

TEST(Forgetter, SequenceThatCannotGoBackIsEmptied) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(200));
  const Truncated done = ok(rig.forgetter.truncate(rig.scope, tokens(200), 130));
  EXPECT_EQ(done.live_tokens, 200U);
  EXPECT_EQ(rig.state(0), SequenceState::free);
}

TEST(Forgetter, TurnUnderWayIsCountedAndNotTouched) {
  PartsRig rig;
  const TurnRecord& turn = rig.run(tokens(200));
  const Truncated done = ok(rig.forgetter.truncate(rig.scope, tokens(200), 130));
  EXPECT_EQ(done.in_use, 1U);
  EXPECT_EQ(done.sequences, 0U);
  EXPECT_EQ(rig.right(turn.sequence, tokens(200)), "");
}

TEST(Forgetter, TruncationBeyondThePromptIsRefused) {
  PartsRig rig;
  rig.put(0, tokens(200));
  EXPECT_EQ(code(rig.forgetter.truncate(rig.scope, tokens(100), 101)), Errc::out_of_range);
  EXPECT_EQ(rig.books.known(0), 200U);
}

}  // namespace
}  // namespace stemma::test
