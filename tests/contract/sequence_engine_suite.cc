#include "contract/sequence_engine_suite.h"

namespace stemma::test {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SequenceEngineContract);

TEST_P(SequenceEngineContract, ComputedTextIsHeldAndRight) {
  EXPECT_EQ(engine.held(kA), Held{});
  for (uint32_t n = 0; n < 60; n += 5) {
    ok(rig->compute(kA, std::span(text.tokens).subspan(n, 5)));
    expect_right(kA, text.first(n + 5));
  }
  EXPECT_EQ(engine.held(kB), Held{});
  EXPECT_EQ(engine.traits().rewind, traits.rewind);
}

TEST_P(SequenceEngineContract, StateMovesToAnotherSequence) {
  compute(kA, text);
  if (!saves()) {
    EXPECT_EQ(code(engine.size(kA, Part::state, {0, 60})), Errc::unsupported);
    return;
  }
  const Bytes state = save(kA, Part::state, {0, 60});
  EXPECT_LE(state.size(),
            traits.fixed_bytes + 60 * traits.bytes_per_token + traits.checkpoint_bytes);
  expect_right(kA, text);
  load(kB, Part::state, {0, 60}, state);
  expect_goes_on(kB, text, 2);
  expect_goes_on(kA, text, 3);
  load(kC, Part::state, {0, 60}, state);
  expect_goes_on(kC, text, 4);
}

TEST_P(SequenceEngineContract, StateIsSavedOfAllThatIsHeld) {
  if (!saves()) GTEST_SKIP() << "no states";
  compute(kA, text);
  EXPECT_EQ(code(engine.size(kA, Part::state, {0, 61})), Errc::out_of_range);
  EXPECT_EQ(code(engine.size(kA, Part::state, {0, 59})), Errc::out_of_range);
  EXPECT_EQ(code(engine.size(kB, Part::state, {0, 1})), Errc::out_of_range);
}

TEST_P(SequenceEngineContract, SegmentsComposeBehindEachOther) {
  compute(kA, text, {20, 45, 60});
  if (!traits.segments) {
    EXPECT_EQ(code(engine.size(kA, Part::segment, {0, 20})), Errc::unsupported);
    return;
  }
  for (const Range range : {Range{0, 20}, Range{20, 45}, Range{45, 60}}) {
    const Bytes segment = save(kA, Part::segment, range);
    EXPECT_LE(segment.size(),
              traits.fixed_bytes + (range.end - range.begin) * traits.bytes_per_token);
    load(kB, Part::segment, range, segment);
    if (needs_checkpoint()) {
      EXPECT_EQ(engine.held(kB), (Held{.begin = 0, .end = 0, .whole = false}));
      EXPECT_NE(rig->right(kB, text.first(range.end).tokens), "");
    } else {
      expect_right(kB, text.first(range.end));
    }
  }
  if (!segments_are_enough()) return;
  complete(kB, 60);
  expect_goes_on(kB, text, 2);
  expect_right(kA, text);
}

TEST_P(SequenceEngineContract, RangesAreMadeOfSegmentsAndSegmentsOfRanges) {
  if (traits.range_tokens == 0) {
    Bytes bytes(100);
    ByteSum sum;
    EXPECT_EQ(code(engine.cut({0, 2}, bytes, {0, 1}, bytes, sum)), Errc::unsupported);
    EXPECT_EQ(code(engine.join({0, 1}, bytes, {0, 1}, {0, 2}, bytes, sum)), Errc::unsupported);
    return;
  }
  ASSERT_TRUE(traits.segments);
  compute(kA, text, {20, 45, 60});
  const auto size_of = [&](Range range) {
    return traits.fixed_bytes + (range.end - range.begin) * traits.bytes_per_token;
  };
  const Range whole{3, 60};
  const Bytes bytes = save(kA, Part::segment, whole);
  ASSERT_EQ(bytes.size(), size_of(whole));
  for (const Range part : {Range{3, 60}, Range{3, 4}, Range{16, 32}, Range{59, 60}}) {
    Bytes cut(size_of(part));
    ByteSum sum;
    ok(engine.cut(whole, bytes, part, cut, sum));
    EXPECT_EQ(cut, save(kA, Part::segment, part));
    EXPECT_EQ(sum.value(), ByteSum::of(cut));
  }
  // Of pieces that overlap, in any order.
  const Range first{0, 30};
  const Range last{20, 60};
  const Bytes head = save(kA, Part::segment, first);
  const Bytes tail = save(kA, Part::segment, last);
  Bytes joined(bytes.size());
  ByteSum of_tail;
  ByteSum of_head;
  ok(engine.join(last, tail, {25, 60}, whole, joined, of_tail));
  ok(engine.join(first, head, {3, 25}, whole, joined, of_head));
  EXPECT_EQ(joined, bytes);
  // Everything read counts, wanted or not.
  EXPECT_EQ(of_tail.value(), ByteSum::of(tail));
  EXPECT_EQ(of_head.value(), ByteSum::of(head));
  // What does not fit together is refused.
  ByteSum sum;
  EXPECT_FALSE(engine.join(first, head, {3, 31}, whole, joined, sum));
  EXPECT_FALSE(engine.join(first, head, {2, 25}, whole, joined, sum));
  EXPECT_FALSE(engine.join(first, tail, {3, 25}, whole, joined, sum));
  EXPECT_FALSE(engine.join(first, head, {3, 25}, {3, 59}, joined, sum));
  EXPECT_FALSE(engine.cut(whole, bytes, {16, 32}, std::span(joined).first(10), sum));
}

