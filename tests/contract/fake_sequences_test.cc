// The fake notices each kind of wrong contents, has each trap of llama.cpp, and its faults do what
// their names say.
#include "support/fake_sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using Bytes = std::vector<uint8_t>;
using Options = FakeSequences::Options;

constexpr SequenceId kFakeA{0}, kFakeB{1}, kFakeC{2};
constexpr Held kUnfinished{.begin = 0, .end = 0, .whole = false};

Options full_model() { return {}; }
Options window_model() { return {.rewind = Rewind::window, .checkpoints = true}; }
Options hybrid_model() { return {.rewind = Rewind::exact, .checkpoints = true}; }
Options recurrent_model() {
  return {.rewind = Rewind::exact, .segments = false, .full_attention = false};
}

Bytes save(FakeSequences& engine, SequenceId sequence, Part part, Range range) {
  Bytes bytes(ok(engine.size(sequence, part, range)));
  EXPECT_EQ(ok(engine.save(sequence, part, range, bytes)), bytes.size());
  return bytes;
}

void load(FakeSequences& engine, SequenceId sequence, Part part, Range range, const Bytes& bytes) {
  ok(engine.load(sequence, part, range, range, bytes));
}

const Text kText = tokens(60);

// ---- right() sees -------------------------------------------------------------------------------

TEST(FakeSequences, SeesAnotherText) {
  for (const Options& options : {full_model(), window_model(), hybrid_model(), recurrent_model()}) {
    FakeSequences engine(options);
    ok(engine.compute(kFakeA, kText.tokens));
    EXPECT_EQ(engine.right(kFakeA, kText.tokens), "");
    Text other = kText;
    other.tokens[0] += 1;  // Every later position depends on it.
    EXPECT_NE(engine.right(kFakeA, other.tokens), "");
    EXPECT_NE(engine.right(kFakeA, kText.first(59).tokens), "");
    EXPECT_NE(engine.right(kFakeA, (kText + tokens(1, 2)).tokens), "");
    EXPECT_NE(engine.right(kFakeB, kText.tokens), "");
    EXPECT_EQ(engine.right(kFakeB, {}), "");
  }
}

TEST(FakeSequences, SeesGapsAndDoublesAlsoWhenTheyAddUp) {
  FakeSequences engine(full_model());
  ok(engine.compute(kFakeA, kText.tokens));
  const Bytes head = save(engine, kFakeA, Part::segment, {0, 20});
  const Bytes tail = save(engine, kFakeA, Part::segment, {40, 60});
  load(engine, kFakeB, Part::segment, {0, 20}, head);
  load(engine, kFakeB, Part::segment, {40, 60}, tail);
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "full attention, position 20 is missing");
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  load(engine, kFakeB, Part::segment, {0, 20}, head);  // 60 positions, of which 20 twice.
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "full attention, position 0 is there twice");
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
}

TEST(FakeSequences, SeesForeignPositions) {
  FakeSequences engine(full_model());
  const Text other = tokens(60, 2);
  ok(engine.compute(kFakeA, other.tokens));
  ok(engine.compute(kFakeB, kText.first(20).tokens));
  load(engine, kFakeB, Part::segment, {20, 60}, save(engine, kFakeA, Part::segment, {20, 60}));
  EXPECT_EQ(engine.held(kFakeB), (Held{0, 60})) << "nobody but right() can tell";
  EXPECT_EQ(engine.right(kFakeB, (kText.first(20) + other).first(60).tokens),
            "full attention, position 20 has other contents");
  EXPECT_NE(engine.right(kFakeB, kText.tokens), "");
  EXPECT_NE(engine.right(kFakeB, other.tokens), "");
}

