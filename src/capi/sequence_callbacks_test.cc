// The library's calls when the engine owns the sequences: how it handles the engine's answers, and
// which calls the engine may make meanwhile. Also names, defaults and contents.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "stemma/sequence.h"
#include "support/c_sequences.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

class SequenceCallbacks : public SequencesFixture {};

TEST_F(SequenceCallbacks, WhatWasComputedIsFoundAgain) {
  create();
  const std::vector<uint32_t> words = tokens(100).tokens;
  EXPECT_EQ(serve(words), 0U);
  EXPECT_EQ(serve(words), 99U);
  stemma_drained drained{};
  ASSERT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, &drained));
  EXPECT_GT(drained.bytes, 0U);
  for (uint32_t s = 0; s < 3; ++s) ASSERT_TRUE(engine.clear(SequenceId{s}));
  ASSERT_OK(stemma_sequences_forget_context(cache));
  EXPECT_EQ(serve(words), 99U);  // Loaded.
  EXPECT_GT(stats().restored_bytes, 0U);
}

TEST_F(SequenceCallbacks, EngineWithoutOptionalFunctionsIsServedWithoutThem) {
  c_engine.traits.segments = 0;
  c_engine.traits.shift = 0;
  c_engine.traits.fork = STEMMA_FORK_NONE;
  c_engine.c.copy = nullptr;
  c_engine.c.size = nullptr;
  c_engine.c.save = nullptr;
  c_engine.c.load = nullptr;
  c_engine.c.shift = nullptr;
  create();
  const std::vector<uint32_t> words = tokens(100).tokens;
  EXPECT_EQ(serve(words), 0U);
  EXPECT_EQ(serve(words), 99U);
  const stemma_turn turn = begin(words);
  compute(turn, words);
  EXPECT_REFUSED(STEMMA_UNSUPPORTED, "shift", stemma_turn_shift, turn, 4, 4);
  EXPECT_OK(stemma_turn_finish(turn, nullptr));
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, nullptr));
  EXPECT_EQ(stats().captured_bytes, 0U);
}

// Forks are cheap, but the engine cannot save: the library does not try.
TEST_F(SequenceCallbacks, EngineThatCopiesAndCannotSaveIsNotAskedTo) {
  c_engine.traits.segments = 0;
  c_engine.c.size = nullptr;
  c_engine.c.save = nullptr;
  c_engine.c.load = nullptr;
  create();
  const std::vector<uint32_t> words = tokens(100).tokens;
  const stemma_turn first = begin(words);
  compute(first, words);
  EXPECT_EQ(serve(words), 99U);
  EXPECT_OK(stemma_turn_finish(first, nullptr));
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, nullptr));
  const stemma_sequence_stats s = stats();
  EXPECT_EQ(s.steps[STEMMA_STEP_FORK], 1U);
  for (const uint64_t captures : s.captures) EXPECT_EQ(captures, 0U);
}

TEST_F(SequenceCallbacks, WhatTheEngineAnswersComesBack) {
  create();
  const std::vector<uint32_t> words = tokens(50).tokens;
  const stemma_turn turn = begin(words);
  compute(turn, words);
  stemma_status said = STEMMA_OUT_OF_BLOCKS;
  c_engine.before_user = &said;
  c_engine.before = [](void* user) { return *static_cast<stemma_status*>(user); };
  EXPECT_REFUSED(STEMMA_OUT_OF_BLOCKS, "the engine's shift failed", stemma_turn_shift, turn, 4, 4);
  EXPECT_OK(stemma_turn_abandon(turn));
  // An unknown status is a failure, and the message names it.
  c_engine.before = nullptr;
  const stemma_turn again = begin(words);
  compute(again, words);
  said = 77;
  c_engine.before = [](void* user) { return *static_cast<stemma_status*>(user); };
  EXPECT_REFUSED(STEMMA_COPY_FAILED, "(77)", stemma_turn_rewind, again, 4);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "lost", stemma_turn_computed, again, 4, 0);
  c_engine.before = nullptr;
  EXPECT_OK(stemma_turn_abandon(again));
  EXPECT_EQ(serve(words), 0U);
}

