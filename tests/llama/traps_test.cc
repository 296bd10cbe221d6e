// llama.cpp's traps: calls that succeed and leave nonsense, fail and leave half, or stop the
// process. Most tests first show the trap in llama.cpp's own calls, and then that we avoid it.
#include <llama.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "contract/sequence_engine_suite.h"
#include "llama/llama_rig.h"
#include "llama/warm_rig.h"

namespace stemma::test {
namespace {

constexpr Held kBroken{.begin = 0, .end = 0, .whole = false};
constexpr Architecture kSegmented[] = {Architecture::llama, Architecture::window,
                                       Architecture::hybrid};

// A context, and llama.cpp's own view of it.
struct Bench {
  explicit Bench(Architecture architecture) : Bench(options_for(architecture)) {}
  explicit Bench(const LlamaOptions& options)
      : model(load_model(options)),
        judge(load_model(options)),
        engine(model->sequences()),
        traits(engine.traits()),
        memory(llama_get_memory(model->context())),
        scratch(static_cast<int32_t>(traits.sequences)),
        empty_bytes(llama_state_seq_get_size(model->context(), scratch)) {}

  void compute(SequenceId sequence, const Text& text) {
    ok(test::compute(*model, sequence, text.tokens));
  }
  // How far the logits after one more word are from those of a context that computes everything, in
  // units of their spread.
  double off(SequenceId sequence, const Text& text) {
    ok(judge->sequences().clear(kA));
    ok(test::compute(*judge, kA, text.tokens, 64));
    const auto anew = ok(test::compute(*judge, kA, words(1, 77).tokens));
    const auto here = ok(test::compute(*model, sequence, words(1, 77).tokens));
    return difference(anew, here);
  }
  Bytes save(SequenceId sequence, Part part, Range range) {
    Bytes bytes(ok(engine.size(sequence, part, range)));
    EXPECT_EQ(ok(engine.save(sequence, part, range, bytes)), bytes.size());
    expect_scratch_empty("save");
    return bytes;
  }
  Errc load(SequenceId sequence, Part part, Range range, std::span<const uint8_t> bytes) {
    const Errc result = code(engine.load(sequence, part, range, range, bytes));
    expect_scratch_empty("load");
    return result;
  }
  void expect_scratch_empty(const std::string& after) {
    if (!traits.segments) return;
    EXPECT_EQ(llama_memory_seq_pos_max(memory, scratch), -1) << after;
    EXPECT_EQ(llama_state_seq_get_size(model->context(), scratch), empty_bytes) << after;
  }

