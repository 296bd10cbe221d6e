// How much of a prompt is available without computing, and how it got there.
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

uint32_t step(const SequenceReport& report, Step step) {
  return report.steps[static_cast<uint32_t>(step)];
}

class SequenceReuse : public ::testing::TestWithParam<EngineKind> {
 protected:
  SequenceReuse() : rig(GetParam().options) {}
  const EngineOptions& engine() const { return GetParam().options; }
  bool saves() const { return GetParam().saves(); }
  bool copies() const { return GetParam().copies(); }
  // Whether an engine that cannot go back has something to load instead.
  bool goes_back() const { return engine().rewind != Rewind::exact || saves(); }

  SequenceRig rig;
  const Text system = tokens(80, 1);
};

INSTANTIATE_TEST_SUITE_P(Every, SequenceReuse, ::testing::ValuesIn(every_engine()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(SequenceReuse, RepeatedPromptEvaluatesExactlyOneToken) {
  rig.chat(system);
  const SequenceReport again = rig.chat(system);
  if (!goes_back()) {
    EXPECT_EQ(again.reused_tokens, 0U);
    EXPECT_EQ(again.reason, SequenceMiss::no_rewind);
    return;
  }
  EXPECT_EQ(again.reused_tokens, 79U);
  EXPECT_EQ(again.evaluated_tokens, 1U);
  EXPECT_EQ(again.outcome, Outcome::full_hit);
  EXPECT_EQ(rig.chat(system).reused_tokens, 79U) << "and again";
}

TEST_P(SequenceReuse, RepeatedPromptEvaluatesOneTokenAfterItsSequenceWasTaken) {
  rig.chat(system);
  rig.take_all_sequences();
  const SequenceReport again = rig.chat(system);
  EXPECT_EQ(again.reused_tokens, saves() ? 79U : 0U);
  EXPECT_EQ(again.restored_bytes > 0, saves());
  EXPECT_EQ(rig.engine.counts().loaded_bytes, again.restored_bytes) << "nothing is loaded twice";
}

TEST_P(SequenceReuse, PromptThatRepeatsAfterAnAnswerEvaluatesOneToken) {
  const Text said = rig.talk(system, tokens(30, 2));
  const SequenceReport again = rig.chat(system);
  const bool live = engine().rewind == Rewind::any;
  EXPECT_EQ(again.reused_tokens, live || saves() ? 79U : 0U) << "the window is 30 positions ahead";
  rig.take_all_sequences();
  EXPECT_EQ(rig.chat(system).reused_tokens, saves() ? 79U : 0U);
}

TEST_P(SequenceReuse, ConversationGoesOnAfterItsSequenceWasTaken) {
  const Text said = rig.talk(system, tokens(37, 2), {.session = "a"});
  rig.take_all_sequences();
  EXPECT_FALSE(rig.cache.session("a").resident);
  Request next = rig.begin(said + tokens(20, 3), {.session = "a"});
  const SequenceReport report = rig.run(next);
  EXPECT_EQ(report.reused_tokens, saves() ? 117U : 0U) << "to the last computed token";
  EXPECT_EQ(step(report, Step::segments), engine().segments ? 117U : 0U);
  EXPECT_EQ(step(report, Step::checkpoint) > 0, engine().checkpoints && engine().segments);
  rig.answer(next, tokens(33, 4));
  rig.finish(next);
  rig.take_all_sequences();
  const SequenceReport third = rig.chat(next.text + tokens(20, 5), {.session = "a"});
  EXPECT_EQ(third.reused_tokens, saves() ? 170U : 0U);
}

TEST_P(SequenceReuse, AnySessionGoesOnWhereAnotherLeftOff) {
  const Text said = rig.talk(system, tokens(9, 2), {.session = "a"});
  const SequenceReport report = rig.chat(said + tokens(8, 3), {.session = "b"});
  EXPECT_EQ(report.reused_tokens, 89U) << "a session is no border";
}

TEST_P(SequenceReuse, SecondPromptBehindASharedHeadReusesIt) {
  const uint32_t ends[] = {80};
  rig.chat(system + tokens(40, 2), {.session = "a", .message_ends = ends});
  const SequenceReport report =
      rig.chat(system + tokens(40, 3), {.session = "b", .message_ends = ends});
  const bool possible = engine().rewind == Rewind::any || saves();
  EXPECT_EQ(report.reused_tokens, possible ? 80U : 0U);
  EXPECT_EQ(report.reason, possible ? SequenceMiss::first_use : SequenceMiss::no_rewind);
  EXPECT_EQ(report.matched_tokens, 80U);
}

TEST_P(SequenceReuse, HitLeavesItsSourceAsItWas) {
  if (!copies()) GTEST_SKIP() << "no copies";
  const uint32_t ends[] = {80};
  const Text first =
      rig.talk(system + tokens(40, 2), tokens(20, 3), {.session = "a", .message_ends = ends});
  EXPECT_EQ(rig.chat(system + tokens(40, 4), {.session = "b", .message_ends = ends}).reused_tokens,
            80U);
  if (engine().fork == Fork::shared) {
    EXPECT_TRUE(rig.cache.session("a").resident) << "there was a free sequence to copy into";
  }
  EXPECT_EQ(rig.chat(first + tokens(5, 5), {.session = "a"}).reused_tokens, 140U);
}

TEST_P(SequenceReuse, RunningSequenceServesOthers) {
  const uint32_t ends[] = {80};
  // As far back as a window reaches, and further back where it does not help anyway.
  const uint32_t more = engine().rewind == Rewind::window ? 6 : 20;
  Request running = rig.begin(system + tokens(more, 2), {.message_ends = ends});
  rig.run(running);
  Request other = rig.begin(system + tokens(40, 3), {.message_ends = ends});
  const SequenceReport report = rig.run(other);
  if (copies()) {
    EXPECT_EQ(report.reused_tokens, 80U);
    EXPECT_TRUE(!engine().segments || step(report, Step::fork) == 80);
  } else if (report.reused_tokens == 0) {
    EXPECT_TRUE(report.reason == SequenceMiss::not_saved ||
                report.reason == SequenceMiss::no_rewind);
  } else {
    EXPECT_EQ(report.reused_tokens, 80U);
  }
  rig.answer(running, tokens(30, 4));
  rig.answer(other, tokens(30, 5));
  rig.finish(running);
  rig.finish(other);
}

TEST_P(SequenceReuse, LongestUsableBeginningWins) {
  const Text text = tokens(200, 1);
  rig.chat(text.first(60), {.session = "a"});
  rig.chat(text.first(90) + tokens(5, 2), {.session = "b"});
  const SequenceReport report = rig.chat(text, {.session = "c"});
  const bool possible = engine().rewind == Rewind::any || engine().rewind == Rewind::window;
  EXPECT_EQ(report.reused_tokens, possible ? 90U : 60U) << "what cannot go back hides nothing";
  EXPECT_EQ(report.matched_tokens, 90U);
}

TEST_P(SequenceReuse, ScopesShareNothing) {
  const Scope other = scope_of({.model = "a model", .tenant_salt = "salt"});
  rig.chat(system);
  rig.drain();
  const SequenceReport report = rig.chat(other, system + tokens(4, 2));
  EXPECT_EQ(report.reused_tokens, 0U);
  EXPECT_EQ(report.reason, SequenceMiss::unknown_scope);
  EXPECT_EQ(rig.kept(system), 80U) << "the first is still there";
}

TEST_P(SequenceReuse, SampledTokenIsFoundOnlyAfterItWasEvaluated) {
  Request request = rig.begin(system);
  rig.run(request);
  ok(request.turn.extend(tokens(1, 2).tokens));
  rig.finish(request);
  EXPECT_EQ(rig.info(0).length, 80U);
  const SequenceReport report = rig.chat(system + tokens(1, 2) + tokens(9, 3));
  EXPECT_EQ(report.reused_tokens, 80U);
}

TEST_P(SequenceReuse, RequestThatStopsHalfWayLeavesWhatItComputed) {
  Request request = rig.begin(system);
  rig.execute(request);
  rig.compute(request, 50);
  rig.finish(request);
  EXPECT_EQ(rig.info(0).length, 50U);
  EXPECT_EQ(rig.chat(system).reused_tokens, 50U);
}

TEST_P(SequenceReuse, ChunksDoNotMatter) {
  const Text said = system + tokens(70, 2);
  rig.chunk_tokens = 7;
  rig.chat(said);
  rig.take_all_sequences();
  rig.chunk_tokens = 13;
  EXPECT_EQ(rig.chat(said + tokens(30, 3)).reused_tokens, saves() ? 150U : 0U);
}

TEST_P(SequenceReuse, EveryDivergenceIsServedAsFarAsTheMemoryAllows) {
  const Text text = tokens(100, 1);
  for (uint32_t n = 1; n < 100; n += 7) {
    SequenceRig one(engine());
    one.chat(text);
    const SequenceReport report = one.chat(text.first(n) + tokens(20, 2));
    EXPECT_EQ(report.matched_tokens, n);
    switch (engine().rewind) {
      case Rewind::any:
        // A sequence that can be neither copied nor saved is not cut to serve a few positions of
        // another prompt.
        EXPECT_TRUE(report.reused_tokens == n ||
                    (!saves() && report.reason == SequenceMiss::not_worth));
        break;
      case Rewind::window:
        // 24 positions are held: back to 92. 99 is one before the prompt's end.
        EXPECT_EQ(report.reused_tokens, n >= 92 ? n : 0U) << n;
        break;
      case Rewind::bounded: EXPECT_EQ(report.reused_tokens, n >= 96 ? n : 0U) << n; break;
      case Rewind::exact: EXPECT_EQ(report.reused_tokens, n == 99 && saves() ? n : 0U) << n; break;
    }
    if (engine().rewind != Rewind::any) {
      EXPECT_EQ(report.reason,
                report.reused_tokens < n ? SequenceMiss::no_rewind : SequenceMiss::first_use);
    }
  }
}

TEST_P(SequenceReuse, ThirdPromptBehindAHeadFindsWhereTheFirstTwoParted) {
  const auto ask = [&](uint32_t seed) { return system + tokens(60, seed); };
  rig.chat(ask(2));
  rig.chat(ask(3));  // It learns that prompts part at 80.
  const SequenceReport third = rig.chat(ask(4));
  EXPECT_EQ(third.reused_tokens, engine().rewind == Rewind::any || saves() ? 80U : 0U);
  rig.take_all_sequences();
  EXPECT_EQ(rig.chat(ask(5)).reused_tokens, saves() ? 80U : 0U);
}

TEST(SequenceReuseOf, RolledOverWindowDoesNotHideAShorterPrefixThatServes) {
  EngineOptions engine = window_engine();
  engine.rewind_tokens = 4;
  engine.window_slack_tokens = 1;
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  {
    SequenceRig rig(engine, options);
    rig.chat(counting(1, 11), {.session = "a"});
    rig.chat(of({1, 2, 3, 4, 5, 9}), {.session = "b"});
    const SequenceReport report = rig.chat(of({1, 2, 3, 4, 5, 6, 7, 99}));
    EXPECT_EQ(report.reused_tokens, 5U);
    EXPECT_EQ(report.evaluated_tokens, 3U);
    EXPECT_EQ(report.matched_tokens, 7U);
    EXPECT_EQ(report.reason, SequenceMiss::no_rewind);
  }
  {
    SequenceRig rig(engine, options);
    rig.chat(counting(1, 11));
    EXPECT_EQ(rig.chat(counting(1, 12)).reused_tokens, 10U) << "going on always works";
  }
}

TEST(SequenceReuseOf, RecurrentStateServesItsDepthOnlyAndHidesNoShorterOne) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  SequenceRig rig(hybrid_engine(), options);
  rig.chat(counting(1, 4), {.session = "short"});
  rig.chat(counting(1, 9), {.session = "long"});
  const SequenceReport report = rig.chat(counting(1, 5) + of({99, 98}));
  EXPECT_EQ(report.reused_tokens, 3U) << "a state at 8 is no state at 4";
  EXPECT_EQ(report.matched_tokens, 4U);
  EXPECT_EQ(report.reason, SequenceMiss::no_rewind);
  EXPECT_EQ(rig.kept(counting(1, 9)), 8U);
}

TEST(SequenceReuseOf, WindowIsLoadedWithItsCheckpointAndNotTrimmedInto) {
  SequenceRig rig(window_engine());
  const uint32_t ends[] = {70};
  rig.chat(tokens(200, 1), {.message_ends = ends});
  rig.take_all_sequences();
  const SequenceReport report = rig.chat(tokens(70, 1) + tokens(30, 2));
  EXPECT_EQ(report.reused_tokens, 70U);
  EXPECT_EQ(step(report, Step::checkpoint), 70U);
  EXPECT_EQ(step(report, Step::segments), 70U);
}

// Passes of other sequences recycle the cells behind a window: an idle sequence goes back less far
// than it could when its turn ended. A plan made from what it held then fails.
TEST(SequenceReuseOf, WindowThatOthersRecycledIsNotPlannedWith) {
  for (const bool copied : {false, true}) {
    SequenceRig rig(window_engine());
    const uint32_t ends[] = {60};
    Request first = rig.begin(tokens(100, 1), {.message_ends = ends});
    rig.run(first);
    if (!copied) rig.finish(first);
    // It parts from the other prompt at a depth that the other could once go back to.
    const Text next = tokens(95, 1) + tokens(10, 2);
    const uint32_t before = rig.hit(next);
    EXPECT_EQ(before, 95U);
    rig.engine.recycle_windows();
    const SequenceReport report = rig.chat(next);
    EXPECT_EQ(report.failures, 0U) << (copied ? "copied" : "in place");
    EXPECT_LT(report.reused_tokens, 95U);
    for (const uint64_t failed : rig.cache.stats().failures) EXPECT_EQ(failed, 0U);
    // If nothing was lost, it continues as before.
    EXPECT_EQ(rig.chat(next + tokens(5, 3)).reused_tokens, next.size());
    if (copied) rig.finish(first);
  }
}

TEST(SequenceReuseOf, CheckpointBringsALiveSequenceBack) {
  SequenceRig rig(hybrid_engine());
  const uint32_t ends[] = {70};
  rig.chat(tokens(200, 1), {.session = "a", .message_ends = ends});
  rig.drain();
  const uint64_t loaded = rig.engine.counts().loaded_bytes;
  Request request = rig.begin(tokens(70, 1) + tokens(30, 2), {.session = "a"});
  const SequenceReport report = rig.run(request);
  EXPECT_EQ(report.reused_tokens, 70U);
  EXPECT_EQ(step(report, Step::checkpoint), 70U);
  EXPECT_EQ(step(report, Step::segments), 0U) << "the attention part need not be loaded";
  EXPECT_LE(rig.engine.counts().loaded_bytes - loaded, rig.engine.traits().checkpoint_bytes);
  rig.finish(request);
}

TEST(SequenceReuseOf, SharedHeadIsStoredOnce) {
  SequenceRig rig;
  const Text system = tokens(256, 1);
  rig.chat(system + tokens(64, 2));
  rig.drain();
  const uint64_t one = rig.cache.stats().segment_bytes;
  for (uint32_t i = 3; i < 9; ++i) {
    rig.chat(system + tokens(64, i));
    rig.drain();
  }
  const uint64_t seven = rig.cache.stats().segment_bytes;
  EXPECT_LT(seven, 3 * one) << "each tail once, the head once";
  rig.take_all_sequences();
  for (uint32_t i = 2; i < 9; ++i) {
    EXPECT_EQ(rig.kept(system + tokens(64, i)), 320U) << i;
  }
}

TEST(SequenceReuseOf, LiveHeadAndSavedTailAreJoined) {
  SequenceRig rig;
  const Text system = tokens(128, 1);
  const Text a = system + tokens(128, 2);
  rig.chat(a, {.session = "a"});
  rig.take_all_sequences();
  Request holder = rig.begin(system + tokens(9, 3), {.session = "b"});
  rig.run(holder);
  Request back = rig.begin(a + tokens(9, 4), {.session = "a"});
  const SequenceReport report = rig.run(back);
  EXPECT_EQ(report.reused_tokens, 256U);
  EXPECT_EQ(step(report, Step::fork) + step(report, Step::segments), 256U);
  rig.finish(holder);
  rig.finish(back);
}

TEST(SequenceReuseOf, OwnHeadStaysAndTheSavedTailIsLoadedBehindIt) {
  SequenceRig rig;
  const Text head = tokens(192, 1);
  rig.chat(head + tokens(64, 2), {.session = "a"});
  rig.drain();
  rig.chat(head + tokens(64, 3), {.session = "a"});
  rig.drain();
  const uint64_t loaded = rig.engine.counts().loaded_bytes;
  Request back = rig.begin(head + tokens(64, 2) + tokens(5, 4), {.session = "a"});
  const SequenceReport report = rig.run(back);
  EXPECT_EQ(report.reused_tokens, 256U);
  EXPECT_LT(rig.engine.counts().loaded_bytes - loaded, 3 * 64 * rig.engine.traits().bytes_per_token)
      << "192 positions need not be loaded";
  rig.finish(back);
}

TEST(SequenceReuse, SegmentsServeToTheEndOfTheContext) {
  for (const uint32_t segment_tokens : {16U, 64U, 1024U}) {
    EngineOptions engine = full_split_engine();
    engine.context_tokens = 1000;
    SequenceOptions options = small_cache();
    options.segment_tokens = segment_tokens;
    SequenceRig rig(engine, options);
    rig.chat(tokens(990, 1));
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(tokens(1000, 1)).reused_tokens, 990U) << segment_tokens;
  }
}

}  // namespace
}  // namespace stemma::test
