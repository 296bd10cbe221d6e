// A turn's life after its plan.
#include <algorithm>
#include <new>

#include "base/check.h"
#include "base/vectors.h"
#include "cache/shared.h"
#include "sequence/capture_rules.h"
#include "sequence/core.h"
#include "sequence/room_promises.h"

namespace stemma::sequence {

Result<void> Core::check_ready(TurnRecord& turn) {
  STEMMA_TRY_VOID(books_.check_turn(turn));
  if (turn.phase == TurnPhase::ready) return {};
  return Error(Errc::wrong_state, turn.phase == TurnPhase::planned
                                      ? "execute() comes first"
                                      : "the sequence was lost: the turn can only end");
}

void Core::lose(TurnRecord& turn) {
  (void)clearer_.empty(turn.sequence);
  turn.generation = books_.at(turn.sequence).generation;
  turn.phase = TurnPhase::failed;
  turn.available = 0;
  turn.computed = 0;
  turn.stops.clear();
}

Result<void> Core::computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns) try {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(check_ready(turn));
  if (n > turn.text.length()) return Error(Errc::out_of_range, "more than the words known", n);
  if (n < turn.computed) return Error(Errc::out_of_range, "less than was computed before", n);
  const SequenceId id{turn.sequence};
  books_.room.prepare(id, id);
  const uint32_t unmeasured = std::min(turn.unmeasured, turn.computed);
  turn.unmeasured = spent_ns == kMeasuredLater ? unmeasured : kNoSequence;
  if (spent_ns != 0 && spent_ns != kMeasuredLater) {
    books_.meter.computed({unmeasured, n}, books_.cells_of_others(turn.sequence), spent_ns);
  }
  const Held before = books_.at(turn.sequence).held;
  const uint32_t from = turn.computed;
  books_.room.set_length(id, n);
  turn.computed = n;
  books_.index_up_to(turn, n);
  books_.changed();
  // Where a window or a state has got to, only the engine knows.
  if (books_.any()) {
    books_.at(turn.sequence).held = {0, n, true};
  } else {
    const Held after = books_.ask(turn.sequence);
    if (books_.traits.rewind == Rewind::window)
      books_.window_slack.learn(books_.traits, before, after, from);
  }
  if (turn.stops.empty() || turn.stops.front() > n) return {};
  // Boundaries that were reached: what cannot wait is saved now.
  const Held held = books_.at(turn.sequence).held;
  const bool true_end = held.whole && held.end == n && books_.known(turn.sequence) >= n;
  while (!turn.stops.empty() && turn.stops.front() <= n) {
    const uint32_t depth = turn.stops.front();
    turn.stops.erase(turn.stops.begin());
    const bool window = books_.use_checkpoints && books_.traits.rewind == Rewind::window;
    const bool reachable =
        true_end && (depth == n || (window && can_resume(books_.traits, held, depth)));
    capturer_.count(reachable ? capturer_.capture_anchor(turn.sequence, depth,
                                                         books_.touch_of(turn.retain, depth))
                              : Captured{CaptureFate::stale, 0});
  }
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to note what was computed");
}

Result<void> Core::extend(TurnRecord& turn, std::span<const Token> tokens) try {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(books_.check_turn(turn));
  const uint32_t before = turn.text.length();
  const uint64_t interval = keeps_anchors(books_, turn) ? turn.interval_tokens : 0;
  if (interval != 0) {
    base::make_room(turn.stops, (before + tokens.size()) / interval - before / interval);
  }
  STEMMA_TRY_VOID(Lexicon::append(tokens, turn.text));
  if (interval == 0) return {};
  // Nothing fails from here on. What follows the prompt may no longer be within the window.
  turn.late_tokens = std::min(turn.late_tokens, books_.window_slack.tokens());
  for (uint64_t depth = (before / interval + 1) * interval; depth <= turn.text.length();
       depth += interval) {
    if (worth_keeping(books_, static_cast<uint32_t>(depth)))
      turn.stops.push_back(static_cast<uint32_t>(depth));
  }
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for more tokens");
}

Result<void> Core::reserve(TurnRecord& turn, uint32_t tokens) try {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(check_ready(turn));
  const uint64_t needed = uint64_t{turn.text.length()} + tokens - turn.computed;
  // Nobody is emptied for what cannot be had.
  if (could_have(books_, turn.sequence, turn.computed, needed, kNoSequence) &&
      clearer_.make_room_for(turn.sequence, needed, kNoSequence, nullptr)) {
    turn.promised_end = std::max(turn.promised_end, turn.text.length() + tokens);
    return {};
  }
  return Error(Errc::out_of_blocks, "leased sequences leave too little of the context");
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to make room");
}

