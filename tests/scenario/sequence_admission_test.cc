// Which request gets which sequence, and what happens to the sequence's contents.
#include <string>
#include <utility>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

EngineOptions with_sequences(uint32_t sequences, EngineOptions options = full_engine()) {
  options.sequences = sequences;
  return options;
}

TEST(SequenceAdmission, FirstRequestsGetTheFirstSequencesAndNothingIsCleared) {
  SequenceRig rig(with_sequences(2));
  Request a = rig.begin(tokens(40, 1), {.session = "a"});
  Request b = rig.begin(tokens(40, 2), {.session = "b"});
  EXPECT_EQ(a.turn.sequence(), SequenceId{0});
  EXPECT_EQ(b.turn.sequence(), SequenceId{1});
  rig.run(a);
  rig.run(b);
  EXPECT_EQ(rig.calls(Call::clear) + rig.calls(Call::trim), 0U);
  rig.finish(a);
  rig.finish(b);
  EXPECT_EQ(rig.cache.stats().idle_sequences, 2U);
}

TEST(SequenceAdmission, OneSequenceIsTheLeastAnEngineHas) {
  SequenceRig rig(with_sequences(1));
  EXPECT_EQ(rig.cache.stats().sequences, 1U);
  EXPECT_EQ(rig.chat(tokens(40)).reused_tokens, 0U);
  EXPECT_EQ(rig.chat(tokens(40) + tokens(5, 2)).reused_tokens, 40U);
  EXPECT_EQ(rig.cache.sequence(SequenceId{1}).state, SequenceState::free) << "there is none";
  EXPECT_EQ(rig.cache.sequence(SequenceId{1}).length, 0U);
}

TEST(SequenceAdmission, SequencesThatAreNotEmptyAtFirstAreClearedBeforeUse) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    FakeSequences engine(kind.options);
    ok(engine.compute(SequenceId{0}, tokens(30, 9).tokens));
    SequenceCache cache = ok(SequenceCache::create(engine, small_cache()));
    const Scope scope = scope_of({.model = "a model"});
    const Text text = tokens(30, 9) + tokens(10);
    Turn turn = ok(cache.begin(scope, text));
    EXPECT_EQ(turn.sequence(), SequenceId{0});
    EXPECT_EQ(ok(turn.execute()), 0U) << "nobody knows what it held";
    ok(engine.compute(turn.sequence(), text.tokens));
    EXPECT_EQ(engine.right(turn.sequence(), text.tokens), "");
    ok(turn.computed(text.size()));
    ok(turn.finish());
    cache.check_invariants();
  }
}

TEST(SequenceAdmission, NextTurnOfASessionGoesOnInItsSequence) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text said = rig.talk(tokens(60, 1), tokens(4, 2), {.session = "a"});
    const SessionInfo before = rig.cache.session("a");
    EXPECT_TRUE(before.known && before.resident);
    EXPECT_FALSE(before.in_flight);
    EXPECT_EQ(before.length, 64U);
    const uint64_t generation = rig.cache.sequence(before.sequence).generation;
    const uint64_t moved = rig.calls(Call::clear) + rig.calls(Call::copy) + rig.calls(Call::load);

    Request next = rig.begin(said + tokens(10, 3), {.session = "a"});
    EXPECT_EQ(next.turn.sequence(), before.sequence);
    EXPECT_EQ(next.turn.generation(), generation);
    EXPECT_TRUE(rig.cache.session("a").in_flight);
    const SequenceReport report = rig.run(next);
    EXPECT_EQ(report.reused_tokens, 64U);
    EXPECT_EQ(report.steps[static_cast<uint32_t>(Step::stay)], 64U);
    EXPECT_EQ(report.outcome, Outcome::partial_hit);
    EXPECT_EQ(rig.calls(Call::clear) + rig.calls(Call::copy) + rig.calls(Call::load), moved);
    rig.finish(next);
    EXPECT_EQ(rig.cache.session("a").turns, 2U);
    EXPECT_EQ(rig.cache.session("a").length, 74U);
  }
}