  std::unique_ptr<LlamaModel> model;
  std::unique_ptr<LlamaModel> judge;
  engine::LlamaSequences& engine;
  EngineTraits traits;
  llama_memory_t memory;
  int32_t scratch;
  size_t empty_bytes;
};

// ---- Windows and recurrent layers ---------------------------------------------------------------

LlamaOptions small_window() {
  LlamaOptions options = options_for(Architecture::window);
  options.batch_tokens = 64;  // The window's own cells: 5 windows of 16 and a batch, padded to 256.
  return options;
}

TEST(LlamaTraps, ForkOfAWindowBlocksNobody) {
  const Text text = words(300);
  {
    Bench trap(small_window());
    ok(test::compute(*trap.model, kA, text.tokens, 64));
    llama_memory_seq_cp(trap.memory, 0, 1, -1, -1);
    EXPECT_EQ(code(test::compute(*trap.model, kC, words(250, 2).tokens, 64)), Errc::out_of_blocks);
  }
  Bench bench(small_window());
  ok(test::compute(*bench.model, kA, text.tokens, 64));
  ok(bench.engine.copy(kA, kB, {0, 300}));
  ok(test::compute(*bench.model, kC, words(250, 2).tokens, 64));
  ok(test::compute(*bench.model, kA, words(100, 3).tokens, 64));
  ok(test::compute(*bench.model, kB, words(100, 4).tokens, 64));
}

TEST(LlamaTraps, ForksOfAFullWindowAreRightOrRefused) {
  LlamaOptions options = small_window();
  options.sequences = 8;
  Bench bench(options);
  const Text text = words(200);
  ok(test::compute(*bench.model, kA, text.tokens, 64));
  for (uint32_t s = 1; s < 8; ++s) {
    if (!bench.engine.copy(kA, SequenceId{s}, {0, 200})) ok(bench.engine.clear(SequenceId{s}));
  }
  for (uint32_t s = 0; s < 8; ++s) {
    const Held held = bench.engine.held(SequenceId{s});
    if (held.end == 200) {
      EXPECT_LT(bench.off(SequenceId{s}, text), kNear) << s;
    } else {
      EXPECT_EQ(held, Held{});
    }
  }
}

TEST(LlamaTraps, TrimThatSucceedsWithoutAWindowIsSeen) {
  Bench bench(Architecture::window);
  const Text text = words(120);
  bench.compute(kA, text);
  const Bytes state = bench.save(kA, Part::state, {0, 120});
  for (const uint32_t n : {110U, 60U}) {
    ok(bench.engine.clear(kB));
    ASSERT_EQ(bench.load(kB, Part::state, {0, 120}, state), kOk);
    EXPECT_EQ(bench.engine.held(kB).begin, 104U);
    ok(bench.engine.trim(kB, n));
    EXPECT_FALSE(can_resume(bench.traits, bench.engine.held(kB), n)) << n;
  }
  ok(bench.engine.clear(kB));
  ASSERT_EQ(bench.load(kB, Part::state, {0, 120}, state), kOk);
  llama_memory_seq_rm(bench.memory, 1, 110, -1);
  EXPECT_GT(bench.off(kB, text.first(110)), 0.01) << "the trap: it was not harmless";
}

TEST(LlamaTraps, RestoredWindowDoesNotPromiseToGoBack) {
  Bench bench(Architecture::window);
  const Text text = words(120);
  bench.compute(kA, text);
  const Bytes checkpoint = bench.save(kA, Part::checkpoint, {0, 120});
  for (const Range range : {Range{0, 50}, Range{50, 120}}) {
    ASSERT_EQ(bench.load(kB, Part::segment, range, bench.save(kA, Part::segment, range)), kOk);
  }
  ASSERT_EQ(bench.load(kB, Part::checkpoint, {0, 120}, checkpoint), kOk);
  const Held held = bench.engine.held(kB);
  EXPECT_EQ(held, (Held{.begin = 104, .end = 120, .whole = true}));
  for (uint32_t n = 1; n < 119; ++n) EXPECT_FALSE(can_resume(bench.traits, held, n)) << n;
  EXPECT_LT(bench.off(kB, text), kNear);
}

TEST(LlamaTraps, SegmentsAloneNeverPassForResumable) {
  for (const Architecture architecture : {Architecture::window, Architecture::hybrid}) {
    Bench bench(architecture);
    const Text text = words(60);
    bench.compute(kA, text);
    ASSERT_EQ(bench.load(kB, Part::segment, {0, 60}, bench.save(kA, Part::segment, {0, 60})), kOk);
    EXPECT_EQ(bench.engine.held(kB), kBroken);
    for (uint32_t n = 1; n <= 60; ++n) {
      EXPECT_FALSE(can_resume(bench.traits, bench.engine.held(kB), n));
    }
  }
}

TEST(LlamaTraps, WhatComesBehindACheckpointUndoesItUntilTheNext) {
  for (const Architecture architecture : {Architecture::window, Architecture::hybrid}) {
    Bench bench(architecture);
    const Text text = words(60);
    bench.compute(kA, text.first(30));
    const Bytes early = bench.save(kA, Part::checkpoint, {0, 30});
    ok(test::compute(*bench.model, kA, std::span(text.tokens).subspan(30)));
    const Bytes late = bench.save(kA, Part::checkpoint, {0, 60});
    const Bytes head = bench.save(kA, Part::segment, {0, 30});
    const Bytes tail = bench.save(kA, Part::segment, {30, 60});
    // A checkpoint before what it belongs to is refused.
    EXPECT_EQ(bench.load(kB, Part::checkpoint, {0, 30}, early), Errc::out_of_range);
    EXPECT_EQ(bench.engine.held(kB), Held{});
    ASSERT_EQ(bench.load(kB, Part::segment, {0, 30}, head), kOk);
    EXPECT_EQ(bench.load(kB, Part::checkpoint, {0, 60}, late), Errc::out_of_range);
    ASSERT_EQ(bench.load(kB, Part::checkpoint, {0, 30}, early), kOk);
    EXPECT_EQ(bench.engine.held(kB).end, 30U);
    ASSERT_EQ(bench.load(kB, Part::segment, {30, 60}, tail), kOk);
    EXPECT_EQ(bench.engine.held(kB), kBroken);
    // Both are possible now; the earlier one takes away what lies behind it.
    ASSERT_EQ(bench.load(kB, Part::checkpoint, {0, 60}, late), kOk);
    ASSERT_EQ(bench.load(kB, Part::checkpoint, {0, 30}, early), kOk);
    EXPECT_EQ(bench.engine.held(kB).end, 30U);
    EXPECT_LT(bench.off(kB, text.first(30)), kNear);
  }
}

TEST(LlamaTraps, CopyBehindACheckpointHasAStateOfItsOwnEnd) {
  Bench bench(Architecture::hybrid);
  const Text text = words(60);
  bench.compute(kA, text);
  bench.compute(kB, text.first(30));
  // llama.cpp gives the copy the recurrent state of the end, whatever range is asked for.
  ok(bench.engine.copy(kA, kB, {30, 45}));
  EXPECT_EQ(bench.engine.held(kB), kBroken);
  ok(bench.engine.clear(kB));
  ok(bench.engine.copy(kA, kB, {0, 60}));
  EXPECT_LT(bench.off(kB, text), kNear);
}

// Together the two windows look whole from outside: positions 0 to 109, and the right number of
// cells, but the layers with a window have a hole from 50 to 103.
TEST(LlamaTraps, CopyOfPositionsWithoutTheirWindowIsNotWhole) {
  Bench bench(Architecture::window);
  const Text text = words(120);
  bench.compute(kC, text);
  ASSERT_EQ(bench.load(kA, Part::state, {0, 120}, bench.save(kC, Part::state, {0, 120})), kOk);
  bench.compute(kB, text.first(50));
  ok(bench.engine.copy(kA, kB, {50, 110}));
  EXPECT_EQ(bench.engine.held(kB), kBroken);
  const Bytes checkpoint = bench.save(kC, Part::checkpoint, {0, 110});
  ASSERT_EQ(bench.load(kB, Part::checkpoint, {0, 110}, checkpoint), kOk);
  EXPECT_EQ(bench.engine.held(kB).end, 110U);
  EXPECT_LT(bench.off(kB, text.first(110)), kNear);
  EXPECT_LT(bench.off(kA, text), kNear);
}

TEST(LlamaTraps, LateCheckpointOfALiveWindowIsRight) {
  Bench bench(Architecture::window);
  const Text text = words(120);
  bench.compute(kA, text);
  ASSERT_EQ(bench.engine.held(kA).begin, 0U);
  for (const uint32_t n : {1U, 7U, 16U, 17U, 64U, 119U}) {
    const Bytes late = bench.save(kA, Part::checkpoint, {0, n});
    const Range head{0, n};
    ASSERT_EQ(bench.load(kB, Part::segment, head, bench.save(kA, Part::segment, head)), kOk);
    ASSERT_EQ(bench.load(kB, Part::checkpoint, head, late), kOk);
    EXPECT_LT(bench.off(kB, text.first(n)), kNear) << n;
    ok(bench.engine.clear(kB));
  }
}

TEST(LlamaTraps, HybridCannotGoBackAndLosesNothingByTrying) {
  for (const Architecture architecture : {Architecture::hybrid, Architecture::recurrent}) {
    Bench bench(architecture);
    const Text text = words(60);
    bench.compute(kA, text);
    for (const uint32_t n : {1U, 30U, 59U}) {
      EXPECT_EQ(code(bench.engine.trim(kA, n)), Errc::wrong_state);
      EXPECT_EQ(bench.engine.held(kA).end, 60U);
    }
    EXPECT_LT(bench.off(kA, text), kNear);
  }
}

// A range that has the end of a hybrid is not freed by llama.cpp: the scratch must go whole.
TEST(LlamaTraps, SavingAHybridLeavesNoCellsBehind) {
  Bench bench(Architecture::hybrid);
  bench.compute(kA, words(200));
  for (uint32_t i = 0; i < 20; ++i) bench.save(kA, Part::segment, {100, 200});
  ok(bench.engine.clear(kA));
  bench.compute(kB, words(bench.traits.context_tokens, 2));
}

TEST(LlamaTraps, FullAttentionHasNoPartialState) {
  Bench bench(Architecture::llama);
  bench.compute(kA, words(60));
  EXPECT_EQ(
      llama_state_seq_get_size_ext(bench.model->context(), 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY),
      llama_state_seq_get_size(bench.model->context(), 0))
      << "the trap: it is the whole one";
  EXPECT_FALSE(bench.traits.checkpoints);
  EXPECT_EQ(bench.traits.checkpoint_bytes, 0U);
  EXPECT_EQ(code(bench.engine.size(kA, Part::checkpoint, {0, 60})), Errc::unsupported);
  Bytes bytes(1000);
  EXPECT_EQ(bench.load(kA, Part::checkpoint, {0, 60}, bytes), Errc::unsupported);
}

// ---- Bytes --------------------------------------------------------------------------------------

TEST(LlamaTraps, TruncatedBytesAreRefusedAtEveryLength) {
  for (const Architecture architecture : kArchitectures) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    const Text text = words(60);
    const Text other = words(40, 2);
    bench.compute(kA, text.first(30));
    const bool checkpoints = bench.traits.checkpoints;
    const Bytes early = checkpoints ? bench.save(kA, Part::checkpoint, {0, 30}) : Bytes{};
    ok(test::compute(*bench.model, kA, std::span(text.tokens).subspan(30)));
    bench.compute(kC, other);
    struct Case {
      Part part;
      Range range;
      Bytes bytes;
    };
    std::vector<Case> cases = {{Part::state, {0, 60}, bench.save(kA, Part::state, {0, 60})}};
    if (bench.traits.segments) {
      cases.push_back({Part::segment, {0, 40}, bench.save(kA, Part::segment, {0, 40})});
      cases.push_back({Part::segment, {30, 60}, bench.save(kA, Part::segment, {30, 60})});
    }
    if (checkpoints) cases.push_back({Part::checkpoint, {0, 30}, early});
    const Bytes whole = bench.save(kA, Part::state, {0, 60});
    for (const Case& each : cases) {
      std::vector<size_t> lengths;
      for (size_t n = 0; n < 64; ++n) lengths.push_back(n);
      for (size_t i = 1; i < 40; ++i) lengths.push_back(each.bytes.size() * i / 40);
      for (size_t n = 1; n < 64; ++n) lengths.push_back(each.bytes.size() - n);
      for (const size_t length : lengths) {
        ok(bench.engine.clear(kB));
        if (each.part == Part::segment && each.range.begin != 0) {
          ok(bench.engine.copy(kA, kB, {0, each.range.begin}));
        }
        if (each.part == Part::checkpoint) {
          ASSERT_EQ(bench.load(kB, Part::state, {0, 60}, whole), kOk);
        }
        const Errc said =
            bench.load(kB, each.part, each.range, std::span(each.bytes).first(length));
        EXPECT_NE(said, kOk) << static_cast<int>(each.part) << ", " << length << " of "
                             << each.bytes.size();
        // Room, which the cache would make, does not help.
        if (each.part == Part::segment) {
          EXPECT_EQ(said, Errc::corrupt) << length;
        }
      }
      // Too many bytes are as bad as too few.
      ok(bench.engine.clear(kB));
      Bytes more = each.bytes;
      more.push_back(0);
      EXPECT_NE(bench.load(kB, each.part, each.range, more), kOk);
    }
    ok(bench.engine.clear(kB));
    EXPECT_EQ(bench.engine.held(kB), Held{});
    EXPECT_LT(bench.off(kA, text), kNear);
    EXPECT_LT(bench.off(kC, other), kNear);
    ASSERT_EQ(bench.load(kB, Part::state, {0, 60}, whole), kOk);
    EXPECT_LT(bench.off(kB, text), kNear);
  }
}

TEST(LlamaTraps, NothingIsLoadedOverWhatIsHeld) {
  for (const Architecture architecture : kArchitectures) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    const Text text = words(60);
    const Text other = words(40, 2);
    bench.compute(kA, text);
    bench.compute(kB, other);
    const Bytes state = bench.save(kA, Part::state, {0, 60});
    for (const size_t length : {state.size(), state.size() / 2, size_t{16}, size_t{0}}) {
      EXPECT_NE(bench.load(kB, Part::state, {0, 60}, std::span(state).first(length)), kOk);
    }
    if (bench.traits.segments) {
      const Bytes segment = bench.save(kA, Part::segment, {0, 60});
      EXPECT_EQ(bench.load(kB, Part::segment, {0, 60}, segment), Errc::out_of_range);
      // A double, and a gap.
      EXPECT_EQ(code(bench.engine.load(kB, Part::segment, {0, 60}, {30, 60}, segment)),
                Errc::out_of_range);
      EXPECT_EQ(code(bench.engine.load(kB, Part::segment, {0, 60}, {41, 60}, segment)),
                Errc::out_of_range);
    }
    EXPECT_EQ(bench.engine.held(kB).end, 40U);
    EXPECT_LT(bench.off(kB, other), kNear);
  }
}

