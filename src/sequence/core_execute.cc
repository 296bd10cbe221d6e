// Carrying plans out.
//
// Every call of the engine may fail, before, after or in the middle of its effect, and what it says of
// its success is not believed: a step counts when the engine holds what it should. When one fails the
// sequence is emptied, what is bad is given up, and what is left is planned anew.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "sequence/capture_rules.h"
#include "sequence/core.h"
#include "sequence/room_promises.h"
#include "sequence/segment_loader.h"
#include "stemma/log.h"

namespace stemma::sequence {
namespace {

// Whether a failure says something about the bytes, not about the moment.
bool is_bad(const Error& error) noexcept {
  return error.code() != Errc::out_of_blocks && error.code() != Errc::busy &&
         error.code() != Errc::out_of_memory;
}

}  // namespace

bool Core::make_room_for(uint32_t sequence, uint64_t tokens, uint32_t spared,
                         SequenceReport* report) {
  return free_up(sequence, tokens + promised_to_others(books_, sequence), spared, report);
}

bool Core::free_up(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report) {
  while (books_.room.free_for(SequenceId{sequence}) < tokens) {
    uint32_t victim = books_.idle_order.front(0);
    while (victim != base::IndexLists::kNone &&
           (victim == spared || is_source(books_, victim, sequence))) {
      victim = books_.idle_order.after(victim);
    }
    // A context of its own has nothing to gain from others.
    if (!books_.traits.unified) return false;
    if (victim != base::IndexLists::kNone) {
      (void)retire(victim, report);
    } else if (!mend()) {
      return false;
    }
  }
  return true;
}

bool Core::mend() {
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state != SequenceState::broken || !empty(s)) continue;
    books_.set_state(s, SequenceState::free);
    return true;
  }
  return false;
}

void Core::failed_step(TurnRecord& turn, Step step) {
  ++turn.report.failures;
  ++books_.stats.failures[static_cast<size_t>(step)];
}

Result<void> Core::load_segments(TurnRecord& turn, Range range, Excluded& excluded) {
  const SequenceId id{turn.sequence};
  STEMMA_TRY_VOID(books_.segments->list(turn.segments, range, pieces_));
  books_.settle_engine();
  const uint64_t started = books_.clock->now_ns();
  uint64_t bytes = 0;
  uint32_t calls = 0;
  uint32_t bad = 0;  // Where the segment begins that could not be loaded.
  books_.room.prepare(id, id);
  Result<void> loaded = SegmentLoader::serves(*books_.segments)
                            ? load_ranges(id, bytes, calls, bad)
                            : load_one_by_one(id, bytes, calls, bad);
  if (!loaded) {
    if (is_bad(loaded.error())) {
      quarantine_segment(turn, bad);
    } else {
      excluded.segments = true;
    }
    return loaded;
  }
  // With full attention alone what was loaded can be seen at once.
  if (books_.any() && !books_.verify(turn.sequence, range.end)) {
    quarantine_segment(turn, range.begin);
    return Error(Errc::corrupt, "segments were loaded, and are not there");
  }
  turn.report.restored_bytes += bytes;
  books_.stats.restored_bytes += bytes;
  const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
  books_.stats.restore_ns += spent;
  books_.meter.loaded(calls, bytes, spent);
  return {};
}

Result<void> Core::load_one_by_one(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad) {
  for (const SavedSegment& piece : pieces_) {
    bad = piece.saved.begin;
    {
      const Books::Unlocked unlocked(books_);
      STEMMA_TRY(const std::span<const uint8_t> saved, books_.segments->read(piece.slot));
      STEMMA_TRY_VOID(books_.engine->load(id, Part::segment, piece.saved, piece.wanted, saved));
      bytes += saved.size();
      ++calls;
    }
    books_.room.set_length(id, piece.wanted.end);
  }
  return {};
}

