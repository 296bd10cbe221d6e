#include "support/sequence_rig.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "base/random.h"

namespace stemma::test {

// ---- Requests -----------------------------------------------------------------------------------

std::vector<Token> words_of(const Text& text) {
  std::vector<Token> words = text.tokens;
  for (const MediaItem& item : text.media) {
    uint64_t identity = base::mix(static_cast<uint64_t>(item.kind), item.length);
    identity = base::mix(identity, item.causal ? 1 : 0);
    for (const uint8_t byte : item.digest) identity = base::mix(identity, byte);
    for (uint32_t i = 0; i < item.length && item.offset + i < words.size(); ++i) {
      words[item.offset + i] = kTokenLimit | static_cast<Token>(base::mix(identity, i));
    }
  }
  return words;
}

SequenceOptions small_cache() {
  SequenceOptions options;
  options.saved_bytes = 4U << 20U;
  return options;
}

SequenceOptions SequenceRig::with_clock(SequenceOptions options, const Clock& clock) {
  if (options.clock == nullptr) options.clock = &clock;
  return options;
}

SequenceRig::SequenceRig(const EngineOptions& engine_options, const SequenceOptions& options)
    : engine(engine_options),
      clock(engine),
      cache(ok(SequenceCache::create(engine, with_clock(options, clock)))),
      saved_limit_(options.saved_bytes),
      known_(engine_options.sequences) {}

SequenceRig::~SequenceRig() {
  check("the end");
  EXPECT_EQ(cache.stats().leased_sequences, 0U) << "a turn was left behind";
}

template <class Step>
auto SequenceRig::undisturbed(SequenceId own, const std::string& what, Step step) {
  struct Before {
    SequenceState state;
    uint64_t print;
  };
  std::vector<Before> before;
  for (uint32_t s = 0; s < known_.size(); ++s) {
    before.push_back({info(s).state, engine.fingerprint(SequenceId{s})});
  }
  auto result = step();
  for (uint32_t s = 0; s < known_.size(); ++s) {
    const SequenceId id{s};
    if (id == own || engine.fingerprint(id) == before[s].print) continue;
    EXPECT_NE(before[s].state, SequenceState::leased)
        << what << " disturbed sequence " << s << ", which is another turn's";
    const SequenceState now = info(s).state;
    if (now == SequenceState::broken || now == SequenceState::leased)
      continue;  // Perhaps held by a fork.
    EXPECT_EQ(now, SequenceState::free) << what << " changed sequence " << s;
  }
  check(what);
  return result;
}

Result<Request> SequenceRig::try_begin(const Text& text, const TurnOptions& options) {
  return try_begin(scope, text, options);
}

Result<Request> SequenceRig::try_begin(const Scope& in, const Text& text,
                                       const TurnOptions& options) {
  const uint64_t before = calls() - calls(Call::held);
  Result<Turn> turn = cache.begin(in, text, options);
  EXPECT_EQ(calls() - calls(Call::held), before) << "begin() asks, and does nothing else";
  check("begin");
  if (!turn) return turn.error();
  Request request{*std::move(turn), text, std::max(options.evaluate_at_least, 1U)};
  EXPECT_TRUE(request.turn.active());
  EXPECT_EQ(request.turn.length(), text.size());
  EXPECT_EQ(request.turn.available(), 0U) << "before execute()";
  EXPECT_EQ(request.turn.report().prompt_tokens, text.size());
  EXPECT_EQ(info(request).state, SequenceState::leased);
  return request;
}

Request SequenceRig::begin(const Text& text, const TurnOptions& options) {
  return ok(try_begin(text, options));
}

// The report of an executed turn is true.
void SequenceRig::judge(const Request& request) {
  const Turn& turn = request.turn;
  const SequenceReport report = turn.report();
  const std::vector<Token> words = words_of(request.text);
  const uint32_t n = turn.available();
  EXPECT_EQ(engine.right(turn.sequence(), std::span(words).first(n)), "");
  EXPECT_EQ(turn.computed(), n);
  EXPECT_EQ(report.reused_tokens, n);
  EXPECT_EQ(report.prompt_tokens, request.text.size());
  EXPECT_EQ(report.reused_tokens + report.evaluated_tokens, report.prompt_tokens);
  EXPECT_GE(report.matched_tokens, n);
  const uint32_t contributed = std::accumulate(report.steps.begin(), report.steps.end() - 1, 0U);
  EXPECT_EQ(contributed, n) << "steps add up to what is reused";
  if (turn.logits().empty()) {
    EXPECT_LE(n + std::min(request.evaluate_at_least, request.text.size()), request.text.size());
  }
  std::vector<uint32_t> media;
  for (uint32_t i = 0; i < request.text.media.size(); ++i) {
    const MediaItem& item = request.text.media[i];
    if (item.offset + item.length > n) media.push_back(i);
    EXPECT_FALSE(item.offset < n && n < item.offset + item.length) << "inside an item";
  }
  const std::span<const uint32_t> wanted = turn.media_to_process();
  EXPECT_EQ(std::vector<uint32_t>(wanted.begin(), wanted.end()), media);
  EXPECT_EQ(report.media_to_process, media.size());
  EXPECT_EQ(info(request).state, SequenceState::leased);
  EXPECT_EQ(info(request).length, n);
  if (report.outcome == Outcome::full_hit || report.outcome == Outcome::partial_hit) {
    EXPECT_GT(n, 0U);
  } else {
    EXPECT_EQ(n, 0U);
    EXPECT_NE(report.reason, SequenceMiss::none) << "a miss has a reason";
  }
  if (report.outcome == Outcome::full_hit) {
    EXPECT_EQ(report.reason, SequenceMiss::none);
  }
}

Result<uint32_t> SequenceRig::try_execute(Request& request) {
  const SequenceId sequence = request.turn.sequence();
  known_[to_index(sequence)] = words_of(request.text);
  return undisturbed(sequence, "execute", [&]() -> Result<uint32_t> {
    Result<uint32_t> available = request.turn.execute();
    if (available) {
      EXPECT_EQ(*available, request.turn.available());
      judge(request);
    } else {
      EXPECT_EQ(request.turn.available(), 0U);
      EXPECT_EQ(request.turn.computed(), 0U);
    }
    return available;
  });
}

uint32_t SequenceRig::execute(Request& request) { return ok(try_execute(request)); }

Result<void> SequenceRig::try_compute(Request& request, uint32_t end) {
  Turn& turn = request.turn;
  const SequenceId sequence = turn.sequence();
  const std::vector<Token> words = words_of(request.text);
  end = std::min(end, turn.length());
  while (turn.computed() < end) {
    const uint32_t from = turn.computed();
    const uint32_t stop = turn.next_stop();
    EXPECT_GT(stop, from);
    EXPECT_LE(stop, turn.length());
    if (stop <= from || stop > turn.length()) return Error(Errc::wrong_state, "no next stop");
    const uint32_t to = std::min({stop, end, from + chunk_tokens});
    const uint64_t began = engine.elapsed_ns();
    STEMMA_TRY_VOID(engine.compute(sequence, std::span(words).subspan(from, to - from)));
    const uint64_t spent = engine.elapsed_ns() - began;
    known_[to_index(sequence)] = words;
    STEMMA_TRY_VOID(undisturbed(sequence, "computed", [&] { return turn.computed(to, spent); }));
    EXPECT_EQ(turn.computed(), to);
    if (!info(request).approximate) {
      EXPECT_EQ(engine.right(sequence, std::span(words).first(to)), "");
    }
    stops.push_back(to);
  }
  return {};
}

void SequenceRig::compute(Request& request, uint32_t end) { ok(try_compute(request, end)); }

SequenceReport SequenceRig::run(Request& request) {
  execute(request);
  const SequenceReport report = request.turn.report();
  compute(request);
  return report;
}

void SequenceRig::answer(Request& request, const Text& words) {
  ok(request.turn.extend(words.tokens));
  request.text = request.text + words;
  EXPECT_EQ(request.turn.length(), request.text.size());
  compute(request);
}

Result<void> SequenceRig::try_finish(Request& request, const Retain* retain) {
  const SequenceId sequence = request.turn.sequence();
  return undisturbed(sequence, "finish", [&] { return request.turn.finish(retain); });
}

void SequenceRig::finish(Request& request, const Retain* retain) {
  ok(try_finish(request, retain));
  EXPECT_FALSE(request.turn.active());
}

void SequenceRig::abandon(Request& request) {
  const SequenceId sequence = request.turn.sequence();
  // Before execute() the sequence still has all that it had.
  const bool executed = info(request).length <= request.turn.computed();
  const uint32_t found = executed ? request.turn.available() : info(request).length;
  ok(undisturbed(sequence, "abandon", [&] { return request.turn.abandon(); }));
  EXPECT_FALSE(request.turn.active());
  // The sequence is empty, or has what the turn found in it; check() has judged the contents.
  const SequenceInfo now = cache.sequence(sequence);
  EXPECT_TRUE(now.state == SequenceState::free || now.state == SequenceState::idle);
  EXPECT_LE(now.length, found);
}

Result<void> SequenceRig::try_rewind(Request& request, uint32_t n) {
  Turn& turn = request.turn;
  const SequenceId sequence = turn.sequence();
  const uint32_t computed = turn.computed();
  const uint32_t length = turn.length();
  const uint64_t print = engine.fingerprint(sequence);
  const Result<void> done = undisturbed(sequence, "rewind", [&] { return request.turn.rewind(n); });
  if (done) {
    request.text = request.text.first(n);
    EXPECT_EQ(turn.length(), n);
    EXPECT_EQ(turn.computed(), std::min(n, computed));
  } else if (done.error().code() == Errc::unsupported ||
             done.error().code() == Errc::out_of_range) {
    EXPECT_EQ(turn.length(), length);
    EXPECT_EQ(turn.computed(), computed);
    EXPECT_EQ(engine.fingerprint(sequence), print) << "nothing changed";
  } else {
    EXPECT_EQ(turn.available(), 0U);
    EXPECT_EQ(turn.computed(), 0U);
  }
  if (turn.computed() > 0 && !info(request).approximate) {
    const std::vector<Token> words = words_of(request.text);
    EXPECT_EQ(engine.right(sequence, std::span(words).first(turn.computed())), "");
  }
  return done;
}

Result<Request> SequenceRig::try_fork(Request& request, const TurnOptions& options) {
  const SequenceId sequence = request.turn.sequence();
  const uint32_t computed = request.turn.computed();
  const uint64_t print = engine.fingerprint(sequence);
  Result<Turn> turn = undisturbed(sequence, "fork", [&] { return request.turn.fork(options); });
  EXPECT_EQ(engine.fingerprint(sequence), print) << "its source is untouched";
  EXPECT_EQ(request.turn.computed(), computed);
  if (!turn) return turn.error();
  Request branch{*std::move(turn), request.text.first(computed)};
  EXPECT_NE(branch.turn.sequence(), sequence);
  EXPECT_EQ(branch.turn.length(), computed);
  EXPECT_LE(branch.turn.available(), computed);
  EXPECT_EQ(branch.turn.computed(), branch.turn.available());
  const std::vector<Token> words = words_of(branch.text);
  known_[to_index(branch.turn.sequence())] = words;
  EXPECT_EQ(engine.right(branch.turn.sequence(), std::span(words).first(branch.turn.available())),
            "");
  return branch;
}

Result<void> SequenceRig::try_shift(Request& request, uint32_t keep, uint32_t discard) {
  Turn& turn = request.turn;
  const SequenceId sequence = turn.sequence();
  const uint32_t length = turn.length();
  const Result<void> done =
      undisturbed(sequence, "shift", [&] { return turn.shift(keep, discard); });
  if (done) {
    Text tail = request.text;
    tail.tokens.erase(tail.tokens.begin(), tail.tokens.begin() + keep + discard);
    request.text = request.text.first(keep) + tail;
    EXPECT_EQ(turn.length(), length - discard);
    EXPECT_TRUE(info(request).approximate);
  } else if (code(done) == Errc::unsupported || code(done) == Errc::out_of_range) {
    EXPECT_EQ(turn.length(), length);
  } else {
    EXPECT_EQ(turn.available(), 0U);
    EXPECT_EQ(turn.computed(), 0U);
  }
  return done;
}

// ---- Whole stories ------------------------------------------------------------------------------

SequenceReport SequenceRig::chat(const Text& text, const TurnOptions& options) {
  return chat(scope, text, options);
}

SequenceReport SequenceRig::chat(const Scope& in, const Text& text, const TurnOptions& options) {
  Request request = ok(try_begin(in, text, options));
  const SequenceReport report = run(request);
  finish(request);
  return report;
}

Text SequenceRig::talk(const Text& text, const Text& words, const TurnOptions& options) {
  Request request = begin(text, options);
  run(request);
  answer(request, words);
  finish(request);
  return request.text;
}

Drained SequenceRig::drain(const DrainLimits& limits) {
  const uint32_t waiting = cache.pending();
  const Drained drained = undisturbed(SequenceId{static_cast<uint32_t>(known_.size())}, "drain",
                                      [&] { return cache.drain(limits); });
  EXPECT_EQ(cache.pending(), waiting - drained.items);
  EXPECT_LE(drained.saved, drained.items);
  EXPECT_LE(drained.items, limits.items);
  return drained;
}

SequenceRig::Warmed SequenceRig::warm(const Text& prefix, const TurnOptions& options) {
  struct Context {
    SequenceRig& rig;
    const std::vector<Token> words;
    uint32_t batches = 0;
    uint32_t first = 0;
  };
  Context context{*this, words_of(prefix)};
  const auto batch = [](void* user, SequenceId sequence, std::span<const Token> tokens,
                        uint32_t begin) -> Result<void> {
    auto& c = *static_cast<Context*>(user);
    if (c.batches++ == 0) c.first = begin;
    EXPECT_LE(begin + tokens.size(), c.words.size());
    c.rig.known_[to_index(sequence)] = c.words;
    return c.rig.engine.compute(sequence, std::span(c.words).subspan(begin, tokens.size()));
  };
  Result<SequenceReport> report = cache.warm(scope, prefix, batch, &context, options);
  check("warm");
  return {std::move(report), context.batches, context.first};
}

void SequenceRig::take_all_sequences() {
  drain();
  std::vector<Request> requests;
  for (uint32_t s = 0; s < known_.size(); ++s) {
    requests.push_back(begin(tokens(3, 9000 + s), {.bypass = true}));
    run(requests.back());
  }
  for (Request& request : requests) abandon(request);
}

void SequenceRig::renew_context() {
  for (uint32_t s = 0; s < known_.size(); ++s) ok(engine.clear(SequenceId{s}));
  cache.forget_context();
  check("forget_context");
}

SequenceReport SequenceRig::look(const Text& text, const TurnOptions& options) const {
  return ok(cache.lookup(scope, text, options));
}

uint32_t SequenceRig::hit(const Text& text, const TurnOptions& options) const {
  return look(text, options).reused_tokens;
}

uint32_t SequenceRig::kept(const Text& text) const { return hit(text + of({kTokenLimit - 1})); }

// ---- Looking ------------------------------------------------------------------------------------

void SequenceRig::check(const std::string& what) {
  SCOPED_TRACE("after " + what);
  cache.check_invariants();
  const SequenceStats s = cache.stats();
  std::vector<uint32_t> states(4);
  for (uint32_t i = 0; i < known_.size(); ++i) {
    const SequenceInfo now = info(i);
    ++states[static_cast<uint32_t>(now.state)];
    if (now.state == SequenceState::free) {
      EXPECT_EQ(now.length, 0U);
      if (free_is_empty) {
        EXPECT_EQ(engine.right(SequenceId{i}, {}), "") << "sequence " << i;
      }
    }
    if (now.state != SequenceState::idle || now.approximate) continue;
    ASSERT_LE(now.length, known_[i].size());
    EXPECT_EQ(engine.right(SequenceId{i}, std::span(known_[i]).first(now.length)), "")
        << "sequence " << i << " idles";
  }
  EXPECT_EQ(s.sequences, known_.size());
  EXPECT_EQ(states, (std::vector<uint32_t>{s.free_sequences, s.idle_sequences, s.leased_sequences,
                                           s.broken_sequences}));
  EXPECT_EQ(std::accumulate(s.outcomes.begin(), s.outcomes.end(), uint64_t{0}), s.turns);
  EXPECT_EQ(s.reused_tokens + s.evaluated_tokens, s.prompt_tokens);
  EXPECT_EQ(s.pending, cache.pending());
  EXPECT_LE(s.saved_bytes, saved_limit_);
  EXPECT_LE(s.segment_bytes + s.state_bytes + s.checkpoint_bytes, s.saved_bytes);
}

std::string SequenceRig::books() const {
  std::ostringstream out;
  for (uint32_t i = 0; i < known_.size(); ++i) {
    const SequenceInfo now = info(i);
    out << "sequence " << i << ": state " << static_cast<int>(now.state) << ", generation "
        << now.generation << ", " << now.length << " long, " << now.unsaved_tokens << " unsaved"
        << (now.approximate ? ", approximate" : "") << ", contents "
        << engine.fingerprint(SequenceId{i}) << "\n";
  }
  const SequenceStats s = cache.stats();
  out << s.sessions << " sessions, " << s.pending << " pending, " << s.segment_bytes << " + "
      << s.state_bytes << " + " << s.checkpoint_bytes << " bytes saved, " << s.logits_bytes
      << " of logits";
  return out.str();
}

uint64_t SequenceRig::calls() const {
  const auto& counts = engine.counts().calls;
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

std::vector<uint32_t> SequenceRig::depths(SequenceContent::Kind kind) const {
  std::vector<uint32_t> list;
  for (const SequenceContent& content : ok(cache.contents())) {
    if (content.kind == kind) list.push_back(content.depth);
  }
  std::ranges::sort(list);
  return list;
}

}  // namespace stemma::test