TEST(FakeSequences, SeesThatTheWindowIsGone) {
  FakeSequences engine(window_model());
  const Text text = tokens(120);
  ok(engine.compute(kFakeA, text.tokens));
  load(engine, kFakeB, Part::state, {0, 120}, save(engine, kFakeA, Part::state, {0, 120}));
  EXPECT_EQ(engine.held(kFakeB), (Held{104, 120})) << "a blob carries only the window";
  EXPECT_EQ(code(engine.trim(kFakeB, 110)), kOk);
  EXPECT_EQ(engine.held(kFakeB), (Held{104, 110}));
  EXPECT_EQ(engine.right(kFakeB, text.first(110).tokens), "window, position 94 is missing");
  EXPECT_EQ(code(engine.trim(kFakeB, 60)), kOk);
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  EXPECT_NE(engine.right(kFakeB, text.first(60).tokens), "");
}

TEST(FakeSequences, SeesSegmentsWithoutACheckpointAndComputingDoesNotRepairThem) {
  for (const Options& options : {window_model(), hybrid_model()}) {
    FakeSequences engine(options);
    ok(engine.compute(kFakeA, kText.tokens));
    load(engine, kFakeB, Part::segment, {0, 60}, save(engine, kFakeA, Part::segment, {0, 60}));
    EXPECT_EQ(engine.held(kFakeB), kUnfinished);
    EXPECT_NE(engine.right(kFakeB, kText.tokens), "");
    const Text tail = tokens(40, 2);
    ok(engine.compute(kFakeB, tail.tokens));  // More than the window is there again.
    EXPECT_EQ(engine.held(kFakeB).end, 100U);
    EXPECT_NE(engine.right(kFakeB, (kText + tail).tokens), "");
  }
}

TEST(FakeSequences, SeesACheckpointLoadedBeforeTheSegmentsOfAHybrid) {
  FakeSequences engine(hybrid_model());
  ok(engine.compute(kFakeA, kText.tokens));
  load(engine, kFakeB, Part::checkpoint, {0, 60}, save(engine, kFakeA, Part::checkpoint, {0, 60}));
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  load(engine, kFakeB, Part::segment, {0, 60}, save(engine, kFakeA, Part::segment, {0, 60}));
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "the recurrent state is missing");
}

TEST(FakeSequences, SeesACheckpointOfAnotherDepthOrText) {
  for (const Options& options : {window_model(), hybrid_model()}) {
    FakeSequences engine(options);
    const Text other = tokens(60, 2);
    ok(engine.compute(kFakeA, kText.first(40).tokens));
    const Bytes earlier = save(engine, kFakeA, Part::checkpoint, {0, 40});
    ok(engine.clear(kFakeA));
    ok(engine.compute(kFakeA, other.tokens));
    const Bytes foreign = save(engine, kFakeA, Part::checkpoint, {0, 60});
    ok(engine.compute(kFakeB, kText.tokens));
    load(engine, kFakeB, Part::checkpoint, {0, 60}, foreign);
    EXPECT_EQ(engine.held(kFakeB).end, 60U);
    EXPECT_NE(engine.right(kFakeB, kText.tokens), "");
    load(engine, kFakeB, Part::checkpoint, {0, 60}, earlier);
    EXPECT_EQ(engine.held(kFakeB), kUnfinished);
    EXPECT_NE(engine.right(kFakeB, kText.tokens), "");
  }
}

TEST(FakeSequences, SeesThatACopiedStateIsThatOfTheEnd) {
  FakeSequences engine(hybrid_model());
  ok(engine.compute(kFakeA, kText.tokens));
  ok(engine.copy(kFakeA, kFakeB, {0, 30}));
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  EXPECT_EQ(engine.right(kFakeB, kText.first(30).tokens),
            "the recurrent state is that of depth 60");
  FakeSequences pure(recurrent_model());
  ok(pure.compute(kFakeA, kText.tokens));
  ok(pure.copy(kFakeA, kFakeB, {0, 30}));
  EXPECT_EQ(pure.held(kFakeB), (Held{59, 60}));
  EXPECT_EQ(pure.right(kFakeB, kText.tokens), "");
}

