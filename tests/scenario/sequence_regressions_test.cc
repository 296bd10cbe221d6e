// Mistakes that earlier systems made with sequences. Each test shows the mistake on NaiveSequences,
// which makes all of them, and then that SequenceCache does not.
#include <string>
#include <vector>

#include "support/naive_sequences.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

constexpr SequenceId kA{0};
const Text kText60 = tokens(60, 1);

// A naive cache over an engine of its own.
struct Naive {
  explicit Naive(const EngineOptions& options = full_engine()) : engine(options), cache(engine) {}

  // A whole request. Returns what it believed to be there.
  uint32_t chat(const Text& text, const std::string& session = "a") {
    const uint32_t n = start(text, session);
    compute(text, n);
    cache.finish(session, kA, cache.slot(kA).generation, text, true);
    return n;
  }
  uint32_t start(const Text& text, const std::string& session = "a") {
    return cache.begin(kA, session, text);
  }
  void compute(const Text& text, uint32_t from) {
    const std::vector<Token> words = words_of(text);
    static_cast<void>(engine.compute(kA, std::span(words).subspan(from)));
  }
  // Returns how the sequence differs from one that holds the first n words.
  std::string wrong(const Text& text, uint32_t n) const {
    const std::vector<Token> words = words_of(text);
    return engine.right(kA, std::span(words).first(n));
  }

  FakeSequences engine;
  NaiveSequences cache;
};

// W0.4
TEST(SequenceRegressions, SampledTokenWithoutARowIsNotReused) {
  const Text sampled = tokens(1, 2);
  const Text next = kText60 + sampled + tokens(5, 3);
  Naive naive;
  naive.start(kText60);
  naive.compute(kText60, 0);
  naive.cache.finish("a", kA, 0, kText60 + sampled, true);  // The last token was never computed.
  EXPECT_EQ(naive.start(next), 61U) << "one row more than there is";
  EXPECT_NE(naive.wrong(next, 61), "");
  naive.compute(next, 61);
  EXPECT_NE(naive.wrong(next, 66), "") << "and all that follows is wrong";

  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request request = rig.begin(kText60, {.session = "a"});
    rig.run(request);
    ok(request.turn.extend(sampled.tokens));
    rig.finish(request);
    EXPECT_EQ(rig.chat(next, {.session = "a"}).reused_tokens, 60U);
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(next, {.session = "a"}).reused_tokens, kind.saves() ? 65U : 0U);
  }
}

// W0.5
TEST(SequenceRegressions, RecurrentStateIsUsedAtItsOwnDepthOnly) {
  const Text parted = kText60.first(40) + tokens(20, 2);
  Naive naive(hybrid_engine());
  naive.chat(kText60);
  naive.cache.keep_snapshot(kA, kText60);
  EXPECT_EQ(naive.start(parted), 40U) << "with the state of 60";
  naive.compute(parted, 40);
  EXPECT_NE(naive.wrong(parted, 60), "");

  for (const EngineOptions& engine : {hybrid_engine(), hybrid_state_engine(), mamba_engine()}) {
    SequenceRig rig(engine);
    rig.chat(kText60, {.session = "a"});
    rig.drain();
    EXPECT_EQ(rig.chat(parted, {.session = "a"}).reused_tokens, 0U);
    EXPECT_EQ(rig.chat(kText60 + tokens(9, 3), {.session = "b"}).reused_tokens, 60U);
  }
}

// W0.6
TEST(SequenceRegressions, WholeMatchEvaluatesOneTokenInsteadOfAll) {
  Naive naive;
  naive.chat(kText60);
  EXPECT_EQ(naive.chat(kText60), 0U) << "all of it is there, so none of it is used";

  for (const EngineKind& kind : every_engine()) {
    SequenceRig rig(kind.options);
    rig.chat(kText60);
    const uint32_t possible = kind.saves() || kind.options.rewind == Rewind::any ? 59 : 0;
    EXPECT_EQ(rig.chat(kText60).reused_tokens, possible) << kind.name;
  }
}