Result<void> Core::rewind(TurnRecord& turn, uint32_t n) try {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(check_ready(turn));
  if (n > turn.text.length()) return Error(Errc::out_of_range, "more than the words known", n);
  if (turn.text.floor(n) != n) return Error(Errc::out_of_range, "inside a media item", n);
  const SequenceId id{turn.sequence};
  if (n < turn.computed) {
    const Held held = books_.ask(turn.sequence);
    StateLease anchor;
    const bool direct =
        held.whole && held.end == turn.computed && can_resume(books_.traits, held, n);
    if (!direct && books_.use_checkpoints && !turn.approximate && !turn.bypass && n != 0) {
      const StateCandidate entry = books_.checkpoints->find(turn.scope, turn.text, n).exact;
      if (entry && entry.depth == n) {
        if (Result<StateLease> lease = books_.checkpoints->lease(entry)) anchor = *std::move(lease);
      }
    }
    if (!direct && !anchor) {
      return Error(Errc::unsupported, "the memory cannot go back there", n);
    }
    if (books_.at(turn.sequence).capture > n)
      books_.queue.remove(turn.sequence, CaptureFate::stale);
    capturer_.will_lose(turn.sequence, n);
    Result<void> done;
    if (direct) {
      const Books::Unlocked unlocked(books_);
      done = n == 0 ? books_.engine->clear(id) : books_.engine->trim(id, n);
    } else {
      Excluded excluded;
      turn.state = std::move(anchor);
      done = restorer_.load_anchor(turn, Part::checkpoint, n, excluded);
      turn.state = {};
    }
    if (done) books_.room.set_length(id, n);
    if (done && !books_.verify(turn.sequence, n)) {
      done = Error(Errc::corrupt, "the engine does not hold what it should");
    }
    if (!done) {
      lose(turn);
      return done;
    }
    books_.at(turn.sequence).saved = std::min(books_.at(turn.sequence).saved, n);
    if (books_.known(turn.sequence) > n) books_.live.trim(id, n);
    turn.computed = n;
    turn.available = std::min(turn.available, n);
  }
  books_.lexicon.cut(turn.text, n);
  std::erase_if(turn.stops, [&](uint32_t depth) { return depth > n; });
  turn.logits_span = {};  // No longer of its words; who has them may read them until the turn ends.
  books_.changed();
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to rewind");
}

Result<void> Core::attach_logits(TurnRecord& turn, uint32_t depth, std::span<const float> logits) {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(check_ready(turn));
  if (books_.logits == nullptr) return Error(Errc::unsupported, "logits_bytes is 0");
  if (logits.empty()) return Error(Errc::invalid_argument, "no logits");
  if (depth == 0 || depth > turn.computed || turn.text.floor(depth) != depth) {
    return Error(Errc::out_of_range, "no depth that was computed and ends a unit", depth);
  }
  if (turn.approximate && depth > books_.known(turn.sequence)) {
    return Error(Errc::unsupported, "the sequence was shifted: its logits are approximate");
  }
  if (!turn.keep || turn.forgotten || turn.reuse == Reuse::disabled) return {};
  const auto* bytes = reinterpret_cast<const uint8_t*>(logits.data());
  STEMMA_TRY(StateDraft draft,
             books_.logits->reserve(turn.scope, turn.text, depth, logits.size_bytes()));
  std::copy_n(bytes, logits.size_bytes(), draft.state().data());
  STEMMA_TRY_VOID(draft.commit(logits.size_bytes(), books_.touch_of(turn.retain, depth)));
  if (books_.options.listener == nullptr) return {};
  const Books::Unlocked unlocked(books_);
  key::KeyChain chain(turn.scope, turn.text.all(), turn.text.spans, books_.options.segment_tokens);
  notifier_.tell(turn.sequence, {EntryKind::logits, {0, depth}, {bytes, logits.size_bytes()}},
                 chain.at(depth));
  return {};
}

Result<Turn> Core::fork(TurnRecord& turn, const TurnOptions& options) {
  std::vector<Token> tokens;
  std::vector<MediaItem> media;
  Scope scope = turn.scope;
  try {
    const base::MutexLock lock(books_.mutex);
    STEMMA_TRY_VOID(check_ready(turn));
    if (turn.bypass) {
      return Error(Errc::unsupported, "a bypassed turn holds something else than its words");
    }
    if (turn.approximate) {
      return Error(Errc::unsupported, "the sequence was shifted: it cannot be forked exactly");
    }
    const Prompt prompt = turn.text.prompt(turn.text.floor(turn.computed));
    tokens.assign(prompt.tokens.begin(), prompt.tokens.end());
    media.assign(prompt.media.begin(), prompt.media.end());
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory to fork");
  }
  STEMMA_TRY(Turn twin, begin(scope, {tokens, media}, options, true));
  STEMMA_TRY_VOID(twin.execute());
  return twin;
}