TEST(FakeSequences, SeesEveryFlippedBitThatIsAccepted) {
  for (Options options : {full_model(), window_model(), hybrid_model(), recurrent_model()}) {
    options.row_bytes = 21;
    FakeSequences engine(options);
    ok(engine.compute(kFakeA, kText.first(20).tokens));
    const Bytes state = save(engine, kFakeA, Part::state, {0, 20});
    uint32_t accepted = 0;
    for (size_t i = 0; i < state.size(); ++i) {
      Bytes flipped = state;
      flipped[i] ^= static_cast<uint8_t>(1 << i % 8);
      accepted += engine.load(kFakeB, Part::state, {0, 20}, {0, 20}, flipped) ? 1 : 0;
      EXPECT_NE(engine.right(kFakeB, kText.first(20).tokens), "") << "byte " << i;
      ok(engine.clear(kFakeB));
      ASSERT_EQ(engine.held(kFakeB), Held{});
    }
    EXPECT_GE(accepted, state.size() - 20) << "there is no integrity check";
    load(engine, kFakeB, Part::state, {0, 20}, state);
    EXPECT_EQ(engine.right(kFakeB, kText.first(20).tokens), "");
  }
}

TEST(FakeSequences, SeesAnotherModelsState) {
  Options other = full_model();
  other.model = 2;
  FakeSequences engine(full_model()), stranger(other);
  ok(stranger.compute(kFakeA, kText.tokens));
  load(engine, kFakeA, Part::state, {0, 60}, save(stranger, kFakeA, Part::state, {0, 60}));
  EXPECT_EQ(engine.held(kFakeA), (Held{0, 60}));
  EXPECT_NE(engine.right(kFakeA, kText.tokens), "");
}

TEST(FakeSequences, WhatIsComputedBehindWrongContentsStaysWrong) {
  FakeSequences engine(full_model());
  ok(engine.compute(kFakeA, kText.tokens));
  load(engine, kFakeB, Part::segment, {0, 60}, save(engine, kFakeA, Part::segment, {0, 60}));
  load(engine, kFakeB, Part::segment, {0, 10}, save(engine, kFakeA, Part::segment, {0, 10}));
  ok(engine.compute(kFakeB, tokens(5, 2).tokens));
  // The good head again, and what was computed behind the doubled one.
  const Text text = kText + tokens(5, 2);
  ok(engine.compute(kFakeA, tokens(5, 2).tokens));
  EXPECT_EQ(engine.right(kFakeA, text.tokens), "");
  EXPECT_NE(engine.fingerprint(kFakeA), engine.fingerprint(kFakeB));
  ok(engine.copy(kFakeA, kFakeC, {0, 60}));
  ok(engine.copy(kFakeB, kFakeC, {60, 65}));
  EXPECT_EQ(engine.right(kFakeC, text.tokens), "full attention, position 60 has other contents");
}

// ---- Traps --------------------------------------------------------------------------------------

TEST(FakeSequences, NoBytesAndABlobOfNothingAreSuccessesThatChangeNothing) {
  FakeSequences engine(full_model());
  ok(engine.compute(kFakeA, kText.tokens));
  Bytes nothing = save(engine, kFakeA, Part::state, {0, 60});
  nothing.resize(20);
  std::fill(nothing.begin() + 8, nothing.end(), uint8_t{0});
  for (const Bytes& bytes : {Bytes{}, nothing}) {
    EXPECT_EQ(code(engine.load(kFakeA, Part::state, {0, 9}, {0, 9}, bytes)), kOk);
    EXPECT_EQ(engine.right(kFakeA, kText.tokens), "");
    EXPECT_EQ(code(engine.load(kFakeB, Part::state, {0, 9}, {0, 9}, bytes)), kOk);
    EXPECT_EQ(engine.held(kFakeB), Held{});
  }
}

TEST(FakeSequences, FailedLoadEmptiesItsDestination) {
  FakeSequences engine(window_model());
  ok(engine.compute(kFakeA, kText.tokens));
  const Bytes state = save(engine, kFakeA, Part::state, {0, 60});
  const Bytes checkpoint = save(engine, kFakeA, Part::checkpoint, {0, 60});
  const auto cut = [](const Bytes& bytes) { return std::span(bytes).first(bytes.size() - 1); };
  ok(engine.copy(kFakeA, kFakeB, {0, 60}));
  EXPECT_EQ(code(engine.load(kFakeB, Part::checkpoint, {0, 60}, {0, 60}, cut(checkpoint))),
            Errc::corrupt);
  EXPECT_EQ(engine.held(kFakeB), kUnfinished);
  load(engine, kFakeB, Part::checkpoint, {0, 60}, checkpoint);
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "");
  EXPECT_EQ(code(engine.load(kFakeB, Part::state, {0, 60}, {0, 60}, cut(state))), Errc::corrupt);
  EXPECT_EQ(engine.held(kFakeB), Held{});
  EXPECT_EQ(engine.right(kFakeA, kText.tokens), "");
}

