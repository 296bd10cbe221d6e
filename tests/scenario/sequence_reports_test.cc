// The reports and statistics of a SequenceCache are true and add up.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/log.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

using Kind = SequenceContent::Kind;

TEST(SequenceReports, EnumerationsHaveNames) {
  std::set<std::string> names;
  for (uint32_t i = 0; i < kStepCount; ++i) names.insert(to_string(static_cast<Step>(i)));
  EXPECT_EQ(names.size(), kStepCount);
  names.clear();
  for (uint32_t i = 0; i < kSequenceMissCount; ++i) {
    names.insert(to_string(static_cast<SequenceMiss>(i)));
  }
  EXPECT_EQ(names.size(), kSequenceMissCount);
  names.clear();
  for (uint32_t i = 0; i < kCaptureFateCount; ++i) {
    names.insert(to_string(static_cast<CaptureFate>(i)));
  }
  EXPECT_EQ(names.size(), kCaptureFateCount);
  EXPECT_EQ(std::string(to_string(Step::checkpoint)), "checkpoint");
  EXPECT_EQ(std::string(to_string(SequenceMiss::not_worth)), "not_worth");
  EXPECT_EQ(std::string(to_string(CaptureFate::too_large)), "too_large");
  EXPECT_NE(std::string(to_string(static_cast<Step>(200))), "") << "no enumerator, no crash";
}

TEST(SequenceReports, EveryTurnFallsInExactlyOneClass) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    std::vector<SequenceReport> reports;
    reports.push_back(rig.chat(kText, {.session = "a"}));
    reports.push_back(rig.chat(kText, {.session = "a"}));
    reports.push_back(rig.chat(kText + tokens(30, 2), {.session = "a"}));
    reports.push_back(rig.chat(kText.first(60) + tokens(30, 3), {.session = "b"}));
    reports.push_back(rig.chat(kText.first(1)));
    reports.push_back(rig.chat(kText, {.bypass = true}));
    reports.push_back(rig.chat(kText + tokens(30, 2), {.reuse = Reuse::disabled}));
    reports.push_back(rig.chat(kText + tokens(30, 2), {.at_most = 9}));
    Request abandoned = rig.begin(kText + tokens(40, 4));
    reports.push_back(rig.run(abandoned));
    rig.abandon(abandoned);
    const SequenceStats stats = rig.cache.stats();
    SequenceStats expected;
    for (const SequenceReport& report : reports) {
      ++expected.turns;
      ++expected.outcomes[static_cast<uint32_t>(report.outcome)];
      ++expected.reasons[static_cast<uint32_t>(report.reason)];
      expected.prompt_tokens += report.prompt_tokens;
      expected.reused_tokens += report.reused_tokens;
      expected.evaluated_tokens += report.evaluated_tokens;
      expected.restored_bytes += report.restored_bytes;
      expected.victims += report.victims;
      for (uint32_t s = 0; s < kStepCount; ++s) {
        expected.steps[s] += report.steps[s] > 0 ? 1 : 0;
        expected.step_tokens[s] += report.steps[s];
      }
    }
    EXPECT_EQ(stats.turns, expected.turns);
    EXPECT_EQ(stats.outcomes, expected.outcomes);
    EXPECT_EQ(stats.reasons, expected.reasons);
    EXPECT_EQ(stats.prompt_tokens, expected.prompt_tokens);
    EXPECT_EQ(stats.reused_tokens, expected.reused_tokens);
    EXPECT_EQ(stats.evaluated_tokens, expected.evaluated_tokens);
    EXPECT_EQ(stats.restored_bytes, expected.restored_bytes);
    EXPECT_EQ(stats.victims, expected.victims);
    EXPECT_EQ(stats.steps, expected.steps);
    EXPECT_EQ(stats.step_tokens, expected.step_tokens);
    EXPECT_DOUBLE_EQ(stats.hit_ratio(), static_cast<double>(expected.reused_tokens) /
                                            static_cast<double>(expected.prompt_tokens));
    EXPECT_EQ(std::ranges::count_if(stats.failures, [](uint64_t n) { return n > 0; }), 0);
  }
}

