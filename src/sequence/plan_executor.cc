#include "sequence/plan_executor.h"

#include <algorithm>
#include <new>
#include <vector>

#include "sequence/room_promises.h"

namespace stemma::sequence {

namespace {

constexpr Error kNotThere(Errc::corrupt, "the engine does not hold what it should");

}  // namespace

Result<uint32_t> PlanExecutor::execute(TurnRecord& turn) {
  const uint64_t started = books_.clock->now_ns();
  const uint64_t waited = books_.stats.waited_ns;
  Result<void> done;
  try {
    done = try_plans(turn);
  } catch (const std::bad_alloc&) {
    done = Error(Errc::out_of_memory, "no memory to carry the plan out");
    (void)clearer_.empty(turn.sequence);
  }
  turn.segments = {};
  turn.state = {};
  turn.report.execute_ns = elapsed_ns(started, books_.clock->now_ns());
  turn.report.capture_ns = books_.stats.waited_ns - waited;
  if (!done) {
    fail(turn);
    return done.error();
  }
  idle_.drop_for(turn);
  settle(turn);
  return turn.available;
}

Result<void> PlanExecutor::try_plans(TurnRecord& turn) {
  Excluded excluded;
  Result<void> done;
  if (!turn.bypass) save_source(turn);
  constexpr uint32_t kTries = 8;
  for (uint32_t tries = 0; tries <= kTries; ++tries) {
    if (tries != 0 || turn.epoch != books_.epoch) {
      planner_.replan(turn, excluded, tries == kTries);
    }
    done = try_plan(turn, excluded);
    if (done) break;
    turn.segments = {};
    turn.state = {};
    if (!clearer_.empty(turn.sequence)) break;
    turn.generation = books_.at(turn.sequence).generation;
  }
  return done;
}

void PlanExecutor::fail(TurnRecord& turn) {
  turn.phase = TurnPhase::failed;
  turn.report.outcome = Outcome::refused;
  turn.report.reason = SequenceMiss::failed;
  turn.report.reused_tokens = 0;
  turn.report.evaluated_tokens = turn.prompt_tokens;
  turn.report.steps = {};
  books_.count(turn);
}

Result<void> PlanExecutor::try_plan(TurnRecord& turn, Excluded& excluded) {
  const Plan plan = turn.plan;
  planner_.describe(turn);
  STEMMA_TRY_VOID(lay_base(turn, excluded));
  if (plan.base == Base::stay) {
    (void)clearer_.make_room_for(turn.sequence, needs_room(books_, turn, plan), kNoSequence,
                                 &turn.report);
  }
  if (plan.state_depth != 0) {
    const Result<void> loaded = load_state(turn, excluded);
    if (!loaded) failed_step(turn, Step::state);
    return loaded;
  }
  if (plan.segments_to != 0) {
    const Range range{plan.base_tokens, plan.segments_to};
    const Result<void> loaded = restorer_.load_segments(turn, range, excluded);
    if (!loaded) {
      failed_step(turn, Step::segments);
      return loaded;
    }
  }
  if (plan.checkpoint != 0) {
    const Result<void> loaded =
        restorer_.load_anchor(turn, Part::checkpoint, plan.checkpoint, excluded);
    if (!loaded) {
      failed_step(turn, Step::checkpoint);
      return loaded;
    }
  }
  return {};
}

// A state longer than the prompt is cut where they part.
Result<void> PlanExecutor::load_state(TurnRecord& turn, Excluded& excluded) {
  const Plan& plan = turn.plan;
  STEMMA_TRY_VOID(restorer_.load_anchor(turn, Part::state, plan.state_depth, excluded));
  if (plan.available >= plan.state_depth) return {};
  const SequenceId id{turn.sequence};
  Result<void> cut;
  {
    const Books::Unlocked unlocked(books_);
    cut = books_.engine->trim(id, plan.available);
  }
  if (cut) books_.room.set_length(id, plan.available);
  if (cut && !books_.verify(turn.sequence, plan.available)) cut = kNotThere;
  if (!cut) excluded.states = true;
  return cut;
}

Result<void> PlanExecutor::lay_base(TurnRecord& turn, Excluded& excluded) {
  if (turn.plan.base == Base::stay) return stay(turn);
  STEMMA_TRY_VOID(clear_for(turn));
  return turn.plan.base == Base::fork ? copy(turn, excluded) : Result<void>();
}

Result<void> PlanExecutor::stay(TurnRecord& turn) {
  const Plan& plan = turn.plan;
  const uint32_t s = turn.sequence;
  const SequenceId id{s};
  SequenceRecord& record = books_.at(s);
  // The part to be cut, and the end of a memory that cannot go back, can only be saved now. The
  // request waits for it, so it must be worth that, and is one step at most. The rest can be saved
  // later.
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
  // Loading a checkpoint removes what lies beyond it.
  if (cut && (plan.checkpoint == 0 || plan.segments_to != 0)) {
    Result<void> trimmed;
    {
      const Books::Unlocked unlocked(books_);
      trimmed = books_.engine->trim(id, plan.base_tokens);
    }
    if (trimmed) books_.room.set_length(id, plan.base_tokens);
    if (!trimmed || (plan.checkpoint == 0 && !books_.verify(s, plan.base_tokens))) {
      failed_step(turn, Step::trim);
      return trimmed ? Result<void>(kNotThere) : trimmed;
    }
  } else if (plan.checkpoint == 0 && !books_.verify(s, plan.base_tokens)) {
    failed_step(turn, Step::stay);
    return kNotThere;
  }
  books_.live.trim(id, std::min(plan.base_tokens, books_.known(s)));
  return {};
}

Result<void> PlanExecutor::clear_for(TurnRecord& turn) {
  const Plan& plan = turn.plan;
  const uint32_t s = turn.sequence;
  const SequenceId id{s};
  const SequenceRecord& record = books_.at(s);
  // Left over, or another conversation's: saved first if that is worth it, then emptied.
  if (books_.room.length(id) != 0 || record.dirty || books_.ask(s) != Held{}) {
    if (books_.room.length(id) != 0) {
      if (!clearer_.retire(s, &turn.report))
        return Error(Errc::wrong_state, "the sequence is not cleared");
    } else if (!clearer_.empty(s)) {
      return Error(Errc::wrong_state, "the engine does not clear the sequence", s);
    }
    turn.generation = record.generation;
  }
  (void)clearer_.make_room_for(s, needs_room(books_, turn, plan), plan.source, &turn.report);
  return {};
}

Result<void> PlanExecutor::copy(TurnRecord& turn, Excluded& excluded) {
  const Plan& plan = turn.plan;
  const uint32_t s = turn.sequence;
  const SequenceId id{s};
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
    return copied ? Result<void>(kNotThere) : copied;
  }
  if (books_.traits.fork == Fork::shared) {
    books_.meter.copied(plan.base_tokens, elapsed_ns(started, books_.clock->now_ns()));
  }
  return {};
}

// Saves words that this turn could use from a sequence it cannot copy, so that they are found.
void PlanExecutor::save_source(TurnRecord& turn) {
  if (books_.traits.fork == Fork::shared || books_.traits.fork == Fork::copy || !books_.any() ||
      turn.reuse != Reuse::everything || (books_.segments == nullptr && books_.states == nullptr)) {
    return;
  }
  std::vector<LiveIndex::Match> matches;
  books_.live.match(turn.scope, turn.text.all(), matches);
  LiveIndex::Match best;
  for (const LiveIndex::Match& match : matches) {
    const SequenceRecord& record = books_.at(to_index(match.sequence));
    // A turn that must not leave anything must not leave it this way either.
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

void PlanExecutor::settle(TurnRecord& turn) {
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
  if (turn.plan.base != Base::stay) record.laid = ++books_.laid;
  // What was loaded is already saved.
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

void PlanExecutor::failed_step(TurnRecord& turn, Step step) noexcept {
  ++turn.report.failures;
  ++books_.stats.failures[static_cast<size_t>(step)];
}

}  // namespace stemma::sequence
