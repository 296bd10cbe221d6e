// An engine's mistake costs reuse and nothing else: its sequence is emptied, the others are
// untouched, bad data is not tried again, and the answer is right. (The rig judges contents and
// neighbours after every step.)
#include <string>
#include <vector>

#include "stemma/log.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

constexpr Fault kEveryFault[] = {Fault::before, Fault::halfway, Fault::after, Fault::lie_nothing,
                                 Fault::lie_half};
const Text kText80 = tokens(80, 1);

uint64_t failures(const SequenceRig& rig, Step step) {
  return rig.cache.stats().failures[static_cast<uint32_t>(step)];
}

// Every clear from now on fails before it does anything.
void break_clear(SequenceRig& rig) {
  std::vector<PlannedFault> list;
  for (uint64_t n = 0; n < 40; ++n) list.push_back({Call::clear, n, Fault::before});
  rig.engine.faults = FaultSchedule(list);
}

TEST(SequenceFailures, FailedLoadIsNoHitAndHarmsNobody) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    for (const Fault fault : kEveryFault) {
      SCOPED_TRACE(std::string(kind.name) + ", " + to_string(fault));
      SequenceRig rig(kind.options);
      rig.chat(kText80);
      rig.take_all_sequences();
      rig.chat(tokens(40, 5), {.session = "idle"});
      Request running = rig.begin(tokens(40, 6));
      rig.run(running);
      rig.engine.faults.next(Call::load, fault);
      Request request = rig.begin(kText80 + tokens(9, 2));
      EXPECT_EQ(request.turn.report().reused_tokens, 80U) << "the plan";
      rig.run(request);
      const SequenceReport report = request.turn.report();
      EXPECT_EQ(report.failures, 1U);
      EXPECT_LT(report.reused_tokens, 80U);
      EXPECT_EQ(report.reason, SequenceMiss::failed);
      EXPECT_EQ(report.outcome, report.reused_tokens == 0 ? Outcome::miss : Outcome::partial_hit);
      EXPECT_EQ(rig.cache.stats().quarantined, 1U);
      rig.finish(request);
      rig.answer(running, tokens(9, 7));
      rig.finish(running);
      EXPECT_TRUE(rig.cache.session("idle").resident);
    }
  }
}

TEST(SequenceFailures, WhatWasBadIsNotTriedAgain) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText80);
    rig.take_all_sequences();
    rig.engine.faults.next(Call::load, Fault::before);
    rig.chat(kText80 + tokens(9, 2), {.keep = false});
    rig.take_all_sequences();
    const SequenceReport again = rig.chat(kText80 + tokens(9, 2), {.keep = false});
    EXPECT_EQ(again.failures, 0U);
    EXPECT_LT(again.reused_tokens, 80U) << "though it would work now";
    EXPECT_EQ(rig.cache.stats().quarantined, 1U);
    rig.chat(kText80 + tokens(9, 2));
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(kText80 + tokens(9, 2) + tokens(9, 3)).reused_tokens, 89U)
        << "computed and saved anew, it is as good as any";
  }
}

TEST(SequenceFailures, LogHandlerMayLookAtTheCache) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText80);
    rig.take_all_sequences();
    rig.engine.faults.next(Call::load, Fault::before);
    static uint64_t seen;
    seen = 0;
    set_log_handler(
        [](LogLevel, std::string_view, void* user) {
          seen += static_cast<const SequenceCache*>(user)->stats().quarantined;
        },
        &rig.cache);
    rig.chat(kText80 + tokens(9, 2));
    set_log_handler(nullptr, nullptr);
    EXPECT_EQ(seen, 1U);
  }
}

TEST(SequenceFailures, BytesThatWereSavedByHalfAreNeverServed) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    for (uint64_t nth = 0; nth < 4; ++nth) {
      for (const Fault fault : {Fault::lie_nothing, Fault::lie_half}) {
        SCOPED_TRACE(std::string(kind.name) + ", save " + std::to_string(nth));
        SequenceRig rig(kind.options);
        rig.engine.faults = FaultSchedule({{Call::save, nth, fault}});
        rig.chat(kText80 + tokens(80, 2));
        rig.take_all_sequences();
        rig.chat(kText80 + tokens(80, 2) + tokens(9, 3));  // The rig checks what it reuses.
        rig.take_all_sequences();
        rig.chat(kText80 + tokens(80, 2) + tokens(9, 4));
      }
    }
  }
}

