// A running request's calls on its sequence: rewinding, forking, shifting, making room.
#include <string>
#include <utility>
#include <vector>

#include "support/numbers.h"
#include "support/sequence_rig.h"

namespace stemma::test {
namespace {

EngineOptions shifting(EngineOptions options = full_engine()) {
  options.shift = true;
  return options;
}

EngineOptions small_context(EngineOptions options = full_engine()) {
  options.context_tokens = 256;
  return options;
}

// ---- Rewinding ----------------------------------------------------------------------------------

TEST(SequenceTurns, RewindGoesWhereTheMemoryCanAndNowhereElse) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    for (const uint32_t n : {100U, 99U, 97U, 95U, 92U, 80U, 50U, 1U, 0U}) {
      SequenceRig rig(kind.options);
      Request request = rig.begin(kText);
      rig.run(request);
      const Result<void> done = rig.try_rewind(request, n);  // Judges both outcomes.
      const Rewind rewind = kind.options.rewind;
      const bool surely = n == 100 || n == 0 || rewind == Rewind::any ||
                          (rewind == Rewind::window && n >= 92) ||
                          (rewind == Rewind::bounded && n >= 96);
      EXPECT_TRUE(done.has_value() || !surely) << n;
      EXPECT_TRUE(done.has_value() || code(done) == Errc::unsupported) << n;
      rig.answer(request, tokens(30, 2));
      rig.finish(request);
      EXPECT_EQ(rig.kept(request.text), request.text.size());
    }
  }
}

TEST(SequenceTurns, RejectedSpeculationIsNeverFound) {
  SequenceRig rig;
  Request request = rig.begin(kText);
  rig.run(request);
  rig.answer(request, tokens(8, 2));
  ok(rig.try_rewind(request, 103));
  rig.answer(request, tokens(4, 3));
  rig.finish(request);
  EXPECT_EQ(rig.kept(kText + tokens(8, 2)), 103U);
  rig.take_all_sequences();
  EXPECT_EQ(rig.kept(kText + tokens(8, 2)), 103U);
  EXPECT_EQ(rig.kept(request.text), 107U);
}

TEST(SequenceTurns, WordsThatWereNotComputedCanAlwaysBeTakenBack) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request request = rig.begin(kText);
    rig.run(request);
    const uint64_t calls = rig.calls();
    ok(request.turn.extend(tokens(5, 2).tokens));
    request.text = request.text + tokens(5, 2);
    ok(rig.try_rewind(request, 102));
    ok(rig.try_rewind(request, 100));
    EXPECT_EQ(rig.calls(), calls) << "there is nothing to undo";
    rig.answer(request, tokens(5, 3));
    rig.finish(request);
  }
}

TEST(SequenceTurns, RewindBeyondTheLengthOrIntoAnItemIsOutOfRange) {
  SequenceRig rig;
  Request request = rig.begin(kText.with(image(1, 40, 20)));
  rig.run(request);
  for (const uint32_t n : {41U, 59U, 101U, 1000U, kHuge}) {
    EXPECT_EQ(code(rig.try_rewind(request, n)), Errc::out_of_range) << n;
  }
  ok(rig.try_rewind(request, 60));
  ok(rig.try_rewind(request, 40));
  EXPECT_TRUE(request.text.media.empty());
  rig.finish(request);
}

// ---- Forking ------------------------------------------------------------------------------------

TEST(SequenceTurns, BranchesGoTheirOwnWays) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request trunk = rig.begin(kText);
    rig.run(trunk);
    Request left = ok(rig.try_fork(trunk, {.session = "left"}));
    Request right = ok(rig.try_fork(trunk));
    if (kind.copies()) {
      EXPECT_EQ(left.turn.available(), 100U);
      EXPECT_EQ(left.turn.report().steps[static_cast<uint32_t>(Step::fork)], 100U);
    }
    uint32_t seed = 2;
    for (Request* request : {&trunk, &left, &right}) {
      rig.compute(*request);
      rig.answer(*request, tokens(30, seed++));
    }
    for (Request* request : {&trunk, &left, &right}) {
      rig.finish(*request);
      EXPECT_EQ(rig.kept(request->text), 130U);
    }
    EXPECT_TRUE(rig.cache.session("left").resident);
  }
}

