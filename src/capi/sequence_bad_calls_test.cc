// Every call about sequences answers every mistake with a status and a message that names it, and
// changes nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/c_sequences.h"

namespace stemma::test {
namespace {

constexpr stemma_status kBad = STEMMA_INVALID_ARGUMENT;

class SequenceBadCalls : public SequencesFixture {
 protected:
  void SetUp() override {
    options.logits_bytes = 1024;
    create();
    turn = begin(words);
    compute(turn, words);
    before = books();
  }
  void TearDown() override {
    if (turn != 0) {
      EXPECT_EQ(books(), before) << "a refused call changed something";
      EXPECT_OK(stemma_turn_finish(turn, nullptr));
    }
    SequencesFixture::TearDown();
  }
  std::string books() {
    const stemma_sequence_stats s = stats();
    const stemma_turn_place at = place(turn);
    return std::to_string(s.free_sequences) + " free, " + std::to_string(s.idle_sequences) +
           " idle, " + std::to_string(s.leased_sequences) + " leased, " +
           std::to_string(s.used_tokens) + " used, " + std::to_string(s.pending) + " pending, at " +
           std::to_string(at.computed) + " of " + std::to_string(at.length) + ", " +
           std::to_string(s.saved_bytes + s.logits_bytes) + " bytes, engine " +
           std::to_string(engine.fingerprint(SequenceId{at.sequence}));
  }

