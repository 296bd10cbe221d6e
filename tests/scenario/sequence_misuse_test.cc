// Calls on sequences that make no sense: each is a clear error, and nothing has changed.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/numbers.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

// Refused with an error that names the option.
void expect_refused(const std::function<void(SequenceOptions&)>& change, const std::string& name) {
  SequenceOptions options = small_cache();
  change(options);
  FakeSequences engine(hybrid_engine());
  const Result<SequenceCache> cache = SequenceCache::create(engine, options);
  ASSERT_FALSE(cache) << "accepted an impossible " << name;
  EXPECT_EQ(cache.error().code(), Errc::invalid_argument);
  EXPECT_NE(std::string(cache.error().message()).find(name), std::string::npos)
      << "'" << cache.error().message() << "' does not name " << name;
}

TEST(SequenceMisuse, ImpossibleOptionsAreNamed) {
  for (const uint32_t n : {0U, 3U, 65U, 1025U, 2048U, kHuge}) {
    expect_refused([&](SequenceOptions& o) { o.segment_tokens = n; }, "segment_tokens");
  }
  for (const double share : {-0.1, 1.1, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect_refused([&](SequenceOptions& o) { o.checkpoint_share = share; }, "checkpoint_share");
  }
  for (const char* policy : {"", "LRU", "fifo"}) {
    expect_refused([&](SequenceOptions& o) { o.policy = policy; }, "policy");
  }
  expect_refused([](SequenceOptions& o) { o.reuse = static_cast<Reuse>(4); }, "reuse");
  expect_refused([](SequenceOptions& o) { o.pending_captures = 0; }, "pending_captures");
  expect_refused([](SequenceOptions& o) { o.sessions = 0; }, "sessions");
  expect_refused([](SequenceOptions& o) { o.quotas = {{.tenant = kNoTenant, .bytes = 1000}}; },
                 "quota");
}

TEST(SequenceMisuse, OddOptionsArePossible) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    const std::vector<std::function<void(SequenceOptions&)>> changes = {
        [](SequenceOptions& o) { o.segment_tokens = 1; },
        [](SequenceOptions& o) { o.segment_tokens = 1024; },
        [](SequenceOptions& o) { o.checkpoint_share = 0; },
        [](SequenceOptions& o) { o.checkpoint_share = 1; },
        [](SequenceOptions& o) { o.saved_bytes = 1; },
        [](SequenceOptions& o) { o.saved_bytes = 5000; },
        [](SequenceOptions& o) { o.marks = 0; },
        [](SequenceOptions& o) { o.marks = kHuge; },
        [](SequenceOptions& o) { o.least_tokens = 0; },
        [](SequenceOptions& o) { o.least_tokens = kHuge; },
        [](SequenceOptions& o) { o.interval_tokens = 1; },
        [](SequenceOptions& o) { o.interval_tokens = kHuge; },
        [](SequenceOptions& o) { o.pending_captures = 1; },
        [](SequenceOptions& o) { o.pending_captures = kHuge; },
        [](SequenceOptions& o) { o.sessions = 1; },
        [](SequenceOptions& o) { o.logits_bytes = 1; },
        [](SequenceOptions& o) { o.compute_token_ns = 0; },
        [](SequenceOptions& o) { o.compute_token_ns = ~uint64_t{0}; },
        [](SequenceOptions& o) { o.move_byte_ps = ~uint64_t{0}; },
        [](SequenceOptions& o) { o.move_call_ns = ~uint64_t{0}; },
        [](SequenceOptions& o) { o.move_byte_ps = o.move_call_ns = 0; },
    };
    for (size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE("change " + std::to_string(i));
      SequenceOptions options = small_cache();
      changes[i](options);
      SequenceRig rig(kind.options, options);
      const Text said = rig.talk(kText, tokens(30, 2), {.session = "a"});
      rig.chat(said + tokens(30, 3), {.session = "a"});
      rig.chat(kText.first(50) + tokens(30, 4), {.session = "b"});
      rig.take_all_sequences();
      rig.chat(said + tokens(30, 5), {.session = "a"});
    }
  }
}

