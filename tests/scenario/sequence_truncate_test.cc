// Forgetting what follows a prefix: SequenceCache::truncate.
#include <string>
#include <vector>

#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

const Text kStart = tokens(100, 1);
const Text kFirst = kStart + tokens(60, 2);
const Text kSecondTurn = kStart + tokens(60, 3);

// Both at the same time, so that each has a sequence, whatever the engine can do.
void chat_both(SequenceRig& rig) {
  const uint32_t ends[] = {100};
  Request first = rig.begin(kFirst, {.session = "a", .message_ends = ends});
  rig.run(first);
  rig.chat(kSecondTurn, {.session = "b", .message_ends = ends});
  rig.finish(first);
}

TEST(SequenceTruncate, ContinuationsGoAndThePrefixStays) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    chat_both(rig);
    rig.chat(tokens(90, 4), {.session = "c"});
    rig.drain();
    const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
    rig.check("truncate");
    EXPECT_EQ(cut.sequences, 2U);
    EXPECT_GE(cut.live_tokens, 120U);
    EXPECT_EQ(cut.in_use, 0U);
    EXPECT_LE(rig.look(kFirst).matched_tokens, 100U);
    EXPECT_LE(rig.look(kSecondTurn).matched_tokens, 100U);
    EXPECT_EQ(rig.kept(tokens(90, 4)), 90U) << "nobody else's";
    EXPECT_FALSE(rig.cache.session("a").resident) << "that is not what it left";
    EXPECT_TRUE(rig.cache.session("c").resident);
    for (const SequenceContent& content : ok(rig.cache.contents())) {
      EXPECT_LE(content.depth, 100U) << static_cast<uint32_t>(content.kind);
    }
    EXPECT_LE(rig.chat(kFirst).reused_tokens, 100U);
    EXPECT_EQ(rig.kept(kFirst), 160U) << "it may come back";
  }
}

TEST(SequenceTruncate, MemoryThatGoesBackIsCutThereAndSavedThere) {
  SequenceRig rig;
  rig.chat(kFirst, {.session = "a"});
  ASSERT_EQ(rig.cache.pending(), 1U);
  const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
  EXPECT_EQ(cut.sequences, 1U);
  EXPECT_EQ(cut.live_tokens, 60U);
  EXPECT_EQ(cut.segments, 0U) << "nothing was saved yet";
  EXPECT_EQ(rig.info(0).state, SequenceState::idle);
  EXPECT_EQ(rig.info(0).length, 100U);
  EXPECT_EQ(rig.engine.held(SequenceId{0}).end, 100U);
  EXPECT_EQ(rig.info(0).unsaved_tokens, 100U) << "what is left still waits to be saved";
  rig.drain();
  rig.renew_context();
  EXPECT_EQ(rig.kept(kFirst), 100U);
}

TEST(SequenceTruncate, MemoryThatDoesNotGoBackIsEmptied) {
  EngineOptions engine = hybrid_engine();
  engine.rewind = Rewind::exact;
  SequenceRig rig(engine);
  const uint32_t ends[] = {100};
  rig.chat(kFirst, {.message_ends = ends});
  rig.drain();
  const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
  EXPECT_EQ(cut.sequences, 1U);
  EXPECT_EQ(cut.live_tokens, 160U);
  EXPECT_GE(cut.checkpoints, 1U) << "deeper ones";
  EXPECT_EQ(rig.info(0).state, SequenceState::free);
  EXPECT_EQ(rig.depths(SequenceContent::Kind::checkpoint), std::vector<uint32_t>{100});
}

TEST(SequenceTruncate, SegmentsGoWholeFromTheOneThatHoldsTheEnd) {
  SequenceRig rig;
  rig.chat(kFirst);
  rig.drain();
  rig.renew_context();
  const uint32_t size = small_cache().segment_tokens;
  const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
  EXPECT_EQ(cut.sequences, 0U);
  EXPECT_EQ(cut.segments, (160 + size - 1) / size - 100 / size);
  EXPECT_EQ(rig.kept(kFirst), 100 / size * size);
  // At the end of a segment nothing of the prefix is removed.
  rig.chat(kFirst);
  rig.drain();
  rig.renew_context();
  ok(rig.cache.truncate(rig.scope, kFirst.first(2 * size), 2 * size));
  EXPECT_EQ(rig.kept(kFirst), 2 * size);
}

TEST(SequenceTruncate, OtherBranchesStayWhereThePromptGoesOn) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    chat_both(rig);
    const Truncated cut = ok(rig.cache.truncate(rig.scope, kFirst, 100));
    rig.check("truncate");
    EXPECT_EQ(cut.sequences, 1U);
    EXPECT_LE(rig.look(kFirst).matched_tokens, 100U);
    EXPECT_EQ(rig.kept(kSecondTurn), 160U);
  }
}

TEST(SequenceTruncate, LogitsBeyondThePrefixGo) {
  SequenceOptions options = small_cache();
  options.logits_bytes = 10'000;
  SequenceRig rig(full_engine(), options);
  const std::vector<float> logits = {1, 2, 3};
  for (const Text& text : {kStart, kFirst}) {
    Request request = rig.begin(text);
    rig.run(request);
    ok(request.turn.attach_logits(text.size(), logits));
    rig.finish(request);
  }
  const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
  EXPECT_EQ(cut.logits, 1U);
  EXPECT_EQ(rig.depths(SequenceContent::Kind::logits), std::vector<uint32_t>{100});
}