// If an engine reuses freed memory at once, a sequence's positions may lie in another order than
// they came.
TEST_P(SequenceEngineContract, RangesAreCutByPositionsWhereverTheyLie) {
  if (traits.range_tokens == 0 || !traits.unified) GTEST_SKIP() << "no ranges";
  compute(kB, text.first(20), {20});
  compute(kA, text.first(30), {30});
  ok(engine.clear(kB));
  ok(rig->compute(kA, std::span(text.tokens).subspan(30)));
  const Range whole{0, 60};
  const Bytes bytes = save(kA, Part::segment, whole);
  ok(engine.clear(kC));
  for (const Range part : {Range{0, 16}, Range{16, 32}, Range{32, 48}, Range{48, 60}}) {
    Bytes cut(traits.fixed_bytes + (part.end - part.begin) * traits.bytes_per_token);
    ByteSum sum;
    ok(engine.cut(whole, bytes, part, cut, sum));
    EXPECT_EQ(sum.value(), ByteSum::of(cut));
    load(kC, Part::segment, part, cut);
  }
  if (!needs_checkpoint()) expect_right(kC, text);
}

TEST_P(SequenceEngineContract, PartOfASegmentIsEnough) {
  if (!segments_are_enough()) GTEST_SKIP() << "no segments";
  compute(kA, text, {10, 33, 60});
  const Bytes head = save(kA, Part::segment, {0, 10});
  const Bytes rest = save(kA, Part::segment, {5, 60});
  load(kB, Part::segment, {0, 10}, head);
  ok(engine.load(kB, Part::segment, {5, 60}, {10, 33}, rest));
  complete(kB, 33);
  expect_goes_on(kB, text.first(33), 2);
}

TEST_P(SequenceEngineContract, SegmentsGoBehindAForkedPrefix) {
  if (!segments_are_enough() || (traits.fork != Fork::shared && traits.fork != Fork::copy)) {
    GTEST_SKIP() << "no segments or no copies";
  }
  const Text other = text.first(25) + tokens(35, 9);
  compute(kC, other, {60});
  const Bytes tail = save(kC, Part::segment, {25, 60});
  ok(engine.clear(kC));
  compute(kA, text);
  ok(engine.copy(kA, kB, {0, 25}));
  load(kB, Part::segment, {25, 60}, tail);
  complete(kB, 60);
  expect_goes_on(kB, other, 2);
  expect_goes_on(kA, text, 3);
}

TEST_P(SequenceEngineContract, CheckpointBringsASequenceBack) {
  compute(kA, text, {7, 30});
  if (!traits.checkpoints) {
    EXPECT_EQ(code(engine.size(kA, Part::checkpoint, {0, 30})), Errc::unsupported);
    return;
  }
  for (const Checkpoint& c : checkpoints) EXPECT_LE(c.bytes.size(), traits.checkpoint_bytes);
  ok(rig->compute(kA, std::span(text.tokens).subspan(30)));
  load(kA, Part::checkpoint, {0, 30}, checkpoint(30));
  expect_goes_on(kA, text.first(30), 2);
  load(kA, Part::checkpoint, {0, 7}, checkpoint(7));
  expect_goes_on(kA, text.first(7), 3);
}

