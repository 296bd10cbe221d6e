// Forgetting: contexts, scopes, what was saved, sessions, and requests that failed.
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

TEST(SequenceForget, WhatWasSavedSurvivesTheContext) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.talk(kText, tokens(20, 2), {.session = "a"});
    rig.drain();
    const uint64_t generation = rig.info(0).generation;
    rig.renew_context();
    EXPECT_EQ(rig.cache.stats().free_sequences, 4U);
    EXPECT_GT(rig.info(0).generation, generation);
    EXPECT_TRUE(rig.cache.session("a").known);
    EXPECT_FALSE(rig.cache.session("a").resident);
    const SequenceReport report = rig.chat(kText + tokens(20, 2) + tokens(9, 3));
    EXPECT_EQ(report.reused_tokens, kind.saves() ? 120U : 0U);
    EXPECT_EQ(report.steps[static_cast<uint32_t>(Step::stay)], 0U);
  }
}

TEST(SequenceForget, TurnsOfAForgottenContextAreStale) {
  SequenceOptions options = small_cache();
  options.logits_bytes = 10'000;
  EngineOptions engine = full_engine();
  engine.shift = true;
  SequenceRig rig(engine, options);
  Request stale = rig.begin(kText, {.session = "a"});
  rig.execute(stale);
  rig.compute(stale, 50);
  rig.renew_context();
  EXPECT_TRUE(rig.cache.can_admit("a")) << "nobody is under way any more";
  Request fresh = rig.begin(tokens(100, 2), {.session = "a"});
  ASSERT_EQ(fresh.turn.sequence(), SequenceId{0}) << "the same place";
  rig.run(fresh);
  const uint64_t print = rig.engine.fingerprint(SequenceId{0});
  const uint64_t calls = rig.calls();
  const std::vector<Token> words = {1, 2};
  const std::vector<float> logits = {1, 2};
  const std::vector<std::function<Errc()>> every_call = {
      [&] { return code(stale.turn.execute()); },
      [&] { return code(stale.turn.computed(60)); },
      [&] { return code(stale.turn.extend(words)); },
      [&] { return code(stale.turn.reserve(1)); },
      [&] { return code(stale.turn.rewind(10)); },
      [&] { return code(stale.turn.attach_logits(50, logits)); },
      [&] { return code(stale.turn.fork()); },
      [&] { return code(stale.turn.shift(10, 10)); },
      [&] { return code(stale.turn.finish()); },
  };
  for (size_t i = 0; i < every_call.size(); ++i) {
    EXPECT_EQ(every_call[i](), Errc::stale) << i;
    rig.check("a stale call");
  }
  EXPECT_GE(rig.cache.stats().stale_calls, every_call.size());
  EXPECT_EQ(rig.calls(), calls) << "the engine hears nothing of it";
  {
    const Turn gone = std::move(stale.turn);
  }
  EXPECT_EQ(rig.engine.fingerprint(SequenceId{0}), print);
  EXPECT_EQ(rig.info(0).state, SequenceState::leased);
  EXPECT_TRUE(rig.cache.session("a").in_flight) << "the fresh one's";
  rig.answer(fresh, tokens(10, 3));
  rig.finish(fresh);
  EXPECT_EQ(rig.kept(tokens(100, 2) + tokens(10, 3)), 110U);
}

TEST(SequenceForget, StaleAbandonChangesNothingEither) {
  SequenceRig rig;
  Request stale = rig.begin(kText, {.session = "a"});
  rig.run(stale);
  rig.renew_context();
  rig.chat(tokens(100, 2), {.session = "a"});
  EXPECT_EQ(code(stale.turn.abandon()), Errc::stale);
  rig.check("a stale abandon");
  EXPECT_EQ(rig.info(0).state, SequenceState::idle);
  EXPECT_TRUE(rig.cache.session("a").resident);
  EXPECT_EQ(rig.kept(tokens(100, 2)), 100U);
  EXPECT_EQ(rig.kept(kText), 0U);
}

TEST(SequenceForget, BegunButNotExecutedTurnIsStaleToo) {
  SequenceRig rig;
  rig.chat(kText, {.session = "a"});
  Request planned = rig.begin(kText + tokens(9, 2), {.session = "a"});
  rig.renew_context();
  EXPECT_EQ(code(planned.turn.execute()), Errc::stale) << "what it was to reuse is gone";
  rig.check("a stale execute");
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
}

