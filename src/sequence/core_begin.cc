// Admission and planning.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "cache/shared.h"
#include "retain/touch.h"
#include "sequence/core.h"

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

Result<void> Core::read_turn(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                             bool whole, TurnRecord& turn) {
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

PlanInput Core::plan_input(const TurnRecord& turn) const {
  PlanInput input;
  input.traits = books_.traits;
  input.limit = turn.limit;
  input.prompt = turn.prompt_tokens;
  input.segment_tokens = books_.options.segment_tokens;
  input.costs = books_.meter.costs();
  input.beside_cells = books_.cells_in_turns(turn.sequence);
  input.restorable = books_.segments != nullptr || books_.states != nullptr;
  return input;
}

void Core::find_live(TurnRecord& turn, Found& found, bool begins, uint32_t fixed,
                     const Excluded& excluded) {
  books_.live.match(turn.scope, turn.text.all(), found.matches);
  found.scope_known = books_.live.knows(turn.scope);
  const bool allowed = allows(turn.reuse, Reuse::live);
  for (const LiveIndex::Match& match : found.matches) {
    const uint32_t s = to_index(match.sequence);
    const uint32_t common = turn.text.floor(match.positions);
    found.matched = std::max(found.matched, common);
    if (!allowed) {
      found.by_mode = std::max(found.by_mode, common);
      continue;
    }
    found.live_matched = std::max(found.live_matched, common);
    const bool can_stay =
        fixed == kNoSequence ? books_.at(s).state == SequenceState::idle : s == fixed;
    if (!can_stay && excluded.forks) continue;
    // What a turn that was not executed yet will leave of it, nobody knows.
    if (!can_stay && books_.at(s).turn != nullptr && !in_turn(books_.at(s))) continue;
    Held held = books_.resumable_part(s);
    // Passes of others recycle the cells behind a sequence's window: it may go back less far than it could.
    if (begins && books_.traits.rewind == Rewind::window && common < held.end) held = books_.ask(s);
    if (!held.whole || held.end != books_.room.length(match.sequence)) continue;
    found.live.push_back({s, common, held, can_stay, books_.is_own(turn, s)});
  }
}

void Core::find_vacant(const TurnRecord& turn, Found& found, uint32_t fixed) {
  if (fixed != kNoSequence) {
    found.vacant.push_back({fixed, 0});
    return;
  }
  const auto add = [&](uint32_t s, uint64_t loss_ns) {
    const bool there = std::any_of(found.vacant.begin(), found.vacant.end(),
                                   [&](const Vacancy& it) { return it.sequence == s; });
    if (!there && found.vacant.size() < 3) found.vacant.push_back({s, loss_ns});
  };
  const PlanInput input = plan_input(turn);
  // A conversation that has nothing in common with its own past goes on where that was.
  if (turn.session != SessionTable::kNone) {
    const Session& session = books_.sessions[turn.session];
    const uint32_t s = to_index(session.sequence);
    if (books_.records[s].state == SequenceState::idle && books_.records[s].session == session.id &&
        books_.records[s].generation == session.generation &&
        std::none_of(found.matches.begin(), found.matches.end(),
                     [&](const LiveIndex::Match& it) { return to_index(it.sequence) == s; })) {
      add(s, turn.exclusive ? 0 : price_of(input, 0, books_.room.length(SequenceId{s}), true));
    }
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state == SequenceState::free) add(s, 0);
  }
  for (uint32_t s = books_.idle_order.front(0);
       s != base::IndexLists::kNone && found.vacant.size() < 3; s = books_.idle_order.after(s)) {
    add(s, price_of(input, 0, books_.room.length(SequenceId{s}), books_.is_own(turn, s)));
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state == SequenceState::broken) add(s, input.costs.load.call_ns);
  }
}

