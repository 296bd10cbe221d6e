#include "sequence/capturer.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(Capturer, CapturedWordsAreSaved) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  const Captured captured = rig.capturer.capture(0);
  EXPECT_EQ(captured.fate, CaptureFate::saved);
  EXPECT_GT(captured.bytes, 0U);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
  EXPECT_EQ(rig.books.at(0).saved, 200U);
  EXPECT_EQ(rig.books.queue.size(), 0U);
  EXPECT_EQ(rig.fate(CaptureFate::saved), 1U);
}

TEST(Capturer, WhatIsSavedIsNotReadAgain) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.save(0);
  const uint64_t saves = rig.calls(Call::save);
  rig.books.queue.add(0, 200);
  EXPECT_EQ(rig.capturer.capture(0).fate, CaptureFate::present);
  EXPECT_EQ(rig.calls(Call::save), saves);
}

TEST(Capturer, SequenceThatHoldsSomethingElseIsNotSaved) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  ok(rig.engine.trim(SequenceId{0}, 150));
  EXPECT_EQ(rig.capturer.capture(0).fate, CaptureFate::stale);
  EXPECT_EQ(rig.saved(tokens(200)), 0U);
  EXPECT_EQ(rig.fate(CaptureFate::stale), 1U);
}

TEST(Capturer, FailedSaveLeavesNothingAndIsNotTriedAgain) {
  PartsRig rig;
  rig.put(0, tokens(60));
  rig.books.queue.add(0, 60);
  rig.engine.faults.next(Call::save, Fault::before);
  EXPECT_EQ(rig.capturer.capture(0).fate, CaptureFate::failed);
  EXPECT_EQ(rig.saved(tokens(60)), 0U);
  EXPECT_EQ(rig.books.at(0).saved, 0U);
  EXPECT_FALSE(rig.books.queue.waits(0));
}

TEST(Capturer, StepsAddUpToACapture) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  ASSERT_NE(rig.capturer.run(), nullptr);
  EXPECT_TRUE(rig.capturer.is_reading(0));
  EXPECT_FALSE(rig.capturer.is_reading(1));
  uint32_t steps = 0;
  for (; !rig.capturer.run()->writer.over(); ++steps) {
    ASSERT_TRUE(rig.capturer.go_on(rig.clock.now_ns()));
  }
  EXPECT_EQ(steps, 4U) << "a segment each";
  EXPECT_EQ(rig.capturer.end().fate, CaptureFate::saved);
  EXPECT_EQ(rig.capturer.run(), nullptr);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
}

TEST(Capturer, CaptureInStepsEndsWhereItsSequenceIsCut) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  ASSERT_TRUE(rig.capturer.go_on(rig.clock.now_ns()));
  rig.capturer.will_lose(0, 64);
  EXPECT_FALSE(rig.capturer.is_reading(0));
  (void)rig.capturer.end();
  EXPECT_EQ(rig.saved(tokens(200)), 64U);
  EXPECT_LE(rig.books.at(0).saved, 64U);
}

TEST(Capturer, CaptureThatComesToRestWaitsAgain) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  ASSERT_TRUE(rig.capturer.go_on(rig.clock.now_ns()));
  rig.capturer.pause();
  EXPECT_EQ(rig.capturer.run(), nullptr);
  EXPECT_EQ(rig.saved(tokens(200)), 64U);
  EXPECT_EQ(rig.books.at(0).capture, 200U);
  EXPECT_TRUE(rig.books.queue.waits(0));
}

TEST(Capturer, CaptureIsReadToTheEndBeforeItsSequenceGoes) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  rig.capturer.read_on(1);
  EXPECT_TRUE(rig.capturer.is_reading(0)) << "another sequence is no reason";
  rig.capturer.read_on(0);
  EXPECT_EQ(rig.capturer.run(), nullptr);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
}

// An engine on a device, whose ranges are cut at once: there are no threads.
struct Ranges {
  static EngineOptions engine() {
    EngineOptions options = full_engine();
    options.range_tokens = 1024;
    return options;
  }
  static SequenceOptions options() {
    SequenceOptions options = parts_options();
    options.range_threads = 0;
    return options;
  }
  PartsRig rig{engine(), options()};
};

TEST(Capturer, WhatARequestWaitsForIsReadAtOnceAndCommittedLater) {
  Ranges at;
  PartsRig& rig = at.rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  const Captured captured = rig.capturer.capture_in_a_step(0);
  EXPECT_EQ(captured.fate, CaptureFate::saved);
  EXPECT_GT(captured.bytes, 0U);
  EXPECT_EQ(rig.capturer.left(), 1U);
  EXPECT_EQ(rig.saved(tokens(200)), 0U);
  rig.clearer.release(0);
  EXPECT_TRUE(rig.capturer.collect_left(sequence::kNoDeadline));
  EXPECT_EQ(rig.capturer.left(), 0U);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
  EXPECT_EQ(rig.fate(CaptureFate::saved), 1U);
}

TEST(Capturer, WhatComesIntoTheSequenceLaterIsNotTakenForSaved) {
  Ranges at;
  PartsRig& rig = at.rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  (void)rig.capturer.capture_in_a_step(0);
  rig.clearer.release(0);
  rig.put(0, tokens(300, 7));
  EXPECT_TRUE(rig.capturer.collect_left(sequence::kNoDeadline));
  EXPECT_EQ(rig.books.at(0).saved, 0U);
}

TEST(Capturer, WhatIsForgottenMeanwhileStaysForgotten) {
  Ranges at;
  PartsRig& rig = at.rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  (void)rig.capturer.capture_in_a_step(0);
  rig.capturer.pause();
  EXPECT_EQ(rig.capturer.left(), 0U) << "committed before anything is forgotten";
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
}

TEST(Capturer, CheckpointIsSavedOnceAtItsDepth) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(100));
  EXPECT_EQ(rig.capturer.capture_anchor(0, 100, {}).fate, CaptureFate::saved);
  EXPECT_EQ(rig.capturer.capture_anchor(0, 100, {}).fate, CaptureFate::present);
  EXPECT_EQ(rig.calls(Call::save), 1U);
  std::vector<uint32_t> depths(4);
  ASSERT_EQ(rig.intake.saved_checkpoints(rig.scope, tokens(120), depths), 1U);
  EXPECT_EQ(depths[0], 100U);
}

TEST(Capturer, OnlyWhatACutWouldLoseIsSavedBefore) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  EXPECT_EQ(rig.capturer.save_before_cut(0, 200), 0U);
  EXPECT_TRUE(rig.books.queue.waits(0)) << "it can be saved later";
  EXPECT_GT(rig.capturer.save_before_cut(0, 10), 0U);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
}

TEST(Capturer, StoppedCaptureCallsNoEngine) {
  PartsRig rig;
  rig.put(0, tokens(200));
  rig.books.queue.add(0, 200);
  rig.capturer.begin(0);
  const uint64_t saves = rig.calls(Call::save);
  rig.capturer.stop();
  EXPECT_EQ(rig.capturer.run(), nullptr);
  EXPECT_EQ(rig.calls(Call::save), saves);
}

}  // namespace
}  // namespace stemma::test