TEST(SequenceForget, DroppedScopeIsNeverFoundAgain) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.free_is_empty = false;
    const Scope other = scope_of({.model = "another model"});
    rig.chat(kText, {.session = "a"});
    rig.chat(other, kText, {.session = "b"});
    rig.drain();
    rig.chat(kText + tokens(30, 2), {.session = "a"});  // And a capture that still waits.
    rig.cache.drop_scope(rig.scope);
    rig.check("drop_scope");
    EXPECT_EQ(rig.look(kText + tokens(30, 2)).reason, SequenceMiss::unknown_scope);
    rig.drain();
    EXPECT_EQ(rig.kept(kText), 0U);
    EXPECT_FALSE(rig.cache.session("a").resident);
    EXPECT_EQ(ok(rig.cache.lookup(other, kText + tokens(9, 3))).reused_tokens, 100U);
    EXPECT_TRUE(rig.cache.session("b").resident);
    for (const SequenceContent& content : ok(rig.cache.contents())) {
      EXPECT_EQ(content.scope, other);
    }
    EXPECT_EQ(rig.chat(kText, {.session = "a"}).reused_tokens, 0U);
  }
}

TEST(SequenceForget, TurnsOfADroppedScopeGoOnAndLeaveNothing) {
  SequenceRig rig;
  rig.free_is_empty = false;
  Request running = rig.begin(kText, {.session = "a"});
  rig.execute(running);
  rig.compute(running, 60);
  rig.cache.drop_scope(rig.scope);
  rig.check("drop_scope");
  rig.compute(running);
  rig.answer(running, tokens(10, 2));
  rig.finish(running);
  rig.drain();
  EXPECT_EQ(rig.kept(kText), 0U);
  rig.chat(kText);
  EXPECT_EQ(rig.kept(kText), 100U) << "the scope may come back";
}

TEST(SequenceForget, BegunTurnOfADroppedScopeLeavesNothingEither) {
  SequenceRig rig;
  rig.free_is_empty = false;
  rig.chat(kText, {.session = "a"});
  Request planned = rig.begin(kText + tokens(10, 2), {.session = "a"});
  rig.cache.drop_scope(rig.scope);
  EXPECT_EQ(rig.run(planned).reused_tokens, 0U) << "what it was to reuse was dropped";
  rig.finish(planned);
  rig.drain();
  EXPECT_EQ(rig.kept(planned.text), 0U);
}

TEST(SequenceForget, DroppingWhatWasSavedLeavesWhatIsLive) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText);
    rig.drain();
    rig.cache.drop_saved();
    rig.check("drop_saved");
    EXPECT_EQ(rig.kept(kText), 100U);
    const SequenceStats stats = rig.cache.stats();
    EXPECT_EQ(stats.segment_bytes + stats.state_bytes + stats.checkpoint_bytes, 0U);
    EXPECT_TRUE(rig.depths(SequenceContent::Kind::segment_path).empty());
    EXPECT_TRUE(rig.depths(SequenceContent::Kind::checkpoint).empty());
    EXPECT_TRUE(rig.depths(SequenceContent::Kind::state).empty());
    rig.renew_context();
    EXPECT_EQ(rig.kept(kText), 0U);
    rig.chat(kText);
    rig.take_all_sequences();
    EXPECT_EQ(rig.kept(kText), kind.saves() ? 100U : 0U) << "the store goes on";
  }
}

TEST(SequenceForget, DroppingWhatAPlanWasToLoadEndsInASlowerRightAnswer) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText);
    rig.take_all_sequences();
    Request planned = rig.begin(kText + tokens(9, 2));
    rig.cache.drop_saved();
    rig.run(planned);  // Right, whatever it reports.
    rig.finish(planned);
  }
}

TEST(SequenceForget, EndedSessionsSequenceIsTheNextToGo) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  EngineOptions engine = full_engine();
  engine.sequences = 2;
  SequenceRig rig(engine, options);
  rig.chat(tokens(50, 1), {.session = "a"});
  rig.clock.advance_ns(10);
  rig.chat(tokens(50, 2), {.session = "b"});
  rig.cache.end_session("b");
  rig.cache.end_session("nobody");
  rig.chat(tokens(50, 3), {.session = "c"});
  EXPECT_TRUE(rig.cache.session("a").resident) << "older, but not over";
  EXPECT_FALSE(rig.cache.session("b").resident);
}

// Clients hang up in the middle of an answer.
TEST(SequenceForget, SessionThatEndsUnderWayIsOverWithItsTurn) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  EngineOptions engine = full_engine();
  engine.sequences = 2;
  SequenceRig rig(engine, options);
  rig.chat(tokens(50, 1), {.session = "a"});
  Request b = rig.begin(tokens(50, 2), {.session = "b"});
  rig.run(b);
  rig.cache.end_session("b");
  EXPECT_TRUE(rig.cache.session("b").in_flight);
  rig.finish(b);
  EXPECT_FALSE(rig.cache.session("b").known);
  rig.chat(tokens(50, 3), {.session = "c"});
  EXPECT_TRUE(rig.cache.session("a").resident) << "older, but not over";

  Request c = rig.begin(tokens(60, 4), {.session = "c"});
  rig.run(c);
  rig.cache.end_session("c");
  rig.abandon(c);
  EXPECT_FALSE(rig.cache.session("c").known);

  Request d = rig.begin(tokens(60, 5), {.session = "d"});
  rig.cache.end_session("d");
  rig.renew_context();
  EXPECT_FALSE(rig.cache.session("d").known);
  EXPECT_EQ(code(d.turn.finish()), Errc::stale);
}