TEST(SequenceFailures, EarlierCheckpointServesWhenTheLaterOneFails) {
  for (const EngineOptions& engine : {window_engine(), hybrid_engine(), bounded_engine()}) {
    SequenceRig rig(engine);
    const uint32_t ends[] = {40};
    rig.chat(kText80, {.message_ends = ends});
    rig.take_all_sequences();
    // Two segments, or one, and then the checkpoint.
    rig.engine.faults = FaultSchedule({{Call::load, 2, Fault::halfway}});
    const SequenceReport report = rig.chat(kText80 + tokens(9, 2));
    EXPECT_EQ(report.failures, 1U);
    EXPECT_EQ(failures(rig, Step::checkpoint), 1U);
    EXPECT_TRUE(report.reused_tokens == 40 || report.reused_tokens == 79) << report.reused_tokens;
    EXPECT_EQ(report.reason, SequenceMiss::failed);
  }
}

TEST(SequenceFailures, SavedPartsServeWhenACopyFails) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.copies() || !kind.options.segments) continue;
    for (const Fault fault : kEveryFault) {
      SCOPED_TRACE(std::string(kind.name) + ", " + to_string(fault));
      SequenceRig rig(kind.options);
      rig.chat(kText80, {.session = "a"});
      rig.drain();
      Request source = rig.begin(kText80 + tokens(2, 2), {.session = "a"});
      rig.run(source);
      rig.engine.faults.next(Call::copy, fault);
      Request request = rig.begin(kText80 + tokens(9, 3), {.session = "b"});
      ASSERT_EQ(request.turn.report().steps[static_cast<uint32_t>(Step::fork)], 80U);
      const SequenceReport report = rig.run(request);
      EXPECT_EQ(report.failures, 1U);
      // A copy that waits for its checkpoint cannot be inspected, so a lie is blamed on the
      // checkpoint.
      const bool lie = fault == Fault::lie_nothing || fault == Fault::lie_half;
      const bool seen = !lie || kind.options.rewind == Rewind::any;
      EXPECT_TRUE(!seen || failures(rig, Step::fork) == 1);
      EXPECT_GE(report.reused_tokens, seen ? 80U : 79U);
      EXPECT_TRUE(!seen || report.steps[static_cast<uint32_t>(Step::segments)] == 80);
      rig.finish(request);
      rig.answer(source, tokens(9, 4));
      rig.finish(source);
    }
  }
}

TEST(SequenceFailures, FailedTrimEmptiesTheSequence) {
  for (const bool saved : {false, true}) {
    for (const Fault fault : kEveryFault) {
      SCOPED_TRACE(to_string(fault));
      EngineOptions engine = full_engine();
      engine.sequences = 1;
      SequenceOptions options = small_cache();
      if (!saved) options.saved_bytes = 0;
      SequenceRig rig(engine, options);
      rig.chat(kText80, {.session = "a"});
      rig.drain();
      rig.engine.faults.next(Call::trim, fault);
      const SequenceReport report = rig.chat(kText80.first(70) + tokens(9, 2), {.session = "a"});
      EXPECT_EQ(report.failures, 1U);
      EXPECT_EQ(failures(rig, Step::trim), 1U);
      EXPECT_EQ(report.reused_tokens, saved ? 70U : 0U) << "what was saved is as good";
    }
  }
}

TEST(SequenceFailures, SequenceThatDoesNotHoldWhatItShouldIsNotReused) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceOptions options = small_cache();
    options.saved_bytes = 0;
    SequenceRig rig(kind.options, options);
    rig.chat(kText80, {.session = "a"});
    ok(rig.engine.clear(SequenceId{0}));  // Behind the cache's back.
    Request request = rig.begin(kText80 + tokens(9, 2), {.session = "a"});
    EXPECT_EQ(rig.execute(request), 0U);
    EXPECT_EQ(request.turn.report().reason, SequenceMiss::failed);
    rig.compute(request);
    rig.finish(request);
    for (const Fault lie : {Fault::lie_nothing, Fault::lie_half}) {
      rig.engine.faults.next(Call::held, lie);
      rig.chat(kText80 + tokens(9, 2) + tokens(9, 3), {.session = "a"});
    }
  }
}

