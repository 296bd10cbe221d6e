// Saving sequences: when, at which depths, within which limits.
#include <algorithm>
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

using Kind = SequenceContent::Kind;

uint64_t evictions(const SequenceRig& rig) {
  return rig.cache.stats().segment_evictions + rig.cache.stats().state_evictions;
}

bool contains(const std::vector<uint32_t>& list, uint32_t value) {
  return std::ranges::find(list, value) != list.end();
}

// The depths at which a request stops for a capture, its end included.
std::vector<uint32_t> stops_of(const EngineOptions& engine, const SequenceOptions& options,
                               const TurnOptions& turn = {}, uint32_t count = 200) {
  SequenceRig rig(engine, options);
  rig.chat(tokens(count, 1), turn);
  return rig.stops;
}

TEST(SequenceCapture, DefaultsAreBytesAndBoundariesThatWillBeUsed) {
  const SequenceOptions options;
  EXPECT_EQ(options.saved_bytes, 256U << 20U);
  EXPECT_EQ(options.interval_tokens, 0U) << "the cache chooses";
  EXPECT_EQ(options.least_tokens, 32U);
  EXPECT_EQ(options.marks, 8U);
  EXPECT_EQ(options.reuse, Reuse::everything);
}

TEST(SequenceCapture, WhatRewindsFreelyNeedsNoStops) {
  const uint32_t ends[] = {50, 120};
  SequenceOptions options = small_cache();
  options.interval_tokens = 32;
  EXPECT_EQ(stops_of(full_engine(), options, {.message_ends = ends}), std::vector<uint32_t>{200});
}

TEST(SequenceCapture, PromptsEndIsKeptButForItsLastToken) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves() || kind.options.rewind != Rewind::exact) continue;
    EXPECT_EQ(stops_of(kind.options, small_cache()), (std::vector<uint32_t>{199, 200}))
        << kind.name;
  }
}

TEST(SequenceCapture, ShortPromptIsKeptAtItsEndAllTheSame) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(tokens(18, 1));
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(tokens(18, 1)).reused_tokens, 17U) << "below least_tokens, yet found";
  }
}

TEST(SequenceCapture, OneTokenIsNotWorthACapture) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(tokens(1, 1));
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(tokens(1, 1)).reused_tokens, 0U);
  }
}

TEST(SequenceCapture, WhatIsUnderWayIsSavedBeforeAnotherRequestTakesItsPlace) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    // Other requests begin with other words, or share a few words.
    for (const uint32_t common : {0, 9}) {
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(common));
      EngineOptions engine = kind.options;
      engine.sequences = 1;
      SequenceRig rig(engine);
      const Text text = tokens(400, 1);
      rig.chat(text);
      (void)rig.cache.drain({.ns = 1, .evict = true});
      rig.chat(text.first(common) + tokens(300, 2));
      EXPECT_GE(rig.hit(text), 350U);
    }
  }
}

// Computing again looks cheap here, so a request that needs the sequence does not wait for a
// capture. A mark outweighs that.
TEST(SequenceCapture, WhatAMarkAsksToKeepIsSavedHoweverCheapComputingIs) {
  EngineOptions engine = full_engine();
  engine.sequences = 1;
  engine.costs.token_ns = 7'500;
  engine.costs.save_ns = 300'000;
  const Text text = tokens(400, 1);
  const std::vector<PriorityRange> head = {{.begin = 0, .end = 300, .priority = 90}};
  for (const uint32_t common : {0, 9}) {
    SCOPED_TRACE(common);
    for (const bool marked : {false, true}) {
      SequenceRig rig(engine);
      rig.chat(tokens(200, 3));
      rig.drain();
      TurnOptions options;
      if (marked) options.retain.ranges = head;
      rig.chat(text, options);
      rig.chat(text.first(common) + tokens(300, 2));
      EXPECT_EQ(rig.kept(text) >= 384, marked) << rig.kept(text);
    }
  }
}

TEST(SequenceCapture, MessageEndsAreKept) {
  const uint32_t ends[] = {70, 140};
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Text text = tokens(200, 1);
    rig.chat(text, {.message_ends = ends});
    rig.take_all_sequences();
    EXPECT_EQ(rig.hit(text.first(140) + tokens(9, 2)), 140U);
    const bool any = kind.options.rewind == Rewind::any;
    EXPECT_EQ(rig.hit(text.first(139) + tokens(9, 2)), any ? 139U : 70U);
    EXPECT_EQ(rig.hit(text.first(70) + tokens(9, 2)), 70U);
    EXPECT_EQ(rig.chat(text.first(150) + tokens(9, 2)).reused_tokens, any ? 150U : 140U);
  }
}