void Core::find_saved(TurnRecord& turn, Found& found, bool hold, const Excluded& excluded) {
  const Prompt prompt = turn.text.prompt();
  const bool allowed = allows(turn.reuse, Reuse::saved);
  if (books_.segments != nullptr && !excluded.segments) {
    SegmentStore::Reach reach;
    if (hold && allowed) {
      turn.segments =
          books_.segments->hold(turn.scope, prompt, turn.limit, turn.tenant, turn.retain.get());
      reach = {turn.segments.usable, turn.segments.matched, turn.segments.scope_known};
    } else {
      reach = books_.segments->reach(turn.scope, prompt, turn.limit);
    }
    const uint32_t matched = turn.text.floor(reach.matched);
    found.scope_known = found.scope_known || reach.scope_known;
    found.matched = std::max(found.matched, matched);
    if (allowed) {
      found.saved.segments = reach.usable;
    } else {
      found.by_mode = std::max(found.by_mode, matched);
    }
  }
  if (books_.states != nullptr && !excluded.states) {
    found.state = books_.states->find(turn.scope, turn.text, turn.limit);
    const uint32_t exact = found.state.exact.depth;
    const uint32_t common = turn.text.floor(found.state.longest.common);
    found.scope_known = found.scope_known || found.state.longest;
    found.matched = std::max({found.matched, exact, common});
    if (allowed) {
      found.saved.state_depth = exact;
      found.saved.state_longest = common;
      found.saved.state_longest_depth = found.state.longest.depth;
    } else {
      found.by_mode = std::max({found.by_mode, exact, common});
    }
  }
  if (books_.checkpoints != nullptr && allowed && !excluded.checkpoints)
    find_checkpoints(turn, found);
}

void Core::find_checkpoints(TurnRecord& turn, Found& found) {
  // One for each depth down to which the full-attention part may be had.
  std::vector<uint32_t> reaches{found.saved.segments};
  for (const LiveCandidate& live : found.live) {
    reaches.push_back(std::min({live.common, live.held.end, turn.limit}));
  }
  std::sort(reaches.begin(), reaches.end());
  reaches.erase(std::unique(reaches.begin(), reaches.end()), reaches.end());
  for (uint32_t reach : reaches) {
    if (reach == 0 || (!found.checkpoints.empty() && found.checkpoints.back() == reach)) continue;
    const StateCandidate entry = books_.checkpoints->find(turn.scope, turn.text, reach).exact;
    if (!entry || (!found.checkpoints.empty() && found.checkpoints.back() == entry.depth)) continue;
    found.checkpoints.push_back(entry.depth);
    found.checkpoint_entries.push_back(entry);
  }
  found.saved.checkpoints = found.checkpoints;
}

void Core::find(TurnRecord& turn, Found& found, bool hold, uint32_t fixed,
                const Excluded& excluded) {
  if (!turn.bypass) {
    find_live(turn, found, hold, fixed, excluded);
    find_saved(turn, found, hold, excluded);
  }
  find_vacant(turn, found, fixed);
}

bool Core::could_have(uint32_t sequence, uint32_t kept, uint64_t tokens, uint32_t spared) {
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    const SequenceState state = books_.records[s].state;
    const bool may_go = state == SequenceState::idle || state == SequenceState::broken;
    flags_[s] = may_go && s != spared && !is_source(s, sequence) ? 1 : 0;
  }
  return books_.room.free_if(SequenceId{sequence}, kept, flags_) >=
         promised_to_others(sequence) + tokens;
}

bool Core::fits(const TurnRecord& turn, const Plan& plan) {
  const uint32_t kept = plan.base == Base::stay ? plan.base_tokens : 0;
  return could_have(plan.sequence, kept, needs_room(turn, plan), plan.source);
}

uint64_t Core::needs_room(const TurnRecord& turn, const Plan& plan) const noexcept {
  // What is loaded comes whole, and is cut afterwards; no segment ends behind the context.
  const uint64_t tokens = books_.options.segment_tokens;
  const auto end_of_segment = [&](uint64_t depth) {
    return std::min<uint64_t>((depth + tokens - 1) / tokens * tokens, books_.traits.context_tokens);
  };
  uint64_t most =
      std::max<uint64_t>({turn.promised_end, plan.state_depth, end_of_segment(plan.segments_to)});
  // Of a segment that begins inside the base, that part is there twice until it is cut.
  if (books_.traits.unified && plan.segments_to != 0) {
    most = std::max(most, end_of_segment(plan.base_tokens) + plan.base_tokens % tokens);
  }
  return most - has_without_room(plan);
}

