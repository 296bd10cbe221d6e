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
  EXPECT_EQ(step_end(slow.books, 0, {0, 5000}), slow.books.options.segment_tokens);
  EXPECT_GT(step_end(fast.books, 0, {0, 5000}), 4 * fast.books.options.segment_tokens);
  EXPECT_EQ(step_end(fast.books, 0, {10, 12}), 12U);
}

// Two answers that were computed in alternation, behind prompts that were not.
struct Scattered {
  explicit Scattered(uint32_t answer) : rig(engine_options()) {
    rig.put(0, tokens(128, 1));
    rig.put(1, tokens(128, 2));
    for (uint32_t i = 0; i < answer; ++i) {
      const Token token[] = {i};
      for (const uint32_t s : {0U, 1U}) ok(rig.engine.compute(SequenceId{s}, token));
    }
    // The times that a device needs to save and to compute.
    for (int i = 0; i < 4; ++i) {
      rig.books.meter.saved(1, 1'000, 1'000'000);
      rig.books.meter.saved(1, 100'000, 2'000'000);
      rig.books.meter.computed({0, 1000}, 0, 40'000'000);
    }
  }
  static EngineOptions engine_options() {
    EngineOptions options = full_engine();
    options.range_tokens = 1024;
    return options;
  }
  PartsRig rig;
};

TEST(CaptureRules, StepIsShorterTheMorePiecesItReads) {
  Scattered at(64);
  Books& books = at.rig.books;
  EXPECT_EQ(step_end(books, 0, {0, 128}), 128U);
  const uint32_t end = step_end(books, 0, {128, 192});
  EXPECT_GT(end, 128U);
  EXPECT_LE(end, 133U) << "a piece takes a millisecond";
  EXPECT_EQ(step_end(books, 0, {190, 191}), 191U) << "there is always a step";
}

TEST(CaptureRules, ManyPiecesAreDearAndNotWorthWaitingFor) {
  Scattered at(64);
  Books& books = at.rig.books;
  EXPECT_FALSE(dear_to_save(books, 0, {0, 128}));
  EXPECT_TRUE(dear_to_save(books, 0, {128, 192}));
  EXPECT_FALSE(dear_to_save(books, 0, {128, 129})) << "one piece";
  books.at(0).capture = 128;
  EXPECT_TRUE(worth_saving_first(books, 0));
  EXPECT_FALSE(waits_dear(books, 0));
  books.at(0).capture = 192;
  books.at(0).saved = 128;
  EXPECT_FALSE(worth_saving_first(books, 0));
  EXPECT_TRUE(waits_dear(books, 0));
  books.at(0).saved = 0;
  EXPECT_FALSE(waits_dear(books, 0));
  books.at(0).dear = true;
  EXPECT_TRUE(waits_dear(books, 0)) << "it was set aside";
  books.at(0).capture = 0;
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