TEST_P(SequenceEngineContract, CheckpointIsSavedWhereTheSequenceCanBeResumed) {
  if (!traits.checkpoints) GTEST_SKIP() << "no checkpoints";
  compute(kA, text);
  for (const uint32_t n : depths(1, 60)) {
    const bool possible =
        n == 60 || (traits.rewind == Rewind::window && can_resume(traits, engine.held(kA), n));
    EXPECT_EQ(code(engine.size(kA, Part::checkpoint, {0, n})), possible ? kOk : Errc::wrong_state);
    if (!possible) continue;
    const Bytes late = save(kA, Part::checkpoint, {0, n});
    load(kB, Part::state, {0, 60}, save(kA, Part::state, {0, 60}));
    load(kB, Part::checkpoint, {0, n}, late);
    expect_right(kB, text.first(n));
    ok(engine.clear(kB));
  }
  EXPECT_EQ(code(engine.size(kA, Part::checkpoint, {0, 61})), Errc::out_of_range);
}

// The ways in which a sequence gets the text; kB holds it afterwards.
TEST_P(SequenceEngineContract, TrimIsRightExactlyWhenHeldSaysSo) {
  std::vector<std::function<void()>> ways = {[&] { compute(kB, text); }};
  if (saves()) {
    ways.emplace_back([&] {
      compute(kA, text);
      load(kB, Part::state, {0, 60}, save(kA, Part::state, {0, 60}));
    });
  }
  ways.emplace_back([&] {  // Another tail was there before, where that can be trimmed.
    compute(kB, text.first(58) + tokens(2, 9));
    if (!engine.trim(kB, 58) || !can_resume(traits, engine.held(kB), 58)) ok(engine.clear(kB));
    const uint32_t begin = engine.held(kB).end;
    ok(rig->compute(kB, std::span(text.tokens).subspan(begin)));
  });
  if (traits.fork == Fork::shared) {
    ways.emplace_back([&] {
      compute(kA, text);
      compute(kB, text.first(57));
      ok(engine.copy(kA, kB, {57, 60}));
    });
  }
  if (traits.checkpoints) {
    ways.emplace_back([&] {
      compute(kB, text);
      const Bytes checkpoint = save(kB, Part::checkpoint, {0, 60});
      compute(kB, tokens(9, 9));
      load(kB, Part::checkpoint, {0, 60}, checkpoint);
    });
  }
  for (size_t way = 0; way < ways.size(); ++way) {
    uint32_t resumed = 0;
    for (const uint32_t n : depths(0, 62)) {
      ways[way]();
      if (n == 0 || !rig->slow()) expect_right(kB, text);
      const uint32_t wanted = std::min(n, 60U);
      const bool foretold = can_resume(traits, engine.held(kB), wanted);
      const Result<void> trimmed = engine.trim(kB, n);
      const Held held = engine.held(kB);
      const bool resumes =
          trimmed && held.whole && held.end == wanted && can_resume(traits, held, wanted);
      EXPECT_EQ(resumes, foretold) << "way " << way << ", trim to " << n;
      EXPECT_EQ(rig->right(kB, text.first(wanted).tokens).empty(), resumes) << way << ", " << n;
      if (!trimmed) {
        EXPECT_EQ(code(trimmed), Errc::wrong_state);
        expect_right(kB, text);
      }
      resumed += resumes ? 1 : 0;
      ok(engine.clear(kA));
      ok(engine.clear(kB));
    }
    EXPECT_GE(resumed, 4U);
  }
}

TEST_P(SequenceEngineContract, CopiesPartWaysWithoutDisturbingEachOther) {
  compute(kA, text);
  if (traits.fork != Fork::shared && traits.fork != Fork::copy) {
    EXPECT_EQ(code(engine.copy(kA, kB, {0, 60})), Errc::unsupported);
    return;
  }
  ok(engine.copy(kA, kB, {0, 60}));
  expect_right(kB, text);
  expect_goes_on(kA, text, 2);
  ok(engine.copy(kB, kC, {0, 60}));
  expect_goes_on(kB, text, 3);
  expect_goes_on(kC, text, 4);
  ok(engine.clear(kB));
  expect_right(kA, text + tokens(40, 2));
  expect_right(kC, text + tokens(40, 4));
}

