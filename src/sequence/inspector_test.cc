#include "sequence/inspector.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

TEST(Inspector, StatisticsCountSequencesByState) {
  PartsRig rig;
  rig.put(0, tokens(100, 1));
  rig.run(tokens(50, 2));
  rig.books.set_state(3, SequenceState::broken);
  const SequenceStats stats = rig.inspector.stats();
  EXPECT_EQ(stats.sequences, 4U);
  EXPECT_EQ(stats.idle_sequences, 1U);
  EXPECT_EQ(stats.leased_sequences, 1U);
  EXPECT_EQ(stats.broken_sequences, 1U);
  EXPECT_EQ(stats.free_sequences, 1U);
  EXPECT_EQ(stats.used_tokens, 150U);
}

TEST(Inspector, StatisticsSumWhatIsSaved) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(100));
  rig.save(0);
  const SequenceStats stats = rig.inspector.stats();
  EXPECT_GT(stats.segment_bytes, 0U);
  EXPECT_GT(stats.checkpoint_bytes, 0U);
  EXPECT_EQ(stats.saved_bytes, stats.segment_bytes + stats.checkpoint_bytes);
}

TEST(Inspector, CapturesThatWaitAndTheOneUnderWayArePending) {
  PartsRig rig;
  rig.put(0, tokens(200, 1));
  rig.put(1, tokens(200, 2));
  rig.books.queue.add(0, 200);
  rig.books.queue.add(1, 200);
  EXPECT_EQ(rig.inspector.pending(), 2U);
  rig.capturer.begin(0);
  EXPECT_EQ(rig.inspector.pending(), 2U);
  EXPECT_EQ(rig.inspector.stats().pending, 2U);
  EXPECT_EQ(rig.inspector.sequence(SequenceId{1}).unsaved_tokens, 200U);
  EXPECT_EQ(rig.inspector.sequence(SequenceId{0}).unsaved_tokens, 0U);
}

TEST(Inspector, SessionIsResidentWhileItsSequenceHoldsWhatItLeft) {
  PartsRig rig;
  EXPECT_FALSE(rig.inspector.session("a").known);
  const uint32_t s = rig.chat(tokens(100), {.session = "a"});
  EXPECT_TRUE(rig.inspector.session("a").resident);
  EXPECT_EQ(rig.inspector.session("a").length, 100U);
  rig.clearer.release(s);
  EXPECT_TRUE(rig.inspector.session("a").known);
  EXPECT_FALSE(rig.inspector.session("a").resident);
}

TEST(Inspector, SequenceThatDoesNotExistIsFreeAndEmpty) {
  PartsRig rig;
  rig.put(0, tokens(100));
  EXPECT_EQ(rig.inspector.sequence(SequenceId{0}).length, 100U);
  EXPECT_EQ(rig.inspector.sequence(SequenceId{99}).length, 0U);
}

TEST(Inspector, ContentsNameEverythingThatCanBeReused) {
  PartsRig rig(hybrid_engine());
  rig.put(0, tokens(100));
  rig.save(0);
  using Kind = SequenceContent::Kind;
  uint32_t live = 0;
  uint32_t segments = 0;
  uint32_t checkpoints = 0;
  for (const SequenceContent& it : ok(rig.inspector.contents())) {
    EXPECT_EQ(it.depth, 100U);
    live += it.kind == Kind::live ? 1 : 0;
    segments += it.kind == Kind::segment_path ? 1 : 0;
    checkpoints += it.kind == Kind::checkpoint ? 1 : 0;
  }
  EXPECT_EQ(live, 1U);
  EXPECT_EQ(segments, 1U);
  EXPECT_EQ(checkpoints, 1U);
}

TEST(InspectorDeathTest, BooksThatDoNotBalanceStopTheProcess) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.inspector.check_invariants();
  rig.books.at(0).state = SequenceState::free;
  EXPECT_DEATH(rig.inspector.check_invariants(), "");
}

}  // namespace
}  // namespace stemma::test
