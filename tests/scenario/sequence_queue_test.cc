// Captures that wait: for how long, in which order, and what happens to them when their sequence
// goes.
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

TEST(SequenceQueue, FinishedTurnWaitsToBeSaved) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.talk(tokens(150, 1), tokens(10, 2));
    EXPECT_EQ(rig.cache.pending() > 0, kind.saves());
    EXPECT_EQ(rig.info(0).unsaved_tokens > 0, kind.saves());
    const uint64_t before = rig.fate(CaptureFate::saved);
    const Drained drained = rig.drain();
    EXPECT_EQ(drained.saved > 0, kind.saves());
    EXPECT_EQ(drained.bytes > 0, kind.saves());
    EXPECT_EQ(rig.fate(CaptureFate::saved), before + drained.saved);
    EXPECT_EQ(rig.cache.pending(), 0U);
    EXPECT_EQ(rig.info(0).unsaved_tokens, 0U);
    EXPECT_EQ(rig.cache.stats().captured_bytes > 0, kind.saves());
    EXPECT_EQ(rig.drain().items, 0U) << "nothing is left";
  }
}

TEST(SequenceQueue, DrainTakesNoMoreThanItMay) {
  SequenceRig rig;
  for (uint32_t i = 1; i <= 4; ++i) rig.chat(tokens(130, i));
  const uint32_t waiting = rig.cache.pending();
  ASSERT_GE(waiting, 4U);
  EXPECT_EQ(rig.drain({.items = 0}).items, 0U);
  EXPECT_EQ(rig.drain({.items = 1}).items, 1U);
  EXPECT_EQ(rig.drain({.bytes = 0}).items, 0U);
  EXPECT_EQ(rig.drain({.bytes = 1}).items, 1U) << "what is begun within it is finished";
  EXPECT_EQ(rig.cache.pending(), waiting - 2);
  EXPECT_EQ(rig.drain({.items = 2}).items, 2U);
  rig.drain();
  EXPECT_EQ(rig.cache.pending(), 0U);
}

TEST(SequenceQueue, WhatFindsNoRoomWaitsUnlessItIsToEvict) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves() || !kind.options.full_attention) continue;
    SCOPED_TRACE(kind.name);
    SequenceOptions options = small_cache();
    options.saved_bytes = 30'000;
    SequenceRig rig(kind.options, options);
    uint32_t i = 1;
    for (; i < 100 && rig.cache.pending() == 0; ++i) {
      rig.chat(tokens(200, i));
      rig.drain({.evict = false});
    }
    ASSERT_EQ(rig.cache.pending(), 1U) << "the store is full";
    EXPECT_EQ(rig.cache.stats().segment_evictions, 0U);
    EXPECT_EQ(rig.kept(tokens(200, i - 1)), 200U) << "it is live";
    EXPECT_EQ(rig.drain({.evict = true}).saved, 1U);
    rig.renew_context();
    EXPECT_EQ(rig.kept(tokens(200, i - 1)), 200U) << "and saved, at the expense of another";
  }
}

TEST(SequenceQueue, OldestIsSavedFirst) {
  SequenceRig rig;
  for (uint32_t i = 1; i <= 3; ++i) rig.chat(tokens(130, i));
  rig.drain({.items = 1});
  rig.renew_context();
  EXPECT_EQ(rig.kept(tokens(130, 1)), 130U);
  EXPECT_EQ(rig.kept(tokens(130, 2)), 0U);
  EXPECT_EQ(rig.kept(tokens(130, 3)), 0U);
}

TEST(SequenceQueue, QueueIsBoundedAndTheOldestIsGivenUp) {
  SequenceOptions options = small_cache();
  options.pending_captures = 2;
  SequenceRig rig(full_engine(), options);
  for (uint32_t i = 1; i <= 4; ++i) {
    rig.chat(tokens(130, i));
    EXPECT_LE(rig.cache.pending(), 2U);
  }
  EXPECT_EQ(rig.fate(CaptureFate::crowded), 2U);
  rig.drain();
  rig.renew_context();
  EXPECT_EQ(rig.kept(tokens(130, 1)), 0U);
  EXPECT_EQ(rig.kept(tokens(130, 2)), 0U);
  EXPECT_EQ(rig.kept(tokens(130, 3)), 130U);
  EXPECT_EQ(rig.kept(tokens(130, 4)), 130U);
}