// An engine whose traits say what they like.
class OddEngine final : public SequenceEngine {
 public:
  explicit OddEngine(const EngineTraits& traits) : traits_(traits) {}
  EngineTraits traits() const override { return traits_; }
  Held held(SequenceId) override { return {}; }
  Result<void> clear(SequenceId) override { return {}; }
  Result<void> trim(SequenceId, uint32_t) override { return {}; }
  Result<void> copy(SequenceId, SequenceId, Range) override { return {}; }
  Result<uint64_t> size(SequenceId, Part, Range) override { return 0; }
  Result<uint64_t> save(SequenceId, Part, Range, std::span<uint8_t>) override { return 0; }
  Result<void> load(SequenceId, Part, Range, Range, std::span<const uint8_t>) override {
    return {};
  }
  Result<void> shift(SequenceId, uint32_t, uint32_t) override { return {}; }

 private:
  EngineTraits traits_;
};

TEST(SequenceMisuse, TraitsThatContradictThemselvesAreRefused) {
  const EngineTraits possible = FakeSequences(full_engine()).traits();
  const std::vector<std::function<void(EngineTraits&)>> changes = {
      [](EngineTraits& t) { t.sequences = 0; },
      [](EngineTraits& t) { t.context_tokens = 0; },
      [](EngineTraits& t) { t.rewind = Rewind::window; },   // A window of nothing.
      [](EngineTraits& t) { t.rewind = Rewind::bounded; },  // Bounded by nothing.
      [](EngineTraits& t) { t.checkpoints = true; },        // Not with Rewind::any.
      [](EngineTraits& t) { t.fork = Fork::none; },         // And yet segments can be saved.
      [](EngineTraits& t) { t.bytes_per_token = t.fixed_bytes = 0; },  // Segments of no bytes.
  };
  OddEngine fine(possible);
  EXPECT_TRUE(SequenceCache::create(fine, small_cache()));
  for (size_t i = 0; i < changes.size(); ++i) {
    EngineTraits traits = possible;
    changes[i](traits);
    OddEngine odd(traits);
    EXPECT_EQ(code(SequenceCache::create(odd, small_cache())), Errc::invalid_argument) << i;
  }
}

TEST(SequenceMisuse, AbsurdSizesAreRefusedOrServedWithoutOverflow) {
  EngineTraits traits = FakeSequences(full_engine()).traits();
  traits.bytes_per_token = ~uint64_t{0} / 3;
  OddEngine large(traits);
  Result<SequenceCache> cache = SequenceCache::create(large, small_cache());
  if (cache) {
    Turn turn = ok(cache->begin(scope_of({.model = "a model"}), kText));
    ok(turn.execute());
    ok(turn.abandon());
  }
}

TEST(SequenceMisuse, BadTokensAreRefusedEverywhere) {
  SequenceRig rig;
  rig.chat(tokens(50, 2));
  const std::string before = rig.books();
  for (const uint32_t at : {0U, 50U, 99U}) {
    for (const Token bad : {kTokenLimit, kTokenLimit + 7, kHuge}) {
      Text text = kText;
      text.tokens[at] = bad;
      EXPECT_EQ(code(rig.cache.begin(rig.scope, text)), Errc::invalid_argument);
      EXPECT_EQ(code(rig.cache.lookup(rig.scope, text)), Errc::invalid_argument);
      EXPECT_EQ(code(rig.warm(text).report), Errc::invalid_argument);
    }
  }
  EXPECT_EQ(rig.books(), before);
  Request request = rig.begin(kText);
  rig.run(request);
  const std::vector<Token> words = {1, 2, kTokenLimit};
  EXPECT_EQ(code(request.turn.extend(words)), Errc::invalid_argument);
  EXPECT_EQ(request.turn.length(), 100U);
  ok(request.turn.extend({}));
  rig.finish(request);
}

