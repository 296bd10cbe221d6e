// Restorer: loads what was saved into the sequence of a turn.
//
// Every call of the engine may fail, and its word is not believed: a load counts when the engine
// holds what it should. What turns out to be bad is given up for good; what only failed for the
// moment is excluded from the turn's next plan.
//
// Invariant:  after an error the caller empties the sequence; what is in it then does not count.
// Threading:  one thread at a time, that of the engine, which holds the books' lock; it is let go
//             while the engine is called.
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

  // Loads the segments of this range, which turn.segments holds. Error: what failed.
  Result<void> load_segments(TurnRecord& turn, Range range, Excluded& excluded);
  // Loads the state or checkpoint of this depth, which turn.state holds. Error: what failed.
  Result<void> load_anchor(TurnRecord& turn, Part part, uint32_t depth, Excluded& excluded);

 private:
  // What loading moved so far, and where the segment begins that could not be loaded.
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
