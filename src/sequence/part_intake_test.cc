#include "sequence/part_intake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

// The parts that another process saved of these words, and their bytes.
struct SavedElsewhere {
  SavedElsewhere(const EngineOptions& engine, const Text& text) {
    SequenceOptions options = parts_options();
    options.listener = &listener;
    PartsRig rig(engine, options);
    rig.put(0, text);
    rig.books.queue.add(0, text.size());
    (void)rig.capturer.capture(0);
    for (const PartsListener::Part& part : listener.heard) {
      parts.push_back({part.kind, part.range, part.bytes});
    }
    std::ranges::stable_sort(parts, {}, [](const SavedPart& part) { return part.range.end; });
  }
  PartsListener listener;
  std::vector<SavedPart> parts;
};

// Segments are copied one by one, or by threads if the engine moves ranges.
class PartIntakeOfSegments : public ::testing::TestWithParam<uint32_t> {
 protected:
  static EngineOptions engine() {
    EngineOptions options = full_engine();
    options.range_tokens = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(OneByOneOrByThreads, PartIntakeOfSegments, ::testing::Values(0, 256));

TEST_P(PartIntakeOfSegments, WhatAnotherProcessSavedIsReusedHere) {
  const SavedElsewhere other(engine(), tokens(200));
  PartsRig rig(engine());
  EXPECT_EQ(rig.books.mover != nullptr, GetParam() != 0);
  const Admitted admitted = ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  EXPECT_EQ(admitted.taken, 4U);
  EXPECT_EQ(admitted.refused, 0U);
  EXPECT_GT(admitted.bytes, 0U);
  EXPECT_EQ(rig.saved(tokens(200)), 200U);
  const TurnRecord& turn = rig.execute(tokens(200) + tokens(9, 2));
  EXPECT_EQ(turn.available, 200U);
  EXPECT_EQ(rig.right(turn.sequence, tokens(200)), "");
}

TEST_P(PartIntakeOfSegments, WhatIsThereIsNotTakenTwice) {
  const SavedElsewhere other(engine(), tokens(200));
  PartsRig rig(engine());
  ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  const Admitted again = ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  EXPECT_EQ(again.taken, 0U);
  EXPECT_EQ(again.present, 4U);
  EXPECT_EQ(again.bytes, 0U);
}

TEST_P(PartIntakeOfSegments, AByteThatChangesAfterwardsIsNoticed) {
  const SavedElsewhere other(engine(), tokens(200));
  PartsRig rig(engine());
  ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  // The second segment lies in the second slot.
  const auto bytes = rig.books.segments->read(1);
  ASSERT_TRUE(bytes);
  const_cast<uint8_t&>((*bytes)[bytes->size() / 2]) ^= 1U;
  EXPECT_FALSE(rig.books.segments->read(1));
  EXPECT_TRUE(rig.books.segments->read(0));
}

TEST_P(PartIntakeOfSegments, PartsBehindAGapAreRefused) {
  SavedElsewhere other(engine(), tokens(200));
  other.parts.erase(other.parts.begin() + 1);
  PartsRig rig(engine());
  const Admitted admitted = ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  EXPECT_EQ(admitted.taken, 1U);
  EXPECT_EQ(admitted.refused, 2U);
  EXPECT_EQ(rig.saved(tokens(200)), 64U);
}

TEST(PartIntake, CheckpointsAreTakenAndListedDeepestFirst) {
  PartsRig rig(hybrid_engine());
  const SavedElsewhere shorter(hybrid_engine(), tokens(100));
  const SavedElsewhere longer(hybrid_engine(), tokens(200));
  ok(rig.intake.admit(rig.scope, tokens(100), shorter.parts, {}));
  ok(rig.intake.admit(rig.scope, tokens(200), longer.parts, {}));
  std::vector<uint32_t> depths(8);
  ASSERT_EQ(rig.intake.saved_checkpoints(rig.scope, tokens(300), depths), 2U);
  EXPECT_EQ(depths[0], 200U);
  EXPECT_EQ(depths[1], 100U);
  std::vector<uint32_t> one(1);
  EXPECT_EQ(rig.intake.saved_checkpoints(rig.scope, tokens(300), one), 1U);
}

TEST(PartIntake, CheckpointThatIsThereIsNotTakenTwice) {
  PartsRig rig(hybrid_engine());
  const SavedElsewhere other(hybrid_engine(), tokens(64));
  EXPECT_EQ(ok(rig.intake.admit(rig.scope, tokens(64), other.parts, {})).taken, 2U);
  const Admitted again = ok(rig.intake.admit(rig.scope, tokens(64), other.parts, {}));
  EXPECT_EQ(again.taken, 0U);
  EXPECT_EQ(again.present, 2U);
  EXPECT_EQ(again.refused, 0U);
}

TEST(PartIntake, PartsForWhichThereIsNoStoreAreRefused) {
  PartsRig rig;
  const std::vector<uint8_t> bytes(10);
  const std::vector<SavedPart> parts{{EntryKind::checkpoint, {0, 50}, bytes},
                                     {EntryKind::logits, {0, 50}, bytes}};
  EXPECT_EQ(ok(rig.intake.admit(rig.scope, tokens(100), parts, {})).refused, 2U);
}

TEST(PartIntake, WhatWasBroughtIsHandedOnUnderItsName) {
  const SavedElsewhere other(full_engine(), tokens(200));
  PartsListener listener;
  SequenceOptions options = parts_options();
  options.listener = &listener;
  PartsRig rig(full_engine(), options);
  ok(rig.intake.admit(rig.scope, tokens(200), other.parts, {}));
  EXPECT_TRUE(listener.heard.empty()) << "whoever brought it knows";
  (void)rig.notifier.hand_on_all(0, ~uint64_t{0});
  ASSERT_EQ(listener.taken.size(), 4U);
  // The deepest comes first.
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(listener.taken[i].chain, other.listener.heard[3 - i].chain);
  }
}

}  // namespace
}  // namespace stemma::test