TEST(SequenceAdmission, OneSequenceServesSessionsInTurnAndGenerationsTell) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  SequenceRig rig(with_sequences(1), options);
  rig.chat(tokens(40, 1), {.session = "a"});
  const uint64_t first = rig.info(0).generation;

  Request b = rig.begin(tokens(40, 2), {.session = "b"});
  EXPECT_EQ(b.turn.sequence(), SequenceId{0});
  EXPECT_EQ(rig.run(b).reused_tokens, 0U);
  EXPECT_EQ(b.turn.report().victims, 1U);
  EXPECT_GT(b.turn.generation(), first);
  const uint64_t second = b.turn.generation();
  rig.finish(b);
  EXPECT_FALSE(rig.cache.session("a").resident);

  Request a = rig.begin(tokens(40, 1), {.session = "a"});
  EXPECT_EQ(rig.run(a).reused_tokens, 0U);
  EXPECT_GT(a.turn.generation(), second);
  rig.finish(a);
  EXPECT_TRUE(rig.cache.session("a").resident);
  EXPECT_FALSE(rig.cache.session("b").resident);
}

TEST(SequenceAdmission, SessionOutlivesItsSequence) {
  SequenceRig rig(with_sequences(1));
  rig.chat(tokens(40, 1), {.session = "a"});
  rig.clock.advance_ns(1000);
  rig.chat(tokens(50, 2), {.session = "b"});
  const SessionInfo a = rig.cache.session("a");
  EXPECT_TRUE(a.known);
  EXPECT_FALSE(a.resident);
  EXPECT_EQ(a.turns, 1U);
  EXPECT_EQ(a.length, 40U);
  EXPECT_GT(a.last_used_ns, 0U);
  EXPECT_LT(a.last_used_ns, rig.cache.session("b").last_used_ns);
  EXPECT_FALSE(rig.cache.session("c").known);
  EXPECT_EQ(rig.cache.stats().sessions, 2U);
}

TEST(SequenceAdmission, MoreSessionsThanSequencesAreRemembered) {
  SequenceRig rig(with_sequences(2));
  for (int i = 0; i < 20; ++i) {
    rig.chat(tokens(40, 1 + i), {.session = "session " + std::to_string(i)});
  }
  EXPECT_EQ(rig.cache.stats().sessions, 20U);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(rig.cache.session("session " + std::to_string(i)).resident, i >= 18) << i;
  }
}

TEST(SequenceAdmission, SessionUnusedLongestIsForgottenWhenThereAreTooMany) {
  SequenceOptions options = small_cache();
  options.sessions = 2;
  SequenceRig rig(full_engine(), options);
  rig.chat(tokens(40, 1), {.session = "a"});
  rig.clock.advance_ns(10);
  rig.chat(tokens(40, 2), {.session = "b"});
  rig.clock.advance_ns(10);
  rig.chat(tokens(40, 1) + tokens(1, 3), {.session = "a"});
  rig.clock.advance_ns(10);
  rig.chat(tokens(40, 4), {.session = "c"});
  EXPECT_TRUE(rig.cache.session("a").known);
  EXPECT_FALSE(rig.cache.session("b").known);
  EXPECT_TRUE(rig.cache.session("c").known);
  EXPECT_EQ(rig.cache.stats().sessions, 2U);
  EXPECT_EQ(rig.kept(tokens(40, 2)), 40U) << "its words are found all the same";
}