TEST(SequenceMisuse, MessageEndsInDisorderAreRefused) {
  SequenceRig rig;
  const std::vector<std::vector<uint32_t>> bad = {{60, 50}, {101}, {10, 20, kHuge}, {50, 60, 59}};
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_EQ(code(rig.try_begin(kText, {.message_ends = bad[i]})), Errc::invalid_argument) << i;
    EXPECT_EQ(code(rig.cache.lookup(rig.scope, kText, {.message_ends = bad[i]})),
              Errc::invalid_argument)
        << i;
  }
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
  const uint32_t fine[] = {0, 40, 40, 100};
  rig.chat(kText, {.message_ends = fine});
}

TEST(SequenceMisuse, BadRetentionIsRefusedAndNothingChanges) {
  SequenceRig rig;
  const std::vector<std::vector<PriorityRange>> bad = {
      std::vector<PriorityRange>(kMaxPriorityRanges + 1),
      {{.begin = 0, .end = 64, .priority = 80}, {.begin = 63, .end = 128, .priority = 50}},
      {{.begin = 64, .end = 128, .priority = 80}, {.begin = 0, .end = 64, .priority = 50}},
      {{.begin = 10, .end = 5, .priority = 80}},
      {{.begin = 0, .end = 64, .priority = 101}},
  };
  Request running = rig.begin(tokens(60, 2));
  rig.run(running);
  const std::string before = rig.books();
  const auto refused = [&](const Retain& retain) {
    TurnOptions options;
    options.retain = retain;
    return code(rig.cache.begin(rig.scope, kText, options)) == Errc::invalid_argument &&
           code(running.turn.finish(&retain)) == Errc::invalid_argument;
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    EXPECT_TRUE(refused({.ranges = bad[i]})) << i;
    if (!running.turn.active()) return;
  }
  EXPECT_TRUE(refused({.priority = 101}));
  EXPECT_TRUE(refused({.phase = SessionPhase{3}}));
  EXPECT_TRUE(refused({.finish = FinishReason{5}}));
  EXPECT_TRUE(refused({.finish = FinishReason{255}}));
  ASSERT_TRUE(running.turn.active());
  EXPECT_EQ(rig.books(), before);
  rig.finish(running);
}

// Every look at it is earlier than the one before.
class BackwardsClock final : public Clock {
 public:
  uint64_t now_ns() const noexcept override { return now_ns_ -= 1'000'000'000; }

 private:
  mutable uint64_t now_ns_ = kNever;
};

TEST(SequenceMisuse, AClockThatRunsBackwardsMakesNoCallLong) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    FakeSequences engine(kind.options);
    const BackwardsClock clock;
    SequenceOptions options = small_cache();
    options.clock = &clock;
    SequenceCache cache = ok(SequenceCache::create(engine, options));
    const Scope scope = scope_of({.model = "a model"});
    for (uint32_t i = 0; i < 20; ++i) {
      Turn turn = ok(cache.begin(scope, tokens(100 + i, 1), {}));
      ok(turn.execute());
      EXPECT_EQ(turn.report().plan_ns, 0U);
      EXPECT_EQ(turn.report().execute_ns, 0U);
      ok(turn.abandon());
    }
    cache.check_invariants();
  }
}