TEST(LlamaTraps, BytesOfNothingAreNoSuccess) {
  for (const Architecture architecture : kArchitectures) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    llama_context* context = bench.model->context();
    Bytes nothing(llama_state_seq_get_size(context, 1));
    llama_state_seq_get_data(context, nothing.data(), nothing.size(), 1);
    bench.compute(kA, words(60));
    EXPECT_EQ(llama_state_seq_set_data(context, nothing.data(), 0, 1), 0U) << "the trap: 0 of 0";
    for (const std::span<const uint8_t> bytes : {std::span<const uint8_t>{}, {nothing}}) {
      EXPECT_NE(bench.load(kB, Part::state, {0, 60}, bytes), kOk);
      EXPECT_EQ(bench.engine.held(kB), Held{});
      EXPECT_NE(bench.load(kA, Part::state, {0, 60}, bytes), kOk);
      EXPECT_EQ(bench.engine.held(kA).end, 60U);
      if (bench.traits.segments) {
        EXPECT_NE(bench.load(kB, Part::segment, {0, 60}, bytes), kOk);
        EXPECT_EQ(bench.engine.held(kB), Held{});
      }
      if (!bench.traits.checkpoints) continue;
      EXPECT_NE(bench.load(kA, Part::checkpoint, {0, 30}, bytes), kOk);
      EXPECT_NE(bench.engine.held(kA).end, 30U);
      ok(bench.engine.clear(kA));
      bench.compute(kA, words(60));
    }
  }
}