TEST(SequenceCapture, MessageThatEndsEarlyIsNotWorthKeeping) {
  const uint32_t ends[] = {70, 99, 100, 180};
  SequenceOptions options = small_cache();
  options.least_tokens = 100;
  const std::vector<uint32_t> stops = stops_of(hybrid_engine(), options, {.message_ends = ends});
  EXPECT_EQ(stops, (std::vector<uint32_t>{100, 180, 199, 200}));
}

// Short batches are slow, so a stop never leaves a chunk of fewer than 64 tokens except at the
// prompt's end.
TEST(SequenceCapture, BoundariesCloseTogetherAreMerged) {
  const uint32_t ends[] = {40, 100, 130, 150, 300, 310, 320};
  for (const EngineOptions& engine : {hybrid_engine(), hybrid_state_engine(), mamba_engine()}) {
    EXPECT_EQ(stops_of(engine, small_cache(), {.message_ends = ends}, 400),
              (std::vector<uint32_t>{100, 320, 399, 400}));
  }
}

TEST(SequenceCapture, WindowIsKeptBehindTheBoundaryWhereItStillCanBe) {
  EngineOptions engine = window_engine();
  engine.rewind_tokens = 64;
  engine.window_slack_tokens = 256;
  SequenceRig rig(engine);
  // The first long prompt shows what the engine still holds behind its window after a pass.
  rig.chat(tokens(400, 1));
  rig.stops.clear();
  const uint32_t ends[] = {40, 100, 130, 200, 290};
  const Text text = tokens(300, 2);
  rig.chat(text, {.message_ends = ends});
  EXPECT_EQ(rig.stops, (std::vector<uint32_t>{264, 300})) << "40 can be kept until then";
  rig.take_all_sequences();
  for (const uint32_t end : ends) {
    EXPECT_EQ(rig.hit(text.first(end) + tokens(9, 3)), end) << "and is";
  }
  EXPECT_EQ(rig.fate(CaptureFate::stale), 0U);
}

TEST(SequenceCapture, PromptWithinTheWindowIsComputedInOneGo) {
  EngineOptions engine = window_engine();
  engine.rewind_tokens = 512;
  engine.window_slack_tokens = 0;
  SequenceRig rig(engine);
  const uint32_t ends[] = {40, 100};
  rig.chat(tokens(200, 1), {.message_ends = ends});
  EXPECT_EQ(rig.stops, std::vector<uint32_t>{200});
  rig.take_all_sequences();
  EXPECT_EQ(rig.hit(tokens(40, 1) + tokens(9, 2)), 40U);
  EXPECT_EQ(rig.hit(tokens(100, 1) + tokens(9, 2)), 100U);
  EXPECT_EQ(rig.hit(tokens(200, 1)), 199U);
}

TEST(SequenceCapture, PromptsWithoutMessagesAreKeptAtIntervals) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves() || kind.options.rewind == Rewind::any) continue;
    SCOPED_TRACE(kind.name);
    SequenceOptions options;
    options.saved_bytes = 64U << 20U;
    SequenceRig rig(kind.options, options);
    rig.chat(tokens(900, 1));
    rig.take_all_sequences();
    EXPECT_EQ(rig.hit(tokens(300, 1) + tokens(9, 2)), 256U);
    EXPECT_EQ(rig.hit(tokens(890, 1) + tokens(9, 2)), 768U);
  }
}

// Checkpoints at intervals would evict the ones in use.
TEST(SequenceCapture, SmallStoreHasNoIntervals) {
  EngineOptions engine = hybrid_engine();
  engine.state_bytes = 50'000;
  EXPECT_EQ(stops_of(engine, small_cache(), {}, 900), (std::vector<uint32_t>{512, 899, 900}));
}

TEST(SequenceCapture, IntervalsAreKept) {
  SequenceOptions options = small_cache();
  options.interval_tokens = 48;
  options.marks = 16;
  for (const EngineOptions& engine : {hybrid_engine(), hybrid_state_engine()}) {
    EXPECT_EQ(stops_of(engine, options, {}, 210),
              (std::vector<uint32_t>{48, 96, 144, 192, 209, 210}));
  }
  SequenceRig rig(hybrid_engine(), options);
  rig.chat(tokens(200, 1));
  rig.take_all_sequences();
  EXPECT_EQ(rig.hit(tokens(150, 1) + tokens(9, 2)), 144U);
  EXPECT_EQ(rig.hit(tokens(47, 1) + tokens(9, 2)), 0U);
}

