#include "sequence/turn_end.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/check_options.h"
#include "sequence/capture_rules.h"

namespace stemma::sequence {

Result<void> TurnEnd::finish(TurnRecord& turn, const Retain* retain) try {
  if (books_.gone || turn.sequence == kNoSequence) {
    const Result<void> stale = books_.check_turn(turn);
    end(turn);
    return stale;
  }
  if (retain != nullptr) {
    STEMMA_TRY_VOID(cache::check_retain(*retain));
    const SessionId session = turn.retain.retain.session;
    turn.retain.assign(*retain);
    if (turn.retain.retain.session == kNoSession) turn.retain.retain.session = session;
  }
  // Never executed: with the logits there was nothing to do.
  if (!turn.counted) count_unexecuted(turn, static_cast<bool>(turn.logits));
  if (turn.phase == TurnPhase::planned) {
    give_back(turn);
  } else if (turn.keep || !step_back(turn)) {
    leave(turn);
  }
  end(turn);
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to finish");
}

Result<void> TurnEnd::abandon(TurnRecord& turn) {
  if (books_.gone || turn.sequence == kNoSequence) {
    const Result<void> stale = books_.check_turn(turn);
    end(turn);
    return stale;
  }
  if (!turn.counted) count_unexecuted(turn, false);
  const uint32_t s = turn.sequence;
  SequenceRecord& record = books_.at(s);
  if (turn.phase == TurnPhase::planned) {
    give_back(turn);
  } else {
    // This turn must not lose what was there before it.
    if (!step_back(turn)) {
      record.turn = nullptr;
      clearer_.release(s);
    }
  }
  end(turn);
  return {};
}

void TurnEnd::count_unexecuted(TurnRecord& turn, bool served) noexcept {
  turn.report.outcome = served ? Outcome::full_hit : Outcome::refused;
  turn.report.reason = SequenceMiss::none;
  turn.report.steps = {};
  turn.report.reused_tokens = served ? turn.prompt_tokens : 0;
  turn.report.evaluated_tokens = turn.prompt_tokens - turn.report.reused_tokens;
  books_.count(turn);
}

void TurnEnd::leave(TurnRecord& turn) {
  const uint32_t s = turn.sequence;
  SequenceRecord& record = books_.at(s);
  const bool live = allows(turn.reuse, Reuse::live);
  const bool saves =
      allows(turn.reuse, Reuse::saved) &&
      (books_.segments != nullptr || books_.states != nullptr || books_.checkpoints != nullptr);
  const uint32_t depth = turn.text.floor(std::min(turn.computed, books_.known(s)));
  const bool stays = turn.keep && !turn.forgotten && depth != 0 && (live || saves);
  if (stays) {
    record.scope = turn.scope;
    books_.lexicon.cut(turn.text, turn.computed);
    std::swap(record.text, turn.text);
    record.tenant = turn.tenant;
    std::swap(record.retain, turn.retain);
    record.turn = nullptr;
    if (saves && worth_keeping(books_, depth)) books_.queue.add(s, depth);
  }
  record.turn = nullptr;
  if (stays && live) {
    record.session = kNoSession;
    if (turn.session != SessionTable::kNone) {
      Session& session = books_.sessions[turn.session];
      record.session = session.id;
      session.sequence = SequenceId{s};
      session.generation = record.generation;
      session.length = turn.computed;
      session.last_used_ns = books_.clock->now_ns();
    }
    books_.set_state(s, SequenceState::idle);
    return;
  }
  if (stays && record.capture != 0) (void)capturer_.capture(s);
  clearer_.release(s);
}

void TurnEnd::give_back(TurnRecord& turn) noexcept {
  SequenceRecord& record = books_.at(turn.sequence);
  record.turn = nullptr;
  books_.set_state(turn.sequence, turn.was);
  if (!books_.traits.unified) return;
  // Turns executed in the meantime had no room where this turn was to free some, so free it now.
  // Turns not yet executed free their own.
  uint64_t owed = 0;
  for (const SequenceRecord& other : books_.records) {
    if (!in_turn(other)) continue;
    owed += other.turn->promised_end - std::min(other.turn->promised_end, other.turn->computed);
  }
  try {
    (void)clearer_.free_up(turn.sequence, owed, kNoSequence, nullptr);
  } catch (const std::bad_alloc&) {
    // Handled as if the engine had not cleared it.
  }
}

bool TurnEnd::step_back(TurnRecord& turn) {
  const uint32_t s = turn.sequence;
  const SequenceId id{s};
  SequenceRecord& record = books_.at(s);
  const uint32_t n = turn.available;
  if (turn.phase != TurnPhase::ready || turn.plan.base != Base::stay || turn.approximate ||
      turn.forgotten || n == 0 || n != turn.plan.base_tokens || !allows(turn.reuse, Reuse::live)) {
    return false;
  }
  const Held held = books_.ask(s);
  if (!held.whole || !can_resume(books_.traits, held, n)) return false;
  capturer_.will_lose(s, n);
  if (held.end > n) {
    const Books::Unlocked unlocked(books_);
    (void)books_.engine->trim(id, n);
  }
  if (!books_.verify(s, n)) return false;
  books_.room.set_length(id, n);
  if (books_.known(s) > n) books_.live.trim(id, n);
  record.scope = turn.scope;
  books_.lexicon.cut(turn.text, n);
  std::swap(record.text, turn.text);
  record.turn = nullptr;
  if (record.capture > n) books_.queue.remove(s, CaptureFate::stale);
  books_.set_state(s, SequenceState::idle);
  return true;
}

void TurnEnd::end(TurnRecord& turn) noexcept {
  books_.meter.turn_ended();
  books_.lexicon.release(turn.text);
  turn.segments = {};
  turn.state = {};
  turn.logits = {};
  sessions_.leave_session(turn);
}

}  // namespace stemma::sequence