Result<void> Core::load_ranges(SequenceId id, uint64_t& bytes, uint32_t& calls, uint32_t& bad) {
  SegmentLoader loader(*books_.segments, pieces_);
  for (;;) {
    uint32_t end = 0;
    {
      const Books::Unlocked unlocked(books_);
      const Result<std::optional<SegmentLoader::Ready>> next = loader.next();
      bad = loader.bad();
      if (!next) return next.error();
      if (!next->has_value()) return {};
      const SegmentLoader::Ready& ready = **next;
      // Which of its segments the engine refuses, it does not say.
      bad = ready.range.begin;
      STEMMA_TRY_VOID(
          books_.engine->load(id, Part::segment, ready.range, ready.range, ready.bytes));
      end = ready.range.end;
      bytes += ready.bytes.size();
      ++calls;
    }
    books_.room.set_length(id, end);
  }
}

void Core::quarantine_segment(TurnRecord& turn, uint32_t from) {
  ++books_.stats.quarantined;
  turn.segments = {};
  // What is being saved may lie behind it.
  capturer_.pause();
  books_.segments->forget(turn.scope, turn.text.prompt(), from);
  books_.warn("stemma: a saved segment could not be restored and is given up");
}

Result<void> Core::load_anchor(TurnRecord& turn, Part part, uint32_t depth, Excluded& excluded) {
  const SequenceId id{turn.sequence};
  StateStore& store = part == Part::state ? *books_.states : *books_.checkpoints;
  books_.settle_engine();
  const uint64_t started = books_.clock->now_ns();
  books_.room.prepare(id, id);
  Result<void> loaded;
  uint64_t bytes = 0;
  {
    const Books::Unlocked unlocked(books_);
    const Result<SavedState> saved = turn.state.read();
    const Range range{0, depth};
    loaded = saved ? books_.engine->load(id, part, range, range, saved->state)
                   : Result<void>(saved.error());
    bytes = saved ? saved->state.size() : 0;
  }
  if (loaded) {
    books_.room.set_length(id, depth);
    if (!books_.verify(turn.sequence, depth)) {
      loaded = Error(Errc::corrupt, "a state was loaded, and is not there");
    }
  }
  if (!loaded) {
    if (is_bad(loaded.error())) {
      ++books_.stats.quarantined;
      store.remove(turn.state);
      books_.warn("stemma: a saved state could not be restored and is given up");
    } else {
      (part == Part::state ? excluded.states : excluded.checkpoints) = true;
    }
    return loaded;
  }
  store.used(turn.state, books_.touch_of(turn.retain, depth));
  turn.report.restored_bytes += bytes;
  books_.stats.restored_bytes += bytes;
  const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
  books_.stats.restore_ns += spent;
  books_.meter.loaded(1, bytes, spent);
  notifier_.hand_on(part == Part::state ? EntryKind::state : EntryKind::checkpoint, turn.state,
                    store.label(turn.state), SeenAgain::used);
  return {};
}

