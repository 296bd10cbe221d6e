// Where a prefix may come from, how much of it a turn wants, and whether it is worth restoring.
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

SequenceOptions with_reuse(Reuse reuse) {
  SequenceOptions options = small_cache();
  options.reuse = reuse;
  return options;
}

const Text kNext = kText + tokens(20, 2);

TEST(SequenceModes, SwitchedOffEveryRequestStartsEmptyAndLeavesNothing) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, with_reuse(Reuse::disabled));
    for (const Text& text : {kText, kNext}) {
      const SequenceReport report = rig.chat(text, {.session = "a"});
      EXPECT_EQ(report.reused_tokens, 0U);
      EXPECT_EQ(report.outcome, Outcome::bypassed);
      EXPECT_EQ(rig.cache.stats().free_sequences, 4U);
      EXPECT_EQ(rig.engine.used_tokens(), 0U);
      EXPECT_EQ(rig.cache.pending(), 0U);
      EXPECT_FALSE(rig.cache.session("a").resident);
    }
    EXPECT_TRUE(ok(rig.cache.contents()).empty());
    EXPECT_EQ(rig.calls(Call::save), 0U);
  }
}

TEST(SequenceModes, LiveReuseKeepsSequencesAndSavesNothing) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, with_reuse(Reuse::live));
    rig.chat(kText, {.session = "a"});
    EXPECT_EQ(rig.cache.pending(), 0U);
    EXPECT_TRUE(rig.cache.session("a").resident);
    EXPECT_EQ(rig.chat(kNext, {.session = "a"}).reused_tokens, 100U);
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(kNext, {.session = "a"}).reused_tokens, 0U);
    EXPECT_EQ(rig.calls(Call::save), 0U);
    EXPECT_EQ(rig.cache.stats().segment_bytes + rig.cache.stats().state_bytes, 0U);
  }
}

TEST(SequenceModes, SavedReuseEmptiesTheSequenceAndSavesBeforeThat) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, with_reuse(Reuse::saved));
    rig.chat(kText, {.session = "a"});
    EXPECT_FALSE(rig.cache.session("a").resident);
    EXPECT_EQ(rig.cache.stats().free_sequences, 4U);
    EXPECT_EQ(rig.engine.used_tokens(), 0U);
    EXPECT_EQ(rig.cache.pending(), 0U) << "it could not have waited";
    const SequenceReport report = rig.chat(kNext, {.session = "a"});
    EXPECT_EQ(report.reused_tokens, 100U);
    EXPECT_EQ(report.steps[static_cast<uint32_t>(Step::stay)], 0U);
  }
}

TEST(SequenceModes, SavedReuseDoesNotLookAtRunningSequences) {
  SequenceRig rig(full_engine(), with_reuse(Reuse::saved));
  Request running = rig.begin(kText);
  rig.run(running);
  const SequenceReport report = rig.chat(kNext);
  EXPECT_EQ(report.reused_tokens, 0U);
  EXPECT_EQ(report.reason, SequenceMiss::mode);
  rig.finish(running);
}

// A turn may use what both the cache and the turn allow.
TEST(SequenceModes, TurnMayUseWhatTheCacheHasAndItAsksFor) {
  for (const Reuse of_cache : {Reuse::disabled, Reuse::live, Reuse::saved, Reuse::everything}) {
    for (const Reuse of_turn : {Reuse::disabled, Reuse::live, Reuse::saved, Reuse::everything}) {
      const auto both =
          static_cast<Reuse>(static_cast<uint32_t>(of_cache) & static_cast<uint32_t>(of_turn));
      SequenceRig rig(full_engine(), with_reuse(of_cache));
      rig.chat(kText, {.session = "a"});
      rig.drain();
      const SequenceReport live = rig.look(kNext, {.session = "a", .reuse = of_turn});
      const std::string what = std::to_string(static_cast<int>(of_cache)) + " and " +
                               std::to_string(static_cast<int>(of_turn));
      EXPECT_EQ(live.reused_tokens, both == Reuse::disabled ? 0U : 100U) << what;
      EXPECT_EQ(live.outcome == Outcome::bypassed, both == Reuse::disabled) << what;
      Request request = rig.begin(kNext, {.session = "a", .reuse = of_turn});
      const SequenceReport report = rig.run(request);
      EXPECT_EQ(report.reused_tokens, live.reused_tokens) << what;
      const bool loaded = report.steps[static_cast<uint32_t>(Step::segments)] > 0;
      EXPECT_EQ(loaded, both == Reuse::saved) << what << ": what is live need not be loaded";
      rig.finish(request);
    }
  }
}

