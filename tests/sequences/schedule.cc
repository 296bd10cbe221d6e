#include "sequences/schedule.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "base/random.h"
#include "sequences/run_length.h"
#include "stemma/log.h"

namespace stemma::schedules {
namespace {

constexpr size_t kLinesKept = 60;

}  // namespace

Schedule::Schedule(const Situation& situation, const EngineFactory& factory, const Hidden& hidden)
    : situation_(situation),
      hidden_(hidden),
      dice_(base::mix(situation.seed * 2 + 1)),
      engine_(factory ? factory(situation.engine)
                      : std::make_unique<ScheduleEngine>(situation.engine)),
      author_(situation_, dice_),
      trace_(from_environment("STEMMA_SEQUENCE_TRACE", 0) != 0) {
  for (uint32_t s = 0; s < situation_.scopes; ++s) {
    scopes_.push_back(
        Scope::make({.model = "model", .caller_namespace = std::to_string(s)}).value());
  }
  SequenceOptions options = situation_.cache;
  options.clock = engine_.get();
  engine_->fake().faults =
      test::FaultSchedule::random(situation_.seed, situation_.fault_per_mille, situation_.faulty);
  // The process may stop in a check of the cache's own books.
  set_fatal_handler(
      [](std::string_view what, void* user) {
        auto* self = static_cast<Schedule*>(user);
        self->wrong("stopped: " + std::string(what));
        std::fprintf(stderr, "stemma: schedule %llu: %s\n%s\n  %s\n",
                     static_cast<unsigned long long>(self->situation_.seed), self->wrong_.c_str(),
                     self->situation_.text().c_str(), self->line_.c_str());
        for (const std::string& line : self->lines_) std::fprintf(stderr, "  %s\n", line.c_str());
      },
      this);
  Result<SequenceCache> cache = SequenceCache::create(*engine_, options);
  if (!cache) {
    wrong("no cache: " + cache.error().to_string());
    return;
  }
  cache_.emplace(*std::move(cache));
  empty_bytes_ = cache_->stats().saved_bytes;
}

Schedule::~Schedule() {
  live_.clear();
  cache_.reset();
  set_fatal_handler(nullptr, nullptr);
}

Finding Schedule::run() {
  for (uint32_t i = 0; i < situation_.steps && wrong_.empty(); ++i) step();
  if (wrong_.empty()) finish_all();
  Finding finding;
  finding.wrong = wrong_;
  finding.log = "schedule " + std::to_string(situation_.seed) + ": " + situation_.text() + "\n";
  for (const std::string& line : lines_) finding.log += "  " + line + "\n";
  finding.log += "  " + line_ + "\n";
  finding.digest = digest_;
  finding.tally = tally_;
  return finding;
}

void Schedule::step() {
  const uint32_t all = std::accumulate(situation_.weights.begin(), situation_.weights.end(), 0U);
  uint32_t dice = dice_.below(all);
  uint32_t operation = 0;
  while (dice >= situation_.weights[operation]) dice -= situation_.weights[operation++];
  engine_->advance_ns(1 + dice_.below(1000));
  const View before = view();
  actors_.clear();
  perform(static_cast<Operation>(operation));
  if (wrong_.empty()) judge_all(before);
}

void Schedule::perform(Operation operation) {
  // Most callers ask before they begin.
  if (operation == Operation::begin && !cache_->can_admit() && !live_.empty() && dice_.chance(85)) {
    operation = Operation::advance;
  }
  const auto on = [&](const std::function<bool(const Live&)>& fits, auto what) {
    if (const std::optional<size_t> i = find_live(fits)) {
      say(std::string(to_string(operation)) + " of turn " + std::to_string(live_[*i].number));
      what(*i);
    } else {
      operation = Operation::begin;
      begin();
    }
  };
  const auto usable = [](const Live& live) { return live.usable(); };
  const auto any = [](const Live&) { return true; };
  switch (operation) {
    case Operation::begin: begin(); break;
    case Operation::advance: on(any, [&](size_t i) { advance(i); }); break;
    case Operation::extend: on(usable, [&](size_t i) { extend(live_[i]); }); break;
    case Operation::reserve:
      on(usable,
         [&](size_t i) { reserve(live_[i], dice_.edgy(1, situation_.engine.context_tokens)); });
      break;
    case Operation::rewind: on(usable, [&](size_t i) { rewind(live_[i]); }); break;
    case Operation::fork: on(usable, [&](size_t i) { fork(live_[i]); }); break;
    case Operation::shift: on(usable, [&](size_t i) { shift(live_[i]); }); break;
    case Operation::attach_logits: on(usable, [&](size_t i) { attach_logits(live_[i]); }); break;
    case Operation::finish: on(usable, [&](size_t i) { end(i, End::finish); }); break;
    case Operation::abandon: on(any, [&](size_t i) { end(i, End::abandon); }); break;
    case Operation::destroy: on(any, [&](size_t i) { end(i, End::destroy); }); break;
    case Operation::drain: drain(); break;
    case Operation::warm: warm(); break;
    case Operation::lookup: lookup(); break;
    case Operation::admit: admit(); break;
    case Operation::misuse: on(usable, [&](size_t i) { misuse(live_[i]); }); break;
    case Operation::end_session: end_session(); break;
    case Operation::drop_scope: drop_scope(); break;
    case Operation::drop_saved: drop_saved(); break;
    case Operation::forget_context: forget_context(); break;
    case Operation::truncate: truncate(); break;
  }
  ++tally_.operations[static_cast<uint32_t>(operation)];
}

std::optional<size_t> Schedule::find_live(const std::function<bool(const Live&)>& fits) {
  if (live_.empty()) return std::nullopt;
  const size_t first = dice_.below(static_cast<uint32_t>(live_.size()));
  for (size_t k = 0; k < live_.size(); ++k) {
    const size_t i = (first + k) % live_.size();
    if (fits(live_[i])) return i;
  }
  return std::nullopt;
}

// ---- Checks -------------------------------------------------------------------------------------

View Schedule::view() const {
  View view;
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    view.infos.push_back(cache_->sequence(SequenceId{s}));
    view.prints.push_back(engine_->fake().fingerprint(SequenceId{s}));
  }
  return view;
}