  std::vector<uint32_t> words = tokens(40).tokens;
  stemma_prompt prompt = c_prompt(words);
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  stemma_turn turn = 0;
  std::string before;
};

void no_content(void*, const stemma_sequence_content*) {}
stemma_status no_compute(void*, uint32_t, const uint32_t*, size_t, uint32_t) { return STEMMA_OK; }

// Expects that every call on a turn is refused like this.
void expect_refused(stemma_turn t, stemma_status wanted, const char* why) {
  stemma_turn_place at{};
  stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
  size_t size = 0;
  uint32_t word = 0;
  const float logit = 0;
  const float* logits = nullptr;
  stemma_turn fork = 0;
  EXPECT_REFUSED(wanted, why, stemma_turn_positions, t, &at);
  EXPECT_REFUSED(wanted, why, stemma_turn_report, t, &report);
  EXPECT_REFUSED(wanted, why, stemma_turn_media_to_process, t, nullptr, 0, &size);
  EXPECT_REFUSED(wanted, why, stemma_turn_logits, t, &logits, &size);
  EXPECT_REFUSED(wanted, why, stemma_turn_execute, t, &word);
  EXPECT_REFUSED(wanted, why, stemma_turn_computed, t, 0, 0);
  EXPECT_REFUSED(wanted, why, stemma_turn_extend, t, &word, 1);
  EXPECT_REFUSED(wanted, why, stemma_turn_reserve, t, 1);
  EXPECT_REFUSED(wanted, why, stemma_turn_rewind, t, 0);
  EXPECT_REFUSED(wanted, why, stemma_turn_attach_logits, t, 1, &logit, 1);
  EXPECT_REFUSED(wanted, why, stemma_turn_fork, t, nullptr, &fork);
  EXPECT_REFUSED(wanted, why, stemma_turn_shift, t, 1, 1);
  EXPECT_REFUSED(wanted, why, stemma_turn_finish, t, nullptr);
  EXPECT_REFUSED(wanted, why, stemma_turn_abandon, t);
}

TEST_F(SequenceBadCalls, EveryTurnCallKnowsWrongNumbers) {
  const stemma_turn gone = begin(tokens(20, 2).tokens);
  ASSERT_OK(stemma_turn_abandon(gone));
  before = books();
  expect_refused(0, kBad, "turn is 0");
  expect_refused(~uint64_t{0}, kBad, "no turn");
  expect_refused(12345, kBad, "no turn");
  expect_refused(gone, STEMMA_STALE, "ended");
}

TEST_F(SequenceBadCalls, NumbersOfLeasesAreNoneOfTurns) {
  stemma_group_options group = c_group(64);
  stemma_options paged_options = STEMMA_OPTIONS_INIT;
  paged_options.groups = &group;
  paged_options.group_count = 1;
  stemma_cache* paged = nullptr;
  stemma_lease lease = 0;
  ASSERT_OK(stemma_cache_create(&paged_options, &paged));
  ASSERT_OK(stemma_cache_lease(paged, &scope, &prompt, nullptr, &lease));
  expect_refused(lease, kBad, "no turn");
  EXPECT_REFUSED(kBad, "no lease", stemma_lease_release, turn, nullptr);
  EXPECT_REFUSED(kBad, "no lease", stemma_lease_commit, turn, 1, nullptr);
  EXPECT_OK(stemma_lease_release(lease, nullptr));
  expect_refused(lease, kBad, "no turn");
  // A cache of one kind is not accepted as one of the other kind.
  stemma_sequence_stats s{};
  s.struct_size = sizeof s;
  EXPECT_REFUSED(kBad, "no stemma_sequences", stemma_sequences_stats,
                 reinterpret_cast<stemma_sequences*>(paged), &s);
  EXPECT_REFUSED(kBad, "no cache", stemma_cache_poll, reinterpret_cast<stemma_cache*>(cache),
                 nullptr);
  EXPECT_OK(stemma_cache_destroy(paged, STEMMA_ON_BUSY_REFUSE));
}

TEST_F(SequenceBadCalls, EveryCacheCallKnowsWrongPointers) {
  stemma_sequences* gone = nullptr;
  ASSERT_OK(stemma_sequences_create(&c_engine.c, &options, &gone));
  ASSERT_OK(stemma_sequences_destroy(gone, STEMMA_ON_BUSY_REFUSE));
  struct Case {
    stemma_sequences* cache;
    stemma_status status;
    const char* why;
  };
  stemma_sequence_stats s{};
  s.struct_size = sizeof s;
  stemma_session_info session = STEMMA_SESSION_INFO_INIT;
  stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
  stemma_turn t = 0;
  uint32_t word = 0;
  const Case cases[] = {
      {nullptr, kBad, "cache is null"},
      {reinterpret_cast<stemma_sequences*>(&s), kBad, "no stemma_sequences"},
      {reinterpret_cast<stemma_sequences*>(reinterpret_cast<char*>(cache) + 1), kBad,
       "no stemma_sequences"},
      {reinterpret_cast<stemma_sequences*>(~uintptr_t{0}),  // NOLINT: points nowhere, on purpose
       kBad, "no stemma_sequences"},
      {gone, STEMMA_STALE, "destroyed"},
  };
  for (const auto& [c, wanted, why] : cases) {
    EXPECT_REFUSED(wanted, why, stemma_sequences_destroy, c, 0);
    EXPECT_REFUSED(wanted, why, stemma_sequences_begin, c, &scope, &prompt, nullptr, &t);
    EXPECT_REFUSED(wanted, why, stemma_sequences_lookup, c, &scope, &prompt, nullptr, &report);
    EXPECT_REFUSED(wanted, why, stemma_sequences_can_admit, c, nullptr, 0, &word);
    EXPECT_REFUSED(wanted, why, stemma_sequences_drain, c, 1, 1, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_sequences_pending, c, &word);
    EXPECT_REFUSED(wanted, why, stemma_sequences_warm, c, &scope, &prompt, nullptr, no_compute,
                   nullptr, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_sequences_forget_context, c);
    EXPECT_REFUSED(wanted, why, stemma_sequences_drop_scope, c, &scope);
    EXPECT_REFUSED(wanted, why, stemma_sequences_truncate, c, &scope, &prompt, 0, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_sequences_drop_saved, c);
    EXPECT_REFUSED(wanted, why, stemma_sequences_end_session, c, "a", 1);
    EXPECT_REFUSED(wanted, why, stemma_sequences_stats, c, &s);
    EXPECT_REFUSED(wanted, why, stemma_sequences_session, c, "a", 1, &session);
    EXPECT_REFUSED(wanted, why, stemma_sequences_sequence, c, 0, &info);
    EXPECT_REFUSED(wanted, why, stemma_sequences_contents, c, no_content, nullptr);
    EXPECT_REFUSED(wanted, why, stemma_sequences_check_invariants, c);
  }
  EXPECT_EQ(t, 0U);
}

TEST_F(SequenceBadCalls, NullInputsAndOutputsAreNamed) {
  stemma_sequences* other = nullptr;
  stemma_session_info session = STEMMA_SESSION_INFO_INIT;
  stemma_turn t = 7;
  size_t size = 0;
  uint32_t word = 0;
  const float* logits = nullptr;
  EXPECT_REFUSED(kBad, "engine is null", stemma_sequences_create, nullptr, &options, &other);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_create, &c_engine.c, &options, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_sequences_begin, cache, nullptr, &prompt, nullptr,
                 &t);
  EXPECT_REFUSED(kBad, "prompt is null", stemma_sequences_begin, cache, &scope, nullptr, nullptr,
                 &t);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_begin, cache, &scope, &prompt, nullptr,
                 nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_sequences_lookup, cache, nullptr, &prompt, nullptr,
                 &report);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_lookup, cache, &scope, &prompt, nullptr,
                 nullptr);
  EXPECT_REFUSED(kBad, "admits is null", stemma_sequences_can_admit, cache, nullptr, 0, nullptr);
  EXPECT_REFUSED(kBad, "session", stemma_sequences_can_admit, cache, nullptr, 1, &word);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_pending, cache, nullptr);
  EXPECT_REFUSED(kBad, "compute is null", stemma_sequences_warm, cache, &scope, &prompt, nullptr,
                 nullptr, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "prompt is null", stemma_sequences_warm, cache, &scope, nullptr, nullptr,
                 no_compute, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_sequences_drop_scope, cache, nullptr);
  EXPECT_REFUSED(kBad, "scope is null", stemma_sequences_truncate, cache, nullptr, &prompt, 0,
                 nullptr);
  EXPECT_REFUSED(kBad, "prompt is null", stemma_sequences_truncate, cache, &scope, nullptr, 0,
                 nullptr);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "more than the prompt", stemma_sequences_truncate, cache,
                 &scope, &prompt, static_cast<uint32_t>(prompt.token_count) + 1, nullptr);
  EXPECT_REFUSED(kBad, "session", stemma_sequences_end_session, cache, nullptr, 3);
  EXPECT_REFUSED(kBad, "session", stemma_sequences_end_session, cache, "a", ~size_t{0});
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_stats, cache, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_session, cache, "a", 1, nullptr);
  EXPECT_REFUSED(kBad, "session", stemma_sequences_session, cache, nullptr, 1, &session);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequences_sequence, cache, 0, nullptr);
  EXPECT_REFUSED(kBad, "each is null", stemma_sequences_contents, cache, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_turn_positions, turn, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_turn_report, turn, nullptr);
  EXPECT_REFUSED(kBad, "count is null", stemma_turn_media_to_process, turn, nullptr, 0, nullptr);
  EXPECT_REFUSED(kBad, "logits is null", stemma_turn_logits, turn, nullptr, &size);
  EXPECT_REFUSED(kBad, "count is null", stemma_turn_logits, turn, &logits, nullptr);
  EXPECT_REFUSED(kBad, "tokens is null", stemma_turn_extend, turn, nullptr, 1);
  EXPECT_REFUSED(kBad, "logits is null", stemma_turn_attach_logits, turn, 40, nullptr, 1);
  EXPECT_REFUSED(kBad, "out is null", stemma_turn_fork, turn, nullptr, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_sequence_options_defaults, nullptr);
  EXPECT_REFUSED(kBad, "out is null", stemma_turn_options_defaults, nullptr);
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(t, 7U);
}