TEST(SequenceCapture, LeastIsTheIntervalWhereThatIsSmaller) {
  SequenceOptions options = small_cache();
  options.marks = 16;
  const uint32_t ends[] = {25, 90};
  for (const uint32_t interval : {20U, 33U, 0U}) {
    options.interval_tokens = interval;
    const std::vector<uint32_t> stops =
        stops_of(hybrid_engine(), options, {.message_ends = ends}, 100);
    EXPECT_EQ(contains(stops, 25), interval == 20) << interval;
    EXPECT_TRUE(contains(stops, 90)) << interval;
  }
}

TEST(SequenceCapture, IntervalsAreKeptWhileAnsweringToo) {
  SequenceOptions options = small_cache();
  options.interval_tokens = 64;
  SequenceRig rig(hybrid_engine(), options);
  const Text said = rig.talk(tokens(100, 1), tokens(60, 2));
  EXPECT_TRUE(contains(rig.stops, 128));
  rig.take_all_sequences();
  EXPECT_EQ(rig.hit(said.first(140) + tokens(9, 3)), 128U);
}

TEST(SequenceCapture, PromptsEndIsNotKeptRightBehindAMessagesEnd) {
  const uint32_t near[] = {64, 130, 196};
  EXPECT_EQ(stops_of(hybrid_engine(), small_cache(), {.message_ends = near}),
            (std::vector<uint32_t>{64, 130, 196, 200}));
  const uint32_t far[] = {64, 195};
  EXPECT_EQ(stops_of(hybrid_engine(), small_cache(), {.message_ends = far}),
            (std::vector<uint32_t>{64, 195, 199, 200}));
}

TEST(SequenceCapture, SharedHeadIsKeptHoweverShortTheQuestions) {
  const uint32_t ends[] = {80};
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    for (const uint32_t question : {2U, 6U, 12U}) {
      SCOPED_TRACE(std::string(kind.name) + ", " + std::to_string(question));
      SequenceRig rig(kind.options);
      SequenceReport last;
      for (uint32_t i = 0; i < 4; ++i) {
        last = rig.chat(tokens(80, 1) + tokens(question, 10 + i), {.message_ends = ends});
        rig.take_all_sequences();
      }
      EXPECT_EQ(last.reused_tokens, 80U);
    }
  }
}

TEST(SequenceCapture, FirstAndLastBoundariesOfARequestAreKept) {
  SequenceOptions options = small_cache();
  options.marks = 3;
  const uint32_t ends[] = {70, 140, 210, 280, 350};
  SequenceRig rig(hybrid_engine(), options);
  rig.chat(tokens(400, 1), {.message_ends = ends});
  rig.take_all_sequences();
  EXPECT_EQ(rig.hit(tokens(360, 1) + tokens(9, 2)), 350U);
  EXPECT_EQ(rig.hit(tokens(300, 1) + tokens(9, 2)), 70U);
  EXPECT_EQ(rig.depths(Kind::checkpoint), (std::vector<uint32_t>{70, 350, 399, 400}))
      << "three of the prompt, and its end";
}

TEST(SequenceCapture, WhatIsSavedAlreadyIsNotSavedAgain) {
  SequenceRig rig;
  Request first = rig.begin(tokens(128, 1));
  Request second = rig.begin(tokens(128, 1));
  rig.run(first);
  rig.run(second);
  rig.finish(first);
  rig.drain();
  const uint64_t bytes = rig.engine.counts().saved_bytes;
  rig.finish(second);
  rig.drain();
  rig.chat(tokens(128, 1));
  rig.drain();
  EXPECT_EQ(rig.engine.counts().saved_bytes, bytes);
  EXPECT_GE(rig.fate(CaptureFate::present), 1U);
}

TEST(SequenceCapture, NextTurnSavesItsTailOnly) {
  SequenceRig rig;
  Text said = tokens(640, 1);
  rig.chat(said, {.session = "a"});
  rig.drain();
  const uint64_t first = rig.engine.counts().saved_bytes;
  said = said + tokens(64, 2);
  rig.chat(said, {.session = "a"});
  rig.drain();
  EXPECT_LT(rig.engine.counts().saved_bytes - first, first / 4);
}

