#include "sequence/finder.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/sequence_parts.h"

namespace stemma::test {
namespace {

Found find_for(PartsRig& rig, TurnRecord& turn, Holding holding = Holding::no,
               uint32_t fixed = kNoSequence, const Excluded& excluded = {}) {
  Found found;
  rig.finder.find(turn, found, holding, fixed, excluded);
  return found;
}

std::vector<uint32_t> vacant_in(const Found& found) {
  std::vector<uint32_t> out;
  for (const sequence::Vacancy& it : found.vacant) out.push_back(it.sequence);
  return out;
}

TEST(Finder, WordsInASequenceAreFoundUpToTheLastInCommon) {
  PartsRig rig;
  rig.put(1, tokens(100));
  const Found found = find_for(rig, rig.read(tokens(70) + tokens(20, 2)));
  ASSERT_EQ(found.live.size(), 1U);
  EXPECT_EQ(found.live[0].sequence, 1U);
  EXPECT_EQ(found.live[0].common, 70U);
  EXPECT_TRUE(found.live[0].can_stay);
  EXPECT_EQ(found.matched, 70U);
}

TEST(Finder, WordsOfAnotherScopeAreNotFound) {
  PartsRig rig;
  rig.put(1, tokens(100));
  TurnRecord& turn = rig.read(tokens(100));
  turn.scope = scope_of({.model = "another model"});
  const Found found = find_for(rig, turn);
  EXPECT_TRUE(found.live.empty());
  EXPECT_FALSE(found.scope_known);
}

TEST(Finder, SequenceInUseMayBeCopiedAndNotChanged) {
  PartsRig rig;
  rig.run(tokens(100));
  TurnRecord& turn = rig.read(tokens(100) + tokens(9, 2));
  const Found found = find_for(rig, turn);
  ASSERT_EQ(found.live.size(), 1U);
  EXPECT_FALSE(found.live[0].can_stay);
  EXPECT_TRUE(find_for(rig, turn, Holding::no, kNoSequence, {.forks = true}).live.empty());
}

TEST(Finder, SequenceThatHoldsSomethingElseThanTheBooksSayIsNoUse) {
  PartsRig rig;
  rig.put(1, tokens(100));
  rig.books.at(1).held.whole = false;
  EXPECT_TRUE(find_for(rig, rig.read(tokens(100))).live.empty());
}

TEST(Finder, SavedSegmentsAreHeldOnlyForWhoWillUseThem) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.read(tokens(200) + tokens(9, 2));
  EXPECT_EQ(find_for(rig, turn).saved.segments, 200U);
  EXPECT_EQ(turn.segments.usable, 0U);
  EXPECT_EQ(find_for(rig, turn, Holding::yes).saved.segments, 200U);
  EXPECT_EQ(turn.segments.usable, 200U);
}

TEST(Finder, ModeHidesWhatItExcludesAndSaysHowMuch) {
  PartsRig rig;
  rig.put_away(tokens(200));
  TurnRecord& turn = rig.read(tokens(200) + tokens(9, 2));
  turn.reuse = Reuse::live;
  const Found found = find_for(rig, turn);
  EXPECT_EQ(found.saved.segments, 0U);
  EXPECT_EQ(found.by_mode, 200U);
}

TEST(Finder, FreeSequencesAreOfferedBeforeTheLeastRecentlyUsed) {
  PartsRig rig;
  rig.put(1, tokens(50, 1));
  rig.put(0, tokens(50, 2));
  TurnRecord& turn = rig.read(tokens(30, 3));
  EXPECT_EQ(vacant_in(find_for(rig, turn)), (std::vector<uint32_t>{2, 3, 1}));
  EXPECT_EQ(vacant_in(find_for(rig, turn, Holding::no, 0)), (std::vector<uint32_t>{0}));
}

TEST(Finder, CheckpointsAreFoundUnderEveryDepthThatCanBeHad) {
  PartsRig rig(hybrid_engine());
  rig.chat(tokens(100));
  rig.drainer.drain({.evict = true});
  TurnRecord& turn = rig.read(tokens(100) + tokens(50, 2));
  const Found found = find_for(rig, turn, Holding::yes);
  ASSERT_FALSE(found.checkpoints.empty());
  EXPECT_EQ(found.checkpoints.back(), 100U);
  turn.plan.checkpoint = 100;
  rig.finder.hold_anchor(turn, found);
  EXPECT_EQ(turn.state.depth(), 100U);
}

TEST(Finder, LogitsOfTheWholePromptMakeAllOfItReusable) {
  SequenceOptions options = parts_options();
  options.logits_bytes = 1U << 20U;
  PartsRig rig(full_engine(), options);
  const std::vector<float> logits{1, 2, 3};
  ok(rig.progress.attach_logits(rig.run(tokens(100)), 100, logits));
  TurnRecord& looks = rig.read(tokens(100));
  rig.finder.find_logits(looks, kNoSequence, Holding::no);
  EXPECT_EQ(looks.limit, 100U);
  EXPECT_TRUE(looks.logits_span.empty());
  TurnRecord& takes = rig.read(tokens(100));
  rig.finder.find_logits(takes, kNoSequence, Holding::yes);
  EXPECT_EQ(std::vector<float>(takes.logits_span.begin(), takes.logits_span.end()), logits);
  TurnRecord& longer = rig.read(tokens(100) + tokens(1, 2));
  rig.finder.find_logits(longer, kNoSequence, Holding::yes);
  EXPECT_EQ(longer.limit, 100U) << "its last token has to be computed";
  EXPECT_FALSE(longer.report.logits);
}

}  // namespace
}  // namespace stemma::test