uint32_t Core::has_without_room(const Plan& plan) const noexcept {
  const bool shared = plan.base == Base::fork && books_.traits.fork == Fork::shared;
  return plan.base == Base::stay || shared ? plan.base_tokens : 0;
}

uint32_t Core::will_have_without_room(const Plan& plan, uint32_t sequence) const noexcept {
  const uint32_t has_now = has_without_room(plan);
  if (plan.base != Base::fork) return has_now;
  // What another plan leaves of its source, nobody knows.
  const SequenceRecord& source = books_.records[plan.source];
  const bool stays = source.turn != nullptr ? in_turn(source) : plan.source != sequence;
  return stays ? std::min(has_now, books_.room.length(SequenceId{plan.source})) : 0;
}

bool Core::is_source(uint32_t s, uint32_t sequence) const noexcept {
  return books_.traits.fork == Fork::shared &&
         std::any_of(books_.records.begin(), books_.records.end(),
                     [&](const SequenceRecord& record) {
                       const TurnRecord* turn = record.turn;
                       return turn != nullptr && turn->sequence != sequence &&
                              turn->phase == TurnPhase::planned && turn->plan.source == s;
                     });
}

uint64_t Core::promised_to_others(uint32_t sequence) const {
  if (!books_.traits.unified) return 0;
  uint64_t total = 0;
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    const TurnRecord* turn = books_.records[s].turn;
    if (turn == nullptr || s == sequence) continue;
    uint64_t has_now = turn->computed;
    if (turn->phase == TurnPhase::planned) {
      // What its plan needs no room for, and what it will let go before it takes any.
      const SequenceId id{s};
      const uint32_t kept = turn->plan.base == Base::stay ? turn->plan.base_tokens : 0;
      has_now = will_have_without_room(turn->plan, sequence) +
                books_.room.free_if(id, kept, nobody_) - books_.room.free_for(id);
    }
    total += turn->promised_end - std::min<uint64_t>(turn->promised_end, has_now);
  }
  return total;
}

bool Core::plan(TurnRecord& turn, Found& found) {
  PlanInput input = plan_input(turn);
  input.live = found.live;
  input.vacant = found.vacant;
  input.saved = found.saved;
  turn.plan = make_plan(input);
  // A fork keeps its source where it is, and what is loaded may need more room than the prompt: if the
  // best plan does not fit, the best of those that do.
  if (turn.plan.sequence != kNoSequence && !fits(turn, turn.plan)) {
    turn.plan = make_plan(input, [&](const Plan& plan) { return fits(turn, plan); });
    // That more could not be copied is no matter of what it costs.
    std::erase_if(found.live, [](const LiveCandidate& live) { return !live.can_stay; });
  }
  return turn.plan.sequence != kNoSequence;
}