TEST_F(SequenceCallbacks, NonsenseOfHeldIsNotBelieved) {
  c_engine.c.held = [](void*, uint32_t sequence, stemma_held* out) {
    *out = sequence == 0   ? stemma_held{7, 3, 1}
           : sequence == 1 ? stemma_held{0, 0, 9}
                           : stemma_held{0, ~0U, 1};
  };
  create();
  for (int i = 0; i < 3; ++i) {
    const stemma_turn turn = begin(tokens(20).tokens);
    EXPECT_NE(stemma_turn_execute(turn, nullptr), STEMMA_OK);
    EXPECT_OK(stemma_turn_abandon(turn));
    EXPECT_OK(stemma_sequences_check_invariants(cache));
  }
}

TEST_F(SequenceCallbacks, SaveThatSaysTooMuchIsGivenUp) {
  c_engine.c.save = [](void*, uint32_t, uint32_t, const stemma_range*, uint8_t*, size_t capacity,
                       uint64_t* written) -> stemma_status {
    *written = capacity + 1;
    return STEMMA_OK;
  };
  create();
  serve(tokens(100).tokens);
  stemma_drained drained{};
  ASSERT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, &drained));
  EXPECT_EQ(drained.saved, 0U);
  EXPECT_GT(stats().captures[STEMMA_CAPTURE_FAILED], 0U);
}

// Calls that an engine tries while the cache waits for it.
struct Meddler {
  stemma_sequences* cache = nullptr;
  stemma_turn turn = 0;
  stemma_turn other = 0;
  int calls = 0;
  static stemma_status meddle(void* user) {
    auto& self = *static_cast<Meddler*>(user);
    ++self.calls;
    const std::vector<uint32_t> words = tokens(10).tokens;
    const stemma_prompt prompt = c_prompt(words);
    const stemma_scope scope = c_scope();
    stemma_turn made = 0;
    stemma_turn_place at{};
    EXPECT_EQ(stemma_sequences_begin(self.cache, &scope, &prompt, nullptr, &made), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_drain(self.cache, 1, 1, 0, nullptr), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_forget_context(self.cache), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_drop_scope(self.cache, &scope), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_truncate(self.cache, &scope, &prompt, 0, nullptr), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_drop_saved(self.cache), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_end_session(self.cache, "a", 1), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_check_invariants(self.cache), STEMMA_BUSY);
    EXPECT_EQ(stemma_sequences_destroy(self.cache, STEMMA_ON_BUSY_DEFER), STEMMA_BUSY);
    for (const stemma_turn turn : {self.turn, self.other}) {
      if (turn == 0) continue;
      EXPECT_EQ(stemma_turn_positions(turn, &at), STEMMA_BUSY);
      EXPECT_EQ(stemma_turn_rewind(turn, 1), STEMMA_BUSY);
      EXPECT_EQ(stemma_turn_finish(turn, nullptr), STEMMA_BUSY);
      EXPECT_EQ(stemma_turn_abandon(turn), STEMMA_BUSY);
    }
    // Looking is allowed.
    stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
    stemma_sequence_stats stats{};
    stats.struct_size = sizeof stats;
    uint32_t number = 0;
    EXPECT_OK(stemma_sequences_lookup(self.cache, &scope, &prompt, nullptr, &report));
    EXPECT_OK(stemma_sequences_stats(self.cache, &stats));
    EXPECT_OK(stemma_sequences_pending(self.cache, &number));
    EXPECT_OK(stemma_sequences_can_admit(self.cache, nullptr, 0, &number));
    EXPECT_OK(stemma_sequences_contents(
        self.cache, [](void*, const stemma_sequence_content*) {}, nullptr));
    return STEMMA_OK;
  }
};

TEST_F(SequenceCallbacks, EngineMayLookAndIsBusyOtherwise) {
  create();
  const std::vector<uint32_t> words = tokens(60).tokens;
  serve(words);
  Meddler meddler{.cache = cache, .other = begin(tokens(60, 2).tokens)};
  c_engine.before = Meddler::meddle;
  c_engine.before_user = &meddler;
  meddler.turn = begin(words);
  compute(meddler.turn, words);
  EXPECT_OK(stemma_turn_rewind(meddler.turn, 30));
  EXPECT_OK(stemma_turn_finish(meddler.turn, nullptr));
  meddler.turn = 0;
  EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, nullptr));
  EXPECT_GT(meddler.calls, 3);
  c_engine.before = nullptr;
  EXPECT_OK(stemma_turn_abandon(meddler.other));
}