// Leaves the sequence as the plan's base wants it.
Result<void> Core::lay_base(TurnRecord& turn, Excluded& excluded) {
  const Plan& plan = turn.plan;
  const uint32_t s = turn.sequence;
  const SequenceId id{s};
  SequenceRecord& record = books_.at(s);
  const Error not_there(Errc::corrupt, "the engine does not hold what it should");
  if (plan.base == Base::stay) {
    // What is cut, and the end of a memory that does not go back, can be saved now or never. The request waits for
    // it, so it must be worth that, and is one step at most; what stays can be saved later.
    turn.report.saved_bytes += capturer_.save_before_cut(s, plan.base_tokens);
    capturer_.will_lose(s, plan.base_tokens);
    if (record.capture > plan.base_tokens) {
      if (books_.any() && plan.base_tokens > record.saved) {
        record.capture = plan.base_tokens;
      } else {
        books_.queue.remove(s, CaptureFate::stale);
      }
    }
    record.saved = std::min(record.saved, plan.base_tokens);
    const bool cut = books_.room.length(id) > plan.base_tokens;
    // A checkpoint takes care of what lies beyond it.
    if (cut && (plan.checkpoint == 0 || plan.segments_to != 0)) {
      Result<void> trimmed;
      {
        const Books::Unlocked unlocked(books_);
        trimmed = books_.engine->trim(id, plan.base_tokens);
      }
      if (trimmed) books_.room.set_length(id, plan.base_tokens);
      if (!trimmed || (plan.checkpoint == 0 && !books_.verify(s, plan.base_tokens))) {
        failed_step(turn, Step::trim);
        return trimmed ? Result<void>(not_there) : trimmed;
      }
    } else if (plan.checkpoint == 0 && !books_.verify(s, plan.base_tokens)) {
      failed_step(turn, Step::stay);
      return not_there;
    }
    books_.live.trim(id, std::min(plan.base_tokens, books_.known(s)));
    return {};
  }
  // Somebody else's, or left over: saved first if that is worth it, then emptied.
  if (books_.room.length(id) != 0 || record.dirty || books_.ask(s) != Held{}) {
    if (books_.room.length(id) != 0) {
      if (!retire(s, &turn.report)) return Error(Errc::wrong_state, "the sequence is not cleared");
    } else if (!empty(s)) {
      return Error(Errc::wrong_state, "the engine does not clear the sequence", s);
    }
    turn.generation = record.generation;
  }
  (void)make_room_for(s, needs_room(books_, turn, plan), plan.source, &turn.report);
  if (plan.base != Base::fork) return {};
  const SequenceId source{plan.source};
  books_.room.prepare(id, source);
  books_.settle_engine();
  const uint64_t started = books_.clock->now_ns();
  Result<void> copied;
  {
    const Books::Unlocked unlocked(books_);
    copied = books_.engine->copy(source, id, {0, plan.base_tokens});
  }
  if (copied) {
    if (books_.traits.fork == Fork::shared) {
      books_.room.share(source, id, plan.base_tokens);
    } else {
      books_.room.set_length(id, plan.base_tokens);
    }
  }
  const bool last = plan.segments_to == 0 && plan.checkpoint == 0;
  if (!copied || ((last || books_.any()) && !books_.verify(s, plan.base_tokens))) {
    failed_step(turn, Step::fork);
    excluded.forks = true;
    return copied ? Result<void>(not_there) : copied;
  }
  if (books_.traits.fork == Fork::shared) {
    books_.meter.copied(plan.base_tokens, elapsed_ns(started, books_.clock->now_ns()));
  }
  return {};
}

Result<void> Core::try_plan(TurnRecord& turn, Excluded& excluded) {
  const Plan plan = turn.plan;
  planner_.describe(turn);
  STEMMA_TRY_VOID(lay_base(turn, excluded));
  if (plan.base == Base::stay) {
    (void)make_room_for(turn.sequence, needs_room(books_, turn, plan), kNoSequence, &turn.report);
  }
  if (plan.state_depth != 0) {
    Result<void> loaded = load_anchor(turn, Part::state, plan.state_depth, excluded);
    if (loaded && plan.available < plan.state_depth) {
      const SequenceId id{turn.sequence};
      {
        const Books::Unlocked unlocked(books_);
        loaded = books_.engine->trim(id, plan.available);
      }
      if (loaded) books_.room.set_length(id, plan.available);
      if (loaded && !books_.verify(turn.sequence, plan.available)) {
        loaded = Error(Errc::corrupt, "the engine does not hold what it should");
      }
      if (!loaded) excluded.states = true;
    }
    if (!loaded) failed_step(turn, Step::state);
    return loaded;
  }
  if (plan.segments_to != 0) {
    const Result<void> loaded = load_segments(turn, {plan.base_tokens, plan.segments_to}, excluded);
    if (!loaded) {
      failed_step(turn, Step::segments);
      return loaded;
    }
  }
  if (plan.checkpoint != 0) {
    const Result<void> loaded = load_anchor(turn, Part::checkpoint, plan.checkpoint, excluded);
    if (!loaded) {
      failed_step(turn, Step::checkpoint);
      return loaded;
    }
  }
  return {};
}