TEST(SequenceReports, NothingIsCountedBeforeTheRequestHasRun) {
  SequenceRig rig;
  rig.chat(kText);
  const SequenceStats before = rig.cache.stats();
  Request request = rig.begin(kText + tokens(9, 2));
  EXPECT_EQ(rig.cache.stats().turns, before.turns);
  EXPECT_EQ(rig.cache.stats().reused_tokens, before.reused_tokens);
  EXPECT_EQ(request.turn.report().reused_tokens, 100U) << "the plan";
  rig.run(request);
  rig.finish(request);
  EXPECT_EQ(rig.cache.stats().turns, before.turns + 1);
  EXPECT_EQ(rig.cache.stats().reused_tokens, before.reused_tokens + 100);
}

TEST(SequenceReports, LookupSaysWhatBeginWouldPlanAndTakesNothing) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const uint32_t ends[] = {60};
    rig.chat(kText, {.session = "a", .message_ends = ends});
    rig.drain();
    for (const Text& text : {kText, kText + tokens(9, 2), kText.first(60) + tokens(9, 3),
                             kText.first(37) + tokens(20, 4), tokens(50, 5)}) {
      const std::string books = rig.books();
      const uint64_t calls = rig.calls();
      const SequenceReport looked = rig.look(text, {.session = "b"});
      EXPECT_EQ(rig.calls(), calls);
      EXPECT_EQ(rig.books(), books);
      Request request = rig.begin(text, {.session = "b"});
      const SequenceReport planned = request.turn.report();
      EXPECT_EQ(looked.reused_tokens, planned.reused_tokens);
      EXPECT_EQ(looked.matched_tokens, planned.matched_tokens);
      EXPECT_EQ(looked.steps, planned.steps);
      EXPECT_EQ(looked.outcome, planned.outcome);
      EXPECT_EQ(looked.reason, planned.reason);
      rig.execute(request);
      EXPECT_EQ(request.turn.report().reused_tokens, planned.reused_tokens);
      EXPECT_EQ(request.turn.report().steps, planned.steps);
      EXPECT_EQ(request.turn.report().reason, planned.reason);
      rig.abandon(request);
    }
  }
}

TEST(SequenceReports, LookupAndBeginAgreeAboutTenants) {
  SequenceRig rig;
  rig.chat(kText, {.tenant = TenantId{1}});
  rig.take_all_sequences();
  const TurnOptions options{.tenant = TenantId{2}};
  const Result<SequenceReport> looked = rig.cache.lookup(rig.scope, kText, options);
  Result<Turn> turn = rig.cache.begin(rig.scope, kText, options);
  ASSERT_EQ(code(looked), code(turn));
  if (!turn) return;
  EXPECT_EQ(turn->report().reused_tokens, looked->reused_tokens);
}

TEST(SequenceReports, TimesAreTheClocks) {
  SequenceRig rig;
  rig.chat(kText);
  rig.take_all_sequences();
  const uint64_t before = rig.engine.elapsed_ns();
  Request request = rig.begin(kText);
  rig.execute(request);
  EXPECT_EQ(request.turn.report().execute_ns, rig.engine.elapsed_ns() - before);
  EXPECT_GT(request.turn.report().execute_ns, 0U);
  rig.abandon(request);
}