TEST(SequenceAdmission, LeastRecentlyUsedIdleSequenceGoesFirst) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  SequenceRig rig(with_sequences(3), options);
  for (uint32_t i = 1; i <= 3; ++i) {
    rig.chat(tokens(40, i), {.session = "session " + std::to_string(i)});
    rig.clock.advance_ns(10);
  }
  rig.chat(tokens(40, 1) + tokens(1, 7), {.session = "session 1"});
  rig.clock.advance_ns(10);
  Request fourth = rig.begin(tokens(40, 4), {.session = "session 4"});
  rig.run(fourth);
  EXPECT_EQ(fourth.turn.report().victims, 1U);
  EXPECT_TRUE(rig.cache.session("session 1").resident) << "used again since";
  EXPECT_FALSE(rig.cache.session("session 2").resident);
  EXPECT_TRUE(rig.cache.session("session 3").resident);
  rig.finish(fourth);
}

TEST(SequenceAdmission, FreeSequenceIsTakenBeforeAnIdleOne) {
  SequenceRig rig(with_sequences(3));
  rig.chat(tokens(40, 1), {.session = "a"});
  Request b = rig.begin(tokens(40, 2), {.session = "b"});
  Request c = rig.begin(tokens(40, 3), {.session = "c"});
  rig.run(b);
  rig.run(c);
  EXPECT_EQ(b.turn.report().victims + c.turn.report().victims, 0U);
  EXPECT_TRUE(rig.cache.session("a").resident);
  rig.abandon(b);
  rig.finish(c);
  rig.chat(tokens(40, 4));
  EXPECT_EQ(rig.cache.stats().victims, 0U) << "the abandoned one's is free again";
}

TEST(SequenceAdmission, RunningSequencesAreNeverTaken) {
  SequenceRig rig(with_sequences(2));
  Request a = rig.begin(tokens(40, 1), {.session = "a"});
  rig.run(a);
  Request b = rig.begin(tokens(40, 2));
  rig.run(b);
  EXPECT_FALSE(rig.cache.can_admit());
  EXPECT_FALSE(rig.cache.can_admit("c"));
  EXPECT_EQ(code(rig.try_begin(tokens(40, 3), {.session = "c"})), Errc::busy);
  EXPECT_FALSE(rig.cache.session("c").in_flight);
  rig.finish(b);
  EXPECT_TRUE(rig.cache.can_admit("c"));
  rig.chat(tokens(40, 3), {.session = "c"});
  rig.answer(a, tokens(10, 5));
  rig.finish(a);
}

TEST(SequenceAdmission, SessionThatIsUnderWayIsNotAdmittedAgain) {
  SequenceRig rig;
  Request first = rig.begin(tokens(40, 1), {.session = "a"});
  rig.run(first);
  EXPECT_FALSE(rig.cache.can_admit("a"));
  EXPECT_TRUE(rig.cache.can_admit("b"));
  EXPECT_TRUE(rig.cache.can_admit());
  EXPECT_EQ(code(rig.try_begin(tokens(40, 1), {.session = "a"})), Errc::busy);
  EXPECT_EQ(rig.cache.stats().leased_sequences, 1U);
  rig.finish(first);
  EXPECT_TRUE(rig.cache.can_admit("a"));
}

TEST(SequenceAdmission, SessionMayHaveSeveralTurnsWhenItSaysSo) {
  SequenceRig rig;
  Request first = rig.begin(tokens(40, 1), {.session = "a", .exclusive = false});
  rig.run(first);
  Request second = rig.begin(tokens(40, 1) + tokens(3, 2), {.session = "a", .exclusive = false});
  EXPECT_NE(second.turn.sequence(), first.turn.sequence());
  rig.run(second);
  rig.finish(first);
  EXPECT_TRUE(rig.cache.session("a").in_flight) << "the second still runs";
  rig.finish(second);
  const SessionInfo a = rig.cache.session("a");
  EXPECT_FALSE(a.in_flight);
  EXPECT_EQ(a.turns, 2U);
  EXPECT_TRUE(a.resident);
}

TEST(SequenceAdmission, RequestsWithoutANameAreNeverInEachOthersWay) {
  SequenceRig rig;
  Request first = rig.begin(tokens(40, 1));
  Request second = rig.begin(tokens(40, 1));
  rig.run(first);
  rig.run(second);
  rig.finish(first);
  rig.finish(second);
  EXPECT_EQ(rig.cache.stats().sessions, 0U);
}

