#include "sequence/clearer.h"

#include "sequence/capture_rules.h"
#include "sequence/room_promises.h"

namespace stemma::sequence {

void Clearer::forget(uint32_t sequence) noexcept {
  SequenceRecord& record = books_.at(sequence);
  const SequenceId id{sequence};
  if (books_.room.length(id) != 0 || books_.live.length(id) != 0 || record.dirty)
    ++record.generation;
  if (record.capture != 0) books_.queue.remove(sequence, CaptureFate::stale);
  capturer_.will_lose(sequence, 0);
  books_.live.clear(id);
  books_.lexicon.release(record.text);
  record.scope.reset();
  record.session = kNoSession;
  record.held = {};
  record.shifted = false;
  record.saved = 0;
  record.dear = false;
  books_.changed();
}

bool Clearer::empty(uint32_t sequence) {
  forget(sequence);
  SequenceRecord& record = books_.at(sequence);
  record.dirty = false;
  for (uint32_t tries = 0; tries < 2; ++tries) {
    {
      const Books::Unlocked unlocked(books_);
      // Checked below.
      (void)books_.engine->clear(SequenceId{sequence});
    }
    if (books_.ask(sequence) == Held{}) {
      books_.room.set_length(SequenceId{sequence}, 0);
      return true;
    }
  }
  record.dirty = true;
  ++books_.stats.broken;
  return false;
}

void Clearer::release(uint32_t sequence) {
  books_.set_state(sequence, empty(sequence) ? SequenceState::free : SequenceState::broken);
}

void Clearer::lose(TurnRecord& turn) {
  (void)empty(turn.sequence);
  turn.generation = books_.at(turn.sequence).generation;
  turn.phase = TurnPhase::failed;
  turn.available = 0;
  turn.computed = 0;
  turn.stops.clear();
}

bool Clearer::retire(uint32_t sequence, SequenceReport* report) {
  SequenceRecord& record = books_.at(sequence);
  if (record.capture != 0 && worth_saving_first(books_, sequence)) {
    const Captured captured = capturer_.capture_in_a_step(sequence);
    if (captured.bytes != 0) ++books_.stats.victims_saved;
    if (report != nullptr) report->saved_bytes += captured.bytes;
  }
  capturer_.read_on(sequence);
  ++books_.stats.victims;
  if (report != nullptr) ++report->victims;
  const bool done = empty(sequence);
  if (record.state == SequenceState::idle) {
    books_.set_state(sequence, done ? SequenceState::free : SequenceState::broken);
  }
  return done;
}

bool Clearer::mend() {
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    if (books_.records[s].state != SequenceState::broken || !empty(s)) continue;
    books_.set_state(s, SequenceState::free);
    return true;
  }
  return false;
}

bool Clearer::make_room_for(uint32_t sequence, uint64_t tokens, uint32_t spared,
                            SequenceReport* report) {
  return free_up(sequence, tokens + promised_to_others(books_, sequence), spared, report);
}

bool Clearer::free_up(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report) {
  while (books_.room.free_for(SequenceId{sequence}) < tokens) {
    uint32_t victim = books_.idle_order.front(0);
    while (victim != base::IndexLists::kNone &&
           (victim == spared || is_source(books_, victim, sequence))) {
      victim = books_.idle_order.after(victim);
    }
    // If each sequence has its own context, emptying others gains nothing.
    if (!books_.traits.unified) return false;
    if (victim != base::IndexLists::kNone) {
      (void)retire(victim, report);
    } else if (!mend()) {
      return false;
    }
  }
  return true;
}

}  // namespace stemma::sequence
