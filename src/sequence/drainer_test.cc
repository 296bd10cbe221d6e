#include "sequence/drainer.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// Two sequences of 200 tokens wait, 1 before 0.
class WaitingRig : public PartsRig {
 public:
  WaitingRig() {
    put(0, tokens(200, 1));
    put(1, tokens(200, 2));
    books.queue.add(1, 200);
    books.queue.add(0, 200);
  }
};

TEST(Drainer, EverythingThatWaitsIsSaved) {
  WaitingRig rig;
  const Drained drained = rig.drainer.drain({});
  EXPECT_EQ(drained.items, 2U);
  EXPECT_EQ(drained.saved, 2U);
  EXPECT_FALSE(drained.more);
  EXPECT_EQ(drained.bytes, rig.books.stats.captured_bytes);
  EXPECT_EQ(rig.saved(tokens(200, 1)), 200U);
  EXPECT_EQ(rig.saved(tokens(200, 2)), 200U);
  EXPECT_EQ(rig.drainer.drain({}).items, 0U);
}

TEST(Drainer, OldestIsSavedFirst) {
  WaitingRig rig;
  const Drained drained = rig.drainer.drain({.items = 1});
  EXPECT_EQ(drained.items, 1U);
  EXPECT_TRUE(drained.more);
  EXPECT_EQ(rig.saved(tokens(200, 2)), 200U);
  EXPECT_EQ(rig.saved(tokens(200, 1)), 0U);
}

TEST(Drainer, WhatIsBegunWithinTheBytesIsFinished) {
  WaitingRig rig;
  const Drained drained = rig.drainer.drain({.bytes = 1});
  EXPECT_EQ(drained.saved, 1U);
  EXPECT_TRUE(drained.more);
  EXPECT_EQ(rig.saved(tokens(200, 2)), 200U);
}

TEST(Drainer, CaptureThatTimeEndsGoesOnWithTheNextCall) {
  WaitingRig rig;
  const Drained drained = rig.drainer.drain({.ns = 1});
  EXPECT_TRUE(drained.more);
  ASSERT_NE(rig.capturer.run(), nullptr);
  EXPECT_EQ(rig.saved(tokens(200, 2)), 64U) << "one segment, and no call is broken off";
  EXPECT_EQ(rig.drainer.drain({}).saved, 2U);
  EXPECT_EQ(rig.saved(tokens(200, 2)), 200U);
}

// A checkpoint of a window can take as long as a request may wait.
TEST(Drainer, ACheckpointIsAStepOfItsOwn) {
  PartsRig rig(window_engine());
  rig.put(0, tokens(200, 1));
  rig.books.queue.add(0, 200);
  const Drained drained = rig.drainer.drain({.ns = 1});
  EXPECT_TRUE(drained.more);
  ASSERT_NE(rig.capturer.run(), nullptr);
  EXPECT_NE(rig.capturer.run()->anchor.bytes, 0U);
  EXPECT_EQ(rig.saved(tokens(200, 1)), 0U) << "segments are read by the next call";
  EXPECT_EQ(rig.drainer.drain({}).saved, 1U);
  EXPECT_EQ(rig.saved(tokens(200, 1)), 200U);
}

TEST(Drainer, CaptureWithoutRoomWaitsUnlessItMayEvict) {
  WaitingRig rig;
  // The record claims more than the whole store has.
  rig.books.at(1).capture = static_cast<uint32_t>(rig.books.segments->free_tokens()) + 1;
  EXPECT_EQ(rig.drainer.drain({}).saved, 1U);
  EXPECT_EQ(rig.saved(tokens(200, 1)), 200U) << "the next one has room";
  EXPECT_TRUE(rig.books.queue.waits(1));
  rig.books.at(1).capture = 200;
  EXPECT_EQ(rig.drainer.drain({.evict = true}).saved, 1U);
}

TEST(Drainer, SequencesThatWereNotClearedAreClearedNow) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.engine.faults =
      FaultSchedule({{Call::clear, 0, Fault::lie_nothing}, {Call::clear, 1, Fault::lie_nothing}});
  rig.clearer.release(0);
  ASSERT_EQ(rig.state(0), SequenceState::broken);
  rig.drainer.drain({});
  EXPECT_EQ(rig.state(0), SequenceState::free);
}

}  // namespace
}  // namespace stemma::test
