// The same requests through C and through C++, over two identical engines, get the same answers and
// leave the same bytes in both, also when the engines fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "stemma/sequence.h"
#include "support/c_sequences.h"
#include "support/cache_fixture.h"
#include "support/say_sequences.h"

namespace stemma::test {
namespace {

struct Kind {
  const char* name;
  FakeSequences::Options engine;
};
std::vector<Kind> kinds() {
  FakeSequences::Options shared;
  shared.shift = true;
  FakeSequences::Options copying;
  copying.fork = Fork::copy;
  copying.unified = false;
  copying.context_tokens = 160;
  FakeSequences::Options states;
  states.segments = false;
  states.fork = Fork::restore;
  FakeSequences::Options window;
  window.rewind = Rewind::window;
  window.checkpoints = true;
  FakeSequences::Options recurrent;
  recurrent.rewind = Rewind::exact;
  recurrent.checkpoints = true;
  FakeSequences::Options bounded;
  bounded.rewind = Rewind::bounded;
  bounded.rewind_tokens = 4;
  bounded.full_attention = false;
  bounded.segments = false;
  FakeSequences::Options nothing;
  nothing.fork = Fork::none;
  nothing.segments = false;
  std::vector<Kind> all = {{"shared", shared},  {"copying", copying},     {"states", states},
                           {"window", window},  {"recurrent", recurrent}, {"bounded", bounded},
                           {"nothing", nothing}};
  for (Kind& kind : all) {
    if (kind.engine.context_tokens == 1024) kind.engine.context_tokens = 400;
  }
  return all;
}

// One request through both APIs.
struct SequencePair {
  Turn cpp;
  stemma_turn c = 0;
  std::vector<Token> words;
};

class SequenceAnswers : public ::testing::TestWithParam<uint32_t> {
 protected:
  uint32_t below(uint32_t limit) {
    return std::uniform_int_distribution<uint32_t>(0, limit - 1)(rng_);
  }
  bool chance(uint32_t percent) { return below(100) < percent; }

  void SetUp() override {
    rng_.seed(GetParam());
    const Kind kind = kinds()[GetParam() % kinds().size()];
    cpp_engine_.emplace(kind.engine);
    fake_.emplace(kind.engine);
    if (GetParam() >= kinds().size()) {
      const Call calls[] = {Call::clear, Call::trim, Call::copy, Call::size,
                            Call::save,  Call::load, Call::shift};
      cpp_engine_->faults = FaultSchedule::random(GetParam(), 60, calls);
      fake_->faults = FaultSchedule::random(GetParam(), 60, calls);
    }
    c_engine_.emplace(*fake_);
    SequenceOptions cpp;
    stemma_sequence_options c = STEMMA_SEQUENCE_OPTIONS_INIT;
    const stemma_tenant_quota quota{1, 0, 4000};
    cpp.quotas = {{TenantId{1}, 4000}};
    c.quotas = &quota;
    c.quota_count = 1;
    c.saved_bytes = cpp.saved_bytes = 60'000;
    c.logits_bytes = cpp.logits_bytes = 4'000;
    c.segment_tokens = cpp.segment_tokens = 8;
    c.least_tokens = cpp.least_tokens = 4;
    c.interval_tokens = cpp.interval_tokens = below(2) * 16;
    c.marks = cpp.marks = 3;
    c.pending_captures = cpp.pending_captures = 2;
    c.sessions = cpp.sessions = 3;
    c.checkpoint_share = cpp.checkpoint_share = 0.5;
    c.compute_token_ns = cpp.compute_token_ns = 900'000;
    c.move_byte_ps = cpp.move_byte_ps = 150;
    c.move_call_ns = cpp.move_call_ns = 40'000;
    cpp.clock = &clock_;
    c.clock = {[](void* user) { return static_cast<ManualClock*>(user)->now_ns(); }, &clock_};
    c.policy = "lru";
    cpp_.emplace(ok(SequenceCache::create(*cpp_engine_, cpp)));
    ASSERT_OK(stemma_sequences_create(&c_engine_->c, &c, &c_));
  }

  // A prompt with a few branches, and sometimes an image.
  Text text() {
    Text words = tokens(2 + below(90), 1 + below(2));
    const uint32_t branch = below(words.size());
    if (chance(40)) words.tokens[branch] = 7 + below(3);
    if (words.size() > 4 && chance(15)) {
      words = words.with(image(static_cast<uint8_t>(below(2)), 2, 2));
    }
    return words;
  }

