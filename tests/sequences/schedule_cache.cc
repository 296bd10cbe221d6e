// A schedule's operations on the cache itself.
#include <algorithm>

#include "sequences/schedule.h"

namespace stemma::schedules {
namespace {

// A refused call names a way out; these are begin()'s.
bool is_refusal(Errc code) {
  return code == Errc::busy || code == Errc::out_of_range || code == Errc::out_of_blocks;
}

// What no lookup may change; returns the first that changed.
const char* changed(const SequenceStats& a, const SequenceStats& b) {
  if (a.turns != b.turns || a.outcomes != b.outcomes || a.reasons != b.reasons) return "turns";
  if (a.steps != b.steps || a.failures != b.failures || a.captures != b.captures) return "steps";
  if (a.pending != b.pending || a.sessions != b.sessions) return "what waits, or sessions";
  if (a.idle_sequences != b.idle_sequences || a.free_sequences != b.free_sequences ||
      a.leased_sequences != b.leased_sequences || a.used_tokens != b.used_tokens) {
    return "sequences";
  }
  return a.saved_bytes != b.saved_bytes || a.logits_bytes != b.logits_bytes ? "bytes" : nullptr;
}

}  // namespace

TurnOptions Schedule::choose_options(const Request& request) {
  TurnOptions o;
  o.session = request.session;
  o.exclusive = dice_.chance(25);
  o.message_ends = request.message_ends;
  o.tenant = TenantId{dice_.below(situation_.tenants)};
  o.reserve_tokens = dice_.chance(70) ? dice_.below(12) : 0;
  o.retain = choose_retain();
  o.want_logits = dice_.chance(40);
  if (situation_.plain && dice_.chance(90)) return o;
  if (dice_.chance(15)) o.reuse = static_cast<Reuse>(dice_.below(4));
  o.bypass = dice_.chance(6);
  o.keep = !dice_.chance(12);
  const uint32_t size = request.text.size();
  if (dice_.chance(12)) o.at_most = dice_.below(size + 2);
  if (dice_.chance(20)) o.evaluate_at_least = dice_.chance(20) ? size + 1 : dice_.between(1, 10);
  if (dice_.chance(10)) o.reserve_tokens = dice_.below(situation_.engine.context_tokens);
  if (dice_.chance(20)) o.message_ends = {};
  return o;
}

Retain Schedule::choose_retain() {
  Retain retain;
  if (dice_.chance(60)) return retain;
  retain.priority = static_cast<Priority>(dice_.below(kMaxPriority + 1));
  const auto time = [&] { return dice_.chance(10) ? kNever - 1 : dice_.below(1'000'000); };
  if (dice_.chance(30)) retain.ttl_ns = time();
  if (dice_.chance(30)) retain.session_ttl_ns = time();
  retain.phase = static_cast<SessionPhase>(dice_.below(3));
  retain.will_return = dice_.chance(10);
  ranges_.clear();
  for (uint32_t begin = 0, n = dice_.chance(30) ? dice_.between(1, 4) : 0; n > 0; --n) {
    begin += dice_.below(20);
    const uint32_t end = begin + dice_.between(1, 60);
    ranges_.push_back({begin, n == 1 && dice_.chance(30) ? PriorityRange::kOpenEnd : end,
                       static_cast<Priority>(dice_.below(kMaxPriority + 1)),
                       dice_.chance(30) ? time() : kNever});
    begin = end;
  }
  retain.ranges = ranges_;
  retain.finish = static_cast<FinishReason>(dice_.below(5));
  return retain;
}

void Schedule::promised(uint32_t more) {
  uint64_t all = more;
  for (const Live& live : live_) {
    if (!live.stale) all += std::max<uint64_t>(live.promised, live.words.size());
  }
  if (situation_.engine.unified && all > situation_.engine.context_tokens) {
    if (!crowded_) count("crowded");
    crowded_ = true;
  }
}

bool Schedule::under_way(const std::string& session, bool stale) const {
  return std::ranges::any_of(
      live_, [&](const Live& live) { return (stale || !live.stale) && live.session == session; });
}

void Schedule::begin() {
  const Request request = author_.next();
  const TurnOptions options = choose_options(request);
  const Prompt prompt = shown(request.text);
  say("begin turn " + std::to_string(next_number_) + ", " + request.kind + ", scope " +
      std::to_string(request.scope) + ", session '" + request.session + "', " +
      std::to_string(request.text.size()) + " positions, " +
      std::to_string(request.text.media.size()) + " items, reserve " +
      std::to_string(options.reserve_tokens));
  std::optional<Result<SequenceReport>> looked;
  if (dice_.chance(25)) looked = cache_->lookup(scope(request.scope), prompt, options);
  const uint64_t saved = cache_->stats().captured_bytes;

  Result<Turn> turn = cache_->begin(scope(request.scope), prompt, options);
  if (!turn) return judge_refusal(request, options, turn.error());
  expect(request.session.empty() || !options.exclusive || !under_way(request.session, false) ||
             situation_.cache.sessions < situation_.session_names,
         "a session is under way, and another turn of it has begun");
  Live live;
  live.number = next_number_++;
  live.turn = *std::move(turn);
  live.scope = request.scope;
  live.conversation = request.conversation;
  live.session = request.session;
  live.text = live.prompt = request.text;
  // The words of a bypassed prompt mean nothing: they may stand for embeddings.
  const uint32_t salt = options.bypass ? 1000 + live.number : request.scope;
  live.scope_salt = salt;
  live.words = live.prompt_words = engine_words(salt, request.text);
  live.options = options;
  live.options.session = {};
  live.options.message_ends = {};
  live.options.retain.ranges = {};
  ended_.erase(request.session);
  live.plan = live.turn.report();
  live.unique = request.unique;
  live.saved_before = saved;
  live.held_before = cache_->sequence(live.turn.sequence()).length;
  if (faultless()) live.room_before = engine_->fake().held(live.turn.sequence()).end;
  live.promise(request.text.size() + options.reserve_tokens);
  acts(live);
  say(" -> sequence " + std::to_string(to_index(live.turn.sequence())) + " " + to_text(live.plan));
  expect(live.promised <= situation_.engine.context_tokens,
         "more was promised than the context has");
  if (const std::string bad = judge_report(live.plan, live.text, options, situation_);
      !bad.empty()) {
    wrong("the plan: " + bad);
  }
  // begin() asks how far back a window reaches, and lookup() does not. Where held() lies, they were
  // told different things.
  const bool asked_a_liar =
      may_fail(test::Call::held) && situation_.engine.rewind == Rewind::window;
  if (looked && *looked && !asked_a_liar) {
    if (const std::string bad = judge_same_plan(**looked, live.plan); !bad.empty()) wrong(bad);
  }
  if (live.plan.logits) count("logits served");
  live_.push_back(std::move(live));
  promised();
  if (wrong_.empty() && dice_.chance(60)) execute(live_.back(), true);
}

void Schedule::judge_refusal(const Request& request, const TurnOptions& options, Error error) {
  say(" -> " + error.to_string());
  const uint64_t asked = uint64_t{request.text.size()} + options.reserve_tokens;
  const uint32_t context = situation_.engine.context_tokens;
  const auto holders = static_cast<size_t>(
      std::ranges::count_if(live_, [](const Live& live) { return !live.stale; }));
  expect(is_refusal(error.code()), "begin answered " + error.to_string());
  expect((asked > context) == (error.code() == Errc::out_of_range),
         "begin answered " + error.to_string() + " to " + std::to_string(asked) + " positions");
  if (error.code() == Errc::busy) {
    count("refused busy");
    const bool session =
        !request.session.empty() && options.exclusive && under_way(request.session, true);
    expect(session || holders >= situation_.engine.sequences || !faultless(),
           "begin answered busy with sequences to spare");
  }
  if (error.code() == Errc::out_of_range) count("too long");
  if (error.code() == Errc::out_of_blocks) {
    count("refused for room");
    // Turns under way have the rest. A segment that is loaded needs room for all of it.
    uint64_t taken = asked + situation_.cache.segment_tokens;
    for (const Live& live : live_) {
      if (live.stale) continue;
      // A sequence's contents stay until its turn is executed.
      const uint32_t before = live.executed ? 0 : live.room_before;
      taken += std::max({live.granted, static_cast<uint32_t>(live.words.size()), before});
    }
    expect(situation_.engine.unified, "begin found no room in a context of its own");
    // (There is no room either while a begun turn waits for room that others still have.)
    const bool waiting =
        std::ranges::any_of(live_, [](const Live& live) { return !live.stale && !live.executed; });
    expect(taken > context || waiting || !faultless(), "begin found no room where there is some");
  }
}

void Schedule::drain() {
  DrainLimits limits;
  if (dice_.chance(50)) limits.items = dice_.below(4);
  if (dice_.chance(20)) limits.bytes = dice_.below(5000);
  limits.evict = dice_.chance(50);
  // Bit by bit: a later call continues what has begun.
  if (dice_.chance(30)) limits.ns = dice_.below(20'000);
  const uint32_t pending = cache_->pending();
  const uint64_t dropped_before = cache_->stats().dropped_idle;
  const Drained drained = cache_->drain(limits);
  say("drain " + std::to_string(pending) + " -> items " + std::to_string(drained.items) +
      ", saved " + std::to_string(drained.saved) + ", bytes " + std::to_string(drained.bytes));
  expect(drained.items <= limits.items, "drain took more than its limit");
  expect(drained.items <= pending, "drain took more than there was");
  expect(drained.saved <= drained.items + 1, "drain saved more than it took");
  const uint32_t left = cache_->pending();
  // One of them may be under way, since this call or an earlier one. Dropped idle sequences take
  // words that were not worth saving with them.
  const uint64_t dropped = cache_->stats().dropped_idle - dropped_before;
  expect(left + drained.items <= pending + 1 && left + drained.items + dropped + 1 >= pending,
         "drain took others than it says");
  expect(limits.ns == ~uint64_t{0} || !drained.waits || drained.more, "drain waits for nothing");
  if (limits.ns == ~uint64_t{0} && limits.evict && limits.items > pending &&
      limits.bytes > uint64_t{1} << 40U) {
    expect(cache_->pending() == 0, "drain left something");
  }
}

// ---- Warm ---------------------------------------------------------------------------------------

namespace {

struct Warming {
  ScheduleEngine* engine;
  const Text* text;
  std::vector<Token> words;
  uint32_t done = 0;
  std::string wrong;
};

}  // namespace

Result<void> Schedule::compute_for_warm(void* user, SequenceId sequence,
                                        std::span<const Token> tokens, uint32_t begin) {
  auto& warming = *static_cast<Warming*>(user);
  const std::span<const Token> words = warming.words;
  if (begin + tokens.size() > words.size() ||
      !std::ranges::equal(tokens, std::span(warming.text->tokens).subspan(begin, tokens.size()))) {
    warming.wrong = "warm wants other words computed";
    return Error(Errc::invalid_argument, "other words");
  }
  const std::string bad = warming.engine->fake().right(sequence, words.first(begin));
  if (!bad.empty())
    warming.wrong = "wrong contents: warm, at " + std::to_string(begin) + ": " + bad;
  warming.done = begin + static_cast<uint32_t>(tokens.size());
  return warming.engine->compute(sequence, words.subspan(begin, tokens.size()));
}

void Schedule::warm() {
  Request request = author_.next();
  request.text = request.text.first(1 + dice_.below(request.text.size()));
  request.message_ends.clear();
  const TurnOptions options = choose_options(request);
  say("warm scope " + std::to_string(request.scope) + ", " + std::to_string(request.text.size()) +
      " positions");
  const uint32_t salt = options.bypass ? 1000 + next_number_++ : request.scope;
  Warming warming{engine_.get(), &request.text, engine_words(salt, request.text), 0, ""};
  // It may choose any idle sequence.
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    if (cache_->sequence(SequenceId{s}).state != SequenceState::leased) actors_.push_back(s);
  }
  ended_.erase(request.session);
  const Result<SequenceReport> report = cache_->warm(
      scope(request.scope), shown(request.text), &Schedule::compute_for_warm, &warming, options);
  expect(warming.wrong.empty(), warming.wrong);
  if (!report) {
    say(" -> " + report.error().to_string());
    // Without faults it is a refusal: begin()'s, or the engine's that finds no room.
    return expect(is_refusal(report.error().code()) || !faultless(),
                  "warm answered " + report.error().to_string());
  }
  say(" -> " + to_text(*report));
  promised(request.text.size() + options.reserve_tokens);
  expect(report->prompt_tokens == request.text.size(), "warm has reported another prompt");
  expect(warming.done == request.text.size() || warming.done == 0, "warm has computed a part");
  if (!options.bypass && options.keep) count("warmed");
}

std::vector<SequenceContent> Schedule::contents() {
  Result<std::vector<SequenceContent>> all = cache_->contents();
  if (all) return *std::move(all);
  wrong("contents answered " + all.error().to_string());
  return {};
}

// ---- Questions ----------------------------------------------------------------------------------

void Schedule::lookup() {
  const Request request = author_.next();
  const TurnOptions options = choose_options(request);
  say("lookup scope " + std::to_string(request.scope) + ", " + std::to_string(request.text.size()) +
      " positions");
  const SequenceStats before = cache_->stats();
  const Result<SequenceReport> report =
      cache_->lookup(scope(request.scope), shown(request.text), options);
  if (const char* what = changed(before, cache_->stats())) {
    wrong(std::string("a lookup has changed ") + what);
  }
  if (!report) {
    say(" -> " + report.error().to_string());
    return expect(is_refusal(report.error().code()),
                  "lookup answered " + report.error().to_string());
  }
  say(" -> " + to_text(*report));
  const std::string bad = judge_report(*report, request.text, options, situation_);
  if (!bad.empty()) wrong("lookup: " + bad);
}

void Schedule::admit() {
  const auto holders = static_cast<size_t>(
      std::ranges::count_if(live_, [](const Live& live) { return !live.stale; }));
  const bool admitted = cache_->can_admit();
  say(std::string("admit -> ") + (admitted ? "yes" : "no"));
  if (faultless()) {
    expect(admitted == (holders < situation_.engine.sequences),
           "can_admit is wrong about sequences");
  }
  for (const SequenceContent& content : contents()) {
    if (content.kind != SequenceContent::Kind::live) {
      expect(situation_.cache.saved_bytes + situation_.cache.logits_bytes > 0,
             "saved, in no bytes");
      continue;
    }
    const SequenceInfo info = cache_->sequence(content.sequence);
    expect(content.depth == info.length, "what can be reused is not what is known");
    expect(content.leased == (info.state == SequenceState::leased), "leased, or not");
  }
  for (uint32_t s = 0; s < situation_.session_names; ++s) {
    const std::string name = "s" + std::to_string(s);
    const SessionInfo info = cache_->session(name);
    if (info.known && info.in_flight) {
      expect(under_way(name, true), "a session is under way that is not");
    }
    if (situation_.cache.sessions >= situation_.session_names && under_way(name, false)) {
      expect(info.known && info.in_flight, "a session is not under way that is");
    }
  }
}

// ---- Forgetting ---------------------------------------------------------------------------------

void Schedule::end_session() {
  std::string name = "s" + std::to_string(dice_.below(situation_.session_names + 1));
  const std::optional<size_t> i = find_live([](const Live& live) { return !live.session.empty(); });
  if (i && dice_.chance(50)) name = live_[*i].session;
  say("end session " + name);
  cache_->end_session(name);
  ended_.insert(name);
  if (under_way(name, false)) count("ended midway");
  judge_ended(name);
}

void Schedule::judge_ended(const std::string& session) {
  if (!ended_.contains(session) || under_way(session, false)) return;
  expect(!cache_->session(session).known, "a session is known that is over");
}

void Schedule::drop_scope() {
  const uint32_t number = dice_.below(situation_.scopes);
  say("drop scope " + std::to_string(number));
  const Scope& dropped = scope(number);
  cache_->drop_scope(dropped);
  for (Live& live : live_) {
    if (live.stale) continue;
    // The cache forgets what a sequence holds; the contents stay until a turn that waits for it
    // begins.
    if (live.scope == number || hidden_.scopes || !live.executed) acts(live);
    if (live.scope == number || hidden_.scopes) live.dropped = true;
  }
  for (const SequenceContent& content : contents()) {
    expect(content.scope != dropped, "something of a dropped scope can be reused, of kind " +
                                         std::to_string(static_cast<uint32_t>(content.kind)) +
                                         " and depth " + std::to_string(content.depth));
  }
}

void Schedule::drop_saved() {
  say("drop saved");
  cache_->drop_saved();
  // Entries that a turn is about to load stay until then.
  if (std::ranges::any_of(live_, [](const Live& live) { return !live.executed; })) return;
  const SequenceStats stats = cache_->stats();
  expect(stats.segment_bytes + stats.state_bytes + stats.checkpoint_bytes == 0,
         "something that was saved is left");
}

void Schedule::truncate() {
  const Request request = author_.next();
  const auto unit = [](const Text& text, uint32_t n) {
    while (inside_unit(text, n)) --n;
    return n;
  };
  // Of its words some are given, and of these some are kept; mostly all, and now and then none.
  const uint32_t given = dice_.chance(5) ? 0 : dice_.between(1, request.text.size());
  const Text text = request.text.first(unit(request.text, given));
  const uint32_t keep = dice_.chance(50) ? text.size() : unit(text, dice_.below(text.size() + 1));
  say("truncate scope " + std::to_string(request.scope) + ", " + std::to_string(text.size()) +
      " positions to " + std::to_string(keep));
  const View before = view();
  const Result<Truncated> cut = cache_->truncate(scope(request.scope), shown(text), keep);
  if (!cut) return wrong("truncate answered " + cut.error().to_string());
  say(" -> sequences " + std::to_string(cut->sequences) + ", segments " +
      std::to_string(cut->segments) + ", states " + std::to_string(cut->states) + ", checkpoints " +
      std::to_string(cut->checkpoints) + ", logits " + std::to_string(cut->logits) + ", in use " +
      std::to_string(cut->in_use));
  const auto turns = static_cast<size_t>(
      std::ranges::count_if(live_, [](const Live& live) { return !live.stale; }));
  expect(cut->in_use <= turns, "more sequences are in use than there are turns");
  // Sequences that nobody uses may change, as many as it says.
  uint32_t changed = 0;
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    const SequenceInfo& was = before.infos[s];
    const SequenceInfo is = cache_->sequence(SequenceId{s});
    if (was.state != SequenceState::idle || was.length == is.length) continue;
    ++changed;
    actors_.push_back(s);
    expect(was.length > keep, "a sequence was cut that has no more than is to be kept");
    expect(is.length == 0 || is.length == keep, "a sequence was cut somewhere else");
    expect(is.length == 0 || is.state == SequenceState::idle, "a sequence that was cut is taken");
  }
  expect(changed == cut->sequences, "other sequences were cut than it says");
  if (cut->sequences > 0) count("sequences cut", cut->sequences);
  if (cut->segments + cut->states + cut->checkpoints + cut->logits > 0) count("saved parts cut");
  if (cut->in_use > 0) return count("cut beside turns");
  // No request finds more of it. (With all kept, of what goes on as the request does.)
  const Result<SequenceReport> left =
      cache_->lookup(scope(request.scope), shown(request.text), TurnOptions{.want_logits = true});
  if (!left) return expect(is_refusal(left.error().code()), "lookup: " + left.error().to_string());
  expect(left->matched_tokens <= keep && left->reused_tokens <= keep,
         "what was cut is still there: " + to_text(*left));
  expect(!left->logits || request.text.size() == keep, "logits of what was cut are there");
}

void Schedule::forget_context() {
  say("forget context");
  engine_->renew();
  cache_->forget_context();
  for (Live& live : live_) live.stale = true;
  for (const std::string& session : ended_) judge_ended(session);
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    actors_.push_back(s);
    expect(cache_->sequence(SequenceId{s}).state == SequenceState::free,
           "a sequence of a new context is not free");
  }
  books_differ_ = false;
}

void Schedule::bad_begin() {
  const std::vector<Token> bad = {1, kTokenLimit, 2};
  expect_code(
      [&]() -> Result<void> {
        STEMMA_TRY(const Turn turn, cache_->begin(scopes_[0], {.tokens = bad}));
        return {};
      }(),
      Errc::invalid_argument, "begin of what is no token");
}

}  // namespace stemma::schedules
