// Memory runs out below the part of the C ABI for opaque sequences: a status, and nothing has
// changed.
#include <gtest/gtest.h>

#include <vector>

#include "fault/failing_new.h"
#include "support/c_sequences.h"

namespace stemma::test {
namespace {

class SequenceCapiMemory : public SequencesFixture {
 protected:
  void SetUp() override {
    options.logits_bytes = 4096;
    options.segment_tokens = 16;
    create();
    serve(tokens(64).tokens);
  }
};

bool fine(stemma_status got) { return got == STEMMA_OK || got == STEMMA_OUT_OF_MEMORY; }

TEST_F(SequenceCapiMemory, CreatingMayRunOutAnywhere) {
  uint64_t refused = 0;
  for (uint64_t n = 1;; ++n) {
    stemma_sequences* other = nullptr;
    stemma_status got;
    bool fired;
    {
      const FailingNew failing(n);
      got = stemma_sequences_create(&c_engine.c, &options, &other);
      fired = failing.fired();
    }
    ASSERT_TRUE(fine(got)) << stemma_last_error_message();
    ASSERT_EQ(got == STEMMA_OK, other != nullptr);
    refused += got != STEMMA_OK ? 1 : 0;
    if (other != nullptr) {
      ASSERT_OK(stemma_sequences_destroy(other, STEMMA_ON_BUSY_REFUSE));
    }
    if (!fired) break;
  }
  EXPECT_GT(refused, 3U);
}

// A request, with its lookup, fork and end, in which the n-th allocation fails.
TEST_F(SequenceCapiMemory, EveryPointOfARequestMayRunOut) {
  const std::vector<uint32_t> words = tokens(80).tokens;
  const std::vector<uint32_t> more = tokens(300, 7).tokens;
  const stemma_prompt prompt = c_prompt(words);
  std::vector<float> logits(64, 1.5F);
  uint64_t refused = 0;
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    const stemma_sequence_stats before = stats();
    stemma_turn turn = 0;
    stemma_turn fork = 0;
    stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
    stemma_turn_options said = STEMMA_TURN_OPTIONS_INIT;
    said.session = {"a conversation with a name that is long", 39};
    bool fired;
    {
      const FailingNew failing(n);
      const auto note = [&](stemma_status got) {
        EXPECT_TRUE(fine(got)) << stemma_last_error_message();
        refused += got != STEMMA_OK ? 1 : 0;
        return got == STEMMA_OK;
      };
      note(stemma_sequences_lookup(cache, &scope, &prompt, &said, &report));
      if (note(stemma_sequences_begin(cache, &scope, &prompt, &said, &turn)) &&
          note(stemma_turn_execute(turn, nullptr))) {
        note(stemma_turn_extend(turn, more.data(), more.size()));
        note(stemma_turn_reserve(turn, 10));
        const stemma_turn_place at = place(turn);
        note(stemma_turn_computed(turn, at.computed, 0));
        note(stemma_turn_attach_logits(turn, at.computed, logits.data(), logits.size()));
        note(stemma_turn_fork(turn, nullptr, &fork));
        note(stemma_turn_rewind(turn, at.computed - 1));
      }
      fired = failing.fired();
    }
    if (turn == 0) {
      EXPECT_EQ(stats().leased_sequences, before.leased_sequences);
    }
    ASSERT_OK(stemma_sequences_check_invariants(cache));
    if (fork != 0) {
      EXPECT_OK(stemma_turn_abandon(fork));
    }
    if (turn != 0) {
      EXPECT_OK(stemma_turn_finish(turn, nullptr));
    }
    ASSERT_OK(stemma_sequences_check_invariants(cache));
    ASSERT_OK(stemma_sequences_drop_saved(cache));
    ASSERT_OK(stemma_sequences_end_session(cache, "a conversation with a name that is long", 39));
    if (!fired) break;
  }
  EXPECT_GT(refused, 5U);
}

// Ends and looks need no memory, or do without. (The checks come later: a failure needs some.)
TEST_F(SequenceCapiMemory, EndingAndLookingNeedNone) {
  const std::vector<uint32_t> words = tokens(80, 2).tokens;
  for (const bool finish : {true, false}) {
    const stemma_turn turn = begin(words);
    compute(turn, words);
    stemma_sequence_stats seen{};
    seen.struct_size = sizeof seen;
    stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
    stemma_session_info session = STEMMA_SESSION_INFO_INIT;
    uint32_t number = 0;
    stemma_status got[9];
    {
      const NoMemory none;
      got[0] = stemma_sequences_stats(cache, &seen);
      got[1] = stemma_sequences_sequence(cache, 0, &info);
      got[2] = stemma_sequences_session(cache, "nobody", 6, &session);
      got[3] = stemma_sequences_pending(cache, &number);
      got[4] = stemma_sequences_can_admit(cache, nullptr, 0, &number);
      got[5] = finish ? stemma_turn_finish(turn, nullptr) : stemma_turn_abandon(turn);
      got[6] = stemma_sequences_end_session(cache, "nobody", 6);
      got[7] = stemma_sequences_drop_saved(cache);
      got[8] = stemma_sequences_forget_context(cache);
    }
    for (size_t i = 0; i < std::size(got); ++i) EXPECT_EQ(got[i], STEMMA_OK) << i;
    EXPECT_EQ(seen.leased_sequences, 1U);
    EXPECT_OK(stemma_sequences_check_invariants(cache));
    for (uint32_t s = 0; s < 3; ++s) ASSERT_TRUE(engine.clear(SequenceId{s}));
  }
}

TEST_F(SequenceCapiMemory, DrainingAndWarmingMayRunOutAnywhere) {
  const std::vector<uint32_t> words = tokens(100, 3).tokens;
  const stemma_prompt prompt = c_prompt(words);
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    serve(tokens(90, 4).tokens);
    bool fired;
    {
      const FailingNew failing(n);
      EXPECT_OK(stemma_sequences_drain(cache, STEMMA_ALL, UINT64_MAX, 0, nullptr));
      const stemma_status got = stemma_sequences_warm(
          cache, &scope, &prompt, nullptr,
          [](void* user, uint32_t sequence, const uint32_t* tokens, size_t count, uint32_t) {
            return c_status(
                static_cast<FakeSequences*>(user)->compute(SequenceId{sequence}, {tokens, count}));
          },
          &engine, nullptr);
      // A failure inside the fake engine is reported as the library's own lack of memory.
      EXPECT_TRUE(fine(got)) << stemma_last_error_message();
      fired = failing.fired();
    }
    ASSERT_OK(stemma_sequences_check_invariants(cache));
    EXPECT_EQ(stats().leased_sequences, 0U);
    ASSERT_OK(stemma_sequences_drop_saved(cache));
    ASSERT_OK(stemma_sequences_drop_scope(cache, &scope));
    if (!fired) break;
  }
}