TEST_F(SequenceCallbacks, WarmComputesWhatIsMissingAndSavesIt) {
  create();
  const std::vector<uint32_t> words = tokens(128).tokens;
  const stemma_prompt prompt = c_prompt(words);
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  const auto computing = [](void* user, uint32_t sequence, const uint32_t* tokens, size_t count,
                            uint32_t) {
    return c_status(
        static_cast<FakeSequences*>(user)->compute(SequenceId{sequence}, {tokens, count}));
  };
  const auto failing = [](void*, uint32_t, const uint32_t*, size_t, uint32_t) -> stemma_status {
    return STEMMA_CORRUPT;
  };
  EXPECT_REFUSED(STEMMA_CORRUPT, "compute failed", stemma_sequences_warm, cache, &scope, &prompt,
                 nullptr, failing, nullptr, &report);
  ASSERT_OK(stemma_sequences_warm(cache, &scope, &prompt, nullptr, computing, &engine, &report));
  EXPECT_EQ(report.evaluated_tokens, 128U);
  EXPECT_GT(stats().segment_bytes, 0U);
  ASSERT_OK(stemma_sequences_warm(cache, &scope, &prompt, nullptr, failing, nullptr, &report));
  EXPECT_EQ(report.reused_tokens, 128U);
}

TEST_F(SequenceCallbacks, ClosedIsCalledOnceAfterTheLastTurn) {
  static int closed = 0;
  closed = 0;
  options.closed = [](void* user) { ++*static_cast<int*>(user); };
  options.closed_user = &closed;
  create();
  const stemma_turn turn = begin(tokens(20).tokens);
  ASSERT_OK(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_DEFER));
  cache = nullptr;
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(stemma_turn_abandon(turn), STEMMA_STALE);
  EXPECT_EQ(closed, 1);
}

TEST_F(SequenceCallbacks, LogitsServeTheWholePrompt) {
  options.logits_bytes = 4096;
  create();
  const std::vector<uint32_t> words = tokens(40).tokens;
  const stemma_turn turn = begin(words);
  compute(turn, words);
  const float given[4] = {1, 2, 3, 4};
  ASSERT_OK(stemma_turn_attach_logits(turn, 40, given, 4));
  ASSERT_OK(stemma_turn_finish(turn, nullptr));
  stemma_turn_options said = STEMMA_TURN_OPTIONS_INIT;
  said.want_logits = 1;
  const stemma_prompt prompt = c_prompt(words);
  stemma_turn again = 0;
  ASSERT_OK(stemma_sequences_begin(cache, &scope, &prompt, &said, &again));
  const float* logits = nullptr;
  size_t count = 0;
  ASSERT_OK(stemma_turn_logits(again, &logits, &count));
  ASSERT_EQ(count, 4U);
  EXPECT_EQ(std::memcmp(logits, given, sizeof given), 0);
  // They stay in place while the turn lives, whatever is dropped.
  EXPECT_OK(stemma_sequences_drop_saved(cache));
  EXPECT_EQ(std::memcmp(logits, given, sizeof given), 0);
  EXPECT_OK(stemma_turn_finish(again, nullptr));
}

