// What a SequenceCache expects of every engine with opaque sequences. An engine joins with one line at
// the end of this file; it needs at least 3 sequences, room for 400 tokens, and a window, if it has
// one, of at most 16.
#include "stemma/sequence_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/fake_sequences.h"
#include "support/text.h"

namespace stemma::test {
namespace {

using Bytes = std::vector<uint8_t>;

// An engine with what the suite needs besides: computing, and a judge of what was computed.
class Rig {
 public:
  virtual ~Rig() = default;
  virtual SequenceEngine& engine() = 0;
  virtual Result<void> compute(SequenceId sequence, std::span<const Token> words) = 0;
  // "" if decoding behind `words` gives what it would give had all of them just been computed.
  virtual std::string right(SequenceId sequence, std::span<const Token> words) = 0;
  // The next call of this kind goes wrong. false: this rig cannot do that.
  virtual bool fail_next(Call /*call*/, Fault /*fault*/) { return false; }
};

struct EngineCase {
  std::string name;
  std::function<std::unique_ptr<Rig>()> make;
};

void PrintTo(const EngineCase& engine, std::ostream* out) { *out << engine.name; }

class FakeRig final : public Rig {
 public:
  explicit FakeRig(const FakeSequences::Options& options) : fake_(options) {}
  SequenceEngine& engine() override { return fake_; }
  Result<void> compute(SequenceId sequence, std::span<const Token> words) override {
    return fake_.compute(sequence, words);
  }
  std::string right(SequenceId sequence, std::span<const Token> words) override {
    return fake_.right(sequence, words);
  }
  bool fail_next(Call call, Fault fault) override {
    fake_.faults.next(call, fault);
    return true;
  }

 private:
  FakeSequences fake_;
};

EngineCase fake(const std::string& name, const FakeSequences::Options& options) {
  return {name, [options] { return std::make_unique<FakeRig>(options); }};
}

constexpr SequenceId kA{0}, kB{1}, kC{2};

class SequenceEngineContract : public ::testing::TestWithParam<EngineCase> {
 protected:
  SequenceEngineContract()
      : rig(GetParam().make()), engine(rig->engine()), traits(engine.traits()) {}

  bool saves() const { return traits.fork != Fork::none; }
  // Whether what segments or a shorter copy leave must be completed by a checkpoint.
  bool needs_checkpoint() const { return traits.rewind != Rewind::any; }
  bool segments_are_enough() const {
    return traits.segments && (traits.checkpoints || !needs_checkpoint());
  }

  void compute(SequenceId sequence, const Text& words) { ok(rig->compute(sequence, words.tokens)); }
  // Begins a sequence anew and saves checkpoints on the way, where there are such.
  void compute(SequenceId sequence, const Text& words, const std::vector<uint32_t>& stops) {
    uint32_t at = 0;
    for (const uint32_t stop : stops) {
      ok(rig->compute(sequence, std::span(words.tokens).subspan(at, stop - at)));
      at = stop;
      if (traits.checkpoints) {
        checkpoints.push_back({stop, save(sequence, Part::checkpoint, {0, stop})});
      }
    }
  }
  const Bytes& checkpoint(uint32_t n) const {
    return std::ranges::find(checkpoints, n, &Checkpoint::depth)->bytes;
  }
  Bytes save(SequenceId sequence, Part part, Range range) {
    const uint64_t size = ok(engine.size(sequence, part, range));
    Bytes bytes(size + 3);
    EXPECT_LE(ok(engine.save(sequence, part, range, bytes)), size);
    bytes.resize(size);
    return bytes;
  }
  void load(SequenceId sequence, Part part, Range range, const Bytes& bytes) {
    ok(engine.load(sequence, part, range, range, bytes));
  }
  void complete(SequenceId sequence, uint32_t n) {
    if (needs_checkpoint()) load(sequence, Part::checkpoint, {0, n}, checkpoint(n));
  }

  void expect_right(SequenceId sequence, const Text& words) {
    const Held held = engine.held(sequence);
    EXPECT_EQ(held.end, words.size());
    EXPECT_TRUE(held.whole);
    EXPECT_TRUE(can_resume(traits, held, words.size())) << held.begin << " to " << held.end;
    EXPECT_EQ(rig->right(sequence, words.tokens), "");
  }
  // Right, and still right after going on.
  void expect_goes_on(SequenceId sequence, const Text& words, uint32_t tail_seed) {
    expect_right(sequence, words);
    const Text tail = tokens(40, tail_seed);
    compute(sequence, tail);
    expect_right(sequence, words + tail);
  }

