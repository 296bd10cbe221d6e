// The vocabulary in which tests speak about the part of the C ABI for opaque sequences.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "stemma/stemma.h"
#include "support/c_cache.h"
#include "support/fake_sequences.h"

namespace stemma::test {

inline stemma_status c_status(const Result<void>& result) {
  return result ? STEMMA_OK : static_cast<stemma_status>(result.error().code());
}

// An engine as the C functions a user would write around it.
class CEngine {
 public:
  explicit CEngine(SequenceEngine& engine) : engine_(engine) {
    const EngineTraits t = engine.traits();
    traits = {.struct_size = sizeof traits,
              .sequences = t.sequences,
              .context_tokens = t.context_tokens,
              .unified = t.unified,
              .rewind = static_cast<uint32_t>(t.rewind),
              .rewind_tokens = t.rewind_tokens,
              .fork = static_cast<uint32_t>(t.fork),
              .segments = t.segments,
              .checkpoints = t.checkpoints,
              .shift = t.shift,
              .bytes_per_token = t.bytes_per_token,
              .fixed_bytes = t.fixed_bytes,
              .checkpoint_bytes = t.checkpoint_bytes};
    c = {.struct_size = sizeof c,
         .reserved = 0,
         .user = this,
         .traits = &traits,
         .held = held,
         .clear = clear,
         .trim = trim,
         .copy = copy,
         .size = size,
         .save = save,
         .load = load,
         .shift = shift};
  }
  CEngine(const CEngine&) = delete;
  CEngine& operator=(const CEngine&) = delete;

  stemma_engine_traits traits;
  stemma_engine c;
  // Called at the beginning of every call; what it returns is returned, unless it is STEMMA_OK.
  stemma_status (*before)(void* user) = nullptr;
  void* before_user = nullptr;

 private:
  static SequenceEngine& of(void* user) { return static_cast<CEngine*>(user)->engine_; }
  static stemma_status begin(void* user) {
    const auto& self = *static_cast<CEngine*>(user);
    return self.before == nullptr ? STEMMA_OK : self.before(self.before_user);
  }
  static Range range_of(const stemma_range* range) { return {range->begin, range->end}; }

  static void held(void* user, uint32_t sequence, stemma_held* out) {
    EXPECT_EQ(out->begin + out->end + out->whole, 0U);
    (void)begin(user);
    const Held held = of(user).held(SequenceId{sequence});
    *out = {held.begin, held.end, held.whole ? 1U : 0U};
  }
  static stemma_status clear(void* user, uint32_t sequence) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    return c_status(of(user).clear(SequenceId{sequence}));
  }
  static stemma_status trim(void* user, uint32_t sequence, uint32_t n) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    return c_status(of(user).trim(SequenceId{sequence}, n));
  }
  static stemma_status copy(void* user, uint32_t from, uint32_t to, const stemma_range* range) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    return c_status(of(user).copy(SequenceId{from}, SequenceId{to}, range_of(range)));
  }
  static stemma_status size(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                            uint64_t* bytes) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    const Result<uint64_t> got =
        of(user).size(SequenceId{sequence}, static_cast<Part>(part), range_of(range));
    if (got) *bytes = *got;
    return c_status(got ? Result<void>() : got.error());
  }
  static stemma_status save(void* user, uint32_t sequence, uint32_t part, const stemma_range* range,
                            uint8_t* out, size_t capacity, uint64_t* written) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    const Result<uint64_t> got = of(user).save(SequenceId{sequence}, static_cast<Part>(part),
                                               range_of(range), {out, capacity});
    if (got) *written = *got;
    return c_status(got ? Result<void>() : got.error());
  }
  static stemma_status load(void* user, uint32_t sequence, uint32_t part, const stemma_range* saved,
                            const stemma_range* wanted, const uint8_t* bytes, size_t size) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    return c_status(of(user).load(SequenceId{sequence}, static_cast<Part>(part), range_of(saved),
                                  range_of(wanted), {bytes, size}));
  }
  static stemma_status shift(void* user, uint32_t sequence, uint32_t keep, uint32_t discard) {
    if (const stemma_status first = begin(user); first != STEMMA_OK) return first;
    return c_status(of(user).shift(SequenceId{sequence}, keep, discard));
  }

  SequenceEngine& engine_;
};

// One cache over one fake engine, destroyed when the test is over: no turn may be alive then.
class SequencesFixture : public ::testing::Test {
 protected:
  static FakeSequences::Options engine_options() {
    FakeSequences::Options options;
    options.sequences = 3;
    options.context_tokens = 1024;
    options.shift = true;
    return options;
  }

  void TearDown() override {
    if (cache == nullptr) return;
    EXPECT_OK(stemma_sequences_check_invariants(cache));
    EXPECT_OK(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_REFUSE));
  }
  void create() { ASSERT_OK(stemma_sequences_create(&c_engine.c, &options, &cache)); }

  stemma_turn begin(const std::vector<uint32_t>& tokens) {
    const stemma_prompt prompt = c_prompt(tokens);
    stemma_turn turn = 0;
    EXPECT_OK(stemma_sequences_begin(cache, &scope, &prompt, nullptr, &turn));
    return turn;
  }
  // Carries the plan out and computes the rest; returns what was available.
  uint32_t compute(stemma_turn turn, const std::vector<uint32_t>& tokens) {
    uint32_t available = 0;
    EXPECT_OK(stemma_turn_execute(turn, &available));
    for (stemma_turn_place at = place(turn); at.computed < at.length; at = place(turn)) {
      const std::span<const Token> words(tokens);
      const Result<void> computed = engine.compute(
          SequenceId{at.sequence}, words.subspan(at.computed, at.next_stop - at.computed));
      EXPECT_TRUE(computed);
      if (stemma_turn_computed(turn, at.next_stop, 0) != STEMMA_OK) break;
    }
    return available;
  }
  // A whole request.
  uint32_t serve(const std::vector<uint32_t>& tokens) {
    const stemma_turn turn = begin(tokens);
    const uint32_t available = compute(turn, tokens);
    EXPECT_OK(stemma_turn_finish(turn, nullptr));
    return available;
  }
  static stemma_turn_place place(stemma_turn turn) {
    stemma_turn_place at{};
    EXPECT_OK(stemma_turn_positions(turn, &at));
    return at;
  }
  stemma_sequence_stats stats() {
    stemma_sequence_stats stats{};
    stats.struct_size = sizeof stats;
    EXPECT_OK(stemma_sequences_stats(cache, &stats));
    return stats;
  }

  FakeSequences engine{engine_options()};
  CEngine c_engine{engine};
  stemma_sequence_options options = STEMMA_SEQUENCE_OPTIONS_INIT;
  stemma_scope scope = c_scope();
  stemma_sequences* cache = nullptr;
};

}  // namespace stemma::test