  // What a request reports, through both APIs.
  struct Said {
    TurnOptions cpp;
    stemma_turn_options c = STEMMA_TURN_OPTIONS_INIT;
    stemma_retain retain = STEMMA_RETAIN_INIT;
    std::string session;
    std::vector<uint32_t> ends;
  };
  void draw(Said& said, uint32_t length) {
    TurnOptions& cpp = said.cpp;
    stemma_turn_options& c = said.c;
    if (chance(60)) {
      said.session = std::string(1, static_cast<char>('a' + below(4)));
      cpp.session = said.session;
      c.session = {said.session.data(), said.session.size()};
    }
    if (chance(30)) c.exclusive = cpp.exclusive = false;
    if (chance(20)) cpp.tenant = TenantId{c.tenant = 1};
    if (chance(15)) cpp.reuse = static_cast<Reuse>(c.reuse = below(4));
    if (chance(5)) c.bypass = cpp.bypass = true;
    if (chance(10)) c.keep = cpp.keep = false;
    if (chance(15)) c.at_most = cpp.at_most = below(60);
    if (chance(15)) c.evaluate_at_least = cpp.evaluate_at_least = below(5);
    if (chance(20)) c.reserve_tokens = cpp.reserve_tokens = below(300);
    if (chance(50)) c.want_logits = cpp.want_logits = true;
    for (uint32_t end = 1 + below(40); end <= length && chance(60); end += 1 + below(30)) {
      said.ends.push_back(end);
    }
    cpp.message_ends = said.ends;
    c.message_ends = said.ends.data();
    c.message_end_count = said.ends.size();
    if (chance(30)) {
      said.retain.priority = cpp.retain.priority = static_cast<Priority>(below(101));
      said.retain.ttl_ns = cpp.retain.ttl_ns = below(1000);
      said.retain.phase = below(3);
      cpp.retain.phase = static_cast<SessionPhase>(said.retain.phase);
      c.retain = &said.retain;
    }
  }
  struct Asked {
    std::vector<stemma_media_item> items;
    stemma_prompt prompt;
  };
  static void to_c(const Text& text, Asked& out) {
    for (const MediaItem& item : text.media) {
      stemma_media_item& to = out.items.emplace_back();
      to = {static_cast<uint32_t>(item.kind), item.offset, item.length, item.causal ? 1U : 0U, {}};
      std::copy(item.digest.begin(), item.digest.end(), to.digest);
    }
    out.prompt = {text.tokens.data(), text.tokens.size(), out.items.data(), out.items.size()};
  }

  void begin() {
    const Text words = text();
    Asked asked;
    to_c(words, asked);
    Said said;
    draw(said, words.size());
    stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
    const Result<SequenceReport> found = cpp_->lookup(scope_, words, said.cpp);
    ASSERT_EQ(answer(stemma_sequences_lookup(c_, &c_scope_, &asked.prompt, &said.c, &report)),
              answer(found));
    if (found) {
      ASSERT_EQ(say(report), say(*found));
    }
    uint32_t admits = 7;
    ASSERT_OK(stemma_sequences_can_admit(c_, said.session.data(), said.session.size(), &admits));
    ASSERT_EQ(admits != 0, cpp_->can_admit(said.session));
    SequencePair pair;
    Result<Turn> turn = cpp_->begin(scope_, words, said.cpp);
    ASSERT_EQ(answer(stemma_sequences_begin(c_, &c_scope_, &asked.prompt, &said.c, &pair.c)),
              answer(turn));
    if (!turn) return;
    pair.cpp = *std::move(turn);
    pair.words = words.tokens;
    pairs_.push_back(std::move(pair));
  }

  void compute(SequencePair& pair) {
    const uint32_t from = pair.cpp.computed();
    const uint32_t to = chance(80) ? pair.cpp.next_stop() : below(120);
    const SequenceId sequence = pair.cpp.sequence();
    if (to > from && to <= pair.words.size() && to_index(sequence) != STEMMA_NO_SEQUENCE) {
      const std::span<const Token> words = std::span(pair.words).subspan(from, to - from);
      const Result<void> done = cpp_engine_->compute(sequence, words);
      ASSERT_EQ(answer(fake_->compute(sequence, words)), answer(done));
      if (!done) return;
    }
    const uint64_t spent = below(3) * 5'000'000;
    ASSERT_EQ(answer(stemma_turn_computed(pair.c, to, spent)),
              answer(pair.cpp.computed(to, spent)));
  }