TEST_F(SequenceBadCalls, SizesThatNeverWereAreRefused) {
  stemma_sequences* other = nullptr;
  stemma_turn t = 0;
  for (const uint32_t wrong : {0U, 4U, 5000U, ~0U}) {
    stemma_turn_options said = STEMMA_TURN_OPTIONS_INIT;
    stemma_sequence_options had = STEMMA_SEQUENCE_OPTIONS_INIT;
    stemma_sequence_stats s{};
    stemma_session_info session = STEMMA_SESSION_INFO_INIT;
    stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
    stemma_retain retain = STEMMA_RETAIN_INIT;
    said.struct_size = had.struct_size = s.struct_size = session.struct_size = wrong;
    info.struct_size = retain.struct_size = report.struct_size = wrong;
    EXPECT_REFUSED(kBad, "struct_size of stemma_turn_options", stemma_sequences_begin, cache,
                   &scope, &prompt, &said, &t);
    EXPECT_REFUSED(kBad, "struct_size of stemma_turn_options", stemma_turn_fork, turn, &said, &t);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_report", stemma_sequences_lookup, cache,
                   &scope, &prompt, nullptr, &report);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_report", stemma_turn_report, turn,
                   &report);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_report", stemma_sequences_warm, cache,
                   &scope, &prompt, nullptr, no_compute, nullptr, &report);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_stats", stemma_sequences_stats, cache, &s);
    EXPECT_REFUSED(kBad, "struct_size of stemma_session_info", stemma_sequences_session, cache, "a",
                   1, &session);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_info", stemma_sequences_sequence, cache, 0,
                   &info);
    EXPECT_REFUSED(kBad, "struct_size of stemma_retain", stemma_turn_finish, turn, &retain);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_options", stemma_sequences_create,
                   &c_engine.c, &had, &other);
    EXPECT_REFUSED(kBad, "struct_size of stemma_sequence_options", stemma_sequence_options_defaults,
                   &had);
    EXPECT_REFUSED(kBad, "struct_size of stemma_turn_options", stemma_turn_options_defaults, &said);
    stemma_engine_traits traits = c_engine.traits;
    stemma_engine c = c_engine.c;
    traits.struct_size = wrong;
    c.traits = &traits;
    EXPECT_REFUSED(kBad, "struct_size of stemma_engine_traits", stemma_sequences_create, &c,
                   &options, &other);
    c.struct_size = wrong;
    EXPECT_REFUSED(kBad, "struct_size of stemma_engine", stemma_sequences_create, &c, &options,
                   &other);
  }
  EXPECT_EQ(other, nullptr);
}