void Core::explain(TurnRecord& turn, const Found& found) {
  SequenceReport& report = turn.report;
  const uint32_t n = turn.plan.available;
  report.matched_tokens = found.matched;
  report.reused_tokens = n;
  report.evaluated_tokens = turn.prompt_tokens - n;
  report.outcome = turn.bypass || turn.reuse == Reuse::disabled ? Outcome::bypassed
                   : n == 0                                     ? Outcome::miss
                   : n == turn.full_limit                       ? Outcome::full_hit
                                                                : Outcome::partial_hit;
  uint32_t possible =
      std::max(found.saved.state_depth, books_.any() ? found.saved.state_longest : 0);
  const bool copies = books_.traits.fork == Fork::shared || books_.traits.fork == Fork::copy;
  for (const LiveCandidate& live : found.live) {
    if (!live.can_stay && !copies) continue;
    possible = std::max(possible, resumable(books_.traits, live.held,
                                            std::min(live.common, turn.limit), !live.can_stay));
  }
  possible = std::max(possible, books_.any() ? found.saved.segments
                                : found.checkpoints.empty()
                                    ? 0
                                    : std::min(found.checkpoints.back(),
                                               std::max(found.saved.segments, found.live_matched)));
  report.reason = [&] {
    if (turn.bypass || turn.reuse == Reuse::disabled) return SequenceMiss::bypassed;
    if (n == turn.full_limit && n != 0) return SequenceMiss::none;
    if (turn.full_limit == 0) return SequenceMiss::too_short;
    if (!found.scope_known) return SequenceMiss::unknown_scope;
    if (n == turn.limit && turn.limit < turn.full_limit) return SequenceMiss::at_most;
    if (found.matched <= n) {
      const bool media =
          std::any_of(turn.text.spans.begin(), turn.text.spans.end(),
                      [&](const key::MediaSpan& span) { return span.begin == found.matched; });
      return media ? SequenceMiss::media : SequenceMiss::first_use;
    }
    if (found.by_mode > n && found.by_mode >= found.live_matched) return SequenceMiss::mode;
    if (turn.limit < turn.full_limit && turn.limit == 0) return SequenceMiss::at_most;
    if (possible > n) return SequenceMiss::not_worth;
    return books_.any() ? SequenceMiss::not_saved : SequenceMiss::no_rewind;
  }();
}

bool Core::anchors(const TurnRecord& turn) const noexcept {
  return !books_.any() && turn.keep && !turn.approximate && !turn.forgotten &&
         allows(turn.reuse, Reuse::saved) && (books_.use_checkpoints || books_.use_states);
}

void Core::choose_stops(TurnRecord& turn, const Found& found) {
  turn.stops.clear();
  turn.interval_tokens = 0;
  turn.late_tokens = 0;
  if (!anchors(turn)) return;
  // Where the whole prompt is within the window, nothing of it is lost while it is computed.
  if (books_.use_checkpoints && books_.traits.rewind == Rewind::window) {
    turn.late_tokens = turn.prompt_tokens <= books_.traits.rewind_tokens
                           ? turn.prompt_tokens
                           : books_.window_slack.tokens();
  }
  StopInput input;
  input.available = turn.plan.available;
  input.terminal = turn.terminal;
  input.parting = found.matched;
  input.message_ends = turn.message_ends;
  input.gap_tokens = turn.late_tokens != 0 ? kLeastLateGap : kLeastChunk;
  input.least_tokens = books_.options.least_tokens;
  input.marks = books_.options.marks;
  if (books_.options.interval_tokens != 0) {
    // A caller that asks for short intervals gets short chunks.
    input.interval_tokens = books_.options.interval_tokens;
    input.exact_intervals = true;
    input.gap_tokens = std::min(input.gap_tokens, books_.options.interval_tokens);
    input.least_tokens = std::min(input.least_tokens, books_.options.interval_tokens);
  } else {
    // Each checkpoint may push out a more useful one, so a request gets only a small part of the store.
    constexpr uint64_t kShareOfStore = 16;
    constexpr uint64_t kFew = 3;
    const uint64_t bytes = anchor_bytes(turn.prompt_tokens);
    const StateStore& store = books_.use_checkpoints ? *books_.checkpoints : *books_.states;
    const uint64_t room = store.stats().budget_bytes / std::max<uint64_t>(bytes, 1) / kShareOfStore;
    input.marks =
        static_cast<uint32_t>(std::min<uint64_t>(input.marks, std::max<uint64_t>(room, kFew)));
    if (room > kFew) {
      input.interval_tokens =
          natural_interval(turn.prompt_tokens, books_.meter.costs().save.of(1, bytes),
                           books_.meter.costs().token_ns);
    }
  }
  turn.interval_tokens = input.interval_tokens;
  turn.stops = sequence::choose_stops(turn.text, input);
  // Nor where a checkpoint would never pay.
  std::erase_if(turn.stops, [&](uint32_t depth) { return !worth_keeping(depth); });
}

uint64_t Core::anchor_bytes(uint32_t depth) const noexcept {
  if (books_.use_checkpoints) return books_.traits.checkpoint_bytes;
  return books_.traits.fixed_bytes + books_.traits.checkpoint_bytes +
         depth * books_.traits.bytes_per_token;
}