// The words a turn could have are in a sequence that it cannot copy: they are saved now, and found.
void Core::save_source(TurnRecord& turn) {
  if (books_.traits.fork == Fork::shared || books_.traits.fork == Fork::copy || !books_.any() ||
      turn.reuse != Reuse::everything || (books_.segments == nullptr && books_.states == nullptr)) {
    return;
  }
  std::vector<LiveIndex::Match> matches;
  books_.live.match(turn.scope, turn.text.all(), matches);
  LiveIndex::Match best;
  for (const LiveIndex::Match& match : matches) {
    const SequenceRecord& record = books_.at(to_index(match.sequence));
    // A turn that will leave nothing does not leave it by this way.
    const bool leaves =
        !in_turn(record) || (record.turn->keep && allows(record.turn->reuse, Reuse::saved));
    if (record.turn != &turn && leaves && match.positions > best.positions) best = match;
  }
  const uint32_t gain = std::min(best.positions, turn.limit);
  if (gain <= turn.plan.available + books_.options.least_tokens) return;
  const uint32_t s = to_index(best.sequence);
  const Costs& costs = books_.meter.costs();
  const auto moving = [&](const MoveCost& cost) {
    return cost_of_moving(cost, books_.traits, books_.options.segment_tokens, {0, books_.known(s)},
                          false);
  };
  if (costs.compute({turn.plan.available, gain}) <= moving(costs.save) + moving(costs.load)) return;
  SequenceRecord& record = books_.at(s);
  if (record.capture < books_.known(s) && record.saved < books_.known(s)) {
    if (in_turn(record)) {
      record.tenant = record.turn->tenant;
      record.retain.assign(record.turn->retain.get());
    }
    books_.queue.add(s, books_.known(s));
  }
  if (record.capture != 0) (void)capturer_.capture(s);
}

Result<uint32_t> Core::execute(TurnRecord& turn) {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(books_.check_turn(turn));
  if (turn.phase != TurnPhase::planned) {
    return Error(Errc::wrong_state, "the plan was carried out already");
  }
  const uint64_t started = books_.clock->now_ns();
  const uint64_t waited = books_.stats.waited_ns;
  Excluded excluded;
  Result<void> done;
  try {
    if (!turn.bypass) save_source(turn);
    constexpr uint32_t kTries = 8;
    for (uint32_t tries = 0; tries <= kTries; ++tries) {
      if (tries != 0 || turn.epoch != books_.epoch)
        planner_.replan(turn, excluded, tries == kTries);
      done = try_plan(turn, excluded);
      if (done) break;
      turn.segments = {};
      turn.state = {};
      if (!empty(turn.sequence)) break;
      turn.generation = books_.at(turn.sequence).generation;
    }
  } catch (const std::bad_alloc&) {
    done = Error(Errc::out_of_memory, "no memory to carry the plan out");
    (void)empty(turn.sequence);
  }
  turn.segments = {};
  turn.state = {};
  turn.report.execute_ns = elapsed_ns(started, books_.clock->now_ns());
  turn.report.capture_ns = books_.stats.waited_ns - waited;
  if (!done) {
    turn.phase = TurnPhase::failed;
    turn.report.outcome = Outcome::refused;
    turn.report.reason = SequenceMiss::failed;
    turn.report.reused_tokens = 0;
    turn.report.evaluated_tokens = turn.prompt_tokens;
    turn.report.steps = {};
    books_.count(turn);
    return done.error();
  }
  drop_idle(turn);
  settle(turn);
  return turn.available;
}

void Core::settle(TurnRecord& turn) {
  const uint32_t n = turn.plan.available;
  SequenceRecord& record = books_.at(turn.sequence);
  turn.available = n;
  turn.computed = n;
  turn.phase = TurnPhase::ready;
  turn.generation = record.generation;
  books_.lexicon.release(record.text);
  record.scope.reset();
  record.dirty = false;
  record.shifted = false;
  // What was loaded is saved.
  if (books_.any() && turn.plan.segments_to != 0) record.saved = turn.plan.segments_to;
  books_.index_up_to(turn, n);
  SequenceReport& report = turn.report;
  report.reused_tokens = n;
  report.evaluated_tokens = turn.prompt_tokens - n;
  if (report.outcome != Outcome::bypassed) {
    report.outcome = n == 0                 ? Outcome::miss
                     : n == turn.full_limit ? Outcome::full_hit
                                            : Outcome::partial_hit;
    if (report.failures != 0 && n != turn.full_limit) report.reason = SequenceMiss::failed;
    if (n == turn.full_limit && n != 0) report.reason = SequenceMiss::none;
  }
  TurnPlanner::note_media(turn);
  books_.changed();
  books_.count(turn);
}

}  // namespace stemma::sequence