TEST(SequenceForget, SessionThatGoesOnIsNotOver) {
  SequenceRig rig;
  Request first = rig.begin(tokens(50, 1), {.session = "a"});
  rig.run(first);
  rig.cache.end_session("a");
  Request second = rig.begin(tokens(50, 2), {.session = "a", .exclusive = false});
  rig.run(second);
  rig.finish(first);
  rig.finish(second);
  EXPECT_TRUE(rig.cache.session("a").resident);
}

// Of two sessions the later one ends, before or after its words are saved: those words are evicted
// first.
void expect_ended_goes_first(const EngineKind& kind, bool saved_before) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 100'000;
  SequenceRig rig(kind.options, options);
  rig.chat(tokens(128, 1), {.session = "a"});
  if (saved_before) rig.drain();
  rig.chat(tokens(128, 2), {.session = "b"});
  if (saved_before) rig.drain();
  rig.cache.end_session("b");
  rig.drain();
  rig.renew_context();
  for (uint32_t i = 10; i < 1000 && rig.kept(tokens(128, 2)) == 128; ++i) {
    rig.chat(tokens(128, i), {.session = "c"});
    rig.drain();
    rig.renew_context();
  }
  ASSERT_LT(rig.kept(tokens(128, 2)), 128U);
  EXPECT_EQ(rig.kept(tokens(128, 1)), 128U) << "older, but not over";
}

TEST(SequenceForget, WhatAnEndedSessionStillSavesGoesEarlyToo) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    expect_ended_goes_first(kind, false);
  }
}

TEST(SequenceForget, EndedSessionsSavedPartsGoEarly) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    expect_ended_goes_first(kind, true);
  }
}

TEST(SequenceForget, AbandonCostsOnlyItsOwnSequence) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const uint32_t ends[] = {100};
    rig.chat(kText, {.session = "a"});
    rig.drain();
    Request running = rig.begin(tokens(50, 2), {.session = "b"});
    rig.run(running);
    Request failed = rig.begin(kText + tokens(60, 3), {.session = "c", .message_ends = ends});
    rig.execute(failed);
    rig.compute(failed, 120);
    rig.engine.faults.next(Call::compute, Fault::halfway);
    EXPECT_FALSE(rig.try_compute(failed));
    rig.abandon(failed);
    rig.answer(running, tokens(9, 4));
    rig.finish(running);
    EXPECT_EQ(rig.kept(running.text), 59U);
    EXPECT_TRUE(!kind.saves() || rig.kept(kText) == 100);
    EXPECT_LE(rig.kept(kText + tokens(60, 3)), 120U) << "never what was not computed";
  }
}

TEST(SequenceForget, CacheMayGoBeforeItsTurns) {
  FakeSequences engine(full_engine());
  std::optional<SequenceCache> cache = ok(SequenceCache::create(engine, small_cache()));
  const Scope scope = scope_of({.model = "a model"});
  Turn finished = ok(cache->begin(scope, kText));
  Turn abandoned = ok(cache->begin(scope, kText));
  Turn dropped = ok(cache->begin(scope, kText));
  ok(finished.execute());
  ok(engine.compute(finished.sequence(), kText.tokens));
  cache.reset();
  EXPECT_NE(code(finished.computed(100)), kOk) << "they can only end";
  EXPECT_NE(code(abandoned.execute()), kOk);
  EXPECT_NE(code(dropped.fork()), kOk);
  static_cast<void>(finished.finish());
  static_cast<void>(abandoned.abandon());
}

TEST(SequenceForget, MovedCacheGoesOn) {
  FakeSequences engine(full_engine());
  SequenceCache first = ok(SequenceCache::create(engine, small_cache()));
  const Scope scope = scope_of({.model = "a model"});
  Turn turn = ok(first.begin(scope, kText));
  SequenceCache second = std::move(first);
  ok(turn.execute());
  ok(engine.compute(turn.sequence(), kText.tokens));
  ok(turn.computed(100));
  ok(turn.finish());
  EXPECT_EQ(ok(second.lookup(scope, kText)).reused_tokens, 99U);
  EXPECT_EQ(code(first.begin(scope, kText)), Errc::wrong_state);  // NOLINT: that is the point.
  EXPECT_EQ(code(first.lookup(scope, kText)), Errc::wrong_state);
  EXPECT_FALSE(first.can_admit());
  EXPECT_EQ(first.pending() + first.drain().items + first.stats().sequences, 0U);
  EXPECT_EQ(code(first.contents()), Errc::wrong_state);
  first.forget_context();
  first.drop_saved();
  first.drop_scope(scope);
  first.end_session("a");
  first.check_invariants();
  EXPECT_EQ(ok(second.lookup(scope, kText)).reused_tokens, 99U);
}

}  // namespace
}  // namespace stemma::test