TEST_F(SequenceBadCalls, EnginesNobodyMayHaveAreNamed) {
  stemma_sequences* other = nullptr;
  stemma_engine c = c_engine.c;
  stemma_engine_traits traits = c_engine.traits;
  const auto refused_for = [&](const char* why) {
    c.traits = &traits;
    EXPECT_REFUSED(kBad, why, stemma_sequences_create, &c, &options, &other);
    c = c_engine.c;
    traits = c_engine.traits;
  };
  c.reserved = 1, refused_for("engine.reserved");
  c.held = nullptr, refused_for("engine.held");
  c.clear = nullptr, refused_for("engine.clear");
  c.trim = nullptr, refused_for("engine.trim");
  c.copy = nullptr, refused_for("engine.copy");
  c.save = nullptr, refused_for("engine.save");
  c.size = nullptr, refused_for("engine.size");
  c.load = nullptr, refused_for("engine.load");
  c.size = nullptr, c.save = nullptr, c.load = nullptr, refused_for("traits need it");
  c.shift = nullptr, refused_for("engine.shift");
  traits.unified = 2, refused_for("traits.unified");
  traits.rewind = 256, refused_for("traits.rewind");
  traits.fork = 256, refused_for("traits.fork");
  traits.segments = 2, refused_for("traits.segments");
  traits.checkpoints = 2, refused_for("traits.checkpoints");
  traits.shift = 2, refused_for("traits.shift");
  traits.sequences = 0, refused_for("sequences");
  traits.context_tokens = 0, refused_for("context");
  traits.rewind = STEMMA_REWIND_WINDOW, traits.rewind_tokens = 0, refused_for("window");
  c.traits = nullptr;
  EXPECT_REFUSED(kBad, "engine.traits is null", stemma_sequences_create, &c, &options, &other);
  EXPECT_EQ(other, nullptr);
}