  struct Checkpoint {
    uint32_t depth;
    Bytes bytes;
  };
  std::unique_ptr<Rig> rig;
  SequenceEngine& engine;
  EngineTraits traits;
  std::vector<Checkpoint> checkpoints;
  const Text text = tokens(60);
};

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
  for (uint32_t n = 1; n <= 60; ++n) {
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

// However the sequence came by the text: kB holds it afterwards.
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
    for (uint32_t n = 0; n <= 62; ++n) {
      ways[way]();
      expect_right(kB, text);
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
  for (uint32_t n = 1; n <= 60; ++n) {
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

TEST(CanResume, IsTheRuleOfEachRewind) {
  const auto at = [](Rewind rewind, Held held) {
    std::vector<uint32_t> depths;
    for (uint32_t n = 0; n <= 12; ++n) {
      if (can_resume({.rewind = rewind, .rewind_tokens = 4}, held, n)) depths.push_back(n);
    }
    return depths;
  };
  using Depths = std::vector<uint32_t>;
  EXPECT_EQ(at(Rewind::any, {0, 5}), (Depths{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at(Rewind::window, {0, 5}), (Depths{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(at(Rewind::window, {5, 10}), (Depths{0, 9, 10}));
  EXPECT_EQ(at(Rewind::window, {7, 10}), (Depths{0}));
  EXPECT_EQ(at(Rewind::bounded, {7, 10}), (Depths{0, 8, 9, 10}));
  EXPECT_EQ(at(Rewind::exact, {9, 10}), (Depths{0, 10}));
  for (const Rewind rewind : {Rewind::any, Rewind::window, Rewind::bounded, Rewind::exact}) {
    EXPECT_EQ(at(rewind, {}), (Depths{0}));
  }
}

using Options = FakeSequences::Options;

INSTANTIATE_TEST_SUITE_P(
    Fakes, SequenceEngineContract,
    ::testing::Values(
        fake("full", Options{.shift = true}),
        fake("full_split", Options{.unified = false, .fork = Fork::copy, .segments = false}),
        fake("full_split_segments", Options{.unified = false, .fork = Fork::copy}),
        fake("full_restore", Options{.fork = Fork::restore, .segments = false, .shift = true}),
        fake("full_none", Options{.fork = Fork::none, .segments = false}),
        fake("window", Options{.rewind = Rewind::window, .checkpoints = true}),
        fake("window_shift", Options{.unified = false,
                                     .rewind = Rewind::window,
                                     .fork = Fork::restore,
                                     .checkpoints = true,
                                     .shift = true}),
        fake("window_states", Options{.rewind = Rewind::window, .segments = false}),
        fake("window_no_checkpoints", Options{.rewind = Rewind::window}),
        fake("window_split", Options{.unified = false,
                                     .rewind = Rewind::window,
                                     .fork = Fork::copy,
                                     .segments = false,
                                     .checkpoints = true}),
        fake("window_tight", Options{.rewind = Rewind::window,
                                     .rewind_tokens = 5,
                                     .checkpoints = true,
                                     .window_slack_tokens = 0}),
        fake("hybrid", Options{.rewind = Rewind::exact, .checkpoints = true}),
        fake("hybrid_states", Options{.rewind = Rewind::exact, .segments = false}),
        fake("hybrid_bounded",
             Options{.rewind = Rewind::bounded, .rewind_tokens = 4, .checkpoints = true}),
        fake("recurrent",
             Options{.rewind = Rewind::exact, .segments = false, .full_attention = false}),
        fake("recurrent_checkpoints", Options{.rewind = Rewind::exact,
                                              .fork = Fork::restore,
                                              .segments = false,
                                              .checkpoints = true,
                                              .full_attention = false}),
        fake("recurrent_bounded", Options{.rewind = Rewind::bounded,
                                          .rewind_tokens = 4,
                                          .fork = Fork::none,
                                          .segments = false,
                                          .full_attention = false})),
    [](const auto& engine) { return engine.param.name; });

}  // namespace
}  // namespace stemma::test