TEST(SequenceAdmission, AbandonedRequestKeepsNoResidency) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request a = rig.begin(tokens(40, 1), {.session = "a"});
    rig.run(a);
    const uint64_t generation = a.turn.generation();
    rig.abandon(a);
    EXPECT_FALSE(rig.cache.session("a").resident);
    EXPECT_FALSE(rig.cache.session("a").in_flight);
    EXPECT_GT(rig.info(0).generation, generation);
    EXPECT_TRUE(rig.cache.can_admit("a"));
    EXPECT_EQ(rig.engine.used_tokens(), 0U);
  }
}

TEST(SequenceAdmission, AbandonedTurnLeavesItsSessionWhatItFound) {
  SequenceRig rig;
  rig.chat(tokens(60, 1), {.session = "a"});
  Request next = rig.begin(tokens(60, 1) + tokens(9, 2), {.session = "a"});
  rig.run(next);
  rig.abandon(next);
  EXPECT_EQ(rig.info(0).length, 60U);
  EXPECT_TRUE(rig.cache.session("a").resident) << "its sequence holds what it left";
  Request never = rig.begin(tokens(60, 1) + tokens(9, 3), {.session = "a"});
  rig.abandon(never);
  EXPECT_TRUE(rig.cache.session("a").resident);
  EXPECT_EQ(rig.chat(tokens(60, 1) + tokens(9, 4), {.session = "a"}).reused_tokens, 60U);
}

TEST(SequenceAdmission, TurnThatIsDroppedIsAbandoned) {
  SequenceRig rig;
  {
    Request a = rig.begin(tokens(40, 1), {.session = "a"});
    rig.run(a);
  }
  EXPECT_EQ(rig.info(0).state, SequenceState::free);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_EQ(rig.kept(tokens(40, 1)), 0U);
  {
    Request b = rig.begin(tokens(40, 2));
    Turn moved = std::move(b.turn);
    EXPECT_FALSE(b.turn.active());  // NOLINT: that is the point.
  }
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U) << "never executed, and given back";
}

TEST(SequenceAdmission, BypassStartsEmptyAndKeepsNothing) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(tokens(60, 1), {.session = "a"});
    rig.drain();
    Request request = rig.begin(tokens(60, 1) + tokens(5, 2), {.session = "a", .bypass = true});
    const SequenceReport report = rig.run(request);
    EXPECT_EQ(report.reused_tokens, 0U) << "whatever the words are";
    EXPECT_EQ(report.outcome, Outcome::bypassed);
    EXPECT_EQ(report.reason, SequenceMiss::bypassed);
    const SequenceId sequence = request.turn.sequence();
    rig.finish(request);
    EXPECT_EQ(rig.cache.sequence(sequence).state, SequenceState::free);
    rig.drain();
    EXPECT_LE(rig.kept(tokens(60, 1) + tokens(5, 2)), 60U);
  }
}

TEST(SequenceAdmission, EqualOperationsGiveEqualDecisions) {
  const auto story = [](SequenceRig& rig) {
    std::string log;
    for (uint32_t i = 0; i < 40; ++i) {
      const std::string name = "session " + std::to_string(i * 7 % 6);
      const Text text = tokens(40 + i % 9, 1 + i % 3) + tokens(10 + i % 20, 10 + i % 5);
      Request request = rig.begin(text, {.session = name});
      const SequenceReport report = rig.run(request);
      log += std::to_string(to_index(request.turn.sequence())) + ":" +
             std::to_string(report.reused_tokens) + ":" + std::to_string(report.victims) + " ";
      rig.finish(request);
      if (i % 3 == 0) rig.drain({.items = 2});
      rig.clock.advance_ns(100);
    }
    return log;
  };
  for (const EngineKind& kind : every_engine()) {
    SequenceRig first(kind.options);
    SequenceRig second(kind.options);
    EXPECT_EQ(story(first), story(second)) << kind.name;
  }
}