TEST(SequenceCapture, BudgetHoldsWhateverIsSaved) {
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceOptions options = small_cache();
    options.saved_bytes = 100'000;
    SequenceRig rig(kind.options, options);
    uint32_t i = 1;
    for (; i <= 1000 && evictions(rig) < 3; ++i) {
      rig.chat(tokens(100, 1) + tokens(100, 1 + i));
      rig.drain();  // check() holds the budget after every step.
    }
    const SequenceStats stats = rig.cache.stats();
    EXPECT_GT(stats.segment_bytes + stats.state_bytes + stats.checkpoint_bytes, 0U);
    EXPECT_GE(evictions(rig), 3U);
    rig.renew_context();
    EXPECT_EQ(rig.kept(tokens(100, 1) + tokens(100, i)), 200U) << "the last one is there";
  }
}

TEST(SequenceCapture, StateThatNeverFitsIsNotSavedAtAnyonesExpense) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 20'000;
  SequenceRig rig(full_state_engine(), options);
  ASSERT_GT(1000 * rig.engine.traits().bytes_per_token, options.saved_bytes);
  rig.chat(tokens(100, 1));
  rig.chat(tokens(1000, 2));
  rig.drain();
  EXPECT_GE(rig.fate(CaptureFate::too_large), 1U);
  rig.take_all_sequences();
  EXPECT_EQ(rig.kept(tokens(100, 1)), 100U);
}

TEST(SequenceCapture, PrioritiesAreObeyedAndSharedHeadsOutliveOneOffs) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 100'000;
  SequenceRig rig(full_engine(), options);
  TurnOptions precious;
  precious.retain.priority = 90;
  rig.chat(tokens(128, 1), precious);
  const Text system = tokens(64, 2);
  for (uint32_t i = 10; i < 1000 && evictions(rig) < 20; ++i) {
    rig.chat(i % 2 == 0 ? system + tokens(64, i) : tokens(200, i));
    rig.drain();
  }
  ASSERT_GE(evictions(rig), 20U);
  rig.renew_context();
  EXPECT_EQ(rig.kept(tokens(128, 1)), 128U) << "priority 90";
  EXPECT_EQ(rig.kept(system), 64U) << "used again and again";
  EXPECT_EQ(rig.kept(tokens(200, 11)), 0U);
}

TEST(SequenceCapture, TenantsStayWithinTheirQuotas) {
  SequenceOptions options = small_cache();
  options.quotas = {{.tenant = TenantId{1}, .bytes = 20'000}};
  SequenceRig rig(full_engine(), options);
  const Scope other = scope_of({.model = "a model", .tenant_salt = "another tenant"});
  rig.chat(other, tokens(128, 1), {.tenant = TenantId{2}});
  for (uint32_t i = 10; i < 30; ++i) {
    rig.chat(tokens(128, i), {.tenant = TenantId{1}});
    rig.drain();
  }
  rig.renew_context();
  EXPECT_EQ(ok(rig.cache.lookup(other, tokens(129, 1))).reused_tokens, 128U);
  EXPECT_EQ(rig.kept(tokens(128, 29)), 128U) << "its own last";
  EXPECT_EQ(rig.kept(tokens(128, 10)), 0U) << "went for it";
}

// Quotas apply to segments. Entries without segments know no tenants, so there may be any number.
TEST(SequenceCapture, ThereMayBeMoreTenantsThanClasses) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceOptions options = small_cache();
    options.logits_bytes = 4U << 20U;
    SequenceRig rig(kind.options, options);
    for (uint32_t i = 1; i <= 300; ++i) {
      Request request = rig.begin(tokens(8, i), {.tenant = TenantId{i}});
      rig.run(request);
      ok(request.turn.attach_logits(8, std::vector<float>(4)));
      rig.finish(request);
      rig.drain();
    }
    EXPECT_EQ(rig.depths(SequenceContent::Kind::logits).size(), 300U);
  }
}

// A request's retention options apply to states and checkpoints as well as to segments.
TEST(SequenceCapture, TimeToLiveAndRangesHoldForStatesToo) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 60'000;
  SequenceRig rig(full_state_engine(), options);
  TurnOptions brief;
  brief.retain = {.priority = 90, .ttl_ns = 1000};
  rig.chat(tokens(128, 1), brief);
  TurnOptions endless;
  endless.retain = {.priority = 90, .ttl_ns = kNever - 1};
  rig.chat(tokens(128, 2), endless);
  const PriorityRange precious[] = {{.begin = 0, .end = 128, .priority = 90}};
  TurnOptions ranged;
  ranged.retain.ranges = precious;
  rig.chat(tokens(128, 3), ranged);
  TurnOptions back;
  back.retain.will_return = true;
  rig.chat(tokens(128, 4), back);
  rig.drain();
  rig.clock.advance_ns(2000);
  for (uint32_t i = 10; i < 1000 && evictions(rig) < 10; ++i) {
    rig.chat(tokens(128, i));
    rig.drain();
  }
  ASSERT_GE(evictions(rig), 10U);
  rig.renew_context();
  EXPECT_EQ(rig.kept(tokens(128, 1)), 0U) << "its time is over";
  EXPECT_EQ(rig.kept(tokens(128, 2)), 128U) << "its time is not";
  EXPECT_EQ(rig.kept(tokens(128, 3)), 128U) << "the range has its end";
  EXPECT_EQ(rig.kept(tokens(128, 4)), 128U) << "comes back";
}

