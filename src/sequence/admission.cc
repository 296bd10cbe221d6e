#include "sequence/admission.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/check_options.h"

namespace stemma::sequence {

namespace {

// The depth before the last `units` units of a text.
uint32_t before_last(const Text& text, uint32_t units) noexcept {
  uint32_t depth = text.length();
  size_t span = text.spans.size();
  for (; units != 0 && depth != 0; --units) {
    if (span != 0 && text.spans[span - 1].end == depth) {
      depth = text.spans[--span].begin;
    } else {
      --depth;
    }
  }
  return depth;
}

}  // namespace

Result<void> Admission::read_turn(const Scope& scope, const Prompt& prompt,
                                  const TurnOptions& options, bool whole, TurnRecord& turn) {
  if (static_cast<uint8_t>(options.reuse) > 3) {
    return Error(Errc::invalid_argument, "reuse is no mode");
  }
  STEMMA_TRY_VOID(cache::check_retain(options.retain));
  uint32_t last = 0;
  for (uint32_t end : options.message_ends) {
    if (end < last) return Error(Errc::invalid_argument, "message_ends are out of order", end);
    if (end > prompt.tokens.size()) {
      return Error(Errc::invalid_argument, "a message ends beyond the prompt", end);
    }
    last = end;
  }
  STEMMA_TRY_VOID(books_.lexicon.read(prompt, turn.text));
  turn.scope = scope;
  turn.prompt_tokens = turn.text.length();
  const uint64_t end = uint64_t{turn.prompt_tokens} + options.reserve_tokens;
  if (end > books_.traits.context_tokens) {
    return Error(Errc::out_of_range,
                 "the prompt and what it reserves are more than the context has",
                 books_.traits.context_tokens);
  }
  turn.promised_end = static_cast<uint32_t>(end);
  const uint32_t most =
      whole ? turn.prompt_tokens : before_last(turn.text, std::max(options.evaluate_at_least, 1U));
  turn.limit = turn.text.floor(std::min(most, options.at_most));
  turn.bypass = options.bypass;
  turn.exclusive = options.exclusive;
  turn.keep = options.keep && !options.bypass;
  turn.reuse = options.bypass ? Reuse::disabled : books_.mode_of(options);
  turn.tenant = options.tenant;
  turn.retain.assign(options.retain);
  turn.message_ends.assign(options.message_ends.begin(), options.message_ends.end());
  for (const MediaItem& item : prompt.media) turn.item_ends.push_back(item.offset + item.length);
  turn.media_to_process.reserve(prompt.media.size());
  turn.report.prompt_tokens = turn.prompt_tokens;
  turn.full_limit = most;
  turn.terminal = before_last(turn.text, 1);
  return {};
}

Result<std::unique_ptr<TurnRecord>> Admission::begin(const Scope& scope, const Prompt& prompt,
                                                     const TurnOptions& options, bool whole) try {
  auto record = std::make_unique<TurnRecord>();
  TurnRecord& turn = *record;
  const uint64_t started = books_.clock->now_ns();
  Result<void> ready;
  try {
    ready = read_turn(scope, prompt, options, whole, turn);
    if (ready) ready = prepare(turn, options);
  } catch (const std::bad_alloc&) {
    ready = Error(Errc::out_of_memory, "no memory to plan");
  }
  if (!ready) {
    books_.lexicon.release(turn.text);
    if (ready.error().code() != Errc::invalid_argument) {
      ++books_.stats.turns;
      ++books_.stats.outcomes[static_cast<size_t>(Outcome::refused)];
    }
    return ready.error();
  }
  lease_sequence(turn, started);
  turn.report.plan_ns = elapsed_ns(started, books_.clock->now_ns());
  return record;
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a turn");
}

Result<void> Admission::prepare(TurnRecord& turn, const TurnOptions& options) {
  if (!options.session.empty()) {
    const uint32_t known_session = books_.sessions.find(options.session);
    if (options.exclusive && known_session != SessionTable::kNone &&
        books_.sessions[known_session].in_flight != 0) {
      return Error(Errc::busy, "another turn of this session is under way");
    }
    turn.session = known_session;
  }
  if (!has_vacancy()) return Error(Errc::busy, "every sequence is leased");
  if (options.want_logits && books_.logits != nullptr && turn.reuse != Reuse::disabled) {
    finder_.find_logits(turn, options.at_most, Holding::yes);
  }
  Found found;
  finder_.find(turn, found, Holding::yes, kNoSequence, {});
  if (!planner_.plan(turn, found)) {
    return Error(Errc::out_of_blocks, "leased sequences leave too little of the context");
  }
  finder_.hold_anchor(turn, found);
  planner_.explain(turn, found);
  planner_.choose_stops(turn, found);
  planner_.describe(turn);
  TurnPlanner::note_media(turn);
  // If the table of sessions is full of running ones, this turn gets no session.
  if (!options.session.empty()) turn.session = books_.sessions.open(options.session);
  if (turn.session != SessionTable::kNone && turn.retain.retain.session == kNoSession) {
    turn.retain.retain.session = books_.sessions[turn.session].id;
  }
  return {};
}

void Admission::lease_sequence(TurnRecord& turn, uint64_t now_ns) noexcept {
  const uint32_t s = turn.plan.sequence;
  SequenceRecord& sequence = books_.at(s);
  const bool emptied = turn.plan.base != Base::stay && books_.room.length(SequenceId{s}) != 0;
  turn.sequence = s;
  turn.generation = sequence.generation + (emptied ? 1 : 0);
  turn.was = sequence.state;
  sequence.turn = &turn;
  books_.set_state(s, SequenceState::leased);
  if (turn.session != SessionTable::kNone) {
    Session& session = books_.sessions[turn.session];
    ++session.in_flight;
    session.over = false;
    ++session.turns;
    session.last_used_ns = now_ns;
    session.sequence = SequenceId{s};
  }
  turn.epoch = books_.epoch;
}

Result<SequenceReport> Admission::lookup(const Scope& scope, const Prompt& prompt,
                                         const TurnOptions& options) {
  TurnRecord turn;
  Result<SequenceReport> out = Error(Errc::out_of_memory, "no memory to plan");
  try {
    if (const Result<void> read = read_turn(scope, prompt, options, false, turn); !read) {
      books_.lexicon.release(turn.text);
      return read.error();
    }
    if (!options.session.empty()) turn.session = books_.sessions.find(options.session);
    if (options.want_logits && books_.logits != nullptr && turn.reuse != Reuse::disabled) {
      finder_.find_logits(turn, options.at_most, Holding::no);
    }
    Found found;
    finder_.find(turn, found, Holding::no, kNoSequence, {});
    const bool planned = planner_.plan(turn, found);
    planner_.explain(turn, found);
    if (planned) planner_.describe(turn);
    TurnPlanner::note_media(turn);
    out = turn.report;
  } catch (const std::bad_alloc&) {
    // The result stays out_of_memory.
  }
  books_.lexicon.release(turn.text);
  return out;
}

bool Admission::can_admit(std::string_view name) const noexcept {
  if (!name.empty()) {
    const uint32_t session = books_.sessions.find(name);
    if (session != SessionTable::kNone && books_.sessions[session].in_flight != 0) return false;
  }
  return has_vacancy();
}

bool Admission::has_vacancy() const noexcept {
  return std::any_of(
      books_.records.begin(), books_.records.end(),
      [](const SequenceRecord& record) { return record.state != SequenceState::leased; });
}

}  // namespace stemma::sequence
