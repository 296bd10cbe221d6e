// Forgetting: contexts, scopes, what was saved, what follows a prefix, sessions.
#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"
#include "sequence/core.h"

namespace stemma::sequence {

void Core::forget_context() {
  const base::MutexLock lock(mutex_);
  if (gone_) return;
  for (uint32_t s = 0; s < records_.size(); ++s) {
    SequenceRecord& record = at(s);
    if (record.turn != nullptr) {
      record.turn->sequence = kNoSequence;
      leave_session(*record.turn);
      record.turn->segments = {};
      record.turn->state = {};
      record.turn = nullptr;
      record.dirty = true;  // Its turn may have written anything: a new generation.
    }
    forget(s);
    record.dirty = false;
    room_.set_length(SequenceId{s}, 0);
    set_state(s, SequenceState::free);
  }
}

void Core::drop_scope(const Scope& scope) {
  const base::MutexLock lock(mutex_);
  if (gone_) return;
  pause_run();
  if (segments_ != nullptr) segments_->drop_scope(scope);
  for (StateStore* store : {states_.get(), checkpoints_.get(), logits_.get()}) {
    if (store != nullptr) store->drop_scope(scope);
  }
  for (uint32_t s = 0; s < records_.size(); ++s) {
    SequenceRecord& record = at(s);
    if (record.turn != nullptr && record.turn->scope == scope) record.turn->forgotten = true;
    if (in_turn(record)) {
      if (!record.turn->forgotten) continue;
      live_.clear(SequenceId{s});
      if (record.capture != 0) unqueue(s, CaptureFate::stale);
      continue;
    }
    if (!record.scope || *record.scope != scope) continue;
    // Nobody finds it any more; the engine lets go of it when there is a moment.
    if (record.capture != 0) unqueue(s, CaptureFate::stale);
    live_.clear(SequenceId{s});
    if (record.state == SequenceState::idle) {
      set_state(s, empty(s) ? SequenceState::free : SequenceState::broken);
    }
  }
  changed();
}

void Core::drop_saved() {
  const base::MutexLock lock(mutex_);
  if (gone_) return;
  pause_run();
  if (segments_ != nullptr) segments_->drop_all();
  for (StateStore* store : {states_.get(), checkpoints_.get(), logits_.get()}) {
    if (store != nullptr) store->clear();
  }
  for (SequenceRecord& record : records_) record.saved = 0;
  changed();
}

// ---- What follows a prefix ---------------------------------------------------------------------

uint32_t Core::cut_back(uint32_t sequence, uint32_t n) {
  SequenceRecord& record = at(sequence);
  const SequenceId id{sequence};
  const bool waited = record.capture != 0;
  n = record.text.floor(n);
  if (record.capture > n) unqueue(sequence, CaptureFate::stale);
  will_lose(sequence, n);
  const Held held = ask(sequence);
  if (n != 0 && held.whole && held.end == room_.length(id) &&
      can_resume(traits_, resumable_part(sequence), n)) {
    {
      const Unlocked unlocked(*this);
      // Whether it worked is seen below.
      (void)engine_->trim(id, n);
    }
    if (verify(sequence, n)) {
      room_.set_length(id, n);
      live_.trim(id, n);
      lexicon_.cut(record.text, n);
      record.saved = std::min(record.saved, n);
      record.session = kNoSession;  // It is no longer what its last turn left.
      if (waited && record.capture == 0 && record.saved < n) queue(sequence, n);
      return n;
    }
  }
  set_state(sequence, empty(sequence) ? SequenceState::free : SequenceState::broken);
  return 0;
}

Result<Truncated> Core::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  const base::MutexLock lock(mutex_);
  if (gone_) return Error(Errc::stale, "the cache is gone");
  Text text;
  STEMMA_TRY_VOID(lexicon_.read(prompt, text));
  Result<Truncated> done = Error(Errc::out_of_memory, "no memory to truncate");
  try {
    done = truncate(scope, text, keep);
  } catch (const std::bad_alloc&) {
    // As it stands.
  }
  lexicon_.release(text);
  return done;
}