TEST(SequenceCapture, WithoutBytesNothingIsSavedAndNothingWaits) {
  SequenceOptions options = small_cache();
  options.saved_bytes = 0;
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, options);
    rig.chat(tokens(130, 1));
    EXPECT_EQ(rig.cache.pending(), 0U);
    EXPECT_EQ(rig.drain().items, 0U);
    EXPECT_EQ(rig.calls(Call::save) + rig.calls(Call::size), 0U);
    EXPECT_EQ(rig.kept(tokens(130, 1)), 130U) << "what is live is found";
  }
}

// If an engine cannot copy, words that other requests want are saved while their turn is under way.
EngineOptions restoring_engine(bool segments) {
  EngineOptions options = full_state_engine();
  options.segments = segments;
  return options;
}

TEST(SequenceCapture, WhatIsNotToBeKeptIsNotSavedForOthersEither) {
  for (const bool segments : {true, false}) {
    SequenceRig rig(restoring_engine(segments));
    Request forgets = rig.begin(tokens(300, 1), {.keep = false});
    rig.run(forgets);
    Request unsaved = rig.begin(tokens(300, 2), {.reuse = Reuse::live});
    rig.run(unsaved);
    for (const uint32_t seed : {1U, 2U}) {
      Request other = rig.begin(tokens(200, seed) + tokens(50, 3));
      EXPECT_EQ(rig.run(other).reused_tokens, 0U);
      rig.abandon(other);
    }
    rig.abandon(unsaved);
    rig.finish(forgets);
    EXPECT_EQ(rig.hit(tokens(300, 1)), 0U);
    EXPECT_EQ(rig.cache.stats().saved_bytes, 0U);
  }
}

TEST(SequenceCapture, WhatIsSavedForOthersIsRetainedAsItsOwnTurnSaid) {
  EngineOptions engine = restoring_engine(true);
  engine.sequences = 2;
  SequenceOptions options = small_cache();
  options.saved_bytes = 40'000;
  SequenceRig rig(engine, options);
  for (const uint32_t seed : {10U, 11U}) {
    rig.chat(tokens(40, seed), {.retain = {.priority = kMaxPriority}});
  }
  rig.cache.drop_scope(rig.scope);
  Request first = rig.begin(tokens(300, 1));
  rig.run(first);
  Request second = rig.begin(tokens(200, 1) + tokens(50, 2));
  EXPECT_EQ(rig.run(second).reused_tokens, 200U);
  rig.abandon(first);
  rig.abandon(second);
  for (uint32_t seed = 20; seed < 40; ++seed) {
    rig.chat(tokens(300, seed));
    rig.drain();
  }
  EXPECT_EQ(rig.hit(tokens(300, 1)), 0U) << "not as those said who had the sequence before";
}

TEST(SequenceCapture, StatesAreRetainedForAsLongAsWasSaid) {
  constexpr uint64_t kSecond = 1'000'000'000;
  for (const uint64_t ttl_ns : {kSecond, kNever - 1, kNever}) {
    SequenceOptions options = small_cache();
    options.saved_bytes = 100'000;
    SequenceRig rig(hybrid_state_engine(), options);
    rig.chat(tokens(200, 1), {.retain = {.priority = 90, .ttl_ns = ttl_ns}});
    rig.take_all_sequences();
    rig.clock.advance_ns(2 * kSecond);
    for (uint32_t seed = 2; seed < 40; ++seed) {
      rig.chat(tokens(200, seed));
      rig.take_all_sequences();
    }
    EXPECT_GT(rig.cache.stats().state_evictions, 0U);
    EXPECT_EQ(rig.kept(tokens(200, 1)) != 0, ttl_ns != kSecond) << ttl_ns;
  }
}

}  // namespace
}  // namespace stemma::test