TEST(SequenceTruncate, EmptyPrefixIsAllOfTheScopeAndOfNoOther) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const Scope other = scope_of({.model = "another model"});
    rig.chat(kFirst);
    rig.chat(tokens(90, 4));
    rig.chat(other, kFirst);
    rig.drain();
    const Truncated cut = ok(rig.cache.truncate(rig.scope, Text{}, 0));
    rig.check("truncate");
    EXPECT_EQ(cut.sequences, 2U);
    EXPECT_EQ(rig.look(kFirst).reason, SequenceMiss::unknown_scope);
    EXPECT_EQ(ok(rig.cache.lookup(other, kFirst + tokens(9, 3))).reused_tokens, 160U);
    for (const SequenceContent& content : ok(rig.cache.contents())) {
      EXPECT_EQ(content.scope, other);
    }
    EXPECT_EQ(ok(rig.cache.truncate(rig.scope, Text{}, 0)).sequences, 0U) << "it has gone";
  }
}

TEST(SequenceTruncate, TurnsUnderWayAreCountedAndNotTouched) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request running = rig.begin(kFirst, {.session = "a"});
    rig.run(running);
    const uint64_t print = rig.engine.fingerprint(running.turn.sequence());
    const Truncated cut = ok(rig.cache.truncate(rig.scope, kStart, 100));
    rig.check("truncate");
    EXPECT_EQ(cut.in_use, 1U);
    EXPECT_EQ(cut.sequences, 0U);
    EXPECT_EQ(rig.engine.fingerprint(running.turn.sequence()), print);
    rig.answer(running, tokens(10, 5));
    rig.finish(running);
    EXPECT_EQ(rig.kept(running.text), 170U) << "what it leaves is found";
    EXPECT_EQ(ok(rig.cache.truncate(rig.scope, kStart, 100)).in_use, 0U);
    EXPECT_LE(rig.look(kFirst).matched_tokens, 100U);
  }
}

TEST(SequenceTruncate, TurnThatWasToReuseItIsPlannedAnew) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    const uint32_t ends[] = {100};
    rig.chat(kFirst, {.message_ends = ends});
    rig.take_all_sequences();  // Afterwards it exists only as saved entries, if it can be saved.
    Request planned = rig.begin(kFirst + tokens(9, 5));
    const bool stays = planned.turn.sequence() == SequenceId{0} && !kind.saves();
    ok(rig.cache.truncate(rig.scope, kStart, 100));
    const SequenceReport report = rig.run(planned);  // Right, whatever it reports.
    EXPECT_TRUE(stays || report.reused_tokens <= 100) << report.reused_tokens;
    rig.finish(planned);
  }
}

TEST(SequenceTruncate, TrimThatFailsCostsThatSequenceOnly) {
  for (const Fault fault : {Fault::before, Fault::halfway, Fault::lie_nothing, Fault::lie_half}) {
    SequenceRig rig;
    rig.chat(kFirst);
    rig.chat(tokens(90, 4));
    rig.engine.faults.next(Call::trim, fault);
    EXPECT_EQ(ok(rig.cache.truncate(rig.scope, kStart, 100)).sequences, 1U);
    rig.check("truncate");
    EXPECT_EQ(rig.info(0).length, 0U);
    EXPECT_EQ(rig.info(0).state, SequenceState::free);
    EXPECT_EQ(rig.kept(tokens(90, 4)), 90U);
  }
}

TEST(SequenceTruncate, MediaItemsAreWhole) {
  SequenceRig rig;
  const Text text = tokens(60, 1).with(image(1, 20, 10));
  const Text other = tokens(60, 1).with(image(2, 20, 10));
  rig.chat(text);
  rig.chat(other);
  EXPECT_EQ(code(rig.cache.truncate(rig.scope, text, 25)), Errc::out_of_range);
  EXPECT_EQ(rig.kept(text), 60U);
  EXPECT_EQ(ok(rig.cache.truncate(rig.scope, text, 20)).sequences, 1U);
  EXPECT_EQ(rig.look(text).matched_tokens, 20U);
  EXPECT_EQ(rig.kept(other), 60U) << "that is another picture";
}

TEST(SequenceTruncate, BadCallsChangeNothing) {
  SequenceRig rig;
  rig.chat(kFirst);
  const std::vector<Token> bad = {1, kTokenLimit};
  EXPECT_EQ(code(rig.cache.truncate(rig.scope, {.tokens = bad}, 0)), Errc::invalid_argument);
  EXPECT_EQ(code(rig.cache.truncate(rig.scope, kFirst, 161)), Errc::out_of_range);
  EXPECT_EQ(code(rig.cache.truncate(rig.scope, kFirst, ~0U)), Errc::out_of_range);
  EXPECT_EQ(ok(rig.cache.truncate(rig.scope, tokens(50, 9), 0)).sequences, 0U);
  EXPECT_EQ(ok(rig.cache.truncate(scope_of({.model = "nobody's"}), kFirst, 0)).sequences, 0U);
  EXPECT_EQ(ok(rig.cache.truncate(rig.scope, kFirst, 160)).sequences, 0U) << "there is no more";
  EXPECT_EQ(rig.kept(kFirst), 160U);
  SequenceCache moved = std::move(rig.cache);
  EXPECT_EQ(code(rig.cache.truncate(rig.scope, kFirst, 0)), Errc::wrong_state);  // NOLINT
  rig.cache = std::move(moved);
}

}  // namespace
}  // namespace stemma::test