void Core::note_media(TurnRecord& turn) {
  turn.media_to_process.clear();
  for (uint32_t i = 0; i < turn.item_ends.size(); ++i) {
    if (turn.item_ends[i] > turn.report.reused_tokens) turn.media_to_process.push_back(i);
  }
  turn.report.media_to_process = static_cast<uint32_t>(turn.media_to_process.size());
}

void Core::describe(TurnRecord& turn) {
  const Plan& plan = turn.plan;
  std::array<uint32_t, kStepCount>& steps = turn.report.steps;
  const auto step = [&](Step kind) -> uint32_t& { return steps[static_cast<size_t>(kind)]; };
  steps = {};
  if (plan.state_depth != 0) {
    step(Step::state) = plan.available;
  } else {
    if (plan.base == Base::stay) {
      const bool cut = books_.room.length(SequenceId{plan.sequence}) > plan.base_tokens;
      step(cut ? Step::trim : Step::stay) = plan.base_tokens;
    } else if (plan.base == Base::fork) {
      step(Step::fork) = plan.base_tokens;
    }
    if (plan.segments_to != 0) step(Step::segments) = plan.segments_to - plan.base_tokens;
  }
  step(Step::checkpoint) = plan.checkpoint;
}

Result<Turn> Core::begin(const Scope& scope, const Prompt& prompt, const TurnOptions& options,
                         bool whole) try {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return Error(Errc::stale, "the cache is gone");
  auto record = std::make_unique<TurnRecord>();
  TurnRecord& turn = *record;
  const uint64_t started = books_.clock->now_ns();
  const auto fail = [&](const Error& error) {
    books_.lexicon.release(turn.text);
    if (error.code() != Errc::invalid_argument) {
      ++books_.stats.turns;
      ++books_.stats.outcomes[static_cast<size_t>(Outcome::refused)];
    }
    return error;
  };
  try {
    if (const Result<void> read = read_turn(scope, prompt, options, whole, turn); !read) {
      return fail(read.error());
    }
    if (!options.session.empty()) {
      const uint32_t known_session = books_.sessions.find(options.session);
      if (options.exclusive && known_session != SessionTable::kNone &&
          books_.sessions[known_session].in_flight != 0) {
        return fail(Error(Errc::busy, "another turn of this session is under way"));
      }
      turn.session = known_session;
    }
    if (!has_vacancy()) return fail(Error(Errc::busy, "every sequence is leased"));
    if (options.want_logits && books_.logits != nullptr && turn.reuse != Reuse::disabled) {
      find_logits(turn, options.at_most);
    }
    Found found;
    find(turn, found, true, kNoSequence, {});
    if (!plan(turn, found)) {
      return fail(Error(Errc::out_of_blocks, "leased sequences leave too little of the context"));
    }
    hold_anchor(turn, found);
    explain(turn, found);
    choose_stops(turn, found);
    describe(turn);
    note_media(turn);
    // If there are more sessions under way than can be remembered, this one has no name.
    if (!options.session.empty()) turn.session = books_.sessions.open(options.session);
    if (turn.session != SessionTable::kNone && turn.retain.retain.session == kNoSession) {
      turn.retain.retain.session = books_.sessions[turn.session].id;
    }
  } catch (const std::bad_alloc&) {
    return fail(Error(Errc::out_of_memory, "no memory to plan"));
  }

  const uint32_t s = turn.plan.sequence;
  SequenceRecord& sequence = books_.at(s);
  turn.sequence = s;
  turn.generation =
      sequence.generation +
      (turn.plan.base != Base::stay && books_.room.length(SequenceId{s}) != 0 ? 1 : 0);
  turn.was = sequence.state;
  sequence.turn = &turn;
  books_.set_state(s, SequenceState::leased);
  if (turn.session != SessionTable::kNone) {
    Session& session = books_.sessions[turn.session];
    ++session.in_flight;
    session.over = false;
    ++session.turns;
    session.last_used_ns = started;
    session.sequence = SequenceId{s};
  }
  turn.epoch = books_.epoch;
  turn.report.plan_ns = elapsed_ns(started, books_.clock->now_ns());
  retain_owner();
  return Turn(this, record.release());
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a turn");
}

