#include "sequence/forgetter.h"

#include <algorithm>
#include <array>
#include <new>
#include <vector>

namespace stemma::sequence {

void Forgetter::forget_context() {
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    SequenceRecord& record = books_.at(s);
    if (record.turn != nullptr) {
      record.turn->sequence = kNoSequence;
      sessions_.leave_session(*record.turn);
      record.turn->segments = {};
      record.turn->state = {};
      record.turn = nullptr;
      record.dirty = true;  // Its turn may have written anything: a new generation.
    }
    clearer_.forget(s);
    record.dirty = false;
    books_.room.set_length(SequenceId{s}, 0);
    books_.set_state(s, SequenceState::free);
  }
}

void Forgetter::drop_scope(const Scope& scope) {
  capturer_.pause();
  if (books_.segments != nullptr) books_.segments->drop_scope(scope);
  for (StateStore* store : {books_.states.get(), books_.checkpoints.get(), books_.logits.get()}) {
    if (store != nullptr) store->drop_scope(scope);
  }
  for (uint32_t s = 0; s < books_.records.size(); ++s) {
    SequenceRecord& record = books_.at(s);
    if (record.turn != nullptr && record.turn->scope == scope) record.turn->forgotten = true;
    if (in_turn(record)) {
      if (!record.turn->forgotten) continue;
      books_.live.clear(SequenceId{s});
      if (record.capture != 0) books_.queue.remove(s, CaptureFate::stale);
      continue;
    }
    if (!record.scope || *record.scope != scope) continue;
    // Lookups no longer find it; the engine clears it when there is time.
    if (record.capture != 0) books_.queue.remove(s, CaptureFate::stale);
    books_.live.clear(SequenceId{s});
    if (record.state == SequenceState::idle) {
      clearer_.release(s);
    }
  }
  books_.changed();
}

void Forgetter::drop_saved() {
  capturer_.pause();
  if (books_.segments != nullptr) books_.segments->drop_all();
  for (StateStore* store : {books_.states.get(), books_.checkpoints.get(), books_.logits.get()}) {
    if (store != nullptr) store->clear();
  }
  for (SequenceRecord& record : books_.records) record.saved = 0;
  books_.changed();
}

// ---- What follows a prefix ---------------------------------------------------------------------

uint32_t Forgetter::cut_back(uint32_t sequence, uint32_t n) {
  SequenceRecord& record = books_.at(sequence);
  const SequenceId id{sequence};
  const bool waited = record.capture != 0;
  n = record.text.floor(n);
  if (record.capture > n) books_.queue.remove(sequence, CaptureFate::stale);
  capturer_.will_lose(sequence, n);
  const Held held = books_.ask(sequence);
  if (n != 0 && held.whole && held.end == books_.room.length(id) &&
      can_resume(books_.traits, books_.resumable_part(sequence), n)) {
    {
      const Books::Unlocked unlocked(books_);
      // Checked below.
      (void)books_.engine->trim(id, n);
    }
    if (books_.verify(sequence, n)) {
      books_.room.set_length(id, n);
      books_.live.trim(id, n);
      books_.lexicon.cut(record.text, n);
      record.saved = std::min(record.saved, n);
      record.session = kNoSession;  // It no longer holds what its last turn left.
      if (waited && record.capture == 0 && record.saved < n) books_.queue.add(sequence, n);
      return n;
    }
  }
  clearer_.release(sequence);
  return 0;
}

Result<Truncated> Forgetter::truncate(const Scope& scope, const Prompt& prompt, uint32_t keep) {
  Text text;
  STEMMA_TRY_VOID(books_.lexicon.read(prompt, text));
  Result<Truncated> done = Error(Errc::out_of_memory, "no memory to truncate");
  try {
    done = truncate(scope, text, keep);
  } catch (const std::bad_alloc&) {
    // The result stays out_of_memory.
  }
  books_.lexicon.release(text);
  return done;
}

Result<Truncated> Forgetter::truncate(const Scope& scope, const Text& text, uint32_t keep) {
  if (keep > text.length()) return Error(Errc::out_of_range, "more than the prompt has", keep);
  if (text.floor(keep) != keep) return Error(Errc::out_of_range, "inside a media item", keep);
  // Everything that begins with these words and is longer than `keep` is removed.
  uint32_t end = std::min(keep + 1, text.length());
  while (text.floor(end) != end) ++end;
  const std::span<const uint32_t> words = text.all().first(end);
  capturer_.pause();

  // First everything that needs memory.
  const std::array<StateStore*, 3> stores{books_.states.get(), books_.checkpoints.get(),
                                          books_.logits.get()};
  std::array<std::vector<uint32_t>, 3> anchors;
  for (size_t i = 0; i < stores.size(); ++i) {
    if (stores[i] != nullptr) stores[i]->beyond(scope, words, keep, anchors[i]);
  }
  std::vector<LiveIndex::Match> matches;
  books_.live.match(scope, words, matches);
  if (end == 0) {
    for (uint32_t s = 0; s < books_.records.size(); ++s) {
      if (books_.known(s) != 0 && books_.scope_of(s) == scope)
        matches.push_back({SequenceId{s}, 0});
    }
  }
  Truncated out;
  if (books_.segments != nullptr) {
    STEMMA_TRY(out.segments, books_.segments->truncate(scope, text.prompt(end), keep));
  }

  for (size_t i = 0; i < stores.size(); ++i) {
    if (stores[i] != nullptr) stores[i]->drop(anchors[i]);
  }
  out.states = static_cast<uint32_t>(anchors[0].size());
  out.checkpoints = static_cast<uint32_t>(anchors[1].size());
  out.logits = static_cast<uint32_t>(anchors[2].size());
  const uint32_t still_saved =
      books_.segments != nullptr ? keep - keep % books_.options.segment_tokens : keep;
  for (const LiveIndex::Match& match : matches) {
    const uint32_t s = to_index(match.sequence);
    books_.at(s).saved = std::min(books_.at(s).saved, still_saved);
    const uint32_t before = books_.known(s);
    if (match.positions < end || before <= keep) continue;
    if (books_.at(s).state != SequenceState::idle) {
      ++out.in_use;
      continue;
    }
    ++out.sequences;
    out.live_tokens += before - cut_back(s, keep);
  }
  books_.changed();
  return out;
}

}  // namespace stemma::sequence