TEST(SequenceFailures, FailedSaveCostsTheCaptureAndNothingElse) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    for (const Call call : {Call::size, Call::save}) {
      for (const Fault fault : {Fault::before, Fault::halfway, Fault::after}) {
        SCOPED_TRACE(std::string(kind.name) + ", " + to_string(call) + " " + to_string(fault));
        SequenceRig rig(kind.options);
        rig.chat(kText80, {.session = "a"});
        rig.engine.faults.next(call, fault);
        rig.drain();
        EXPECT_EQ(rig.cache.pending(), 0U) << "not tried again and again";
        EXPECT_GE(rig.cache.stats().captures[static_cast<uint32_t>(CaptureFate::failed)], 1U);
        EXPECT_EQ(rig.chat(kText80 + tokens(9, 2), {.session = "a"}).reused_tokens, 80U);
        rig.take_all_sequences();
        EXPECT_EQ(rig.kept(kText80 + tokens(9, 2)), 89U) << "the next one is saved";
      }
    }
  }
}

TEST(SequenceFailures, VictimThatCannotBeSavedGoesAllTheSame) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  SequenceRig rig(engine);
  rig.chat(kText80, {.session = "a"});
  rig.engine.faults.next(Call::save, Fault::halfway);
  const SequenceReport report = rig.chat(tokens(60, 2), {.session = "b"});
  EXPECT_EQ(report.victims, 1U);
  EXPECT_EQ(rig.cache.stats().victims_saved, 0U);
  EXPECT_EQ(rig.kept(kText80), 0U);
}

// ---- Sequences that cannot be cleared -----------------------------------------------------------

TEST(SequenceFailures, SequenceThatCannotBeClearedIsBrokenUntilItCan) {
  for (const EngineKind& kind : every_engine([](EngineOptions& o) { o.sequences = 2; })) {
    SCOPED_TRACE(kind.name);
    SequenceOptions options = small_cache();
    options.saved_bytes = 0;
    SequenceRig rig(kind.options, options);
    Request running = rig.begin(tokens(40, 6));
    rig.run(running);
    rig.chat(kText80, {.session = "a"});
    break_clear(rig);
    Request request = rig.begin(tokens(40, 7), {.session = "b"});
    EXPECT_FALSE(rig.try_execute(request));
    EXPECT_EQ(code(request.turn.computed(0)), Errc::wrong_state) << "it can only end";
    EXPECT_EQ(code(request.turn.execute()), Errc::wrong_state);
    static_cast<void>(request.turn.abandon());
    rig.check("a turn that could only end");
    EXPECT_EQ(rig.cache.stats().broken_sequences, 1U);
    EXPECT_GE(rig.cache.stats().broken, 1U);
    EXPECT_FALSE(rig.cache.session("a").resident);
    rig.answer(running, tokens(9, 8));

    rig.engine.faults = FaultSchedule();
    EXPECT_TRUE(rig.cache.can_admit("b"));
    rig.chat(tokens(40, 7), {.session = "b"});
    EXPECT_EQ(rig.cache.stats().broken_sequences, 0U);
    rig.finish(running);
  }
}

TEST(SequenceFailures, AbandonedSequenceThatCannotBeClearedIsNobodysUntilItCan) {
  for (const Fault fault : {Fault::before, Fault::halfway, Fault::lie_nothing, Fault::lie_half}) {
    SCOPED_TRACE(to_string(fault));
    SequenceRig rig;
    Request request = rig.begin(kText80, {.session = "a"});
    rig.run(request);
    std::vector<PlannedFault> list;
    for (uint64_t n = 0; n < 10; ++n) list.push_back({Call::clear, n, fault});
    rig.engine.faults = FaultSchedule(list);
    static_cast<void>(request.turn.abandon());
    rig.check("abandon");
    EXPECT_FALSE(request.turn.active());
    EXPECT_EQ(rig.info(0).state, SequenceState::broken);
    EXPECT_EQ(rig.kept(kText80), 0U);
    EXPECT_FALSE(rig.cache.session("a").in_flight);
    Request other = rig.begin(kText80);
    EXPECT_NE(other.turn.sequence(), SequenceId{0}) << "there are better ones";
    rig.run(other);
    rig.finish(other);
    rig.engine.faults = FaultSchedule();
  }
}