TEST(LlamaTraps, SegmentWithoutEnoughCellsChangesNothing) {
  for (const Architecture architecture : kSegmented) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    const Text text = words(100);
    bench.compute(kA, text);
    const Bytes tail = bench.save(kA, Part::segment, {60, 100});
    const Bytes checkpoint =
        bench.traits.checkpoints ? bench.save(kA, Part::checkpoint, {0, 100}) : Bytes{};
    ok(bench.engine.clear(kA));
    bench.compute(kA, text.first(60));
    const Text other = words(30, 3);
    bench.compute(kC, other);
    bench.compute(kB, words(bench.traits.context_tokens - 60 - 30 - 10, 2));
    EXPECT_EQ(bench.load(kA, Part::segment, {60, 100}, tail), Errc::out_of_blocks);
    EXPECT_EQ(bench.engine.held(kA).end, 60U);
    EXPECT_LT(bench.off(kC, other), kNear);
    ok(bench.engine.clear(kB));
    ASSERT_EQ(bench.load(kA, Part::segment, {60, 100}, tail), kOk);
    if (bench.traits.checkpoints) {
      ASSERT_EQ(bench.load(kA, Part::checkpoint, {0, 100}, checkpoint), kOk);
    }
    EXPECT_LT(bench.off(kA, text), kNear);
  }
}