Result<void> Core::shift(TurnRecord& turn, uint32_t keep, uint32_t discard) try {
  const base::MutexLock lock(books_.mutex);
  STEMMA_TRY_VOID(check_ready(turn));
  if (!books_.traits.shift) return Error(Errc::unsupported, "the engine cannot shift");
  if (discard == 0) return Error(Errc::invalid_argument, "nothing to discard");
  if (uint64_t{keep} + discard > turn.computed || turn.text.floor(keep) != keep) {
    return Error(Errc::out_of_range, "no range that was computed", keep);
  }
  if (!turn.text.spans.empty() && turn.text.spans.back().end > keep) {
    return Error(Errc::unsupported, "a media item would be moved");
  }
  const SequenceId id{turn.sequence};
  const std::vector<Token> rest(turn.text.tokens.begin() + keep + discard, turn.text.tokens.end());
  books_.room.prepare(id, id);
  if (books_.at(turn.sequence).capture > keep)
    books_.queue.remove(turn.sequence, CaptureFate::stale);
  capturer_.will_lose(turn.sequence, keep);
  Result<void> done;
  {
    const Books::Unlocked unlocked(books_);
    done = books_.engine->shift(id, keep, discard);
  }
  const Held held = books_.ask(turn.sequence);
  if (done && (!held.whole || held.end != turn.computed - discard)) {
    done = Error(Errc::corrupt, "the engine does not hold what it should");
  }
  if (!done) {
    lose(turn);
    return done;
  }
  // What was shared with others is its own now, at worst; what it holds is what matters here.
  books_.room.set_length(id, keep);
  books_.room.set_length(id, turn.computed - discard);
  turn.approximate = true;
  turn.computed -= discard;
  turn.available = std::min(turn.available, keep);
  books_.at(turn.sequence).saved = std::min(books_.at(turn.sequence).saved, keep);
  books_.live.trim(id, std::min(keep, books_.known(turn.sequence)));
  books_.at(turn.sequence).shifted = true;
  books_.lexicon.cut(turn.text, keep);
  (void)Lexicon::append(rest, turn.text);
  turn.stops.clear();
  turn.logits_span = {};  // No longer of its words; who has them may read them until the turn ends.
  books_.changed();
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to shift");
}

// ---- The end -----------------------------------------------------------------------------------

void Core::end_turn(TurnRecord& turn) noexcept {
  books_.meter.turn_ended();
  books_.lexicon.release(turn.text);
  turn.segments = {};
  turn.state = {};
  turn.logits = {};
  leave_session(turn);
}

void Core::give_back(TurnRecord& turn) noexcept {
  SequenceRecord& record = books_.at(turn.sequence);
  record.turn = nullptr;
  books_.set_state(turn.sequence, turn.was);
  if (!books_.traits.unified) return;
  // Those who were carried out meanwhile found no room where this turn was to let go of some. Who is yet to
  // be carried out makes it then.
  uint64_t owed = 0;
  for (const SequenceRecord& other : books_.records) {
    if (!in_turn(other)) continue;
    owed += other.turn->promised_end - std::min(other.turn->promised_end, other.turn->computed);
  }
  try {
    (void)clearer_.free_up(turn.sequence, owed, kNoSequence, nullptr);
  } catch (const std::bad_alloc&) {
    // As if the engine had not let go of it.
  }
}

void Core::leave(TurnRecord& turn) {
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

Result<void> Core::finish(TurnRecord& turn, const Retain* retain) try {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone || turn.sequence == kNoSequence) {
    const Result<void> stale = books_.check_turn(turn);
    end_turn(turn);
    return stale;
  }
  if (retain != nullptr) {
    STEMMA_TRY_VOID(cache::check_retain(*retain));
    const SessionId session = turn.retain.retain.session;
    turn.retain.assign(*retain);
    if (turn.retain.retain.session == kNoSession) turn.retain.retain.session = session;
  }
  if (!turn.counted) {
    // Never executed: with the logits nothing had to be.
    turn.report.outcome = turn.logits ? Outcome::full_hit : Outcome::refused;
    turn.report.steps = {};
    turn.report.reused_tokens = turn.logits ? turn.prompt_tokens : 0;
    turn.report.evaluated_tokens = turn.prompt_tokens - turn.report.reused_tokens;
    turn.report.reason = SequenceMiss::none;
    books_.count(turn);
  }
  if (turn.phase == TurnPhase::planned) {
    give_back(turn);
  } else if (turn.keep || !step_back(turn)) {
    leave(turn);
  }
  end_turn(turn);
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to finish");
}

bool Core::step_back(TurnRecord& turn) {
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

Result<void> Core::abandon(TurnRecord& turn) {
  const base::MutexLock lock(books_.mutex);
  if (books_.gone || turn.sequence == kNoSequence) {
    const Result<void> stale = books_.check_turn(turn);
    end_turn(turn);
    return stale;
  }
  if (!turn.counted) {
    turn.report.outcome = Outcome::refused;
    turn.report.reason = SequenceMiss::none;
    turn.report.steps = {};
    turn.report.reused_tokens = 0;
    turn.report.evaluated_tokens = turn.prompt_tokens;
    books_.count(turn);
  }
  const uint32_t s = turn.sequence;
  SequenceRecord& record = books_.at(s);
  if (turn.phase == TurnPhase::planned) {
    give_back(turn);
  } else {
    // What was there before this turn is not this turn's to lose.
    if (!step_back(turn)) {
      record.turn = nullptr;
      clearer_.release(s);
    }
  }
  end_turn(turn);
  return {};
}

void Core::destroy(TurnRecord* turn) noexcept {
  delete turn;
  release_owner();
}

}  // namespace stemma::sequence