TEST(SequenceMisuse, UnknownSessionsAndSequencesAreNothing) {
  SequenceRig rig;
  rig.chat(kText, {.session = "a"});
  const std::string before = rig.books();
  rig.cache.end_session("nobody");
  rig.cache.end_session("");
  EXPECT_FALSE(rig.cache.session("nobody").known);
  EXPECT_FALSE(rig.cache.session("").known);
  EXPECT_TRUE(rig.cache.can_admit("nobody"));
  EXPECT_EQ(rig.cache.sequence(SequenceId{4}).length, 0U);
  EXPECT_EQ(rig.cache.sequence(SequenceId{kHuge}).length, 0U);
  rig.cache.drop_scope(scope_of({.model = "a model nobody has"}));
  EXPECT_EQ(rig.books(), before);
  const std::string long_name(100'000, 'x');
  rig.chat(kText, {.session = long_name});
  EXPECT_TRUE(rig.cache.session(long_name).known);
}

// ---- Turns --------------------------------------------------------------------------------------

void expect_dead(Turn& turn) {
  EXPECT_FALSE(turn.active());
  EXPECT_EQ(turn.available() + turn.computed() + turn.length() + turn.next_stop(), 0U);
  EXPECT_TRUE(turn.logits().empty());
  EXPECT_TRUE(turn.media_to_process().empty());
  EXPECT_EQ(turn.report().prompt_tokens, 0U);
  const Token token = 5;
  const float logit = 1;
  EXPECT_EQ(code(turn.execute()), Errc::wrong_state);
  EXPECT_EQ(code(turn.computed(0)), Errc::wrong_state);
  EXPECT_EQ(code(turn.extend({&token, 1})), Errc::wrong_state);
  EXPECT_EQ(code(turn.reserve(1)), Errc::wrong_state);
  EXPECT_EQ(code(turn.rewind(0)), Errc::wrong_state);
  EXPECT_EQ(code(turn.attach_logits(0, {&logit, 1})), Errc::wrong_state);
  EXPECT_EQ(code(turn.fork()), Errc::wrong_state);
  EXPECT_EQ(code(turn.shift(0, 1)), Errc::wrong_state);
  EXPECT_EQ(code(turn.finish()), Errc::wrong_state);
  EXPECT_EQ(code(turn.abandon()), Errc::wrong_state);
}

TEST(SequenceMisuse, DeadTurnsAnswerEveryCallWithAnError) {
  SequenceRig rig;
  Turn never;
  Request finished = rig.begin(kText, {.session = "a"});
  rig.run(finished);
  rig.finish(finished);
  Request abandoned = rig.begin(tokens(60, 2), {.session = "b"});
  rig.run(abandoned);
  rig.abandon(abandoned);
  Request moved = rig.begin(tokens(60, 3), {.session = "c"});
  rig.run(moved);
  Request target;
  target.text = moved.text;
  target.turn = std::move(moved.turn);
  const std::string before = rig.books();
  const uint64_t calls = rig.calls();
  for (Turn* turn : {&never, &finished.turn, &abandoned.turn, &moved.turn}) expect_dead(*turn);
  EXPECT_EQ(rig.books(), before);
  EXPECT_EQ(rig.calls(), calls);
  EXPECT_TRUE(rig.cache.session("a").resident) << "a second finish takes nothing away";
  rig.answer(target, tokens(9, 4));
  rig.finish(target);
}

TEST(SequenceMisuse, TurnMovedOntoItselfSurvivesAndOntoAnotherEndsThat) {
  SequenceRig rig;
  Request request = rig.begin(kText);
  rig.run(request);
  Turn& same = request.turn;
  request.turn = std::move(same);
  EXPECT_TRUE(request.turn.active());
  Request other = rig.begin(tokens(60, 2));
  rig.run(other);
  other.turn = std::move(request.turn);
  other.text = request.text;
  EXPECT_EQ(rig.cache.stats().leased_sequences, 1U) << "what it held before was abandoned";
  EXPECT_EQ(rig.kept(tokens(60, 2)), 0U);
  rig.answer(other, tokens(9, 3));
  rig.finish(other);
}

TEST(SequenceMisuse, CallsBeforeExecutionAreInTheWrongOrder) {
  SequenceRig rig;
  rig.chat(kText);
  Request request = rig.begin(kText + tokens(9, 2));
  const std::string before = rig.books();
  const float logit = 1;
  EXPECT_EQ(code(request.turn.computed(10)), Errc::wrong_state);
  EXPECT_EQ(code(request.turn.rewind(10)), Errc::wrong_state);
  EXPECT_EQ(code(request.turn.fork()), Errc::wrong_state);
  EXPECT_EQ(code(request.turn.shift(1, 1)), Errc::wrong_state);
  EXPECT_EQ(code(request.turn.attach_logits(10, {&logit, 1})), Errc::wrong_state);
  EXPECT_EQ(rig.books(), before);
  EXPECT_EQ(rig.execute(request), 100U);
  EXPECT_EQ(code(request.turn.execute()), Errc::wrong_state) << "once is enough";
  EXPECT_EQ(request.turn.available(), 100U);
  rig.compute(request);
  rig.finish(request);
}

TEST(SequenceMisuse, ComputedOutsideTheWordsIsOutOfRange) {
  SequenceRig rig;
  rig.chat(kText.first(40));
  Request request = rig.begin(kText);
  EXPECT_EQ(rig.execute(request), 40U);
  rig.compute(request, 60);
  const std::string before = rig.books();
  for (const uint32_t n : {0U, 39U, 59U, 101U, kHuge}) {
    EXPECT_EQ(code(request.turn.computed(n)), Errc::out_of_range) << n;
  }
  EXPECT_EQ(rig.books(), before);
  EXPECT_EQ(request.turn.computed(), 60U);
  ok(request.turn.computed(60));
  rig.compute(request);
  rig.finish(request);
}

TEST(SequenceMisuse, ModesNobodyHasAreRefused) {
  SequenceRig rig;
  EXPECT_EQ(code(rig.try_begin(kText, {.reuse = static_cast<Reuse>(4)})), Errc::invalid_argument);
  EXPECT_EQ(code(rig.cache.warm(rig.scope, kText, nullptr, nullptr)), Errc::invalid_argument);
  EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
}

TEST(SequenceMisuse, RefusedPromptsLeaveNoMediaItems) {
  SequenceRig rig;
  const auto ask = [&](uint32_t i) {
    MediaItem item = image(static_cast<uint8_t>(i), 10, 100);
    item.digest[0] = static_cast<uint8_t>(i >> 8U);
    const Text text = tokens(2000, 1).with(item);
    EXPECT_EQ(code(rig.cache.lookup(rig.scope, text)), Errc::out_of_range);
    EXPECT_EQ(code(rig.cache.begin(rig.scope, text)), Errc::out_of_range);
  };
  ask(0);
  const uint64_t bytes = rig.cache.stats().index_bytes;
  for (uint32_t i = 1; i < 2000; ++i) ask(i);
  EXPECT_EQ(rig.cache.stats().index_bytes, bytes);
}

TEST(SequenceMisuse, CheckpointsMayHaveAllOfAnyBudget) {
  for (const uint64_t bytes : {(uint64_t{1} << 60U) - 1, ~uint64_t{0}}) {
    SequenceOptions options = small_cache();
    options.saved_bytes = bytes;
    options.checkpoint_share = 1;
    SequenceRig rig(hybrid_engine(), options);
    rig.chat(tokens(100, 1));
    rig.drain();
    EXPECT_EQ(rig.cache.stats().segment_bytes, 0U);
    EXPECT_GT(rig.cache.stats().checkpoint_bytes, 0U);
  }
}

TEST(SequenceMisuse, TimesThatCannotBeCostNoReuse) {
  SequenceRig rig;
  Request request = rig.begin(tokens(8, 9));
  rig.execute(request);
  ok(rig.engine.compute(request.turn.sequence(), request.text.tokens));
  ok(request.turn.computed(8, ~uint64_t{0}));
  rig.finish(request);
  rig.chat(tokens(69, 1));
  EXPECT_EQ(rig.hit(tokens(74, 1)), 69U);
}

}  // namespace
}  // namespace stemma::test