void Schedule::judge_all(const View& before) {
  const View after = view();
  if (const std::string bad = judge_others(before, after, live_, actors_); !bad.empty()) wrong(bad);
  for (const Live& live : live_) {
    const std::string bad = judge_turn(live, situation_);
    if (!bad.empty()) wrong("turn " + std::to_string(live.number) + ": " + bad);
    if (!live.usable()) continue;
    const SequenceInfo& info = after.infos[to_index(live.turn.sequence())];
    expect(info.state == SequenceState::leased, "a turn's sequence is not leased");
    expect(info.generation == live.turn.generation(), "a turn's generation is not its sequence's");
    expect(info.length == live.turn.computed() || info.length == 0 || live.shifted,
           "what is known of a sequence is not what was computed");
  }
  const SequenceStats stats = cache_->stats();
  if (const std::string bad = judge_stats(stats, live_, situation_, crowded_); !bad.empty())
    wrong(bad);
  expect(stats.pending == cache_->pending(), "two numbers of pending captures");
  judge_books(stats);
  cache_->check_invariants();
}

// The cache's count of taken positions is right, unless an engine call has hidden the truth.
void Schedule::judge_books(const SequenceStats& stats) {
  if (!situation_.engine.full_attention || books_differ_) return;
  if (may_fail(test::Call::clear) || may_fail(test::Call::held)) return;
  if (std::ranges::any_of(live_, [](const Live& live) { return live.dirty && !live.stale; }))
    return;
  const uint32_t taken = engine_->fake().used_tokens();
  expect(stats.used_tokens == taken, "the cache counts " + std::to_string(stats.used_tokens) +
                                         " positions as taken, the engine " +
                                         std::to_string(taken));
}

bool Schedule::may_fail(test::Call call) const {
  return std::ranges::find(situation_.faulty, call) != situation_.faulty.end();
}