TEST(SequenceQueue, LaterCaptureOfTheSameSequenceReplacesTheEarlier) {
  SequenceRig rig;
  const Text said = rig.talk(tokens(130, 1), tokens(10, 2), {.session = "a"});
  const uint32_t waiting = rig.cache.pending();
  rig.chat(said + tokens(50, 3), {.session = "a"});
  EXPECT_EQ(rig.cache.pending(), waiting);
  EXPECT_GE(rig.fate(CaptureFate::coalesced), 1U);
  rig.drain();
  rig.renew_context();
  EXPECT_EQ(rig.kept(said + tokens(50, 3)), 190U);
}

TEST(SequenceQueue, AbandonedTurnLosesNothingOfTheTurnBeforeIt) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(130, 1), tokens(10, 2), {.session = "a"});
    rig.chat(tokens(130, 5), {.session = "b"});
    Request next = rig.begin(said + tokens(9, 3), {.session = "a"});
    rig.run(next);
    rig.abandon(next);
    EXPECT_GE(rig.kept(said), kind.options.rewind == Rewind::any || kind.saves() ? 140U : 0U);
    rig.drain();
    rig.renew_context();
    EXPECT_GE(rig.kept(said), kind.saves() ? 140U : 0U);
    EXPECT_EQ(rig.kept(tokens(130, 5)), kind.saves() ? 130U : 0U);
  }
}

TEST(SequenceQueue, NothingOfAnAbandonedTurnIsKeptButBoundariesSavedBefore) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(130, 1), tokens(10, 2), {.session = "a"});
    rig.drain();
    Request next = rig.begin(said + tokens(60, 3), {.session = "a"});
    rig.run(next);
    rig.answer(next, tokens(9, 4));
    rig.abandon(next);
    rig.drain();
    const bool state = !kind.options.segments && kind.options.rewind != Rewind::any && kind.saves();
    EXPECT_LE(rig.kept(next.text), state ? 199U : 140U) << "the prompt's end but one";
  }
}

TEST(SequenceQueue, WhatIsNotWorthItsSaveGoesWithItsSequence) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  engine.costs.token_ns = 1;
  SequenceOptions options = small_cache();
  options.compute_token_ns = 1;
  options.move_byte_ps = 1'000'000'000;
  SequenceRig rig(engine, options);
  rig.chat(tokens(130, 1));
  Request next = rig.begin(tokens(100, 2));
  rig.run(next);
  EXPECT_EQ(rig.cache.pending(), 0U);
  EXPECT_EQ(rig.fate(CaptureFate::stale), 1U);
  EXPECT_EQ(rig.drain().items, 0U);
  rig.finish(next);
}

TEST(SequenceQueue, EndOfATurnIsKeptBeforeItsSequenceGoesOn) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(60, 1), tokens(40, 2), {.session = "a"});
    rig.chat(said + tokens(50, 3), {.session = "a"});  // Nothing was drained.
    const bool any = kind.options.rewind == Rewind::any;
    EXPECT_EQ(rig.hit(said + tokens(50, 4), {.session = "a"}), any || kind.saves() ? 100U : 0U)
        << "the last message was edited";
    rig.drain();
    rig.renew_context();
    EXPECT_EQ(rig.hit(said + tokens(50, 4), {.session = "a"}), kind.saves() ? 100U : 0U);
  }
}

