#include "sequence/idle_dropper.h"

#include <gtest/gtest.h>

#include "sequence/room_promises.h"
#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// A model for which 4,000 cells double the time of a token; the meter knows it.
class SlowedRig : public PartsRig {
 public:
  SlowedRig() : PartsRig(engine_options(), options()) { put(0, tokens(1500)); }

  // A long prompt on another sequence, about to be computed.
  TurnRecord& long_prompt() { return begin(tokens(1200, 2)); }

 private:
  static EngineOptions engine_options() {
    EngineOptions engine = full_engine();
    engine.context_tokens = 16'384;
    return engine;
  }
  static SequenceOptions options() {
    SequenceOptions options = parts_options();
    options.compute_token_ns = 200'000;
    options.attention_cell_ps = 50'000;
    return options;
  }
};

TEST(IdleDropper, SavedSequenceGoesBeforeALongPromptIsComputed) {
  SlowedRig rig;
  rig.save(0);
  TurnRecord& turn = rig.long_prompt();
  rig.idle.drop_for(turn);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_EQ(turn.report.dropped_idle, 1U);
  EXPECT_EQ(rig.books.stats.dropped_idle, 1U);
}

TEST(IdleDropper, SequenceThatCannotBeRestoredStays) {
  SlowedRig rig;
  rig.idle.drop_for(rig.long_prompt());
  EXPECT_EQ(rig.state(0), SequenceState::idle);
}

TEST(IdleDropper, NothingGoesForAShortPrompt) {
  SlowedRig rig;
  rig.save(0);
  rig.idle.drop_for(rig.begin(tokens(5, 2)));
  EXPECT_EQ(rig.state(0), SequenceState::idle);
}

TEST(IdleDropper, WhatSlowsDownManyShortPromptsGoesInTheEnd) {
  SlowedRig rig;
  rig.save(0);
  rig.idle.drop_for(rig.begin(tokens(5, 2)));
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  const uint64_t slowed = rig.books.at(0).slowed_ns;
  EXPECT_GT(slowed, 0U);
  // Looking again while a turn computes does not count as another turn.
  rig.idle.drop_for_all();
  EXPECT_EQ(rig.books.at(0).slowed_ns, slowed);
  rig.idle.drop_for(rig.begin(tokens(5, 3)));
  rig.idle.drop_for(rig.begin(tokens(5, 4)));
  EXPECT_EQ(rig.state(0), SequenceState::free);
}

TEST(IdleDropper, WhatIsUsedAgainOwesNothing) {
  SlowedRig rig;
  rig.save(0);
  rig.idle.drop_for(rig.begin(tokens(5, 2)));
  EXPECT_GT(rig.books.at(0).slowed_ns, 0U);
  rig.books.set_state(0, SequenceState::leased);
  rig.books.set_state(0, SequenceState::idle);
  EXPECT_EQ(rig.books.at(0).slowed_ns, 0U);
}

TEST(IdleDropper, SequenceThatWaitsToBeSavedStays) {
  SlowedRig rig;
  rig.save(0);
  rig.books.at(0).saved = 0;
  rig.books.queue.add(0, 1500);
  rig.idle.drop_for(rig.long_prompt());
  EXPECT_EQ(rig.state(0), SequenceState::idle);
}

TEST(IdleDropper, SequenceThatIsBeingReadStays) {
  SlowedRig rig;
  // Its beginning is saved, which would be enough to drop it.
  rig.put(3, tokens(1472));
  rig.save(3);
  rig.clearer.release(3);
  rig.books.queue.add(0, 1500);
  rig.capturer.begin(0);
  ASSERT_TRUE(rig.capturer.is_reading(0));
  TurnRecord& turn = rig.long_prompt();
  rig.idle.drop_for(turn);
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  rig.capturer.stop();
  rig.idle.drop_for(turn);
  EXPECT_EQ(rig.state(0), SequenceState::free);
}

TEST(IdleDropper, SequenceThatAnotherTurnWillCopyStays) {
  SlowedRig rig;
  rig.save(0);
  TurnRecord& turn = rig.long_prompt();
  TurnRecord& copies = rig.begin(tokens(5, 3));
  copies.plan.base = Base::fork;
  copies.plan.source = 0;
  rig.idle.drop_for(turn);
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  copies.phase = TurnPhase::failed;
  rig.idle.drop_for(turn);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  copies.phase = TurnPhase::planned;
}

TEST(IdleDropper, LookingOnWhileASequenceIsEmptiedKeepsNoOther) {
  SlowedRig rig;
  rig.save(0);
  rig.put(1, tokens(1500, 7));
  rig.save(1);
  TurnRecord& turn = rig.long_prompt();
  uint32_t looks = 0;
  rig.engine.while_clearing = [&] {
    const base::MutexLock lock(rig.books.mutex);
    // The question that another thread's lookup() asks.
    EXPECT_TRUE(sequence::could_have(rig.books, 3, 0, 100, kNoSequence));
    ++looks;
  };
  rig.idle.drop_for(turn);
  EXPECT_EQ(looks, 2U);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(rig.state(1), SequenceState::free);
  EXPECT_EQ(turn.report.dropped_idle, 2U);
}

TEST(IdleDropper, DropsForTurnsThatStillComputeTheirPrompt) {
  SlowedRig rig;
  TurnRecord& turn = rig.execute(tokens(1200, 2));
  ASSERT_EQ(rig.state(0), SequenceState::idle) << "it was not saved yet";
  rig.save(0);
  turn.computed = 1200;
  rig.idle.drop_for_all();
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  turn.computed = 0;
  rig.idle.drop_for_all();
  EXPECT_EQ(rig.state(0), SequenceState::free);
}

}  // namespace
}  // namespace stemma::test