// W0.7
TEST(SequenceRegressions, PlaceholdersOfMediaProveNothing) {
  const Text pictured = kText60.with(image(1, 20, 10));
  {
    Naive naive;
    naive.chat(kText60);
    EXPECT_EQ(naive.start(pictured + tokens(5, 2)), 60U) << "text passes for a picture";
    EXPECT_NE(naive.wrong(pictured + tokens(5, 2), 60), "");
  }
  {
    Naive naive;
    naive.chat(pictured);
    EXPECT_EQ(naive.start(pictured.first(10) + tokens(50, 2).with(image(1, 10, 10))), 10U);
    EXPECT_EQ(naive.cache.media_to_process, 0U) << "though the picture lies behind the match";
  }

  SequenceRig rig;
  rig.chat(kText60, {.session = "a"});
  Request request = rig.begin(pictured + tokens(5, 2), {.session = "a"});
  EXPECT_EQ(rig.run(request).reused_tokens, 20U);
  rig.finish(request);
  Request behind = rig.begin(pictured.first(10) + tokens(50, 2).with(image(1, 10, 10)));
  EXPECT_EQ(rig.execute(behind), 10U);
  EXPECT_EQ(behind.turn.media_to_process().size(), 1U);
  rig.compute(behind);
  rig.finish(behind);
}

// W1.3
TEST(SequenceRegressions, StateThatWasSavedLaterIsNotTrimmedIntoAnEarlierOne) {
  const Text said = kText60 + tokens(30, 2);
  const Text next = kText60 + tokens(20, 3);
  for (const EngineOptions& engine : {window_engine(), hybrid_engine()}) {
    Naive naive(engine);
    naive.chat(said);
    naive.cache.capture(kA, said, 60);  // For the prompt's end, but 30 tokens later.
    ok(naive.engine.clear(kA));
    naive.cache.forget_context();
    EXPECT_EQ(naive.start(next), 60U) << "the trim was said to have worked, or nobody asked";
    EXPECT_NE(naive.wrong(next, 60), "");
    naive.compute(next, 60);
    EXPECT_NE(naive.wrong(next, 80), "");
  }
  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const uint32_t ends[] = {60};
    Request request = rig.begin(kText60, {.message_ends = ends});
    rig.run(request);
    rig.answer(request, tokens(30, 2));
    rig.finish(request);
    rig.take_all_sequences();
    const SequenceReport report = rig.chat(next);
    EXPECT_GE(report.reused_tokens, 59U) << "of a boundary that was kept when it was there";
  }
}

// W1.4
TEST(SequenceRegressions, HitsAreCountedWhenTheyHappened) {
  const Text next = kText60 + tokens(9, 2);
  Naive naive;
  naive.chat(kText60);
  naive.cache.capture(kA, kText60, 60);
  ok(naive.engine.clear(kA));
  naive.cache.forget_context();
  naive.engine.faults.next(Call::load, Fault::halfway);
  naive.start(next);
  EXPECT_EQ(naive.cache.statistics().hits, 1U);
  EXPECT_EQ(naive.cache.statistics().restored_tokens, 60U) << "which were never restored";

  SequenceRig rig;
  rig.chat(kText60);
  rig.take_all_sequences();
  const SequenceStats before = rig.cache.stats();
  rig.engine.faults.next(Call::load, Fault::halfway);
  rig.chat(next);
  const SequenceStats after = rig.cache.stats();
  const auto counted = [&](Outcome outcome) {
    const auto i = static_cast<uint32_t>(outcome);
    return after.outcomes[i] - before.outcomes[i];
  };
  EXPECT_EQ(counted(Outcome::miss), 1U);
  EXPECT_EQ(counted(Outcome::partial_hit) + counted(Outcome::full_hit), 0U);
  EXPECT_EQ(after.reused_tokens, before.reused_tokens);
  EXPECT_EQ(after.restored_bytes, before.restored_bytes);
}

// W1.5
TEST(SequenceRegressions, SequenceIsEmptyAfterAFailedRestore) {
  const Text next = kText60 + tokens(9, 2);
  Naive naive;
  naive.chat(kText60);
  naive.cache.capture(kA, kText60, 60);
  naive.chat(kText60.first(40) + tokens(20, 3));
  // The live match is 40 and the saved one 60; the load fails, and the live one is gone.
  naive.engine.faults.next(Call::load, Fault::halfway);
  EXPECT_EQ(naive.start(next), 40U) << "the live match is believed in as before";
  EXPECT_NE(naive.wrong(next, 40), "");

  for (const EngineKind& kind : every_engine()) {
    if (!kind.saves()) continue;
    for (const Fault fault : {Fault::before, Fault::halfway, Fault::after}) {
      SCOPED_TRACE(std::string(kind.name) + ", " + to_string(fault));
      SequenceRig rig(kind.options);
      rig.chat(kText60, {.session = "a"});
      rig.take_all_sequences();
      rig.chat(kText60.first(40) + tokens(20, 3), {.session = "a"});
      rig.drain();
      rig.engine.faults.next(Call::load, fault);
      rig.chat(next, {.session = "a"});  // The rig checks what is available.
    }
  }
}