TEST_F(SequenceBadCalls, OptionsNobodyMayHaveAreNamed) {
  stemma_sequences* other = nullptr;
  const auto refused_for = [&](const char* why) {
    EXPECT_REFUSED(kBad, why, stemma_sequences_create, &c_engine.c, &options, &other);
    options = STEMMA_SEQUENCE_OPTIONS_INIT;
  };
  options.reuse = 256, refused_for("options.reuse");
  options.segment_tokens = 3, refused_for("segment_tokens");
  options.checkpoint_share = NAN, refused_for("checkpoint_share");
  options.sessions = 0, refused_for("sessions");
  options.pending_captures = 0, refused_for("pending_captures");
  options.policy = "clairvoyant", refused_for("policy");
  options.quota_count = 1, refused_for("options.quotas");
  const stemma_tenant_quota quota{1, 1, 100};
  options.quotas = &quota, options.quota_count = 1, refused_for("reserved of this quota");
  options.quotas = &quota, options.quota_count = ~size_t{0}, refused_for("options.quota_count");

  stemma_turn t = 0;
  stemma_turn_options said = STEMMA_TURN_OPTIONS_INIT;
  const auto begin_refused_for = [&](const char* why) {
    EXPECT_REFUSED(kBad, why, stemma_sequences_begin, cache, &scope, &prompt, &said, &t);
    EXPECT_REFUSED(kBad, why, stemma_sequences_lookup, cache, &scope, &prompt, &said, &report);
    EXPECT_REFUSED(kBad, why, stemma_turn_fork, turn, &said, &t);
    said = STEMMA_TURN_OPTIONS_INIT;
  };
  said.exclusive = 2, begin_refused_for("exclusive");
  said.bypass = 256, begin_refused_for("bypass");
  said.keep = 2, begin_refused_for("keep");
  said.want_logits = 2, begin_refused_for("want_logits");
  said.reuse = 4, begin_refused_for("reuse");
  said.session = {nullptr, 1}, begin_refused_for("session");
  said.session = {"a", ~size_t{0}}, begin_refused_for("session");
  said.message_end_count = 1, begin_refused_for("message_ends");
  const uint32_t down[2] = {5, 4};
  said.message_ends = down, said.message_end_count = 2, begin_refused_for("message_ends");
  said.message_ends = down, said.message_end_count = ~size_t{0},
  begin_refused_for("message_end_count");
  stemma_retain retain = STEMMA_RETAIN_INIT;
  retain.priority = 101;
  said.retain = &retain, begin_refused_for("retain.priority");
  EXPECT_REFUSED(kBad, "retain.priority", stemma_turn_finish, turn, &retain);
  EXPECT_REFUSED(kBad, "on_busy", stemma_sequences_destroy, cache, 2);
  EXPECT_EQ(t, 0U);
}

TEST_F(SequenceBadCalls, PositionsAndOrdersThatCannotBeAreRefused) {
  stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
  const float logit = 0;
  uint32_t word = 1;
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "sequence", stemma_sequences_sequence, cache, 3, &info);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "already", stemma_turn_execute, turn, nullptr);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(41)", stemma_turn_computed, turn, 41, 0);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(39)", stemma_turn_computed, turn, 39, 0);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(41)", stemma_turn_rewind, turn, 41);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "depth", stemma_turn_attach_logits, turn, 41, &logit, 1);
  EXPECT_REFUSED(kBad, "no logits", stemma_turn_attach_logits, turn, 40, nullptr, 0);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "count", stemma_turn_attach_logits, turn, 40, &logit,
                 ~size_t{0});
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "count", stemma_turn_extend, turn, &word, ~size_t{0});
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "range", stemma_turn_shift, turn, 30, 11);
  EXPECT_REFUSED(kBad, "discard", stemma_turn_shift, turn, 30, 0);
  EXPECT_REFUSED(STEMMA_OUT_OF_BLOCKS, "", stemma_turn_reserve, turn, 10'000);
  word = STEMMA_TOKEN_LIMIT;
  EXPECT_REFUSED(kBad, "", stemma_turn_extend, turn, &word, 1);

  const stemma_turn planned = begin(tokens(30, 2).tokens);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_computed, planned, 1, 0);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_rewind, planned, 1);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_reserve, planned, 1);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_shift, planned, 0, 1);
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_attach_logits, planned, 1, &logit, 1);
  stemma_turn fork = 0;
  EXPECT_REFUSED(STEMMA_WRONG_STATE, "execute", stemma_turn_fork, planned, nullptr, &fork);
  EXPECT_OK(stemma_turn_abandon(planned));

  std::vector<uint32_t> long_words(1025, 1);
  const stemma_prompt too_long = c_prompt(long_words);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "context", stemma_sequences_begin, cache, &scope, &too_long,
                 nullptr, &fork);
  EXPECT_EQ(fork, 0U);
}