TEST(LlamaTraps, GapsAndDoublesAreSeen) {
  for (const Architecture architecture : {Architecture::llama, Architecture::window}) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    bench.compute(kA, words(60));
    // A gap, by a call that we never make.
    llama_memory_seq_rm(bench.memory, 0, 20, 30);
    EXPECT_EQ(llama_memory_seq_pos_max(bench.memory, 0), 59);
    EXPECT_EQ(bench.engine.held(kA), kBroken);
    ok(bench.engine.clear(kA));
    // A double: the same positions, through the scratch, once more.
    bench.compute(kA, words(60));
    const Bytes segment = bench.save(kA, Part::segment, {20, 30});
    ASSERT_EQ(llama_state_seq_set_data(bench.model->context(), segment.data(), segment.size(),
                                       bench.scratch),
              segment.size());
    llama_memory_seq_cp(bench.memory, bench.scratch, 0, 20, 30);
    llama_memory_seq_rm(bench.memory, bench.scratch, -1, -1);
    EXPECT_EQ(llama_memory_seq_pos_max(bench.memory, 0), 59);
    EXPECT_EQ(bench.engine.held(kA), kBroken);
    ok(bench.engine.clear(kA));
    EXPECT_EQ(bench.engine.held(kA), Held{});
  }
}

TEST(LlamaTraps, ScratchIsEmptyAfterEveryCall) {
  for (const Architecture architecture : kSegmented) {
    SCOPED_TRACE(gguf::to_string(architecture));
    Bench bench(architecture);
    const Text text = words(100);
    bench.compute(kA, text);
    Bytes bytes(1U << 20U);
    const auto step = [&](const char* what, auto&& call) {
      static_cast<void>(call());
      bench.expect_scratch_empty(what);
    };
    step("size", [&] { return bench.engine.size(kA, Part::segment, {10, 60}); });
    step("save", [&] { return bench.engine.save(kA, Part::segment, {10, 60}, bytes); });
    step("save, no room", [&] {
      return bench.engine.save(kA, Part::segment, {10, 60}, std::span(bytes).first(99));
    });
    step("save, not held", [&] { return bench.engine.save(kA, Part::segment, {10, 160}, bytes); });
    step("checkpoint, size", [&] { return bench.engine.size(kA, Part::checkpoint, {0, 60}); });
    step("checkpoint", [&] { return bench.engine.save(kA, Part::checkpoint, {0, 60}, bytes); });
    step("checkpoint, no room", [&] {
      return bench.engine.save(kA, Part::checkpoint, {0, 60}, std::span(bytes).first(99));
    });
    step("copy", [&] { return bench.engine.copy(kA, kB, {0, 60}); });
    step("copy, not held", [&] { return bench.engine.copy(kA, kC, {0, 160}); });
    step("clear", [&] { return bench.engine.clear(kB); });
    step("load, garbage",
         [&] { return bench.engine.load(kB, Part::segment, {0, 60}, {0, 60}, bytes); });
    step("shift", [&] { return bench.engine.shift(kA, 10, 10); });
  }
}

