#include "sequence/turn_progress.h"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/vectors.h"
#include "sequence/capture_rules.h"
#include "sequence/room_promises.h"
#include "sequence/stops.h"

namespace stemma::sequence {

Result<void> TurnProgress::check_ready(const TurnRecord& turn) {
  STEMMA_TRY_VOID(books_.check_turn(turn));
  if (turn.phase == TurnPhase::ready) return {};
  return Error(Errc::wrong_state, turn.phase == TurnPhase::planned
                                      ? "execute() comes first"
                                      : "the sequence was lost: the turn can only end");
}

Result<void> TurnProgress::computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns) try {
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
  // Only the engine knows how far a window or a state has got.
  if (books_.any()) {
    books_.at(turn.sequence).held = {0, n, true};
  } else {
    const Held after = books_.ask(turn.sequence);
    if (books_.traits.rewind == Rewind::window)
      books_.window_slack.learn(books_.traits, before, after, from);
  }
  keep_stops(turn, n);
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to note what was computed");
}

void TurnProgress::keep_stops(TurnRecord& turn, uint32_t n) {
  if (turn.stops.empty() || turn.stops.front() > n) return;
  // Stops that were reached: save now what cannot wait.
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
}

Result<void> TurnProgress::extend(TurnRecord& turn, std::span<const Token> tokens) try {
  STEMMA_TRY_VOID(books_.check_turn(turn));
  const uint32_t before = turn.text.length();
  const uint64_t interval = keeps_anchors(books_, turn) ? turn.interval_tokens : 0;
  if (interval != 0) {
    base::make_room(turn.stops, (before + tokens.size()) / interval - before / interval);
  }
  STEMMA_TRY_VOID(Lexicon::append(tokens, turn.text));
  if (interval == 0) return {};
  // Nothing fails from here on. The window may no longer hold what follows the prompt.
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

Result<void> TurnProgress::reserve(TurnRecord& turn, uint32_t tokens) try {
  STEMMA_TRY_VOID(check_ready(turn));
  const uint64_t needed = uint64_t{turn.text.length()} + tokens - turn.computed;
  // Do not empty any sequence if that would not make enough room.
  if (could_have(books_, turn.sequence, turn.computed, needed, kNoSequence) &&
      clearer_.make_room_for(turn.sequence, needed, kNoSequence, nullptr)) {
    turn.promised_end = std::max(turn.promised_end, turn.text.length() + tokens);
    return {};
  }
  return Error(Errc::out_of_blocks, "leased sequences leave too little of the context");
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to make room");
}

Result<void> TurnProgress::rewind(TurnRecord& turn, uint32_t n) try {
  STEMMA_TRY_VOID(check_ready(turn));
  if (n > turn.text.length()) return Error(Errc::out_of_range, "more than the words known", n);
  if (turn.text.floor(n) != n) return Error(Errc::out_of_range, "inside a media item", n);
  if (n < turn.computed) STEMMA_TRY_VOID(go_back(turn, n));
  books_.lexicon.cut(turn.text, n);
  std::erase_if(turn.stops, [&](uint32_t depth) { return depth > n; });
  turn.logits_span = {};  // No longer valid here; a caller may read its span until the turn ends.
  books_.changed();
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to rewind");
}

Result<void> TurnProgress::go_back(TurnRecord& turn, uint32_t n) {
  const SequenceId id{turn.sequence};
  const Held held = books_.ask(turn.sequence);
  StateLease anchor;
  const bool direct = held.whole && held.end == turn.computed && can_resume(books_.traits, held, n);
  if (!direct && books_.use_checkpoints && !turn.approximate && !turn.bypass && n != 0) {
    const StateCandidate entry = books_.checkpoints->find(turn.scope, turn.text, n).exact;
    if (entry && entry.depth == n) {
      if (Result<StateLease> lease = books_.checkpoints->lease(entry)) anchor = *std::move(lease);
    }
  }
  if (!direct && !anchor) {
    return Error(Errc::unsupported, "the memory cannot go back there", n);
  }
  if (books_.at(turn.sequence).capture > n) books_.queue.remove(turn.sequence, CaptureFate::stale);
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
    clearer_.lose(turn);
    return done;
  }
  books_.at(turn.sequence).saved = std::min(books_.at(turn.sequence).saved, n);
  if (books_.known(turn.sequence) > n) books_.live.trim(id, n);
  turn.computed = n;
  turn.available = std::min(turn.available, n);
  return {};
}

Result<void> TurnProgress::attach_logits(TurnRecord& turn, uint32_t depth,
                                         std::span<const float> logits) {
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

Result<void> TurnProgress::shift(TurnRecord& turn, uint32_t keep, uint32_t discard) try {
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
    clearer_.lose(turn);
    return done;
  }
  // Shared cells may now be its own. Only the cells it holds matter here.
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
  turn.logits_span = {};  // No longer valid here; a caller may read its span until the turn ends.
  books_.changed();
  return {};
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory to shift");
}

}  // namespace stemma::sequence