  void use(SequencePair& pair) {
    const uint32_t n = below(100);
    switch (below(12)) {
      case 0:
      case 1:
      case 2: {
        uint32_t available = 0;
        const Result<uint32_t> done = pair.cpp.execute();
        ASSERT_EQ(answer(stemma_turn_execute(pair.c, &available)), answer(done));
        if (done) {
          ASSERT_EQ(available, *done);
        }
        break;
      }
      case 3: {
        const std::vector<uint32_t> more = tokens(below(12), 3).tokens;
        const Result<void> done = pair.cpp.extend(more);
        ASSERT_EQ(answer(stemma_turn_extend(pair.c, more.data(), more.size())), answer(done));
        if (done) pair.words.insert(pair.words.end(), more.begin(), more.end());
        break;
      }
      case 4:
        ASSERT_EQ(answer(stemma_turn_rewind(pair.c, n)), answer(pair.cpp.rewind(n)));
        pair.words.resize(pair.cpp.length());
        break;
      case 5: {
        const uint32_t depth = chance(80) ? pair.cpp.computed() : n;
        const std::vector<float> logits(below(6), static_cast<float>(n));
        ASSERT_EQ(answer(stemma_turn_attach_logits(pair.c, depth, logits.data(), logits.size())),
                  answer(pair.cpp.attach_logits(depth, logits)));
        break;
      }
      case 6: {
        Said said;
        draw(said, 0);
        SequencePair fork;
        Result<Turn> twin = pair.cpp.fork(said.cpp);
        ASSERT_EQ(answer(stemma_turn_fork(pair.c, &said.c, &fork.c)), answer(twin));
        if (!twin) break;
        fork.cpp = *std::move(twin);
        fork.words.assign(pair.words.begin(), pair.words.begin() + fork.cpp.length());
        pairs_.push_back(std::move(fork));
        break;
      }
      case 7: {
        const uint32_t discard = below(20);
        const Result<void> done = pair.cpp.shift(n / 2, discard);
        ASSERT_EQ(answer(stemma_turn_shift(pair.c, n / 2, discard)), answer(done));
        if (!done) break;
        const auto at = pair.words.begin() + n / 2;
        pair.words.erase(at, at + discard);
        break;
      }
      case 8:
        ASSERT_EQ(answer(stemma_turn_reserve(pair.c, n * 3)), answer(pair.cpp.reserve(n * 3)));
        break;
      default: compute(pair);
    }
  }

  void end(size_t index) {
    SequencePair pair = std::move(pairs_[index]);
    pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(index));
    stemma_retain c = STEMMA_RETAIN_INIT;
    Retain cpp;
    c.priority = cpp.priority = static_cast<Priority>(below(101));
    const bool told = chance(30);
    if (chance(30)) {
      ASSERT_EQ(answer(stemma_turn_abandon(pair.c)), answer(pair.cpp.abandon()));
    } else {
      ASSERT_EQ(answer(stemma_turn_finish(pair.c, told ? &c : nullptr)),
                answer(pair.cpp.finish(told ? &cpp : nullptr)));
    }
    ASSERT_FALSE(pair.cpp.active());
    stemma_turn_place at{};
    ASSERT_EQ(stemma_turn_positions(pair.c, &at), STEMMA_STALE);
  }

  void warm() {
    const Text words = text();
    Asked asked;
    to_c(words, asked);
    stemma_sequence_report report = STEMMA_SEQUENCE_REPORT_INIT;
    const auto cpp_compute = [](void* user, SequenceId sequence, std::span<const Token> tokens,
                                uint32_t) {
      return static_cast<FakeSequences*>(user)->compute(sequence, tokens);
    };
    const auto c_compute = [](void* user, uint32_t sequence, const uint32_t* tokens, size_t count,
                              uint32_t) {
      return c_status(
          static_cast<FakeSequences*>(user)->compute(SequenceId{sequence}, {tokens, count}));
    };
    const Result<SequenceReport> done = cpp_->warm(scope_, words, cpp_compute, &*cpp_engine_, {});
    ASSERT_EQ(answer(stemma_sequences_warm(c_, &c_scope_, &asked.prompt, nullptr, c_compute,
                                           &*fake_, &report)),
              answer(done));
    if (done) {
      ASSERT_EQ(say(report), say(*done));
    }
  }