TEST(SequenceReports, ContentsAreWhatCanBeReused) {
  SequenceOptions options = small_cache();
  options.logits_bytes = 10'000;
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, options);
    EXPECT_TRUE(ok(rig.cache.contents()).empty());
    Request idle = rig.begin(kText);
    rig.run(idle);
    ok(idle.turn.attach_logits(100, std::vector<float>(10)));
    rig.finish(idle);
    Request running = rig.begin(tokens(40, 2));
    rig.run(running);
    rig.drain();
    uint64_t bytes = 0;
    std::vector<uint32_t> live;
    for (const SequenceContent& content : ok(rig.cache.contents())) {
      EXPECT_EQ(content.scope, rig.scope);
      EXPECT_GT(content.depth, 0U);
      EXPECT_EQ(content.bytes == 0, content.kind == Kind::live);
      if (content.kind != Kind::live) {
        bytes += content.bytes;
        continue;
      }
      live.push_back(content.depth);
      EXPECT_EQ(content.leased, content.sequence == running.turn.sequence());
      EXPECT_EQ(content.depth, rig.cache.sequence(content.sequence).length);
    }
    std::ranges::sort(live);
    EXPECT_EQ(live, (std::vector<uint32_t>{40, 100}));
    EXPECT_EQ(rig.depths(Kind::logits), std::vector<uint32_t>{100});
    EXPECT_EQ(rig.depths(Kind::segment_path).empty(), !kind.options.segments);
    const bool whole = kind.saves() && !kind.options.segments;
    EXPECT_EQ(rig.depths(Kind::state).empty() && rig.depths(Kind::checkpoint).empty(),
              !whole && !kind.options.checkpoints);
    const SequenceStats stats = rig.cache.stats();
    EXPECT_LE(bytes, stats.saved_bytes + stats.logits_bytes);
    EXPECT_GE(bytes, kind.saves() ? 1U : 0U);
    rig.finish(running);
  }
}

TEST(SequenceReports, ReasonSaysWhatStoodInTheWay) {
  SequenceRig rig(hybrid_engine());
  EXPECT_EQ(rig.look(kText).reason, SequenceMiss::unknown_scope);
  rig.chat(kText);
  EXPECT_EQ(rig.look(tokens(50, 2)).reason, SequenceMiss::first_use);
  EXPECT_EQ(rig.look(kText.first(50) + tokens(9, 2)).reason, SequenceMiss::no_rewind);
  EXPECT_EQ(rig.look(kText.first(1)).reason, SequenceMiss::too_short);
  EXPECT_EQ(rig.look(kText, {.bypass = true}).reason, SequenceMiss::bypassed);
  EXPECT_EQ(rig.look(kText).reason, SequenceMiss::none);
  EXPECT_EQ(rig.look(kText).outcome, Outcome::full_hit);
  EXPECT_EQ(rig.look(kText + tokens(9, 2)).reason, SequenceMiss::first_use);
  EXPECT_EQ(rig.look(kText + tokens(9, 2)).outcome, Outcome::partial_hit);
}

TEST(SequenceReports, SequenceThatCannotBeCopiedSaysSo) {
  SequenceRig rig(live_engine());
  Request running = rig.begin(kText);
  rig.run(running);
  const SequenceReport report = rig.chat(kText + tokens(9, 2));
  EXPECT_EQ(report.reused_tokens, 0U);
  EXPECT_EQ(report.matched_tokens, 100U);
  EXPECT_EQ(report.reason, SequenceMiss::not_saved);
  rig.finish(running);
}

TEST(SequenceReports, SavedBytesAddUp) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    for (uint32_t i = 1; i <= 4; ++i) rig.chat(tokens(100, i));
    rig.drain();
    const SequenceStats stats = rig.cache.stats();
    EXPECT_EQ(stats.saved_bytes, stats.segment_bytes + stats.state_bytes + stats.checkpoint_bytes);
    EXPECT_GT(stats.saved_bytes, 0U);
    EXPECT_GT(stats.index_bytes, 0U);
  }
}

TEST(SequenceReports, UsedPositionsAreTheEngines) {
  SequenceRig rig;
  rig.chat(kText, {.session = "a"});
  rig.chat(tokens(60, 2), {.session = "b"});
  rig.chat(kText + tokens(9, 3), {.session = "c"});
  EXPECT_EQ(rig.cache.stats().used_tokens, rig.engine.used_tokens());
}