// ---- Ids, layouts, positions that move ----------------------------------------------------------

TEST(LlamaTraps, IdsBeyondTheCachesOwnAreNeverUsed) {
  for (const Architecture architecture : kArchitectures) {
    Bench bench(architecture);
    bench.compute(kA, words(30));
    Bytes bytes(1U << 18U);
    for (const uint32_t id : {bench.traits.sequences, bench.traits.sequences + 1, 255U, 256U,
                              0x7FFF'FFFFU, 0xFFFF'FFFFU}) {
      const SequenceId beyond{id};
      EXPECT_EQ(bench.engine.held(beyond), Held{});
      EXPECT_EQ(code(bench.engine.clear(beyond)), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.trim(beyond, 0)), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.trim(beyond, 3)), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.copy(kA, beyond, {0, 9})), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.copy(beyond, kB, {0, 9})), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.size(beyond, Part::state, {0, 9})), Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.save(beyond, Part::state, {0, 9}, bytes)),
                Errc::invalid_argument);
      EXPECT_EQ(code(bench.engine.load(beyond, Part::state, {0, 9}, {0, 9}, bytes)),
                Errc::invalid_argument);
      const BatchItem item{1, 0, beyond, true};
      EXPECT_EQ(code(bench.model->decode({&item, 1})), Errc::invalid_argument);
    }
    EXPECT_LE(bench.traits.sequences + (bench.traits.segments ? 1 : 0),
              llama_n_seq_max(bench.model->context()));
  }
}

TEST(LlamaTraps, PartialCopiesInASplitContextAreRefused) {
  for (const Architecture architecture : kArchitectures) {
    LlamaOptions options = options_for(architecture);
    options.unified = false;
    Bench bench(options);
    const Text text = words(60);
    bench.compute(kA, text);
    // llama.cpp would stop the process at the first, and give stale contents at the second.
    EXPECT_EQ(code(bench.engine.copy(kA, kB, {0, 30})), Errc::unsupported);
    EXPECT_EQ(code(bench.engine.copy(kA, kB, {0, 60})), Errc::unsupported);
    EXPECT_EQ(bench.engine.held(kB), Held{});
    EXPECT_LT(bench.off(kA, text), kNear);
  }
}