TEST(SequenceTurns, BranchesShareTheirPositionsWhereTheEngineDoes) {
  SequenceRig rig;
  Request trunk = rig.begin(kText);
  rig.run(trunk);
  std::vector<Request> branches;
  for (int i = 0; i < 3; ++i) branches.push_back(ok(rig.try_fork(trunk)));
  EXPECT_EQ(rig.engine.used_tokens(), 100U);
  EXPECT_EQ(rig.cache.stats().used_tokens, 100U);
  EXPECT_EQ(rig.cache.stats().context_tokens, 1024U);
  EXPECT_EQ(code(rig.try_fork(trunk)), Errc::busy) << "no sequence is left";
  for (Request& branch : branches) rig.finish(branch);
  rig.finish(trunk);
}

TEST(SequenceTurns, ForkIsOverWhatWasComputed) {
  SequenceRig rig;
  Request trunk = rig.begin(kText);
  rig.execute(trunk);
  rig.compute(trunk, 70);
  Request branch = ok(rig.try_fork(trunk));
  EXPECT_EQ(branch.turn.length(), 70U);
  rig.answer(branch, tokens(10, 2));
  rig.compute(trunk);
  rig.finish(branch);
  rig.finish(trunk);
}

// ---- Shifting -----------------------------------------------------------------------------------

TEST(SequenceTurns, ShiftedSequenceServesItsUntouchedHeadOnly) {
  for (const EngineKind& kind : every_engine([](EngineOptions& o) { o.shift = true; })) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    Request request = rig.begin(kText, {.session = "a"});
    rig.run(request);
    ok(rig.try_shift(request, 10, 30));
    EXPECT_EQ(request.turn.computed(), 70U);
    rig.answer(request, tokens(20, 2));
    const SequenceId sequence = request.turn.sequence();
    rig.finish(request);
    EXPECT_TRUE(rig.cache.sequence(sequence).approximate);
    EXPECT_LE(rig.kept(request.text), 10U) << "computed with what is gone in view";
    rig.drain();
    EXPECT_LE(rig.kept(request.text), 10U) << "and not saved as if it were exact";
    for (const SequenceContent& content : ok(rig.cache.contents())) {
      EXPECT_TRUE(content.kind != SequenceContent::Kind::live || content.depth <= 10);
    }
    const SequenceReport report = rig.chat(request.text + tokens(5, 3), {.session = "a"});
    EXPECT_LE(report.reused_tokens, 10U);
    if (kind.options.rewind == Rewind::any) {
      EXPECT_EQ(report.reused_tokens, 10U);
    }
    EXPECT_EQ(rig.kept(request.text + tokens(5, 3)), 95U) << "exact again";
  }
}

TEST(SequenceTurns, ShiftThatCannotBeIsRefused) {
  {
    SequenceRig rig;
    Request request = rig.begin(kText);
    rig.run(request);
    EXPECT_EQ(code(request.turn.shift(10, 30)), Errc::unsupported);
    rig.finish(request);
    EXPECT_EQ(rig.kept(kText), 100U);
  }
  SequenceRig rig(shifting());
  Request request = rig.begin(kText);
  rig.execute(request);
  rig.compute(request, 60);
  const uint64_t print = rig.engine.fingerprint(request.turn.sequence());
  EXPECT_EQ(code(request.turn.shift(10, 51)), Errc::out_of_range) << "not computed yet";
  EXPECT_EQ(code(request.turn.shift(101, 1)), Errc::out_of_range);
  EXPECT_EQ(code(request.turn.shift(kHuge, kHuge)), Errc::out_of_range);
  EXPECT_EQ(code(request.turn.shift(1, kHuge)), Errc::out_of_range) << "no overflow";
  EXPECT_EQ(rig.engine.fingerprint(request.turn.sequence()), print);
  EXPECT_FALSE(rig.info(request).approximate);
  rig.compute(request);
  rig.finish(request);
}

