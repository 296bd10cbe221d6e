#include "sequence/clearer.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// The next two calls of clear() do nothing but report success.
void break_clearing(PartsRig& rig) {
  const uint64_t next = rig.calls(Call::clear);
  rig.engine.faults =
      FaultSchedule({{Call::clear, 0, Fault::lie_nothing}, {Call::clear, 1, Fault::lie_nothing}});
  ASSERT_EQ(next, 0U) << "the schedule counts from the first call";
}

TEST(Clearer, EmptiedSequenceHoldsNothing) {
  PartsRig rig;
  rig.put(0, tokens(100));
  EXPECT_TRUE(rig.clearer.empty(0));
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_EQ(rig.books.room.used(), 0U);
  EXPECT_EQ(rig.books.known(0), 0U);
  EXPECT_EQ(rig.books.at(0).generation, 1U) << "what it held was given up";
}

TEST(Clearer, ForgettingDoesNotCallTheEngine) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.books.queue.add(0, 100);
  rig.clearer.forget(0);
  EXPECT_EQ(rig.calls(Call::clear), 0U);
  EXPECT_EQ(rig.engine.used_tokens(), 100U);
  EXPECT_EQ(rig.books.known(0), 0U);
  EXPECT_FALSE(rig.books.queue.waits(0));
  EXPECT_EQ(rig.fate(CaptureFate::stale), 1U);
}

TEST(Clearer, SequenceThatIsNotClearedIsBrokenUntilItIs) {
  PartsRig rig;
  rig.put(0, tokens(100));
  break_clearing(rig);
  rig.clearer.release(0);
  EXPECT_EQ(rig.state(0), SequenceState::broken);
  EXPECT_EQ(rig.books.stats.broken, 1U);
  EXPECT_TRUE(rig.clearer.mend());
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_FALSE(rig.clearer.mend()) << "there is none left";
}

TEST(Clearer, WhatWaitsInAVictimIsSavedFirst) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.books.queue.add(0, 100);
  SequenceReport report;
  EXPECT_TRUE(rig.clearer.retire(0, &report));
  EXPECT_EQ(rig.saved(tokens(100)), 100U);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(report.victims, 1U);
  EXPECT_GT(report.saved_bytes, 0U);
}

TEST(Clearer, CaptureInStepsIsReadToTheEndBeforeItsSequenceGoes) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  EXPECT_TRUE(rig.clearer.retire(0, nullptr));
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
}

TEST(Clearer, RoomIsMadeOfTheLeastRecentlyUsedAndNotOfTheSpared) {
  PartsRig rig;  // 1024 positions.
  for (uint32_t s = 0; s < 3; ++s) rig.put(s, tokens(300, s + 1));
  EXPECT_TRUE(rig.clearer.make_room_for(3, 400, 0, nullptr));
  EXPECT_EQ(rig.state(0), SequenceState::idle) << "it was spared";
  EXPECT_EQ(rig.state(1), SequenceState::free);
  EXPECT_EQ(rig.state(2), SequenceState::idle) << "one was enough";
  EXPECT_FALSE(rig.clearer.make_room_for(3, 1000, 0, nullptr));
}

TEST(Clearer, PromisedRoomIsNotGivenAway) {
  PartsRig rig;
  rig.put(0, tokens(300));
  rig.begin(tokens(100, 2), {.reserve_tokens = 300});
  EXPECT_TRUE(rig.clearer.free_up(3, 700, kNoSequence, nullptr)) << "it is free now";
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  EXPECT_FALSE(rig.clearer.make_room_for(3, 700, kNoSequence, nullptr)) << "and promised";
}

TEST(Clearer, OthersAreNotEmptiedForASequenceWithAContextOfItsOwn) {
  PartsRig rig(full_split_engine());
  rig.put(0, tokens(300));
  EXPECT_FALSE(rig.clearer.make_room_for(1, 2000, kNoSequence, nullptr));
  EXPECT_EQ(rig.state(0), SequenceState::idle);
}

}  // namespace
}  // namespace stemma::test