// W1.10
TEST(SequenceRegressions, ShiftedSequenceIsNotTakenForAnExactOne) {
  EngineOptions engine = full_engine();
  engine.shift = true;
  const Text kept = kText60.first(10) + of({kText60.tokens.begin() + 30, kText60.tokens.end()});
  Naive naive(engine);
  naive.chat(kText60);
  EXPECT_TRUE(naive.cache.shift(kA, 10, 20));
  EXPECT_EQ(naive.start(kept + tokens(9, 2)), 40U);
  EXPECT_NE(naive.wrong(kept + tokens(9, 2), 40), "") << "computed with other words in view";

  SequenceRig rig(engine);
  Request request = rig.begin(kText60, {.session = "a"});
  rig.run(request);
  ok(rig.try_shift(request, 10, 20));
  EXPECT_EQ(request.text.tokens, kept.tokens);
  rig.finish(request);
  EXPECT_EQ(rig.chat(kept + tokens(9, 2), {.session = "a"}).reused_tokens, 10U);
}

// W1.13
TEST(SequenceRegressions, SecondFinishChangesNothing) {
  Naive naive;
  naive.chat(kText60);
  naive.cache.finish("a", kA, 0, kText60, false);  // Again, and now it failed.
  EXPECT_EQ(naive.cache.slot(kA).state, NaiveSequences::Slot::State::free) << "an idle one is gone";
  Naive other;
  other.chat(kText60);
  other.cache.finish("b", kA, 0, tokens(60, 2), true);  // Under another name, with other words.
  EXPECT_EQ(other.start(tokens(60, 2) + tokens(9, 3), "b"), 60U);
  EXPECT_NE(other.wrong(tokens(60, 2) + tokens(9, 3), 60), "");

  SequenceRig rig;
  Request request = rig.begin(kText60, {.session = "a"});
  rig.run(request);
  rig.finish(request);
  const std::string before = rig.books();
  EXPECT_EQ(code(request.turn.finish()), Errc::wrong_state);
  EXPECT_EQ(code(request.turn.abandon()), Errc::wrong_state);
  EXPECT_EQ(rig.books(), before);
  EXPECT_TRUE(rig.cache.session("a").resident);
}

// W1.14
TEST(SequenceRegressions, NothingIsSavedFromASequenceThatIsAnothersByNow) {
  const Text stranger = tokens(60, 2);
  Naive naive;
  naive.chat(kText60);
  ok(naive.engine.clear(kA));
  naive.cache.forget_context();
  naive.chat(stranger, "b");
  naive.cache.capture(kA, kText60, 60);  // A callback that comes too late.
  ok(naive.engine.clear(kA));
  naive.cache.forget_context();
  EXPECT_EQ(naive.start(kText60 + tokens(9, 3)), 60U);
  EXPECT_NE(naive.wrong(kText60 + tokens(9, 3), 60), "") << "the stranger's words";

  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const uint32_t ends[] = {40};
    Request late = rig.begin(kText60, {.message_ends = ends});
    rig.execute(late);
    rig.renew_context();
    Request fresh = rig.begin(stranger);
    ASSERT_EQ(fresh.turn.sequence(), kA);
    rig.run(fresh);
    const uint64_t saves = rig.calls(Call::save);
    EXPECT_EQ(code(late.turn.computed(40)), Errc::stale);
    EXPECT_EQ(code(late.turn.finish()), Errc::stale);
    rig.drain();
    EXPECT_EQ(rig.calls(Call::save), saves);
    EXPECT_EQ(rig.kept(kText60), 0U);
    rig.finish(fresh);
    rig.take_all_sequences();
    EXPECT_EQ(rig.chat(stranger + tokens(9, 3)).reused_tokens, kind.saves() ? 60U : 0U);
  }
}

}  // namespace
}  // namespace stemma::test