TEST(FakeSequences, StateReplacesWhatWasThere) {
  FakeSequences engine(window_model());
  ok(engine.compute(kFakeA, kText.tokens));
  ok(engine.compute(kFakeB, tokens(99, 2).tokens));
  load(engine, kFakeB, Part::state, {0, 60}, save(engine, kFakeA, Part::state, {0, 60}));
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "");
  EXPECT_EQ(engine.used_tokens(), 120U);
}

TEST(FakeSequences, SharedWindowCellsStopDecodingUntilTheForkGoes) {
  Options options = window_model();
  options.shares_window = true;
  options.sequences = 3;
  FakeSequences engine(options);
  ok(engine.compute(kFakeA, kText.tokens));
  ok(engine.copy(kFakeA, kFakeB, {0, 60}));
  EXPECT_EQ(engine.right(kFakeB, kText.tokens), "");
  ok(engine.compute(kFakeA, tokens(24, 2).tokens));
  EXPECT_EQ(code(engine.compute(kFakeB, tokens(40, 3).tokens)), kOk);
  EXPECT_EQ(code(engine.compute(kFakeC, tokens(40, 4).tokens)), Errc::out_of_blocks);
  EXPECT_EQ(engine.right(kFakeA, (kText + tokens(24, 2)).tokens), "");
  ok(engine.clear(kFakeB));
  ok(engine.compute(kFakeC, tokens(40, 4).tokens));
  EXPECT_EQ(engine.right(kFakeC, tokens(40, 4).tokens), "");
}

// ---- Bytes, costs, counts -----------------------------------------------------------------------

TEST(FakeSequences, BlobsAreAsLongAsTheirContents) {
  Options options = window_model();
  options.row_bytes = 100;
  FakeSequences engine(options);
  const EngineTraits traits = engine.traits();
  ok(engine.compute(kFakeA, kText.tokens));
  EXPECT_EQ(save(engine, kFakeA, Part::segment, {0, 60}).size() -
                save(engine, kFakeA, Part::segment, {0, 30}).size(),
            30 * traits.bytes_per_token);
  EXPECT_EQ(traits.bytes_per_token, 108U);
  EXPECT_EQ(save(engine, kFakeA, Part::checkpoint, {0, 60}).size(), 20 + 16 * 108U);
  EXPECT_EQ(save(engine, kFakeA, Part::state, {0, 60}).size(), 20 + 76 * 108U);
}