  void truncate() {
    const Text words = text();
    Asked asked;
    to_c(words, asked);
    const uint32_t keep = below(words.size() + 2);
    const Result<Truncated> cpp = cpp_->truncate(scope_, words, keep);
    stemma_truncated c{};
    ASSERT_EQ(answer(stemma_sequences_truncate(c_, &c_scope_, &asked.prompt, keep, &c)),
              answer(cpp));
    if (!cpp) return;
    ASSERT_EQ(c.live_tokens, cpp->live_tokens);
    ASSERT_EQ(c.sequences, cpp->sequences);
    ASSERT_EQ(c.segments, cpp->segments);
    ASSERT_EQ(c.states, cpp->states);
    ASSERT_EQ(c.checkpoints, cpp->checkpoints);
    ASSERT_EQ(c.logits, cpp->logits);
    ASSERT_EQ(c.in_use, cpp->in_use);
  }

  void manage() {
    const std::string session(1, static_cast<char>('a' + below(4)));
    switch (below(9)) {
      case 0:
      case 1:
      case 2: {
        const DrainLimits limits{
            .items = below(3), .bytes = 1 + uint64_t{below(3000)}, .evict = below(2) == 0};
        const Drained cpp = cpp_->drain(limits);
        stemma_drained c{};
        ASSERT_OK(stemma_sequences_drain(c_, limits.items, limits.bytes, limits.evict ? 1 : 0, &c));
        ASSERT_EQ(c.items, cpp.items);
        ASSERT_EQ(c.saved, cpp.saved);
        ASSERT_EQ(c.bytes, cpp.bytes);
        break;
      }
      case 3: warm(); break;
      case 4:
        ASSERT_OK(stemma_sequences_end_session(c_, session.data(), session.size()));
        cpp_->end_session(session);
        break;
      case 5:
        if (chance(80)) break;
        ASSERT_OK(stemma_sequences_drop_scope(c_, &c_scope_));
        cpp_->drop_scope(scope_);
        break;
      case 6:
        if (chance(70)) break;
        ASSERT_OK(stemma_sequences_drop_saved(c_));
        cpp_->drop_saved();
        break;
      case 7: truncate(); break;
      default:
        if (chance(70)) break;
        // A new context: from here on, the engines do not fail.
        for (FakeSequences* engine : {&*cpp_engine_, &*fake_}) {
          const FaultSchedule faults = engine->faults;
          engine->faults = {};
          for (uint32_t s = 0; s < engine->traits().sequences; ++s) {
            ASSERT_TRUE(engine->clear(SequenceId{s}));
          }
          engine->faults = faults;
        }
        ASSERT_OK(stemma_sequences_forget_context(c_));
        cpp_->forget_context();
    }
  }

  void compare() {
    for (const SequencePair& pair : pairs_) {
      ASSERT_EQ(stand(pair.c), stand(pair.cpp));
      ASSERT_EQ(pair.words.size(), pair.cpp.length());
    }
    stemma_sequence_stats stats{};
    stats.struct_size = sizeof stats;
    ASSERT_OK(stemma_sequences_stats(c_, &stats));
    ASSERT_EQ(say_stats(stats), say_stats(cpp_->stats()));
    uint32_t pending = 0;
    ASSERT_OK(stemma_sequences_pending(c_, &pending));
    ASSERT_EQ(pending, cpp_->pending());
    for (uint32_t s = 0; s < fake_->traits().sequences; ++s) {
      ASSERT_EQ(fake_->fingerprint(SequenceId{s}), cpp_engine_->fingerprint(SequenceId{s})) << s;
      stemma_sequence_info info = STEMMA_SEQUENCE_INFO_INIT;
      ASSERT_OK(stemma_sequences_sequence(c_, s, &info));
      const SequenceInfo cpp = cpp_->sequence(SequenceId{s});
      ASSERT_EQ(info.state, static_cast<uint32_t>(cpp.state));
      ASSERT_EQ(info.generation, cpp.generation);
      ASSERT_EQ(info.length, cpp.length);
      ASSERT_EQ(info.unsaved_tokens, cpp.unsaved_tokens);
      ASSERT_EQ(info.approximate != 0, cpp.approximate);
    }
    for (const char* name : {"a", "b", "c", "d"}) {
      stemma_session_info info = STEMMA_SESSION_INFO_INIT;
      ASSERT_OK(stemma_sequences_session(c_, name, 1, &info));
      const SessionInfo cpp = cpp_->session(name);
      ASSERT_EQ(info.known != 0, cpp.known);
      ASSERT_EQ(info.in_flight != 0, cpp.in_flight);
      ASSERT_EQ(info.resident != 0, cpp.resident);
      ASSERT_EQ(info.turns, cpp.turns);
      ASSERT_EQ(info.length, cpp.length);
      ASSERT_EQ(info.last_used_ns, cpp.last_used_ns);
      ASSERT_EQ(info.sequence,
                cpp.resident || cpp.in_flight ? to_index(cpp.sequence) : STEMMA_NO_SEQUENCE);
    }
  }

