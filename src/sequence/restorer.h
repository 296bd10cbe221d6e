// Restorer: loads saved entries into the sequence of a turn.
//
// Every call of the engine may fail, and its success is not trusted: a load counts only if held()
// confirms it. An entry that turns out to be bad is given up for good; one that only failed for the
// moment is excluded from the turn's next plan.
//
// Invariant:  after an error the sequence's contents do not count, and the caller empties it.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the turn holds the segments or the state that are loaded. The books, the notifier and
//             the capturer outlive it.
// Cost:       one call of the engine for each segment, range or state.
#pragma once

#include <cstdint>
#include <vector>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/notifier.h"

namespace stemma::sequence {

class Restorer {
 public:
  Restorer(Books& books, Notifier& notifier, Capturer& capturer) noexcept
      : books_(books), notifier_(notifier), capturer_(capturer) {}

  // Loads the segments of this range, which turn.segments holds. Error: that of the failed step.
  Result<void> load_segments(TurnRecord& turn, Range range, Excluded& excluded);
  // Loads the state or checkpoint of this depth, which turn.state holds. Error: likewise.
  Result<void> load_anchor(TurnRecord& turn, Part part, uint32_t depth, Excluded& excluded);

 private:
  // What was loaded so far, and where the segment that could not be loaded begins (`bad`).
  struct Progress {
    uint64_t bytes = 0;
    uint32_t calls = 0;
    uint32_t bad = 0;
  };
  // Both load all of pieces_.
  Result<void> load_one_by_one(SequenceId id, Progress& progress);
  Result<void> load_ranges(SequenceId id, Progress& progress);
  void quarantine_segment(TurnRecord& turn, uint32_t from);
  // Counts and measures what was loaded since `started`.
  void count(TurnRecord& turn, uint64_t calls, uint64_t bytes, uint64_t started) noexcept;

  Books& books_;
  Notifier& notifier_;
  Capturer& capturer_;
  std::vector<SavedSegment> pieces_;  // Scratch.
};

}  // namespace stemma::sequence
