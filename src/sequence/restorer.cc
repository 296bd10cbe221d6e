#include "sequence/restorer.h"

#include <optional>

#include "sequence/segment_loader.h"
#include "sequence/state_copy.h"

namespace stemma::sequence {

namespace {

// Whether a failure means bad bytes, and not just a bad moment.
bool is_bad(const Error& error) noexcept {
  return error.code() != Errc::out_of_blocks && error.code() != Errc::busy &&
         error.code() != Errc::out_of_memory;
}

}  // namespace

Result<void> Restorer::load_segments(TurnRecord& turn, Range range, Excluded& excluded) {
  const SequenceId id{turn.sequence};
  STEMMA_TRY_VOID(books_.segments->list(turn.segments, range, pieces_));
  books_.settle_engine();
  const uint64_t started = books_.clock->now_ns();
  Progress progress;
  books_.room.prepare(id, id);
  Result<void> loaded = SegmentLoader::serves(*books_.segments) ? load_ranges(id, progress)
                                                                : load_one_by_one(id, progress);
  if (!loaded) {
    if (is_bad(loaded.error())) {
      quarantine_segment(turn, progress.bad);
    } else {
      excluded.segments = true;
    }
    return loaded;
  }
  // With full attention alone, the load can be checked at once.
  if (books_.any() && !books_.verify(turn.sequence, range.end)) {
    quarantine_segment(turn, range.begin);
    return Error(Errc::corrupt, "segments were loaded, and are not there");
  }
  count(turn, progress.calls, progress.bytes, started);
  return {};
}

Result<void> Restorer::load_one_by_one(SequenceId id, Progress& progress) {
  for (const SavedSegment& piece : pieces_) {
    progress.bad = piece.saved.begin;
    {
      const Books::Unlocked unlocked(books_);
      STEMMA_TRY(const std::span<const uint8_t> saved, books_.segments->read(piece.slot));
      STEMMA_TRY_VOID(books_.engine->load(id, Part::segment, piece.saved, piece.wanted, saved));
      progress.bytes += saved.size();
      ++progress.calls;
    }
    books_.room.set_length(id, piece.wanted.end);
  }
  return {};
}

Result<void> Restorer::load_ranges(SequenceId id, Progress& progress) {
  SegmentLoader loader(*books_.segments, pieces_);
  for (;;) {
    uint32_t end = 0;
    {
      const Books::Unlocked unlocked(books_);
      const Result<std::optional<SegmentLoader::Ready>> next = loader.next();
      progress.bad = loader.bad();
      if (!next) return next.error();
      if (!next->has_value()) return {};
      const SegmentLoader::Ready& ready = **next;
      // The engine does not say which segment of the range it refused.
      progress.bad = ready.range.begin;
      STEMMA_TRY_VOID(
          books_.engine->load(id, Part::segment, ready.range, ready.range, ready.bytes));
      end = ready.range.end;
      progress.bytes += ready.bytes.size();
      ++progress.calls;
    }
    books_.room.set_length(id, end);
  }
}

void Restorer::quarantine_segment(TurnRecord& turn, uint32_t from) {
  ++books_.stats.quarantined;
  turn.segments = {};
  // A capture in progress may continue behind it.
  capturer_.pause();
  books_.segments->forget(turn.scope, turn.text.prompt(), from);
  books_.warn("stemma: a saved segment could not be restored and is given up");
}

Result<void> Restorer::load_anchor(TurnRecord& turn, Part part, uint32_t depth,
                                   Excluded& excluded) {
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
    loaded = saved ? load_state(books_.mover.get(), *books_.engine, id, part, range, saved->state)
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
  count(turn, 1, bytes, started);
  const EntryKind kind = part == Part::state ? EntryKind::state : EntryKind::checkpoint;
  notifier_.hand_on_used(store, kind, turn.state);
  return {};
}

void Restorer::count(TurnRecord& turn, uint64_t calls, uint64_t bytes, uint64_t started) noexcept {
  turn.report.restored_bytes += bytes;
  books_.stats.restored_bytes += bytes;
  const uint64_t spent = elapsed_ns(started, books_.clock->now_ns());
  books_.stats.restore_ns += spent;
  books_.meter.loaded(calls, bytes, spent);
}

}  // namespace stemma::sequence
