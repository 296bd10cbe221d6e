// Logits kept with a prompt: a repeated one starts sampling at once.
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

SequenceOptions with_logits(uint64_t bytes = 100'000) {
  SequenceOptions options = small_cache();
  options.logits_bytes = bytes;
  return options;
}

std::vector<float> logits_of(uint32_t seed) {
  std::vector<float> logits(50);
  for (uint32_t i = 0; i < 50; ++i) logits[i] = static_cast<float>(seed * 100 + i);
  return logits;
}

std::vector<float> logits_in(const Request& request) {
  const auto logits = request.turn.logits();
  return {logits.begin(), logits.end()};
}

// Whether a request for this prompt would start with logits.
bool found(SequenceRig& rig, const Text& text) {
  Request request = rig.begin(text, {.want_logits = true});
  const bool there = !request.turn.logits().empty();
  EXPECT_EQ(request.turn.report().logits, there);
  rig.finish(request);
  return there;
}

// A request whose last logits are kept, and which then answers.
void ask(SequenceRig& rig, const Text& text, uint32_t seed, uint32_t answer_tokens = 10) {
  Request request = rig.begin(text);
  rig.run(request);
  ok(request.turn.attach_logits(text.size(), logits_of(seed)));
  rig.answer(request, tokens(answer_tokens, 900 + seed));
  rig.finish(request);
}

TEST(SequenceLogits, RepeatedPromptStartsSamplingBeforeTheEngineIsCalled) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, with_logits());
    ask(rig, kText, 7, 0);
    rig.drain();
    const uint64_t calls = rig.calls();
    Request again = rig.begin(kText, {.want_logits = true});
    EXPECT_EQ(logits_in(again), logits_of(7));
    EXPECT_TRUE(again.turn.report().logits);
    EXPECT_EQ(rig.calls(), calls);
    EXPECT_EQ(rig.execute(again), 100U) << "and nothing is left to evaluate";
    EXPECT_EQ(again.turn.report().evaluated_tokens, 0U);
    EXPECT_EQ(again.turn.report().outcome, Outcome::full_hit);
    EXPECT_EQ(logits_in(again), logits_of(7)) << "while the turn lives";
    rig.answer(again, tokens(20, 3));
    rig.finish(again);
  }
}

TEST(SequenceLogits, ServeThePromptAfterItsSequenceWasTaken) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options, with_logits());
    ask(rig, kText, 7, 0);
    rig.take_all_sequences();
    Request again = rig.begin(kText, {.want_logits = true});
    EXPECT_EQ(logits_in(again), logits_of(7));
    EXPECT_EQ(rig.execute(again), kind.saves() ? 100U : 0U);
    rig.compute(again);
    rig.finish(again);
  }
}

TEST(SequenceLogits, AreGivenToThoseWhoWantThem) {
  SequenceRig rig(full_engine(), with_logits());
  ask(rig, kText, 7);
  Request plain = rig.begin(kText);
  EXPECT_TRUE(plain.turn.logits().empty());
  EXPECT_EQ(rig.run(plain).reused_tokens, 99U);
  rig.finish(plain);
  EXPECT_TRUE(found(rig, kText));
  EXPECT_TRUE(rig.look(kText, {.want_logits = true}).logits) << "lookup() knows of them too";
}

TEST(SequenceLogits, BelongToExactlyOnePrompt) {
  SequenceRig rig(full_engine(), with_logits());
  ask(rig, kText, 7);
  const Scope other = scope_of({.model = "another model"});
  for (const Text& text : {kText.first(99), kText + tokens(1, 2), tokens(100, 2), Text{}}) {
    EXPECT_FALSE(found(rig, text)) << text.size();
  }
  EXPECT_FALSE(ok(rig.cache.lookup(other, kText, {.want_logits = true})).logits);
  Request longer = rig.begin(kText + tokens(1, 2), {.want_logits = true});
  EXPECT_TRUE(longer.turn.logits().empty());
  EXPECT_EQ(rig.run(longer).reused_tokens, 100U);
  rig.finish(longer);
}

TEST(SequenceLogits, NewerOnesReplaceOlderOnes) {
  SequenceRig rig(full_engine(), with_logits());
  ask(rig, kText, 7);
  ask(rig, kText, 8);
  Request again = rig.begin(kText, {.want_logits = true});
  EXPECT_EQ(logits_in(again), logits_of(8));
  rig.execute(again);
  rig.finish(again);
}

TEST(SequenceLogits, StayWithinTheirBytes) {
  SequenceRig rig(full_engine(), with_logits(1000));
  for (uint32_t i = 1; i <= 20; ++i) {
    ask(rig, tokens(40, i), i);
    EXPECT_LE(rig.cache.stats().logits_bytes, 1000U);
  }
  EXPECT_TRUE(found(rig, tokens(40, 20))) << "the last ones";
  EXPECT_FALSE(found(rig, tokens(40, 1)));
}

TEST(SequenceLogits, AttachingInTheWrongPlaceIsRefused) {
  SequenceRig rig(full_engine(), with_logits());
  Request request = rig.begin(kText.with(image(1, 20, 10)));
  rig.execute(request);
  rig.compute(request, 50);
  for (const uint32_t depth : {51U, 100U, 101U, 0xFFFF'FFFFU, 25U}) {
    EXPECT_EQ(code(request.turn.attach_logits(depth, logits_of(1))), Errc::out_of_range) << depth;
  }
  rig.compute(request);
  rig.finish(request);
  SequenceRig without(full_engine(), with_logits(0));
  Request none = without.begin(kText);
  without.run(none);
  EXPECT_EQ(code(none.turn.attach_logits(100, logits_of(1))), Errc::unsupported);
  without.finish(none);
}

TEST(SequenceLogits, SamplingAloneNeedsNoExecution) {
  SequenceRig rig(full_engine(), with_logits());
  ask(rig, kText, 7, 0);
  const uint64_t calls = rig.calls();
  Request again = rig.begin(kText, {.want_logits = true});
  EXPECT_EQ(logits_in(again), logits_of(7));
  rig.finish(again);
  EXPECT_EQ(rig.calls(), calls) << "one token was sampled, and that was all";
  EXPECT_EQ(rig.kept(kText), 100U) << "what was there is there";
}

TEST(SequenceLogits, WithoutReuseNoneAreKeptOrGiven) {
  SequenceRig rig(full_engine(), with_logits());
  const TurnOptions off{.reuse = Reuse::disabled, .want_logits = true};
  Request first = rig.begin(kText, off);
  rig.run(first);
  ok(first.turn.attach_logits(100, logits_of(7)));
  rig.finish(first);
  EXPECT_EQ(rig.cache.stats().logits_bytes, 0U);
  ask(rig, kText, 7);
  EXPECT_FALSE(rig.look(kText, off).logits);
  Request again = rig.begin(kText, off);
  EXPECT_TRUE(again.turn.logits().empty());
  EXPECT_EQ(rig.run(again).outcome, Outcome::bypassed);
  rig.finish(again);
}

}  // namespace
}  // namespace stemma::test
