#include "sequence/capture_rules.h"

#include <gtest/gtest.h>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// Computing costs next to nothing, saving a second.
SequenceOptions costly_saves() {
  SequenceOptions options = parts_options();
  options.compute_token_ns = 10;
  options.move_call_ns = 1'000'000'000;
  return options;
}

TEST(CaptureRules, VictimIsWorthSavingIfComputingItAgainTakesLonger) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.books.queue.add(0, 100);
  EXPECT_TRUE(worth_saving_first(rig.books, 0));
  PartsRig cheap(full_engine(), costly_saves());
  cheap.put(0, tokens(100));
  cheap.books.queue.add(0, 100);
  EXPECT_FALSE(worth_saving_first(cheap.books, 0));
}

TEST(CaptureRules, MarkedPrefixIsWorthSavingWhateverItCosts) {
  PartsRig rig(full_engine(), costly_saves());
  rig.put(0, tokens(100));
  rig.books.queue.add(0, 100);
  rig.books.at(0).retain.retain.priority = kDefaultPriority + 1;
  EXPECT_TRUE(worth_saving_first(rig.books, 0));
  rig.books.at(0).saved = 100;
  EXPECT_FALSE(worth_saving_first(rig.books, 0)) << "it is saved";
}

TEST(CaptureRules, EverythingIsWorthKeepingUntilMovingWasMeasured) {
  PartsRig rig(full_engine(), costly_saves());
  EXPECT_TRUE(worth_keeping(rig.books, 100));
  for (int i = 0; i < 4; ++i) {
    rig.books.meter.saved(1, 10'000, 1'000'000'000);
    rig.books.meter.loaded(1, 10'000, 1'000'000'000);
  }
  EXPECT_FALSE(worth_keeping(rig.books, 100));
}

TEST(CaptureRules, NobodyWaitsForWhatStays) {
  PartsRig rig;
  EXPECT_TRUE(worth_waiting(rig.books, {0, 100}, 10));
  EXPECT_FALSE(worth_waiting(rig.books, {0, 100}, 100));
  PartsRig hybrid(hybrid_engine());
  EXPECT_TRUE(worth_waiting(hybrid.books, {0, 100}, 100)) << "its end is lost when it goes on";
}

TEST(CaptureRules, CaptureFitsWhileThereIsRoomForAllOfIt) {
  PartsRig rig;
  rig.put(0, tokens(100));
  rig.books.queue.add(0, 100);
  EXPECT_TRUE(fits_without_eviction(rig.books, 0));
  rig.books.at(0).capture = static_cast<uint32_t>(rig.books.segments->free_tokens()) + 1;
  EXPECT_FALSE(fits_without_eviction(rig.books, 0));
  rig.books.at(0).saved = 1;
  EXPECT_TRUE(fits_without_eviction(rig.books, 0)) << "what is saved needs no room";
  rig.books.at(0).capture = 100;
}

TEST(CaptureRules, StepIsShorterTheLongerSavingTakes) {
  PartsRig fast;
  PartsRig slow(full_engine(), costly_saves());
  EXPECT_EQ(step_tokens(slow.books), slow.books.options.segment_tokens);
  EXPECT_GT(step_tokens(fast.books), 4 * fast.books.options.segment_tokens);
}

TEST(CaptureRules, PartOfACaptureWillDoWhereRangesMoveAndMemoryGoesBack) {
  EngineOptions ranges = full_engine();
  ranges.range_tokens = 256;
  EngineOptions hybrid = hybrid_engine();
  hybrid.range_tokens = 256;
  EXPECT_TRUE(part_will_do(PartsRig(ranges).books));
  EXPECT_FALSE(part_will_do(PartsRig().books));
  EXPECT_FALSE(part_will_do(PartsRig(hybrid).books));
}

TEST(CaptureRules, BoundariesAreKeptWhereMemoryDoesNotGoBack) {
  PartsRig full;
  EXPECT_FALSE(keeps_anchors(full.books, full.read(tokens(100))));
  PartsRig hybrid(hybrid_engine());
  TurnRecord& turn = hybrid.read(tokens(100));
  EXPECT_TRUE(keeps_anchors(hybrid.books, turn));
  turn.keep = false;
  EXPECT_FALSE(keeps_anchors(hybrid.books, turn));
}

TEST(CaptureRules, CheckpointHasOneSizeAndAStateGrows) {
  PartsRig hybrid(hybrid_engine());
  EXPECT_EQ(anchor_bytes(hybrid.books, 10), anchor_bytes(hybrid.books, 1000));
  PartsRig states(hybrid_state_engine());
  EXPECT_LT(anchor_bytes(states.books, 10), anchor_bytes(states.books, 1000));
}

}  // namespace
}  // namespace stemma::test
