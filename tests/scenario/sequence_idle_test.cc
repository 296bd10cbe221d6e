// Idle sequences slow down all computing in the same context. Those that cost more than they are
// worth are dropped.
#include <algorithm>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// A model for which 4,000 cells double the time of a token.
EngineOptions attentive(EngineOptions engine = full_engine()) {
  engine.context_tokens = 16'384;
  engine.costs.token_ns = 200'000;
  engine.costs.cell_ps = 50'000;
  return engine;
}

// Its batches are so small that one prompt shows how the cost of attention grows.
class IdleRig : public SequenceRig {
 public:
  explicit IdleRig(const EngineOptions& kind = attentive(),
                   const SequenceOptions& options = small_cache())
      : SequenceRig(kind, options) {
    chunk_tokens = 128;
  }
};

const Text kLong = tokens(1500, 1);
const Text kOther = tokens(1200, 2);

TEST(SequenceIdle, OneThatIsSavedGoesBeforeALongPromptIsComputedBesideIt) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  const SequenceReport report = rig.chat(kOther, {.session = "b"});
  EXPECT_EQ(report.dropped_idle, 1U);
  EXPECT_EQ(report.victims, 0U) << "nobody needed its place";
  EXPECT_EQ(rig.cache.stats().dropped_idle, 1U);
  EXPECT_EQ(rig.engine.used_tokens(), kOther.size());
  EXPECT_FALSE(rig.cache.session("a").resident);
  EXPECT_EQ(rig.chat(kLong + tokens(10, 3), {.session = "a"}).reused_tokens, kLong.size());
}

TEST(SequenceIdle, StaysBesideAShortPrompt) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  EXPECT_EQ(rig.chat(tokens(5, 2), {.session = "b"}).dropped_idle, 0U);
  EXPECT_TRUE(rig.cache.session("a").resident);
  EXPECT_EQ(rig.chat(kLong + tokens(10, 3), {.session = "a"}).steps[size_t(Step::stay)],
            kLong.size());
}

TEST(SequenceIdle, GoesBeforeAShortPromptWithALongAnswer) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  EXPECT_EQ(rig.chat(tokens(5, 2), {.session = "b", .reserve_tokens = 2000}).dropped_idle, 1U);
}

TEST(SequenceIdle, OneThatIsNotSavedStays) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  const uint64_t saves = rig.calls(Call::save);
  EXPECT_EQ(rig.chat(kOther, {.session = "b", .keep = false}).dropped_idle, 0U);
  EXPECT_EQ(rig.calls(Call::save), saves) << "nor is it saved while somebody waits";
  EXPECT_TRUE(rig.cache.session("a").resident);
  rig.drain();
  EXPECT_EQ(rig.chat(kOther, {.session = "b", .keep = false}).dropped_idle, 1U);
}

TEST(SequenceIdle, OneWhoseEndIsNotSavedYetStays) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  rig.chat(kLong + tokens(30, 5), {.session = "a"});
  ASSERT_EQ(rig.cache.pending(), 1U);
  EXPECT_EQ(rig.chat(kOther, {.session = "b", .keep = false}).dropped_idle, 0U);
  rig.drain();
  EXPECT_EQ(rig.chat(kOther, {.session = "b", .keep = false}).dropped_idle, 1U);
}

TEST(SequenceIdle, OneThatIsNoLongerSavedStays) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  rig.cache.drop_saved();
  EXPECT_EQ(rig.chat(kOther).dropped_idle, 0U);
  EXPECT_EQ(rig.hit(kLong + tokens(1, 3)), kLong.size());
}

TEST(SequenceIdle, OneThatIsCheapToLoseGoesUnsaved) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  IdleRig rig(attentive(), options);
  rig.chat(kLong, {.session = "a"});
  rig.chat(tokens(20, 4), {.session = "c"});
  // Recomputing either one costs less than 7,000 tokens lose while its cells are there.
  const SequenceReport report = rig.chat(tokens(6000, 5), {.session = "b", .reserve_tokens = 1000});
  EXPECT_EQ(report.dropped_idle, 2U);
}

TEST(SequenceIdle, ContextsOfTheirOwnCostNobodyAnything) {
  IdleRig rig(attentive(full_split_engine()));
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  EXPECT_EQ(rig.chat(kOther, {.session = "b"}).dropped_idle, 0U);
  EXPECT_TRUE(rig.cache.session("a").resident);
}

TEST(SequenceIdle, WhatIsSharedWithSomebodyWhoStaysIsNotInTheWay) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  // Its copy shares all cells of the idle sequence, so emptying that would free nothing.
  EXPECT_EQ(rig.chat(kLong + kOther, {.session = "b", .exclusive = false}).dropped_idle, 0U);
}

TEST(SequenceIdle, OneThatAnotherTurnWillCopyStays) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  Request copies = rig.begin(kLong.first(900) + tokens(10, 7), {.session = "b"});
  ASSERT_EQ(copies.turn.report().steps[size_t(Step::fork)], 900U);
  EXPECT_EQ(rig.chat(kOther, {.session = "c"}).dropped_idle, 0U);
  EXPECT_EQ(rig.execute(copies), 900U);
  EXPECT_EQ(copies.turn.report().steps[size_t(Step::fork)], 900U);
  rig.abandon(copies);
  rig.drain();
  EXPECT_GE(rig.chat(kOther + tokens(900, 8), {.session = "d"}).dropped_idle, 1U);
}

TEST(SequenceIdle, RunningOnesNeverGo) {
  IdleRig rig;
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  Request running = rig.begin(kLong + tokens(3, 9), {.session = "a"});
  rig.run(running);
  EXPECT_EQ(rig.chat(kOther, {.session = "b"}).dropped_idle, 0U);
  rig.finish(running);
}

TEST(SequenceIdle, EveryMemoryComesBackAfterwards) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.options.unified || !kind.options.segments) continue;
    SCOPED_TRACE(kind.name);
    IdleRig rig(attentive(kind.options));
    const Text said = rig.talk(kLong, tokens(40, 6), {.session = "a"});
    rig.drain();
    EXPECT_EQ(rig.chat(kOther, {.session = "b"}).dropped_idle, 1U);
    EXPECT_EQ(rig.chat(said + tokens(10, 3), {.session = "a"}).reused_tokens, said.size());
  }
}

// Six prompts one after the other over four sequences: each takes as long as if it were alone.
TEST(SequenceIdle, PromptsInTurnTakeAsLongAsTheFirst) {
  IdleRig rig;
  std::vector<uint64_t> took;
  for (uint32_t i = 0; i < 6; ++i) {
    const uint64_t before = rig.clock.now_ns();
    rig.chat(tokens(3000, 10 + i));
    took.push_back(rig.clock.now_ns() - before);
    rig.drain();
  }
  for (const uint64_t ns : took) {
    EXPECT_LE(static_cast<double>(ns), 1.05 * static_cast<double>(took[0]));
  }
  EXPECT_EQ(rig.cache.stats().dropped_idle, 5U);
}

// An engine whose attention costs nothing has no reason to drop anything.
TEST(SequenceIdle, NothingGoesWhereCellsCostNothing) {
  EngineOptions engine = attentive();
  engine.costs.cell_ps = 0;
  IdleRig rig(engine);
  rig.chat(kLong, {.session = "a"});
  rig.drain();
  EXPECT_EQ(rig.chat(tokens(6000, 2), {.session = "b"}).dropped_idle, 0U);
}

}  // namespace
}  // namespace stemma::test