// ---- Running turns ------------------------------------------------------------------------------

TEST(SequenceFailures, FailedRewindLeavesAnEmptySequence) {
  for (const EngineKind& kind : every_engine()) {
    for (const Fault fault : kEveryFault) {
      SCOPED_TRACE(std::string(kind.name) + ", " + to_string(fault));
      SequenceRig rig(kind.options);
      rig.chat(tokens(40, 5), {.session = "idle"});
      Request request = rig.begin(kText80);
      rig.run(request);
      const bool exact = kind.options.rewind == Rewind::exact;
      if (exact && !kind.options.segments) continue;  // It cannot go back at all.
      rig.engine.faults.next(exact ? Call::load : Call::trim, fault);
      EXPECT_FALSE(rig.try_rewind(request, exact ? 79 : 76));
      EXPECT_EQ(rig.engine.right(request.turn.sequence(), {}), "");
      static_cast<void>(request.turn.abandon());
      rig.check("abandon");
      EXPECT_TRUE(rig.cache.session("idle").resident);
      rig.chat(kText80);
    }
  }
}

TEST(SequenceFailures, FailedShiftLeavesAnEmptySequence) {
  for (const Fault fault : kEveryFault) {
    SCOPED_TRACE(to_string(fault));
    EngineOptions engine = full_engine();
    engine.shift = true;
    SequenceRig rig(engine);
    Request request = rig.begin(kText80);
    rig.run(request);
    rig.engine.faults.next(Call::shift, fault);
    EXPECT_FALSE(rig.try_shift(request, 10, 20));
    EXPECT_EQ(rig.engine.right(request.turn.sequence(), {}), "");
    static_cast<void>(request.turn.finish());
    rig.check("finish");
    EXPECT_EQ(rig.kept(kText80), 0U);
  }
}

TEST(SequenceFailures, FailedForkLeavesItsSourceAndIsHonest) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.copies()) continue;
    for (const Fault fault : kEveryFault) {
      SCOPED_TRACE(std::string(kind.name) + ", " + to_string(fault));
      SequenceRig rig(kind.options);
      Request trunk = rig.begin(kText80);
      rig.run(trunk);
      rig.engine.faults.next(Call::copy, fault);
      Result<Request> branch = rig.try_fork(trunk);
      if (branch) {
        EXPECT_GE(branch->turn.report().failures, 1U);
        rig.compute(*branch);
        rig.answer(*branch, tokens(9, 2));
        rig.finish(*branch);
      }
      rig.answer(trunk, tokens(9, 3));
      rig.finish(trunk);
    }
  }
}

// The source of a fork is saved. Whole segments of it can be used, whatever happens to the rest.
TEST(SequenceFailures, SegmentsSavedBeforeASaveFailsServe) {
  EngineOptions engine = full_engine();
  engine.fork = Fork::restore;
  const Text text = tokens(200, 1);
  SequenceRig rig(engine);
  Request trunk = rig.begin(text);
  rig.run(trunk);
  rig.engine.faults = FaultSchedule({{Call::save, 1, Fault::before}});
  Request branch = ok(rig.try_fork(trunk));
  EXPECT_EQ(branch.turn.available(), 64U);
  EXPECT_EQ(rig.fate(CaptureFate::failed), 1U);
  EXPECT_EQ(rig.fate(CaptureFate::saved), 0U);
  rig.abandon(branch);
  rig.abandon(trunk);
  EXPECT_EQ(rig.hit(text), 64U) << "also those who come when both were given up";
}

}  // namespace
}  // namespace stemma::test