Result<Truncated> Core::truncate(const Scope& scope, const Text& text, uint32_t keep) {
  if (keep > text.length()) return Error(Errc::out_of_range, "more than the prompt has", keep);
  if (text.floor(keep) != keep) return Error(Errc::out_of_range, "inside a media item", keep);
  // What goes is what begins with these words and is longer than `keep`.
  uint32_t end = std::min(keep + 1, text.length());
  while (text.floor(end) != end) ++end;
  const std::span<const uint32_t> words = text.all().first(end);
  pause_run();

  // What needs memory comes first.
  const std::array<StateStore*, 3> stores{states_.get(), checkpoints_.get(), logits_.get()};
  std::array<std::vector<uint32_t>, 3> anchors;
  for (size_t i = 0; i < stores.size(); ++i) {
    if (stores[i] != nullptr) stores[i]->beyond(scope, words, keep, anchors[i]);
  }
  std::vector<LiveIndex::Match> matches;
  live_.match(scope, words, matches);
  if (end == 0) {
    for (uint32_t s = 0; s < records_.size(); ++s) {
      if (known(s) != 0 && scope_of(s) == scope) matches.push_back({SequenceId{s}, 0});
    }
  }
  Truncated out;
  if (segments_ != nullptr) {
    STEMMA_TRY(out.segments, segments_->truncate(scope, text.prompt(end), keep));
  }

  for (size_t i = 0; i < stores.size(); ++i) {
    if (stores[i] != nullptr) stores[i]->drop(anchors[i]);
  }
  out.states = static_cast<uint32_t>(anchors[0].size());
  out.checkpoints = static_cast<uint32_t>(anchors[1].size());
  out.logits = static_cast<uint32_t>(anchors[2].size());
  const uint32_t still_saved = segments_ != nullptr ? keep - keep % options_.segment_tokens : keep;
  for (const LiveIndex::Match& match : matches) {
    const uint32_t s = to_index(match.sequence);
    at(s).saved = std::min(at(s).saved, still_saved);
    const uint32_t before = known(s);
    if (match.positions < end || before <= keep) continue;
    if (at(s).state != SequenceState::idle) {
      ++out.in_use;
      continue;
    }
    ++out.sequences;
    out.live_tokens += before - cut_back(s, keep);
  }
  changed();
  return out;
}

// ---- Sessions ----------------------------------------------------------------------------------

void Core::end_session(std::string_view name) {
  const base::MutexLock lock(mutex_);
  const uint32_t session = sessions_.find(name);
  if (gone_ || session == SessionTable::kNone) return;
  sessions_[session].over = true;
  if (sessions_[session].in_flight == 0) close_session(session);
}

void Core::leave_session(TurnRecord& turn) noexcept {
  const uint32_t session = std::exchange(turn.session, SessionTable::kNone);
  if (session == SessionTable::kNone || --sessions_[session].in_flight != 0) return;
  if (sessions_[session].over) close_session(session);
}

void Core::close_session(uint32_t session) noexcept {
  if (segments_ != nullptr) segments_->end_session(sessions_[session].id);
  for (StateStore* store : {states_.get(), checkpoints_.get(), logits_.get()}) {
    if (store != nullptr) store->end_session(sessions_[session].id);
  }
  for (uint32_t s = 0; s < records_.size(); ++s) {
    if (at(s).session != sessions_[session].id) continue;
    at(s).session = kNoSession;
    at(s).retain.retain.phase = SessionPhase::ended;  // Of what is still to be saved.
    if (at(s).state != SequenceState::idle || lists_.front(0) == s) continue;
    lists_.unlink(s);
    lists_.insert_before(lists_.front(0), s);
  }
  sessions_.forget(session);
  changed();
}

}  // namespace stemma::sequence