TEST(SequenceTurns, BranchOfAShiftedSequenceIsNoBetter) {
  SequenceRig rig(shifting());
  Request request = rig.begin(kText);
  rig.run(request);
  ok(rig.try_shift(request, 10, 30));
  Result<Turn> branch = request.turn.fork();
  if (branch) {
    EXPECT_TRUE(branch->available() <= 10 || rig.cache.sequence(branch->sequence()).approximate);
    ok(branch->finish());
  }
  rig.drain();
  EXPECT_LE(rig.kept(request.text), 10U);
  rig.finish(request);
}

// ---- Room ---------------------------------------------------------------------------------------

TEST(SequenceTurns, PromptBeyondTheContextIsRefused) {
  for (const EngineKind& kind : every_engine([](EngineOptions& o) { o.context_tokens = 256; })) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(kind.options);
    rig.chat(kText, {.session = "a"});
    EXPECT_EQ(code(rig.try_begin(tokens(257, 2))), Errc::out_of_range);
    EXPECT_EQ(code(rig.try_begin(tokens(200, 2), {.reserve_tokens = 57})), Errc::out_of_range);
    EXPECT_EQ(code(rig.try_begin(tokens(200, 2), {.reserve_tokens = kHuge})), Errc::out_of_range);
    EXPECT_EQ(rig.cache.stats().leased_sequences, 0U);
    EXPECT_TRUE(rig.cache.session("a").resident) << "nothing was given up for it";
    Request most = rig.begin(tokens(200, 2), {.reserve_tokens = 56});
    rig.run(most);
    rig.answer(most, tokens(56, 3));
    rig.finish(most);
  }
}

TEST(SequenceTurns, IdleSequencesMakeRoom) {
  SequenceRig rig(small_context());
  for (uint32_t i = 1; i <= 3; ++i) {
    rig.chat(tokens(70, i), {.session = "session " + std::to_string(i)});
    rig.clock.advance_ns(10);
  }
  Request request = rig.begin(tokens(100, 4));
  rig.run(request);
  EXPECT_EQ(request.turn.report().victims, 1U) << "one is enough";
  EXPECT_FALSE(rig.cache.session("session 1").resident) << "the one unused longest";
  EXPECT_TRUE(rig.cache.session("session 2").resident);
  EXPECT_TRUE(rig.cache.session("session 3").resident);
  rig.finish(request);
}

TEST(SequenceTurns, RoomForTheAnswerIsMadeAtOnce) {
  SequenceRig rig(small_context());
  rig.chat(tokens(120, 1));
  Request request = rig.begin(tokens(60, 2), {.reserve_tokens = 100});
  rig.run(request);
  EXPECT_EQ(request.turn.report().victims, 1U);
  rig.answer(request, tokens(100, 3));
  rig.finish(request);
}

TEST(SequenceTurns, SequencesWithTheirOwnContextAreNotInTheWay) {
  SequenceRig rig(small_context(full_split_engine()));
  for (uint32_t i = 1; i <= 3; ++i) rig.chat(tokens(200, i));
  Request request = rig.begin(tokens(200, 4), {.reserve_tokens = 56});
  rig.run(request);
  EXPECT_EQ(request.turn.report().victims, 0U);
  rig.answer(request, tokens(56, 5));
  rig.finish(request);
  EXPECT_EQ(rig.cache.stats().idle_sequences, 4U);
}