TEST_F(SequenceCallbacks, DefaultsAreThoseOfCpp) {
  stemma_sequence_options made{};
  made.struct_size = sizeof made;
  ASSERT_OK(stemma_sequence_options_defaults(&made));
  const SequenceOptions cpp;
  EXPECT_EQ(made.struct_size, sizeof made);
  EXPECT_EQ(made.reuse, static_cast<uint32_t>(cpp.reuse));
  EXPECT_EQ(made.saved_bytes, cpp.saved_bytes);
  EXPECT_EQ(made.checkpoint_share, cpp.checkpoint_share);
  EXPECT_EQ(made.logits_bytes, cpp.logits_bytes);
  EXPECT_EQ(made.segment_tokens, cpp.segment_tokens);
  EXPECT_EQ(made.least_tokens, cpp.least_tokens);
  EXPECT_EQ(made.interval_tokens, cpp.interval_tokens);
  EXPECT_EQ(made.marks, cpp.marks);
  EXPECT_EQ(made.pending_captures, cpp.pending_captures);
  EXPECT_EQ(made.sessions, cpp.sessions);
  EXPECT_EQ(made.policy, nullptr);
  EXPECT_EQ(cpp.policy, "lru");
  EXPECT_EQ(made.compute_token_ns, cpp.compute_token_ns);
  EXPECT_EQ(made.move_byte_ps, cpp.move_byte_ps);
  EXPECT_EQ(made.move_call_ns, cpp.move_call_ns);
  stemma_turn_options said{};
  said.struct_size = sizeof said;
  ASSERT_OK(stemma_turn_options_defaults(&said));
  const TurnOptions turn;
  EXPECT_EQ(said.exclusive != 0, turn.exclusive);
  EXPECT_EQ(said.reuse, static_cast<uint32_t>(turn.reuse));
  EXPECT_EQ(said.bypass != 0, turn.bypass);
  EXPECT_EQ(said.keep != 0, turn.keep);
  EXPECT_EQ(said.at_most, turn.at_most);
  EXPECT_EQ(said.evaluate_at_least, turn.evaluate_at_least);
  EXPECT_EQ(said.reserve_tokens, turn.reserve_tokens);
  EXPECT_EQ(said.want_logits != 0, turn.want_logits);
  const stemma_engine_traits traits = STEMMA_ENGINE_TRAITS_INIT;
  EXPECT_EQ(traits.unified, 1U);
  EXPECT_EQ(traits.fork, static_cast<uint32_t>(EngineTraits().fork));
}

TEST_F(SequenceCallbacks, NumbersHaveNames) {
  EXPECT_STREQ(stemma_reuse_name(STEMMA_REUSE_EVERYTHING), "everything");
  EXPECT_STREQ(stemma_reuse_name(4), "unknown");
  EXPECT_STREQ(stemma_step_name(STEMMA_STEP_CHECKPOINT), "checkpoint");
  EXPECT_STREQ(stemma_step_name(6), "unknown");
  EXPECT_STREQ(stemma_sequence_miss_name(STEMMA_SEQUENCE_MISS_NO_REWIND), "no_rewind");
  EXPECT_STREQ(stemma_sequence_miss_name(12), "unknown");
  EXPECT_STREQ(stemma_capture_fate_name(STEMMA_CAPTURE_CROWDED), "crowded");
  EXPECT_STREQ(stemma_capture_fate_name(8), "unknown");
  EXPECT_STREQ(stemma_sequence_state_name(STEMMA_SEQUENCE_BROKEN), "broken");
  EXPECT_STREQ(stemma_sequence_state_name(4), "unknown");
  EXPECT_STREQ(stemma_content_kind_name(STEMMA_CONTENT_LOGITS), "logits");
  EXPECT_STREQ(stemma_content_kind_name(~0U), "unknown");
}

class CacheContents : public CapiFixture {};

TEST_F(CacheContents, AreShownPathByPath) {
  create();
  fill(tokens(32, 1).tokens);
  fill(tokens(48, 2).tokens);
  const stemma_lease lease = take(tokens(49, 2).tokens);
  std::vector<stemma_cached_path> paths;
  ASSERT_OK(stemma_cache_contents(
      cache,
      [](void* user, const stemma_cached_path* path) {
        static_cast<std::vector<stemma_cached_path>*>(user)->push_back(*path);
      },
      &paths));
  ASSERT_EQ(paths.size(), 2U);
  std::sort(paths.begin(), paths.end(),
            [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  EXPECT_EQ(paths[0].tokens, 32U);
  EXPECT_EQ(paths[0].held, 0U);
  EXPECT_EQ(paths[1].tokens, 48U);
  EXPECT_EQ(paths[1].held, 1U);
  for (const stemma_cached_path& path : paths) {
    EXPECT_EQ(path.struct_size, sizeof path);
    EXPECT_EQ(std::memcmp(path.scope.digest, scope.digest, sizeof scope.digest), 0);
  }
  EXPECT_REFUSED(STEMMA_INVALID_ARGUMENT, "each is null", stemma_cache_contents, cache, nullptr,
                 nullptr);
  EXPECT_REFUSED(
      STEMMA_INVALID_ARGUMENT, "cache is null", stemma_cache_contents, nullptr,
      [](void*, const stemma_cached_path*) {}, nullptr);
  EXPECT_OK(stemma_lease_release(lease, nullptr));
}

}  // namespace
}  // namespace stemma::test