TEST(FakeSequences, CostsAddUp) {
  Options options = full_model();
  options.costs = {.call_ns = 10,
                   .save_ns = 100,
                   .load_ns = 1000,
                   .save_byte_ps = 1000,
                   .load_byte_ps = 2000,
                   .token_ns = 100'000};
  FakeSequences engine(options);
  ok(engine.compute(kFakeA, kText.tokens));
  EXPECT_EQ(engine.elapsed_ns(), 60U * 100'000 + 10);
  Bytes bytes(20 + 60 * 24);
  ok(engine.save(kFakeA, Part::state, {0, 60}, bytes));
  EXPECT_EQ(engine.elapsed_ns(), 6'000'010 + 110 + bytes.size());
  load(engine, kFakeB, Part::state, {0, 60}, bytes);
  EXPECT_EQ(engine.elapsed_ns(), 6'000'010 + 110 + 1010 + 3 * bytes.size());
  ok(engine.copy(kFakeA, kFakeC, {0, 60}));
  static_cast<void>(engine.held(kFakeC));
  EXPECT_EQ(engine.elapsed_ns(), 6'000'010 + 110 + 1010 + 10 + 3 * bytes.size());
  EXPECT_EQ(engine.counts().computed_tokens, 60U);
  EXPECT_EQ(engine.counts().copied_tokens, 60U);
  EXPECT_EQ(engine.counts().saved_bytes, bytes.size());
  EXPECT_EQ(engine.counts().loaded_bytes, bytes.size());
  EXPECT_EQ(engine.counts().of(Call::load), 1U);
  EXPECT_EQ(engine.counts().of(Call::held), 1U);
}

// ---- Faults -------------------------------------------------------------------------------------

// An engine without faults shows what a call would have done.
TEST(FakeSequences, FaultsDoWhatTheirNamesSay) {
  Options options = hybrid_model();
  options.shift = true;
  for (const Call call :
       {Call::clear, Call::trim, Call::copy, Call::load, Call::shift, Call::compute}) {
    uint64_t untouched = 0, done = 0;
    for (uint32_t f = 0; f < kFaults; ++f) {
      const auto fault = static_cast<Fault>(f);
      if (!possible(call, fault)) continue;
      FakeSequences engine(options);
      ok(engine.compute(kFakeA, kText.tokens));
      const Bytes state = save(engine, kFakeA, Part::state, {0, 60});
      if (call != Call::copy && call != Call::load) ok(engine.copy(kFakeA, kFakeB, {0, 60}));
      untouched = engine.fingerprint(kFakeB);
      const uint64_t other = engine.fingerprint(kFakeA);
      engine.faults.next(call, fault);
      const Result<void> result =
          call == Call::clear   ? engine.clear(kFakeB)
          : call == Call::trim  ? engine.trim(kFakeB, 0)
          : call == Call::copy  ? engine.copy(kFakeA, kFakeB, {0, 60})
          : call == Call::load  ? engine.load(kFakeB, Part::state, {0, 60}, {0, 60}, state)
          : call == Call::shift ? engine.shift(kFakeB, 10, 10)
                                : engine.compute(kFakeB, tokens(10, 2).tokens);
      const uint64_t print = engine.fingerprint(kFakeB);
      if (fault == Fault::none) done = print;
      const bool lies = fault == Fault::lie_nothing || fault == Fault::lie_half;
      const std::string what = to_string(call) + " " + to_string(fault);
      EXPECT_EQ(result.has_value(), lies || fault == Fault::none) << what;
      const bool half = fault == Fault::halfway || fault == Fault::lie_half;
      const bool all = fault == Fault::after || fault == Fault::none;
      EXPECT_EQ(print == done, all) << what;
      EXPECT_EQ(print == untouched, !all && !half) << what;
      EXPECT_EQ(engine.fingerprint(kFakeA), other) << what;
      EXPECT_EQ(engine.faults.happened().size(), fault == Fault::none ? 0U : 1U);
    }
  }
}

TEST(FakeSequences, HeldAndSizesCanLieToo) {
  FakeSequences engine(full_model());
  ok(engine.compute(kFakeA, kText.tokens));
  engine.faults.next(Call::held, Fault::lie_nothing);
  EXPECT_EQ(engine.held(kFakeA), Held{});
  engine.faults.next(Call::held, Fault::lie_half);
  EXPECT_EQ(engine.held(kFakeA), (Held{0, 61}));
  EXPECT_EQ(engine.held(kFakeA), (Held{0, 60}));
  const uint64_t size = ok(engine.size(kFakeA, Part::state, {0, 60}));
  engine.faults.next(Call::size, Fault::lie_half);
  EXPECT_EQ(ok(engine.size(kFakeA, Part::state, {0, 60})), size / 2);
  engine.faults.next(Call::save, Fault::lie_half);
  Bytes half(size);
  EXPECT_EQ(ok(engine.save(kFakeA, Part::state, {0, 60}, half)), size);
  load(engine, kFakeB, Part::state, {0, 60}, half);
  EXPECT_EQ(engine.held(kFakeB), (Held{0, 30}));
}

}  // namespace
}  // namespace stemma::test