TEST_F(SequenceBadCalls, BufferTooSmallSaysHowMuchIsNeeded) {
  const stemma_media_item items[2] = {{STEMMA_MEDIA_IMAGE, 2, 3, 0, {1}},
                                      {STEMMA_MEDIA_AUDIO, 10, 3, 0, {2}}};
  prompt.media = items;
  prompt.media_count = 2;
  stemma_turn with_media = 0;
  ASSERT_OK(stemma_sequences_begin(cache, &scope, &prompt, nullptr, &with_media));
  uint32_t out[2] = {7, 7};
  size_t count = 0;
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "(2)", stemma_turn_media_to_process, with_media, out, 1,
                 &count);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(out[0], 7U);
  EXPECT_OK(stemma_turn_media_to_process(with_media, out, 2, &count));
  EXPECT_EQ(out[1], 1U);
  EXPECT_OK(stemma_turn_abandon(with_media));
}

TEST_F(SequenceBadCalls, TurnsOfALostContextAreStaleAndEndOnce) {
  for (uint32_t s = 0; s < 3; ++s) ASSERT_TRUE(engine.clear(SequenceId{s}));
  const stemma_turn other = begin(tokens(9, 4).tokens);
  ASSERT_OK(stemma_sequences_forget_context(cache));
  for (const stemma_turn t : {turn, other}) {
    EXPECT_EQ(place(t).sequence, STEMMA_NO_SEQUENCE);
    EXPECT_REFUSED(STEMMA_STALE, "context", stemma_turn_execute, t, nullptr);
    EXPECT_REFUSED(STEMMA_STALE, "context", stemma_turn_computed, t, 40, 0);
    EXPECT_REFUSED(STEMMA_STALE, "context", stemma_turn_rewind, t, 1);
  }
  EXPECT_REFUSED(STEMMA_STALE, "context", stemma_turn_finish, turn, nullptr);
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_turn_finish, turn, nullptr);
  EXPECT_REFUSED(STEMMA_STALE, "context", stemma_turn_abandon, other);
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_turn_abandon, other);
  turn = 0;
}

TEST_F(SequenceBadCalls, DestroyingUnderATurnIsRefusedOrDeferredAsAsked) {
  EXPECT_REFUSED(STEMMA_BUSY, "(1)", stemma_sequences_destroy, cache, STEMMA_ON_BUSY_REFUSE);
  EXPECT_EQ(stemma_last_error_value(), 1U);
  EXPECT_EQ(books(), before);
  stemma_turn fork = 0;
  ASSERT_OK(stemma_turn_fork(turn, nullptr, &fork));
  EXPECT_REFUSED(STEMMA_BUSY, "(2)", stemma_sequences_destroy, cache, STEMMA_ON_BUSY_REFUSE);
  ASSERT_OK(stemma_sequences_destroy(cache, STEMMA_ON_BUSY_DEFER));
  EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_sequences_drop_saved, cache);
  // The turns can only end, without calling the engine.
  c_engine.c = {};
  c_engine.before = [](void*) -> stemma_status { return ADD_FAILURE(), STEMMA_BUSY; };
  EXPECT_REFUSED(STEMMA_STALE, "gone", stemma_turn_computed, turn, 40, 0);
  EXPECT_REFUSED(STEMMA_STALE, "gone", stemma_turn_rewind, fork, 1);
  EXPECT_REFUSED(STEMMA_STALE, "gone", stemma_turn_finish, fork, nullptr);
  EXPECT_REFUSED(STEMMA_STALE, "gone", stemma_turn_abandon, turn);
  EXPECT_REFUSED(STEMMA_STALE, "ended", stemma_turn_abandon, turn);
  cache = nullptr;
  turn = 0;
}

}  // namespace
}  // namespace stemma::test