TEST_P(SequenceEngineContract, EverySequenceOfAFamilyCanGrow) {
  if (traits.fork != Fork::shared && traits.fork != Fork::copy) GTEST_SKIP() << "no copies";
  const uint32_t family = std::min(traits.sequences, 8U);
  compute(kA, text);
  for (uint32_t s = 1; s < family; ++s) ok(engine.copy(kA, SequenceId{s}, {0, 60}));
  for (uint32_t s = 0; s < family; ++s) expect_goes_on(SequenceId{s}, text, 2 + s);
  for (uint32_t s = 0; s < family; ++s) expect_right(SequenceId{s}, text + tokens(40, 2 + s));
}

TEST_P(SequenceEngineContract, CopyThatEndsEarlierIsRightWhenHeldSaysSo) {
  if (traits.fork != Fork::shared && traits.fork != Fork::copy) GTEST_SKIP() << "no copies";
  compute(kA, text, {30, 60});
  for (const uint32_t n : depths(1, 60)) {
    ok(engine.copy(kA, kB, {0, n}));
    const Held held = engine.held(kB);
    const bool resumes = held.end == n && can_resume(traits, held, n);
    EXPECT_EQ(rig->right(kB, text.first(n).tokens).empty(), resumes) << n;
    EXPECT_TRUE(resumes || (traits.rewind != Rewind::any && n != 60)) << n;
    ok(engine.clear(kB));
  }
  if (!traits.checkpoints) return;
  ok(engine.copy(kA, kB, {0, 30}));
  complete(kB, 30);
  expect_goes_on(kB, text.first(30), 2);
  expect_goes_on(kA, text, 3);
}

TEST_P(SequenceEngineContract, CopyGoesBehindWhatIsHeld) {
  compute(kA, text);
  if (traits.fork == Fork::copy) {
    EXPECT_EQ(code(engine.copy(kA, kB, {20, 60})), Errc::unsupported);
  }
  if (traits.fork != Fork::shared) GTEST_SKIP() << "no copies of a part";
  compute(kB, text.first(20));
  ok(engine.copy(kA, kB, {20, 60}));
  expect_goes_on(kB, text, 2);
  expect_right(kA, text);
}

TEST_P(SequenceEngineContract, TruncatedBytesAreRefusedAndTheGoodOnesLoadAfterwards) {
  if (!saves()) GTEST_SKIP() << "no states";
  compute(kA, text);
  const Text other = tokens(30, 5);
  compute(kB, other);
  const Bytes state = save(kA, Part::state, {0, 60});
  for (const uint64_t length : {uint64_t{1}, uint64_t{7}, state.size() / 3, state.size() - 1}) {
    EXPECT_FALSE(engine.load(kC, Part::state, {0, 60}, {0, 60}, std::span(state).first(length)));
    EXPECT_NE(engine.held(kC).end, 60U);
    ok(engine.clear(kC));
    EXPECT_EQ(engine.held(kC), Held{});
    load(kC, Part::state, {0, 60}, state);
    expect_right(kC, text);
    ok(engine.clear(kC));
  }
  expect_right(kA, text);
  expect_right(kB, other);
}

TEST_P(SequenceEngineContract, NoBytesNeverPassForALoad) {
  if (!saves()) GTEST_SKIP() << "no states";
  static_cast<void>(engine.load(kA, Part::state, {0, 60}, {0, 60}, {}));
  EXPECT_EQ(engine.held(kA).end, 0U);
  compute(kB, text);
  if (traits.checkpoints) {
    static_cast<void>(engine.load(kB, Part::checkpoint, {0, 30}, {0, 30}, {}));
    EXPECT_NE(engine.held(kB).end, 30U);
  }
}