TEST(SequenceModes, WhatTheModeExcludesIsSaid) {
  SequenceRig rig;
  rig.chat(kText);
  rig.take_all_sequences();
  const SequenceReport live = rig.chat(kNext, {.reuse = Reuse::live, .keep = false});
  EXPECT_EQ(live.reused_tokens, 0U);
  EXPECT_EQ(live.outcome, Outcome::miss);
  EXPECT_EQ(live.reason, SequenceMiss::mode);
  EXPECT_EQ(rig.chat(kNext).reused_tokens, 100U);
}

TEST(SequenceModes, TurnThatReusesNothingFindsNothingInItsOwnSequenceEither) {
  SequenceRig rig;
  rig.chat(kText, {.session = "a"});
  Request request = rig.begin(kNext, {.session = "a", .reuse = Reuse::disabled});
  EXPECT_EQ(rig.run(request).reused_tokens, 0U) << "even though the words agree";
  EXPECT_EQ(request.turn.report().outcome, Outcome::bypassed);
  rig.finish(request);
  rig.drain();
  EXPECT_LE(rig.kept(kNext), 100U) << "and it leaves nothing";
}

TEST(SequenceModes, WhatIsNotToBeKeptIsForgotten) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText, {.session = "a", .keep = false});
    EXPECT_EQ(rig.kept(kText), 0U);
    EXPECT_EQ(rig.cache.pending(), 0U);
    rig.chat(kText, {.session = "a"});
    rig.drain();
    const SequenceReport report = rig.chat(kNext, {.session = "b", .keep = false});
    EXPECT_EQ(report.reused_tokens, 100U) << "it may use what others kept";
    rig.drain();
    EXPECT_LE(rig.kept(kNext), 100U);
    EXPECT_TRUE(!kind.saves() || rig.kept(kText) == 100) << "which is still there";
  }
}

TEST(SequenceModes, WhatAThrowawayTurnFoundStays) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText, {.session = "a"});  // Nothing was drained.
    EXPECT_EQ(rig.chat(kNext, {.session = "a", .keep = false}).reused_tokens, 100U);
    const bool any = kind.options.rewind == Rewind::any;
    EXPECT_EQ(rig.kept(kText), any || kind.saves() ? 100U : 0U)
        << "what is computed is forgotten, not what was there";
    rig.drain();
    EXPECT_LE(rig.kept(kNext), 100U);
  }
}

TEST(SequenceModes, AtMostIsAtMost) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText);
    rig.drain();
    for (const uint32_t n : {0U, 1U, 40U, 95U, 99U, 100U}) {
      const uint32_t found = rig.hit(kNext, {.at_most = n});
      EXPECT_LE(found, n);
      // A sequence that can be neither copied nor saved is not cut to serve a few positions of
      // another prompt.
      const bool sure = kind.options.rewind == Rewind::any && kind.saves();
      EXPECT_TRUE(!sure || found == n) << found << " of " << n;
    }
    const bool within = kind.options.rewind == Rewind::any || kind.options.rewind == Rewind::window;
    const SequenceReport report = rig.chat(kNext, {.at_most = 95});
    EXPECT_EQ(report.reused_tokens, within ? 95U : 0U);
    EXPECT_EQ(report.reason, within ? SequenceMiss::at_most : SequenceMiss::no_rewind);
  }
}

TEST(SequenceModes, CallerMayAskForALongerTailToEvaluate) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText);
    const SequenceReport report = rig.chat(kText, {.evaluate_at_least = 3});
    EXPECT_LE(report.reused_tokens, 97U);
    if (kind.options.rewind != Rewind::exact) {
      EXPECT_EQ(report.reused_tokens, 97U);
      EXPECT_EQ(report.outcome, Outcome::full_hit) << "all that may be reused was";
    }
  }
}

TEST(SequenceModes, PromptWithNothingToSpareReusesNothing) {
  SequenceRig rig;
  rig.chat(kText);
  const SequenceReport one = rig.look(kText.first(1));
  EXPECT_EQ(one.reused_tokens, 0U);
  EXPECT_EQ(one.outcome, Outcome::miss);
  EXPECT_EQ(one.reason, SequenceMiss::too_short);
  EXPECT_EQ(rig.look(kText, {.evaluate_at_least = 100}).reason, SequenceMiss::too_short);
  EXPECT_EQ(rig.look(kText, {.evaluate_at_least = 5000}).reason, SequenceMiss::too_short);
  EXPECT_EQ(rig.hit(kText, {.evaluate_at_least = 0}), 99U) << "0 is 1";
  const SequenceReport none = rig.chat(Text{});
  EXPECT_EQ(none.reused_tokens, 0U);
  EXPECT_EQ(none.reason, SequenceMiss::too_short);
}