TEST(LlamaTraps, WhatWasShiftedIsNotSavedBeforeItIsDecoded) {
  Bench bench(Architecture::llama);
  const Text text = words(60);
  bench.compute(kA, text);
  ok(bench.engine.shift(kA, 20, 10));
  Bytes bytes(1U << 20U);
  EXPECT_EQ(code(bench.engine.save(kA, Part::state, {0, 50}, bytes)), Errc::busy);
  EXPECT_EQ(code(bench.engine.save(kA, Part::segment, {10, 21}, bytes)), Errc::busy);
  EXPECT_EQ(code(bench.engine.save(kA, Part::segment, {0, 20}, bytes)), kOk);
  // A copy has moved positions too.
  ok(bench.engine.copy(kA, kB, {0, 50}));
  EXPECT_EQ(code(bench.engine.save(kB, Part::segment, {10, 21}, bytes)), Errc::busy);
  ok(bench.engine.trim(kB, 20));
  EXPECT_EQ(code(bench.engine.save(kB, Part::segment, {0, 20}, bytes)), kOk);
  bench.compute(kC, words(1, 5));  // Any forward pass applies it.
  const Bytes state = bench.save(kA, Part::state, {0, 50});
  ok(bench.engine.clear(kB));
  ASSERT_EQ(bench.load(kB, Part::state, {0, 50}, state), kOk);
  const auto here = ok(test::compute(*bench.model, kA, words(1, 6).tokens));
  const auto there = ok(test::compute(*bench.model, kB, words(1, 6).tokens));
  EXPECT_LT(difference(here, there), kNear);
}

// ---- Through a cache ----------------------------------------------------------------------------

// llama.cpp takes flipped bits for a state. With flash attention off, numbers that are none reach
// every other sequence, also from a load that fails.
TEST(LlamaTraps, SpoiltBytesNeverReachLlama) {
  for (const Architecture architecture : kArchitectures) {
    SCOPED_TRACE(gguf::to_string(architecture));
    LlamaOptions options = options_for(architecture);
    options.flash_attention = false;
    SequenceOptions saved = WarmRig::still();
    saved.reuse = Reuse::saved;
    WarmRig rig(options, saved);
    Asked other = rig.start(words(50, 7));
    const Asked first = rig.ask(words(100));
    ASSERT_FALSE(rig.engine.written.empty());
    for (const std::span<uint8_t> bytes : rig.engine.written) {
      const float none = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(bytes.data() + bytes.size() - 64, &none, sizeof none);
    }
    rig.engine.loads = 0;
    const Asked next = rig.ask(first.text + words(20, 2));
    EXPECT_EQ(rig.engine.loads, 0U);
    EXPECT_EQ(next.report.reused_tokens, 0U);
    EXPECT_EQ(next.report.reason, SequenceMiss::failed);
    EXPECT_GT(rig.cache.stats().quarantined, 0U);
    rig.expect_near(next);
    rig.say(other, words(5, 8));
    rig.expect_near(other);
    rig.finish(other);
    EXPECT_EQ(rig.ask(next.text + words(20, 3)).report.reused_tokens, next.text.size());
  }
}

TEST(LlamaTraps, OneBitIsEnough) {
  SequenceOptions saved = WarmRig::still();
  saved.reuse = Reuse::saved;
  for (uint64_t i = 0; i < 24; ++i) {
    WarmRig rig(options_for(Architecture::llama), saved);
    const Asked first = rig.ask(words(60));
    std::span<uint8_t> bytes = rig.engine.written[i % rig.engine.written.size()];
    bytes[bytes.size() * i / 24] ^= static_cast<uint8_t>(1U << (i % 8));
    const Asked next = rig.ask(first.text + words(20, 2));
    EXPECT_LT(next.report.reused_tokens, 60U);
    rig.expect_near(next);
  }
}

// llama.cpp loads a state of other weights without a word.
TEST(LlamaTraps, StateOfOneModelIsNeverTriedOnAnother) {
  for (const Architecture architecture : kArchitectures) {
    LlamaOptions options = options_for(architecture);
    options.model_id.clear();
    WarmRig rig(options);
    const Asked first = rig.ask(words(100));
    options.path = model_file(architecture, 2);
    const std::unique_ptr<LlamaModel> other = load_model(options);
    const Scope scope = ok(Scope::make(other->info().scope));
    EXPECT_NE(scope, rig.scope);
    const Text next = first.text + words(20, 2);
    EXPECT_EQ(ok(rig.cache.lookup(rig.scope, next)).reused_tokens, 103U);
    const SequenceReport report = ok(rig.cache.lookup(scope, next));
    EXPECT_EQ(report.reused_tokens, 0U);
    EXPECT_EQ(report.reason, SequenceMiss::unknown_scope);
  }
}

}  // namespace
}  // namespace stemma::test