TEST(SequenceTurns, RunningSequencesKeepTheirRoom) {
  SequenceRig rig(small_context());
  Request running = rig.begin(tokens(200, 1));
  rig.run(running);
  EXPECT_EQ(code(rig.try_begin(tokens(60, 2))), Errc::out_of_blocks);
  EXPECT_EQ(rig.cache.stats().leased_sequences, 1U);
  Request small = rig.begin(tokens(50, 2));
  rig.run(small);
  rig.finish(small);
  Request sharer = rig.begin(tokens(190, 1) + tokens(20, 3));
  EXPECT_EQ(rig.run(sharer).reused_tokens, 190U) << "what is shared takes no room";
  rig.finish(sharer);
  rig.answer(running, tokens(20, 4));
  rig.finish(running);
}

TEST(SequenceTurns, RoomOfARequestIsItsOwnFromTheBeginning) {
  SequenceRig rig(small_context());
  Request first = rig.begin(tokens(150, 1));
  EXPECT_EQ(code(rig.try_begin(tokens(150, 2))), Errc::out_of_blocks) << "begun, not executed";
  rig.execute(first);
  EXPECT_EQ(code(rig.try_begin(tokens(150, 2))), Errc::out_of_blocks) << "not computed yet";
  rig.compute(first);
  rig.finish(first);
  Request answering = rig.begin(tokens(100, 3), {.reserve_tokens = 100});
  rig.run(answering);
  EXPECT_EQ(code(rig.try_begin(tokens(100, 4))), Errc::out_of_blocks) << "left for the answer";
  rig.answer(answering, tokens(100, 5));
  rig.finish(answering);
}

TEST(SequenceTurns, MoreRoomIsMadeAtTheExpenseOfIdleOnes) {
  SequenceRig rig(small_context());
  rig.chat(tokens(100, 1), {.session = "a"});
  Request request = rig.begin(tokens(100, 2));
  rig.run(request);
  ok(request.turn.reserve(56));
  EXPECT_TRUE(rig.cache.session("a").resident) << "there was enough";
  ok(request.turn.reserve(57));
  rig.check("reserve");
  EXPECT_FALSE(rig.cache.session("a").resident);
  rig.answer(request, tokens(57, 3));
  EXPECT_EQ(code(request.turn.reserve(100)), Errc::out_of_blocks);
  EXPECT_EQ(code(request.turn.reserve(kHuge)), Errc::out_of_blocks);
  rig.finish(request);
}

TEST(SequenceTurns, RoomThatCannotBeHadCostsNobodyAnything) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    SequenceRig rig(small_context(kind.options));
    rig.chat(tokens(50, 1), {.session = "a"});
    Request running = rig.begin(tokens(50, 2));
    rig.run(running);
    Request request = rig.begin(tokens(50, 3));
    rig.run(request);
    const std::string before = rig.books();
    for (const uint32_t tokens : {207U, 1000U, kHuge}) {
      EXPECT_EQ(code(request.turn.reserve(tokens)), Errc::out_of_blocks) << tokens;
      EXPECT_EQ(rig.books(), before) << tokens;
    }
    EXPECT_TRUE(rig.cache.session("a").resident);
    rig.finish(running);
    rig.finish(request);
  }
}

TEST(SequenceTurns, RoomOfRunningSequencesIsNotTaken) {
  SequenceRig rig(small_context());
  Request other = rig.begin(tokens(150, 1));
  rig.run(other);
  Request request = rig.begin(tokens(50, 2));
  rig.run(request);
  EXPECT_EQ(code(request.turn.reserve(57)), Errc::out_of_blocks);
  ok(request.turn.reserve(56));
  rig.answer(request, tokens(56, 3));
  rig.finish(request);
  rig.answer(other, tokens(1, 4).first(0));
  rig.finish(other);
}

TEST(SequenceTurns, VictimsOfARequestForRoomAreSavedFirst) {
  SequenceRig rig(small_context());
  rig.chat(tokens(200, 1), {.session = "a"});
  const SequenceReport report = rig.chat(tokens(200, 2), {.session = "b"});
  EXPECT_EQ(report.victims, 1U);
  EXPECT_GT(report.saved_bytes, 0U);
  EXPECT_EQ(rig.chat(tokens(200, 1), {.session = "a"}).reused_tokens, 199U);
}

}  // namespace
}  // namespace stemma::test