// ---- The end ------------------------------------------------------------------------------------

void Schedule::finish_all() {
  say("the end");
  const std::vector<test::PlannedFault> happened = engine_->fake().faults.happened();
  engine_->fake().faults = {};
  if (dice_.chance(20)) {
    tally_.add(cache_->stats(), happened);
    cache_.reset();
    for (Live& live : live_) {
      if (dice_.chance(50)) (void)live.turn.abandon();
    }
    live_.clear();
    return;
  }
  while (!live_.empty() && wrong_.empty()) {
    const View before = view();
    actors_.clear();
    end(live_.size() - 1, dice_.chance(50) ? End::finish : End::abandon);
    if (wrong_.empty()) judge_all(before);
  }
  if (!wrong_.empty()) return;
  tally_.add(cache_->stats(), happened);
  cache_->drain({.evict = true});
  expect(cache_->pending() == 0, "drain left something");
  for (const Scope& one : scopes_) cache_->drop_scope(one);
  cache_->drop_saved();
  cache_->check_invariants();
  const SequenceStats stats = cache_->stats();
  expect(stats.leased_sequences == 0, "a sequence is still leased");
  expect(stats.idle_sequences == 0, "something is left of scopes that were dropped");
  expect(stats.segment_bytes + stats.state_bytes + stats.checkpoint_bytes == 0,
         "something that was saved is left");
  expect(stats.logits_bytes == 0, "logits are left");
  expect(stats.saved_bytes == empty_bytes_, "an empty cache has " +
                                                std::to_string(stats.saved_bytes) +
                                                " bytes, and had " + std::to_string(empty_bytes_));
  expect(contents().empty(), "something can still be reused");
  if (wrong_.empty()) take_every_sequence();
}

// All sequences are used once more at the same time and given back; then the engine is empty.
void Schedule::take_every_sequence() {
  const std::vector<Token> word = {1};
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    TurnOptions options;
    options.bypass = true;
    Result<Turn> turn = cache_->begin(scopes_[0], {.tokens = word}, options);
    if (!turn) return wrong("the last turns: " + turn.error().to_string());
    Live live;
    live.turn = *std::move(turn);
    live_.push_back(std::move(live));
    const Result<uint32_t> there = live_.back().turn.execute();
    if (!there) return wrong("the last turns: " + there.error().to_string());
  }
  for (Live& live : live_) expect(live.turn.abandon().has_value(), "the last turns do not end");
  live_.clear();
  const SequenceStats stats = cache_->stats();
  expect(stats.free_sequences == stats.sequences, "a sequence is not free at the end");
  expect(stats.used_tokens == 0, "positions are taken at the end");
  expect(engine_->fake().used_tokens() == 0, "positions were left in the engine");
  for (uint32_t s = 0; s < situation_.engine.sequences; ++s) {
    expect(engine_->fake().right(SequenceId{s}, {}).empty(), "a sequence is not empty at the end");
  }
  cache_->check_invariants();
}

// ---- The log ------------------------------------------------------------------------------------

void Schedule::wrong(const std::string& what) {
  if (!wrong_.empty()) return;
  wrong_ = what;
}

void Schedule::expect_code(const Result<void>& result, Errc code, const char* call) {
  if (!result && result.error().code() == code) return;
  wrong(std::string(call) + " answered " + (result ? "ok" : result.error().to_string()) +
        " and not " + std::string(to_string(code)));
}

// A new line of the log; text that begins with a space continues the last line.
void Schedule::say(const std::string& more) {
  for (const char letter : more) digest_ = base::mix(digest_, static_cast<uint8_t>(letter));
  if (more.starts_with(" ")) {
    line_ += more;
  } else {
    if (!line_.empty()) lines_.push_back(std::move(line_));
    if (lines_.size() > kLinesKept) lines_.pop_front();
    line_ = more;
  }
  if (trace_) std::printf("%s%s", more.starts_with(" ") ? "" : "\n", more.c_str());
}

}  // namespace stemma::schedules