// Every call with every outcome, real or made, is about one sequence.
TEST_P(SequenceEngineContract, OtherSequencesAreUntouchedByEveryCallAndEveryFailure) {
  const Text shared = text.first(25) + tokens(20, 7);
  const bool copies = traits.fork == Fork::shared || traits.fork == Fork::copy;
  compute(kA, text, {15, 25, 60});
  Bytes state, segment;
  if (saves()) state = save(kA, Part::state, {0, 60});
  if (traits.segments) segment = save(kA, Part::segment, {10, 60});
  compute(kC, shared);
  const auto steps = [&](const std::function<void(Call)>& before) {
    const auto check = [&] {
      expect_right(kA, text);
      expect_right(kC, shared);
    };
    const auto fresh = [&](uint32_t n) {
      static_cast<void>(engine.clear(kB));
      if (n != 0) compute(kB, text.first(n));
    };
    fresh(0);
    before(Call::compute);
    static_cast<void>(rig->compute(kB, text.tokens));
    check();
    fresh(30);
    before(Call::trim);
    static_cast<void>(engine.trim(kB, 12));
    check();
    if (copies) {
      fresh(0);
      before(Call::copy);
      static_cast<void>(engine.copy(kA, kB, {0, 60}));
      check();
      fresh(0);
      ok(engine.copy(kA, kB, {0, 60}));
      static_cast<void>(engine.trim(kB, 25));
      check();
    }
    if (traits.shift) {
      fresh(0);
      if (copies) {
        ok(engine.copy(kA, kB, {0, 60}));
      } else {
        compute(kB, text);
      }
      before(Call::shift);
      static_cast<void>(engine.shift(kB, 5, 10));
      check();
    }
    if (saves()) {
      fresh(30);
      before(Call::load);
      static_cast<void>(engine.load(kB, Part::state, {0, 60}, {0, 60}, state));
      check();
      Bytes out(state.size());
      before(Call::save);
      static_cast<void>(engine.save(kA, Part::state, {0, 60}, out));
      check();
    }
    if (traits.segments) {
      fresh(20);
      before(Call::load);
      static_cast<void>(engine.load(kB, Part::segment, {10, 60}, {20, 50}, segment));
      check();
    }
    if (traits.checkpoints) {
      fresh(30);
      before(Call::load);
      static_cast<void>(engine.load(kB, Part::checkpoint, {0, 15}, {0, 15}, checkpoint(15)));
      check();
    }
    fresh(30);
    before(Call::clear);
    static_cast<void>(engine.clear(kB));
    check();
  };
  steps([](Call) {});
  for (uint32_t f = 1; f < kFaults; ++f) {
    const auto fault = static_cast<Fault>(f);
    steps([&](Call call) {
      if (possible(call, fault)) static_cast<void>(rig->fail_next(call, fault));
    });
  }
  ok(engine.clear(kB));
  expect_goes_on(kA, text, 2);
  expect_goes_on(kC, shared, 3);
}

TEST_P(SequenceEngineContract, ClearGivesTheRoomBack) {
  const Text long_text = tokens(traits.context_tokens, 3);
  compute(kA, long_text);
  EXPECT_EQ(code(rig->compute(kA, text.tokens)), Errc::out_of_blocks);
  expect_right(kA, long_text);
  ok(engine.clear(kA));
  EXPECT_EQ(engine.held(kA), Held{});
  ok(engine.clear(kA));
  compute(kB, long_text);
  expect_right(kB, long_text);
}

TEST_P(SequenceEngineContract, RoomIsSharedOrNotAsTheTraitsSay) {
  if (traits.bytes_per_token == 0) GTEST_SKIP() << "positions take no room";
  compute(kA, tokens(traits.context_tokens - 30, 3));
  EXPECT_EQ(code(rig->compute(kB, text.tokens)), traits.unified ? Errc::out_of_blocks : kOk);
  EXPECT_EQ(engine.held(kB).end, traits.unified ? 0U : 60U);
}

TEST_P(SequenceEngineContract, SharedPositionsTakeRoomOnce) {
  if (traits.fork != Fork::shared || traits.bytes_per_token == 0) GTEST_SKIP() << "no sharing";
  const Text long_text = tokens(traits.context_tokens - 40, 3);
  compute(kA, long_text);
  ok(engine.copy(kA, kB, {0, long_text.size()}));
  ok(engine.copy(kA, kC, {0, long_text.size()}));
  compute(kB, tokens(20, 4));
  compute(kC, tokens(20, 5));
  EXPECT_EQ(code(rig->compute(kA, tokens(1, 6).tokens)), Errc::out_of_blocks);
  ok(engine.clear(kA));  // Nothing of it was its own.
  EXPECT_EQ(code(rig->compute(kA, tokens(1, 6).tokens)), Errc::out_of_blocks);
  ok(engine.clear(kB));
  compute(kA, tokens(20, 6));
  expect_right(kC, long_text + tokens(20, 5));
}

TEST_P(SequenceEngineContract, LoadWithoutRoomFailsAndWorksLater) {
  if (!saves() || !traits.unified || traits.bytes_per_token == 0) GTEST_SKIP() << "room enough";
  compute(kA, text);
  const Bytes state = save(kA, Part::state, {0, 60});
  ok(engine.clear(kA));
  const Text long_text = tokens(traits.context_tokens - 59, 3);
  compute(kB, long_text);
  EXPECT_EQ(code(engine.load(kA, Part::state, {0, 60}, {0, 60}, state)), Errc::out_of_blocks);
  ok(engine.clear(kA));
  expect_right(kB, long_text);
  ok(engine.clear(kB));
  load(kA, Part::state, {0, 60}, state);
  expect_goes_on(kA, text, 2);
}