TEST(SequenceQueue, RunningSequencesMayBeDrained) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(130, 1), tokens(10, 2), {.session = "a"});
    Request planned = rig.begin(said + tokens(70, 3), {.session = "a"});
    rig.drain({.items = 1});
    rig.execute(planned);
    rig.compute(planned, 160);
    rig.drain();
    rig.compute(planned);
    rig.drain();
    rig.finish(planned);
    EXPECT_EQ(rig.kept(planned.text), 210U);
    rig.drain();
    rig.renew_context();
    EXPECT_EQ(rig.chat(planned.text + tokens(5, 4)).reused_tokens, kind.saves() ? 210U : 0U);
  }
}

TEST(SequenceQueue, CapturesOfForgottenSequencesAreStale) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(tokens(130, 1));
    const uint32_t waiting = rig.cache.pending();
    rig.renew_context();
    EXPECT_EQ(rig.cache.pending(), 0U);
    EXPECT_GE(rig.fate(CaptureFate::stale), waiting > 0 ? 1U : 0U);
    const uint64_t saves = rig.calls(Call::save);
    rig.drain();
    EXPECT_EQ(rig.calls(Call::save), saves) << "another sequence's contents are not saved for it";
  }
}

TEST(SequenceQueue, CutBehindACaptureDoesNotCorruptIt) {
  SequenceRig rig;
  const Text said = rig.talk(tokens(130, 1), tokens(60, 2), {.session = "a"});
  Request next = rig.begin(said.first(135) + tokens(40, 3), {.session = "a"});
  EXPECT_EQ(rig.run(next).reused_tokens, 135U);
  rig.finish(next);
  rig.drain();
  rig.renew_context();
  EXPECT_EQ(rig.kept(next.text), 175U);
  const SequenceReport old = rig.chat(said + tokens(9, 4));
  EXPECT_TRUE(old.reused_tokens == 135U || old.reused_tokens == 190U) << old.reused_tokens;
}

TEST(SequenceQueue, VictimThatPartedFromWhatWasSavedIsSavedToo) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  SequenceRig rig(engine);
  rig.chat(tokens(190, 1), {.session = "a"});
  rig.drain();
  const Text other = tokens(135, 1) + tokens(40, 2);
  EXPECT_EQ(rig.chat(other, {.session = "a"}).reused_tokens, 135U);
  EXPECT_EQ(rig.info(0).unsaved_tokens, 40U);
  rig.chat(tokens(60, 3), {.session = "b"});
  EXPECT_EQ(rig.cache.stats().victims_saved, 1U);
  EXPECT_EQ(rig.chat(other + tokens(9, 4), {.session = "a"}).reused_tokens, 175U);
}

TEST(SequenceQueue, VictimIsSavedBeforeItGoes) {
  for (const EngineKind& kind : every_engine([](EngineOptions& o) { o.sequences = 1; })) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(130, 1), tokens(10, 2), {.session = "a"});
    const SequenceReport report = rig.chat(tokens(130, 3), {.session = "b"});
    EXPECT_EQ(report.victims, 1U);
    EXPECT_EQ(report.saved_bytes > 0, kind.saves());
    EXPECT_EQ(rig.cache.stats().victims, 1U);
    EXPECT_EQ(rig.cache.stats().victims_saved, kind.saves() ? 1U : 0U);
    EXPECT_EQ(rig.chat(said + tokens(9, 4), {.session = "a"}).reused_tokens,
              kind.saves() ? 140U : 0U);
  }
}

TEST(SequenceQueue, CheckpointsThatFindNoRoomWaitToo) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 1U << 18U;
  options.checkpoint_share = 0.004;  // Two of the window's.
  options.marks = 0;
  SequenceRig rig(window_engine(), options);
  for (uint32_t i = 1; i <= 4; ++i) rig.chat(tokens(50, i));
  EXPECT_EQ(rig.drain({.evict = false}).saved, 2U);
  EXPECT_EQ(rig.cache.stats().state_evictions, 0U);
  EXPECT_EQ(rig.cache.pending(), 2U);
  EXPECT_EQ(rig.drain({.evict = true}).saved, 2U);
  EXPECT_EQ(rig.cache.stats().state_evictions, 2U);
}

}  // namespace
}  // namespace stemma::test