// ---- Warming ------------------------------------------------------------------------------------

TEST(SequenceReports, WarmedPrefixIsThereForEverybody) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const SequenceRig::Warmed first = rig.warm(kText);
    const SequenceReport report = ok(Result<SequenceReport>(first.report));
    EXPECT_EQ(report.evaluated_tokens, 100U);
    EXPECT_GE(first.batches, 1U);
    EXPECT_EQ(first.first, 0U);
    EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
    EXPECT_EQ(rig.kept(kText), 100U);
    rig.renew_context();
    EXPECT_EQ(rig.kept(kText), kind.saves() ? 100U : 0U) << "it is saved at once";
    if (!kind.saves()) continue;
    EXPECT_EQ(rig.warm(kText).batches, 0U) << "it is there";
    EXPECT_EQ(rig.chat(kText + tokens(20, 2)).reused_tokens, 100U);
  }
}

TEST(SequenceReports, WarmingGoesOnWhereWhatIsKnownEnds) {
  SequenceRig rig;
  rig.chat(kText.first(60));
  const SequenceRig::Warmed warmed = rig.warm(kText);
  EXPECT_EQ(warmed.first, 60U);
  EXPECT_EQ(ok(Result<SequenceReport>(warmed.report)).reused_tokens, 60U);
}

// A user of sequences knows no groups and no blocks.
TEST(SequenceReports, WhatACacheIsMadeOfIsNotLogged) {
  static uint32_t lines;
  lines = 0;
  set_log_handler([](LogLevel, std::string_view, void*) { ++lines; }, nullptr);
  for (const EngineKind& kind : every_engine()) SequenceRig rig(kind.options);
  set_log_handler(nullptr, nullptr);
  EXPECT_EQ(lines, 0U);
}

TEST(SequenceReports, WarmingThatFailsLeavesNothing) {
  SequenceRig rig;
  rig.engine.faults.next(Call::compute, Fault::halfway);
  EXPECT_EQ(code(rig.warm(kText).report), Errc::copy_failed);
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
  EXPECT_EQ(rig.engine.used_tokens(), 0U);
  EXPECT_EQ(rig.kept(kText), 0U);
  EXPECT_EQ(code(rig.warm(tokens(5000, 2)).report), Errc::out_of_range) << "as begin()";
}

TEST(SequenceReports, WhatARewindLoadsIsCounted) {
  SequenceRig rig(hybrid_engine());
  const uint32_t ends[] = {70};
  Request request = rig.begin(tokens(100, 1), {.message_ends = ends});
  rig.run(request);
  ok(rig.try_rewind(request, 70));
  EXPECT_GT(request.turn.report().restored_bytes, 0U);
  EXPECT_EQ(rig.cache.stats().restored_bytes, request.turn.report().restored_bytes);
  rig.finish(request);
}

TEST(SequenceReports, CaptureIsSavedWhenItsCheckpointIs) {
  SequenceOptions options = small_cache();
  options.marks = 0;
  {
    SequenceRig rig(hybrid_engine(), options);
    rig.chat(tokens(200, 1));
    rig.take_all_sequences();
    rig.chat(tokens(128, 1));  // All of it is saved, except the state at its end.
    const uint64_t present = rig.fate(CaptureFate::present);
    const Drained drained = rig.drain();
    EXPECT_EQ(drained.items, 1U);
    EXPECT_EQ(drained.saved, 1U);
    EXPECT_GT(drained.bytes, 0U);
    EXPECT_EQ(rig.fate(CaptureFate::present), present);
  }
  options.checkpoint_share = 0;
  SequenceRig rig(hybrid_engine(), options);
  rig.chat(tokens(200, 1));
  EXPECT_EQ(rig.drain().saved, 0U) << "segments alone bring nothing back";
  EXPECT_EQ(rig.fate(CaptureFate::too_large), 1U);
}

}  // namespace
}  // namespace stemma::test