TEST_P(SequenceEngineContract, BadCallsAreRefusedAndChangeNothing) {
  compute(kA, text);
  const SequenceId nobody{traits.sequences};
  Bytes bytes(1 << 16);
  EXPECT_EQ(engine.held(nobody), Held{});
  EXPECT_EQ(code(engine.clear(nobody)), Errc::invalid_argument);
  EXPECT_EQ(code(engine.trim(nobody, 3)), Errc::invalid_argument);
  EXPECT_EQ(code(engine.copy(kA, nobody, {0, 9})), Errc::invalid_argument);
  EXPECT_EQ(code(engine.copy(nobody, kA, {0, 9})), Errc::invalid_argument);
  EXPECT_EQ(code(engine.copy(kA, kA, {0, 9})), Errc::invalid_argument);
  EXPECT_EQ(code(engine.size(nobody, Part::state, {0, 9})), Errc::invalid_argument);
  EXPECT_EQ(code(engine.save(nobody, Part::state, {0, 9}, bytes)), Errc::invalid_argument);
  EXPECT_EQ(code(engine.load(nobody, Part::state, {0, 9}, {0, 9}, bytes)), Errc::invalid_argument);
  EXPECT_EQ(code(engine.shift(nobody, 1, 1)), Errc::invalid_argument);
  if (traits.fork == Fork::shared || traits.fork == Fork::copy) {
    EXPECT_EQ(code(engine.copy(kA, kB, {9, 9})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.copy(kA, kB, {9, 3})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.copy(kA, kB, {0, 61})), Errc::out_of_range);
    EXPECT_EQ(code(engine.copy(kB, kC, {0, 1})), Errc::out_of_range);
  }
  if (saves()) {
    const uint64_t size = ok(engine.size(kA, Part::state, {0, 60}));
    EXPECT_EQ(code(engine.save(kA, Part::state, {0, 60}, std::span(bytes).first(size - 1))),
              Errc::out_of_range);
    EXPECT_EQ(code(engine.save(kA, Part::state, {0, 60}, {})), Errc::out_of_range);
    EXPECT_EQ(code(engine.size(kA, Part::state, {0, 0})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.size(kA, Part::state, {4, 60})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.load(kB, Part::state, {0, 60}, {0, 40}, bytes)), Errc::invalid_argument);
  }
  if (traits.segments) {
    EXPECT_EQ(code(engine.size(kA, Part::segment, {9, 9})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.size(kA, Part::segment, {9, 3})), Errc::invalid_argument);
    EXPECT_EQ(code(engine.size(kA, Part::segment, {50, 61})), Errc::out_of_range);
    EXPECT_EQ(code(engine.load(kB, Part::segment, {5, 9}, {4, 9}, bytes)), Errc::out_of_range);
    EXPECT_EQ(code(engine.load(kB, Part::segment, {5, 9}, {5, 10}, bytes)), Errc::out_of_range);
  }
  expect_right(kA, text);
  EXPECT_EQ(engine.held(kB), Held{});
  EXPECT_EQ(engine.held(kC), Held{});
}

TEST_P(SequenceEngineContract, ShiftIsApproximate) {
  compute(kA, text);
  if (!traits.shift) {
    EXPECT_EQ(code(engine.shift(kA, 10, 5)), Errc::unsupported);
    return;
  }
  EXPECT_EQ(code(engine.shift(kA, 10, 0)), Errc::invalid_argument);
  EXPECT_EQ(code(engine.shift(kA, 10, 51)), Errc::out_of_range);
  expect_right(kA, text);
  ok(engine.shift(kA, 10, 5));
  EXPECT_EQ(engine.held(kA).end, 55U);
  Text shifted = text;
  shifted.tokens.erase(shifted.tokens.begin() + 10, shifted.tokens.begin() + 15);
  EXPECT_NE(rig->right(kA, shifted.tokens), "") << "computed with what is gone in view";
  if (traits.rewind != Rewind::any) return;
  ok(engine.trim(kA, 10));
  expect_goes_on(kA, text.first(10), 2);
}

}  // namespace stemma::test