class CacheContentsMemory : public CapiFixture {};

TEST_F(CacheContentsMemory, WithoutMemoryNothingIsShown) {
  create();
  fill(tokens(64).tokens);
  int calls = 0;
  const auto count = [](void* user, const stemma_cached_path*) { ++*static_cast<int*>(user); };
  {
    const NoMemory none;
    EXPECT_EQ(stemma_cache_contents(cache, count, &calls), STEMMA_OUT_OF_MEMORY);
  }
  EXPECT_EQ(calls, 0);
  EXPECT_OK(stemma_cache_contents(cache, count, &calls));
  EXPECT_EQ(calls, 1);
}

// None found, not stored: either is an answer, and nothing is half there.
TEST(WholePromptsMemory, EveryPointMayRunOut) {
  const stemma_scope scope = c_scope();
  const std::vector<uint32_t> words = tokens(20).tokens;
  const std::vector<uint8_t> state(1000, 7);
  uint64_t refused = 0;
  for (uint64_t n = 1;; ++n) {
    SCOPED_TRACE(n);
    stemma_whole_prompts* cache = nullptr;
    stemma_prompt_lease lease = 0;
    stemma_stored_prompt found{};
    bool fired;
    {
      const FailingNew failing(n);
      const auto note = [&](stemma_status got) {
        EXPECT_TRUE(fine(got)) << stemma_last_error_message();
        refused += got != STEMMA_OK ? 1 : 0;
        return got == STEMMA_OK;
      };
      if (note(stemma_whole_prompts_create(nullptr, &cache))) {
        note(stemma_whole_prompts_store(cache, &scope, words.data(), words.size(), state.data(),
                                        state.size(), nullptr, 0));
        note(stemma_whole_prompts_find(cache, &scope, words.data(), words.size(), &lease, &found));
      }
      fired = failing.fired();
    }
    ASSERT_EQ(lease != 0, found.size == state.size());
    if (lease != 0) {
      ASSERT_OK(stemma_prompt_lease_release(lease));
    }
    if (cache != nullptr) {
      ASSERT_OK(stemma_whole_prompts_destroy(cache, STEMMA_ON_BUSY_REFUSE));
    }
    if (!fired) {
      EXPECT_NE(lease, 0U);
      break;
    }
  }
  EXPECT_GT(refused, 3U);
}

}  // namespace
}  // namespace stemma::test
