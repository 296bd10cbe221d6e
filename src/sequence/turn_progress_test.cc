#include "sequence/turn_progress.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(TurnProgress, ComputedWordsAreFoundAndOthersAreNot) {
  PartsRig rig;
  TurnRecord& turn = rig.execute(tokens(100));
  rig.compute(turn, 60);
  EXPECT_EQ(turn.computed, 60U);
  EXPECT_EQ(rig.books.known(turn.sequence), 60U);
  EXPECT_EQ(rig.books.room.length(SequenceId{turn.sequence}), 60U);
  EXPECT_EQ(rig.look(tokens(100)).reused_tokens, 60U);
}

TEST(TurnProgress, ComputedNeitherGoesBackNorBeyondTheWords) {
  PartsRig rig;
  TurnRecord& turn = rig.begin(tokens(100));
  EXPECT_EQ(code(rig.progress.computed(turn, 1, 0)), Errc::wrong_state) << "execute() comes first";
  ok(rig.executor.execute(turn));
  rig.compute(turn, 60);
  EXPECT_EQ(code(rig.progress.computed(turn, 59, 0)), Errc::out_of_range);
  EXPECT_EQ(code(rig.progress.computed(turn, 101, 0)), Errc::out_of_range);
  EXPECT_EQ(turn.computed, 60U);
}

TEST(TurnProgress, TimesThatComeLaterAreForAllThatWasComputed) {
  PartsRig rig;
  TurnRecord& turn = rig.execute(tokens(800));
  for (uint32_t n = 100; n <= 800; n += 100) {
    ok(rig.engine.compute(SequenceId{turn.sequence},
                          std::span(turn.text.tokens).subspan(n - 100, 100)));
    // 10 us a token, reported with every second batch.
    const bool later = n % 200 != 0;
    ok(rig.progress.computed(turn, n, later ? kMeasuredLater : 2'000'000));
    EXPECT_EQ(turn.unmeasured, later ? n - 100 : kNoSequence);
  }
  EXPECT_NEAR(static_cast<double>(rig.books.meter.costs().compute({0, 200})), 2e6, 2e5);
}

TEST(TurnProgress, BoundaryThatIsReachedIsSavedAtOnce) {
  PartsRig rig(hybrid_engine());
  TurnRecord& turn = rig.execute(tokens(300));
  ASSERT_FALSE(turn.stops.empty());
  const uint32_t stop = turn.stops.front();
  rig.compute(turn, stop);
  std::vector<uint32_t> depths(8);
  ASSERT_EQ(rig.intake.saved_checkpoints(rig.scope, tokens(300), depths), 1U);
  EXPECT_EQ(depths[0], stop);
  rig.compute(turn);
  EXPECT_TRUE(turn.stops.empty());
  EXPECT_GT(rig.fate(CaptureFate::stale), 0U) << "others were passed in one go";
}

TEST(TurnProgress, RewoundWordsAreNotFoundAnyMore) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100));
  ASSERT_EQ(code(rig.progress.rewind(turn, 70)), kOk);
  EXPECT_EQ(turn.text.length(), 70U);
  EXPECT_EQ(turn.computed, 70U);
  EXPECT_EQ(rig.look(tokens(100)).reused_tokens, 70U);
  EXPECT_EQ(rig.right(turn.sequence, tokens(70)), "");
}

TEST(TurnProgress, MemoryThatDoesNotGoBackRefusesAndNothingChanges) {
  PartsRig rig(hybrid_engine());
  TurnRecord& turn = rig.run(tokens(60));
  EXPECT_EQ(code(rig.progress.rewind(turn, 20)), Errc::unsupported);
  EXPECT_EQ(turn.computed, 60U);
  EXPECT_EQ(rig.right(turn.sequence, tokens(60)), "");
}

TEST(TurnProgress, CheckpointBringsMemoryBackThatDoesNotGoBack) {
  PartsRig rig(hybrid_engine());
  TurnRecord& turn = rig.execute(tokens(300));
  const uint32_t stop = turn.stops.front();
  rig.compute(turn, stop);
  rig.compute(turn);
  ASSERT_EQ(code(rig.progress.rewind(turn, stop)), kOk);
  EXPECT_EQ(rig.right(turn.sequence, tokens(stop)), "");
}

TEST(TurnProgress, FailedRewindCostsTheSequence) {
  PartsRig rig;
  TurnRecord& turn = rig.run(tokens(100));
  rig.engine.faults.next(Call::trim, Fault::lie_nothing);
  EXPECT_EQ(code(rig.progress.rewind(turn, 70)), Errc::corrupt);
  EXPECT_EQ(turn.phase, TurnPhase::failed);
  EXPECT_EQ(turn.computed, 0U);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_EQ(code(rig.progress.check_ready(turn)), Errc::wrong_state);
}

TEST(TurnProgress, OnlyTheHeadOfAShiftedSequenceIsFound) {
  EngineOptions shifts = full_engine();
  shifts.shift = true;
  PartsRig rig(shifts);
  TurnRecord& turn = rig.run(tokens(100));
  ASSERT_EQ(code(rig.progress.shift(turn, 30, 20)), kOk);
  EXPECT_EQ(turn.computed, 80U);
  EXPECT_TRUE(turn.approximate);
  EXPECT_EQ(rig.look(tokens(100)).reused_tokens, 30U);
  EXPECT_EQ(code(rig.progress.shift(turn, 70, 20)), Errc::out_of_range);
  PartsRig cannot;
  EXPECT_EQ(code(cannot.progress.shift(cannot.run(tokens(100)), 30, 20)), Errc::unsupported);
}

TEST(TurnProgress, NobodyIsEmptiedForRoomThatCannotBeHad) {
  PartsRig rig;  // 1024 positions.
  rig.put(0, tokens(500, 1));
  TurnRecord& turn = rig.run(tokens(100, 2));
  EXPECT_EQ(code(rig.progress.reserve(turn, 1000)), Errc::out_of_blocks);
  EXPECT_EQ(rig.state(0), SequenceState::idle);
  EXPECT_EQ(code(rig.progress.reserve(turn, 900)), kOk);
  EXPECT_EQ(rig.state(0), SequenceState::free);
  EXPECT_EQ(turn.promised_end, 1000U);
}

TEST(TurnProgress, LogitsNeedADepthThatWasComputed) {
  SequenceOptions options = parts_options();
  options.logits_bytes = 1U << 20U;
  PartsRig rig(full_engine(), options);
  TurnRecord& turn = rig.execute(tokens(100));
  rig.compute(turn, 60);
  const std::vector<float> logits{1, 2};
  EXPECT_EQ(code(rig.progress.attach_logits(turn, 61, logits)), Errc::out_of_range);
  EXPECT_EQ(code(rig.progress.attach_logits(turn, 60, {})), Errc::invalid_argument);
  EXPECT_EQ(code(rig.progress.attach_logits(turn, 60, logits)), kOk);
  EXPECT_TRUE(rig.look(tokens(60), {.want_logits = true}).logits);
  PartsRig none;
  EXPECT_EQ(code(none.progress.attach_logits(none.run(tokens(60)), 60, logits)), Errc::unsupported);
}

}  // namespace
}  // namespace stemma::test