TEST(SequenceModes, LoadingThatTakesLongerThanComputingIsNotWorthIt) {
  EngineOptions engine = full_engine();
  engine.costs.token_ns = 1;
  SequenceOptions options = small_cache();
  options.compute_token_ns = 1;
  options.move_byte_ps = 1'000'000'000;
  SequenceRig rig(engine, options);
  rig.chat(kText);
  rig.drain();
  ASSERT_GT(rig.cache.stats().segment_bytes, 0U);
  EXPECT_EQ(rig.look(kNext).reused_tokens, 100U) << "what is live costs nothing";
  rig.take_all_sequences();
  const SequenceReport report = rig.chat(kNext, {.keep = false});
  EXPECT_EQ(report.reused_tokens, 0U);
  EXPECT_EQ(report.matched_tokens, 100U);
  EXPECT_EQ(report.reason, SequenceMiss::not_worth);
  EXPECT_EQ(rig.calls(Call::load), 0U);
}

TEST(SequenceModes, WhatTurnsOutSlowerToRestoreThanToComputeIsNoLongerSaved) {
  for (EngineOptions engine : {full_engine(), hybrid_engine()}) {
    engine.costs.token_ns = 1000;
    engine.costs.load_ns = 10'000'000;
    SequenceOptions options = small_cache();
    options.compute_token_ns = 1000;
    options.move_call_ns = 1000;
    SequenceRig rig(engine, options);
    SequenceReport report;
    // The initial belief about the cost of loading is far off, so loading is tried; the second plan
    // knows better.
    for (uint32_t i = 0; i < 4; ++i) {
      rig.chat(tokens(128, 1));
      rig.take_all_sequences();
      report = rig.chat(tokens(128, 1) + tokens(9, 10 + i), {.keep = false});
    }
    EXPECT_GT(rig.calls(Call::load), 0U);
    EXPECT_EQ(report.reason, SequenceMiss::not_worth);
    rig.drain();
    const uint64_t saves = rig.calls(Call::save);
    rig.stops.clear();
    rig.chat(tokens(200, 2));
    EXPECT_EQ(rig.cache.pending(), 0U);
    EXPECT_EQ(rig.stops, std::vector<uint32_t>{200}) << "nor is there a stop for a checkpoint";
    EXPECT_EQ(rig.calls(Call::save), saves);
    EXPECT_EQ(rig.hit(tokens(200, 2) + tokens(1, 3)), 200U) << "it is live";
  }
}

TEST(SequenceModes, VictimThatIsNotWorthItsSaveIsNotSaved) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  engine.costs.token_ns = 1;
  SequenceOptions options = small_cache();
  options.compute_token_ns = 1;
  options.move_byte_ps = 1'000'000'000;
  SequenceRig rig(engine, options);
  rig.chat(kText, {.session = "a"});
  const SequenceReport report = rig.chat(tokens(50, 3), {.session = "b"});
  EXPECT_EQ(report.victims, 1U);
  EXPECT_EQ(report.saved_bytes, 0U);
  EXPECT_EQ(rig.cache.stats().victims_saved, 0U);
}

TEST(SequenceModes, CostsAreMeasured) {
  EngineOptions engine = full_engine();
  engine.costs.token_ns = 7'000'000;
  engine.costs.load_byte_ps = 900;
  SequenceOptions options = small_cache();
  options.compute_token_ns = 1000;
  SequenceRig rig(engine, options);
  EXPECT_EQ(rig.cache.stats().compute_token_ns, 1000U) << "before the first measurement";
  for (uint32_t i = 0; i < 30; ++i) {
    rig.chat(tokens(120, 1 + i % 3) + tokens(20, 10 + i));
    rig.take_all_sequences();
  }
  const SequenceStats stats = rig.cache.stats();
  EXPECT_GT(stats.compute_token_ns, 3'500'000U);
  EXPECT_LT(stats.compute_token_ns, 14'000'000U);
  EXPECT_GT(stats.restored_bytes, 0U);
}

// The difference between two clocks, or of one clock with its ends swapped.
TEST(SequenceModes, TimesThatCannotBeAreNotLearned) {
  SequenceRig rig;
  const uint64_t before = rig.cache.stats().compute_token_ns;
  Request request = rig.begin(tokens(100));
  rig.execute(request);
  ok(rig.engine.compute(request.turn.sequence(), tokens(100).tokens));
  ok(request.turn.computed(100, ~uint64_t{0}));
  EXPECT_EQ(rig.cache.stats().compute_token_ns, before);
  rig.finish(request);
}

TEST(SequenceModes, CopyIsPreferredToLoading) {
  SequenceRig rig;
  rig.chat(kText, {.session = "a"});
  rig.drain();
  Request keeps = rig.begin(kNext, {.session = "a"});
  rig.run(keeps);
  const SequenceReport report = rig.chat(kText + tokens(20, 3), {.session = "b"});
  EXPECT_EQ(report.reused_tokens, 100U);
  EXPECT_EQ(report.steps[static_cast<uint32_t>(Step::fork)], 100U);
  EXPECT_EQ(report.restored_bytes, 0U);
  rig.finish(keeps);
}

}  // namespace
}  // namespace stemma::test