  void compare_contents() {
    std::vector<stemma_sequence_content> c;
    ASSERT_OK(stemma_sequences_contents(
        c_,
        [](void* user, const stemma_sequence_content* item) {
          static_cast<std::vector<stemma_sequence_content>*>(user)->push_back(*item);
        },
        &c));
    const std::vector<SequenceContent> cpp = *cpp_->contents();
    ASSERT_EQ(c.size(), cpp.size());
    for (size_t i = 0; i < c.size(); ++i) {
      ASSERT_EQ(c[i].struct_size, sizeof c[i]);
      ASSERT_EQ(c[i].kind, static_cast<uint32_t>(cpp[i].kind));
      ASSERT_TRUE(std::ranges::equal(c[i].scope.digest, cpp[i].scope.digest()));
      ASSERT_EQ(c[i].depth, cpp[i].depth);
      ASSERT_EQ(c[i].bytes, cpp[i].bytes);
      ASSERT_EQ(c[i].leased != 0, cpp[i].leased);
      ASSERT_EQ(c[i].sequence, cpp[i].kind == SequenceContent::Kind::live
                                   ? to_index(cpp[i].sequence)
                                   : STEMMA_NO_SEQUENCE);
    }
  }

  std::mt19937 rng_;
  ManualClock clock_;
  std::optional<FakeSequences> cpp_engine_;
  std::optional<FakeSequences> fake_;
  std::optional<CEngine> c_engine_;
  std::optional<SequenceCache> cpp_;
  stemma_sequences* c_ = nullptr;
  const Scope scope_ = scope_of({.model = "model"});
  const stemma_scope c_scope_ = c_scope("model");
  std::vector<SequencePair> pairs_;
};

TEST_P(SequenceAnswers, ThroughCAndThroughCpp) {
  for (int step = 0; step < 1200; ++step) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()) + " (" +
                 kinds()[GetParam() % kinds().size()].name + "), step " + std::to_string(step));
    clock_.advance_ns(below(50));
    const uint32_t what = below(100);
    if (pairs_.empty() || what < 20) {
      begin();
    } else if (what < 75) {
      use(pairs_[below(static_cast<uint32_t>(pairs_.size()))]);
    } else if (what < 88) {
      end(below(static_cast<uint32_t>(pairs_.size())));
    } else {
      manage();
    }
    if (HasFatalFailure()) return;
    compare();
    if (HasFatalFailure()) return;
    if (step % 20 == 0) {
      compare_contents();
      ASSERT_OK(stemma_sequences_check_invariants(c_));
    }
  }
  while (!pairs_.empty()) end(pairs_.size() - 1);
  EXPECT_GT(cpp_->stats().turns, 100U);
  EXPECT_GT(cpp_->stats().reused_tokens, 100U);
  ASSERT_OK(stemma_sequences_check_invariants(c_));
  ASSERT_OK(stemma_sequences_destroy(c_, STEMMA_ON_BUSY_REFUSE));
}

INSTANTIATE_TEST_SUITE_P(Seeds, SequenceAnswers, ::testing::Range(0U, 14U));

}  // namespace
}  // namespace stemma::test