StateCandidate Core::kept_logits(const TurnRecord& turn) {
  const StateCandidate entry = books_.logits->find(turn.scope, turn.text, turn.prompt_tokens).exact;
  return entry.depth == turn.prompt_tokens ? entry : StateCandidate();
}

void Core::allow_all(TurnRecord& turn, uint32_t at_most) noexcept {
  turn.report.logits = true;
  turn.full_limit = turn.prompt_tokens;
  turn.limit = turn.text.floor(std::min(turn.prompt_tokens, at_most));
}

void Core::find_logits(TurnRecord& turn, uint32_t at_most) {
  const StateCandidate entry = kept_logits(turn);
  if (!entry) return;
  Result<StateLease> lease = books_.logits->lease(entry);
  if (!lease) return;
  const Result<SavedState> read = lease->read();
  if (!read) {
    books_.logits->remove(*lease);
    ++books_.stats.quarantined;
    return;
  }
  books_.logits->used(*lease, books_.touch_of(turn.retain, turn.prompt_tokens));
  // They were saved as bytes; the store keeps them aligned.
  turn.logits_span = {reinterpret_cast<const float*>(read->state.data()),
                      read->state.size() / sizeof(float)};
  turn.logits = *std::move(lease);
  allow_all(turn, at_most);
}

void Core::hold_anchor(TurnRecord& turn, const Found& found) {
  turn.state = {};
  const Plan& plan = turn.plan;
  StateCandidate entry;
  if (plan.state_depth != 0) {
    entry = plan.available == found.state.exact.depth ? found.state.exact : found.state.longest;
  } else if (plan.checkpoint != 0) {
    const auto at =
        std::lower_bound(found.checkpoints.begin(), found.checkpoints.end(), plan.checkpoint);
    entry = found.checkpoint_entries[static_cast<size_t>(at - found.checkpoints.begin())];
  } else {
    return;
  }
  Result<StateLease> lease =
      (plan.state_depth != 0 ? books_.states : books_.checkpoints)->lease(entry);
  STEMMA_CHECK(lease.has_value());  // Nothing has changed since it was found.
  turn.state = *std::move(lease);
}

Result<SequenceReport> Core::lookup(const Scope& scope, const Prompt& prompt,
                                    const TurnOptions& options) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return Error(Errc::stale, "the cache is gone");
  TurnRecord turn;
  Found found;
  Result<SequenceReport> out = Error(Errc::out_of_memory, "no memory to plan");
  try {
    if (const Result<void> read = read_turn(scope, prompt, options, false, turn); !read) {
      books_.lexicon.release(turn.text);
      return read.error();
    }
    if (!options.session.empty()) turn.session = books_.sessions.find(options.session);
    if (options.want_logits && books_.logits != nullptr && turn.reuse != Reuse::disabled &&
        kept_logits(turn)) {
      allow_all(turn, options.at_most);
    }
    find(turn, found, false, kNoSequence, {});
    if (plan(turn, found) || turn.plan.sequence == kNoSequence) {
      explain(turn, found);
      if (turn.plan.sequence != kNoSequence) describe(turn);
      note_media(turn);
      out = turn.report;
    }
  } catch (const std::bad_alloc&) {
    // As it stands.
  }
  books_.lexicon.release(turn.text);
  return out;
}

bool Core::can_admit(std::string_view name) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone) return false;
  if (!name.empty()) {
    const uint32_t session = books_.sessions.find(name);
    if (session != SessionTable::kNone && books_.sessions[session].in_flight != 0) return false;
  }
  return has_vacancy();
}

bool Core::has_vacancy() const noexcept {
  return std::any_of(
      books_.records.begin(), books_.records.end(),
      [](const SequenceRecord& record) { return record.state != SequenceState::leased; });
}

}  // namespace stemma::sequence