TEST(SequenceAdmission, NobodyIsEmptiedForRoomThatCannotBeHad) {
  SequenceRig rig;
  rig.chat(tokens(100, 1));
  rig.chat(tokens(100, 2));
  Request request = rig.begin(tokens(100, 3));
  rig.run(request);
  for (const uint32_t more : {0xFFFF'FFFFU, 2000U, 925U}) {
    EXPECT_EQ(code(request.turn.reserve(more)), Errc::out_of_blocks) << more;
    EXPECT_EQ(rig.cache.stats().idle_sequences, 2U) << more;
  }
  ok(request.turn.reserve(924));
  EXPECT_EQ(rig.cache.stats().idle_sequences, 0U);
  rig.finish(request);
}

// Cells that a plan will share count once while the source holds them, and in full once it does
// not.
TEST(SequenceAdmission, RoomOfAPlanThatSharesIsNotGivenAway) {
  const Text third = tokens(200, 3);
  for (const Text& text : {third, tokens(10, 1) + third.first(190)}) {
    EngineOptions engine = full_engine();
    engine.context_tokens = 300;
    SequenceRig rig(engine);
    rig.chat(tokens(140, 1), {.session = "a"});
    Request shares = rig.begin(tokens(100, 1) + tokens(10, 2), {.reserve_tokens = 40});
    EXPECT_EQ(shares.turn.report().steps[static_cast<uint32_t>(Step::fork)], 100U);
    // It would replace the shared contents, or those of the conversation itself.
    EXPECT_EQ(code(rig.try_begin(text, {.session = "a"})), Errc::out_of_blocks);
    EXPECT_EQ(rig.execute(shares), 100U);
    rig.compute(shares);
    rig.answer(shares, tokens(40, 4));
    rig.finish(shares);
    rig.chat(text, {.session = "a"});
  }
}

// A turn that was to drop a sequence's contents gives it back instead. Turns that were promised
// that room still get it.
TEST(SequenceAdmission, PromisedRoomIsThereWhenAnotherTurnIsGivenBack) {
  for (const bool finished : {false, true}) {
    for (const uint32_t length : {100U, 150U}) {
      EngineOptions engine = full_engine();
      engine.sequences = 2;
      engine.context_tokens = 300;
      SequenceRig rig(engine);
      rig.chat(tokens(200, 1));
      Request first = rig.begin(tokens(length, 2));
      Request second = rig.begin(tokens(80, 3));
      EXPECT_EQ(second.turn.sequence(), SequenceId{0}) << "in the place of what is idle";
      rig.execute(first);
      if (finished) {
        rig.finish(second);
      } else {
        rig.abandon(second);
      }
      EXPECT_EQ(rig.cache.stats().idle_sequences, length == 100 ? 1U : 0U) << "if need be";
      rig.compute(first);
      rig.finish(first);
      EXPECT_EQ(rig.kept(tokens(200, 1)), 200U) << "or it was saved";
    }
  }
}

TEST(SequenceAdmission, PlansThatShareALeasedSequenceAreAdmittedTogether) {
  EngineOptions engine = full_engine();
  engine.context_tokens = 300;
  SequenceRig rig(engine);
  Request first = rig.begin(tokens(200, 1));
  rig.run(first);
  std::vector<Request> others;
  for (uint32_t i = 0; i < 3; ++i) others.push_back(rig.begin(tokens(200, 1) + tokens(30, 10 + i)));
  for (Request& other : others) EXPECT_EQ(rig.run(other).reused_tokens, 200U);
  for (Request& other : others) rig.finish(other);
  rig.finish(first);
}

// When a segment begins inside the kept part, the overlap exists twice for a moment.
TEST(SequenceAdmission, NoPlanLoadsWhatFindsNoRoom) {
  for (const Fork fork : {Fork::shared, Fork::copy, Fork::restore}) {
    for (const bool crowded : {false, true}) {
      SCOPED_TRACE(std::string(crowded ? "crowded, " : "") +
                   std::to_string(static_cast<int>(fork)));
      EngineOptions engine = full_engine();
      engine.fork = fork;
      engine.context_tokens = 200;
      SequenceRig rig(engine);
      rig.chat(tokens(120, 1), {.session = "a"});
      rig.drain();
      // 90 of the words stay in place; they end inside the second segment.
      rig.chat(tokens(90, 1) + tokens(5, 2), {.session = "a", .keep = false});
      Request other = rig.begin(tokens(crowded ? 70 : 10, 3));
      rig.run(other);
      Request request = rig.begin(tokens(120, 1) + tokens(1, 4), {.session = "a"});
      EXPECT_EQ(request.turn.report().steps[static_cast<uint32_t>(Step::stay)], crowded ? 0U : 90U);
      const SequenceReport report = rig.run(request);
      EXPECT_EQ(report.failures, 0U);
      EXPECT_EQ(report.reused_tokens, 120U) << "from its beginning, if need be";
      rig.finish(request);
      rig.finish(other);
    }
  }
}

TEST(SequenceAdmission, WhatFindsNoRoomHidesNothingThatDoes) {
  for (const Fork fork : {Fork::shared, Fork::copy}) {
    EngineOptions engine = full_engine();
    engine.fork = fork;
    engine.context_tokens = fork == Fork::shared ? 150 : 200;
    SequenceRig rig(engine);
    const Text text = tokens(64, 1) + tokens(25, 2);
    rig.chat(text);
    rig.take_all_sequences();
    Request other = rig.begin(tokens(100, 1));
    rig.run(other);
    // Its segments need more room than is left; the words of the first one are in a sequence.
    EXPECT_EQ(rig.hit(text), 64U);
    Request request = rig.begin(text);
    EXPECT_EQ(rig.run(request).steps[static_cast<uint32_t>(Step::fork)], 64U);
    EXPECT_EQ(request.turn.report().failures, 0U);
    rig.finish(request);
    rig.finish(other);
  }
}

// Repeated attempts must not wear out what is saved.
TEST(SequenceAdmission, NothingSavedGoesForARequestThatFindsNoSequence) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  SequenceOptions options = small_cache();
  options.saved_bytes = 40'000;
  SequenceRig rig(engine, options);
  for (uint32_t i = 1; i <= 12; ++i) {
    rig.chat(tokens(256, i));
    rig.drain();
  }
  Request running = rig.begin(tokens(20, 50));
  rig.run(running);
  const std::string before = rig.books();
  const uint64_t evictions = rig.cache.stats().segment_evictions;
  EXPECT_GT(evictions, 0U);
  EXPECT_EQ(code(rig.try_begin(tokens(250, 12) + tokens(9, 60))), Errc::busy)
      << "though a part of a segment would serve it";
  EXPECT_EQ(rig.cache.stats().segment_evictions, evictions);
  EXPECT_EQ(rig.books(), before);
  rig.finish(running);
}

TEST(SequenceAdmission, ThereMayBeAnyNumberOfTenants) {
  SequenceOptions options = small_cache();
  options.logits_bytes = 100'000;
  options.quotas = {{TenantId{7}, 1U << 20U}};
  for (const EngineOptions& engine : {full_engine(), hybrid_engine(), full_state_engine()}) {
    SequenceRig rig(engine, options);
    for (uint32_t i = 1; i <= 300; ++i) {
      const Scope own = scope_of({.model = "a model " + std::to_string(i)});
      Request request = ok(rig.try_begin(own, tokens(50, 1), {.tenant = TenantId{i}}));
      rig.run(request);
      ok(request.turn.attach_logits(50, std::vector<float>(50)));
      rig.finish(request);
      rig.drain();
    }
    EXPECT_GE(rig.fate(CaptureFate::saved), 300U);
  }
}

}  // namespace
}  // namespace stemma::test
