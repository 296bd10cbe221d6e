// TurnEnd: what becomes of a turn and its sequence when the request is over.
//
// A finished turn leaves what it computed, idle and waiting to be saved, as far as its options
// allow. An abandoned one leaves what it found in its sequence, if the memory can go back to that.
// A turn that was never carried out gives its sequence back as it was.
//
// Invariant:  afterwards the sequence is idle, free or broken, and nothing points to the turn.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the caller keeps the record. The books and the other parts outlive it.
// Cost:       O(1) and calls of the engine where something is cut, emptied or saved. Nothing
//             throws.
#pragma once

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/session_closer.h"

namespace stemma::sequence {

class TurnEnd {
 public:
  TurnEnd(Books& books, Capturer& capturer, Clearer& clearer, SessionCloser& sessions) noexcept
      : books_(books), capturer_(capturer), clearer_(clearer), sessions_(sessions) {}

  // As Turn::finish(). Error: stale (the turn has ended then); invalid_argument (`retain`) or
  // out_of_memory (the turn goes on then).
  Result<void> finish(TurnRecord& turn, const Retain* retain);
  // As Turn::abandon(). The turn has ended, even after an error. Error: stale.
  Result<void> abandon(TurnRecord& turn);

 private:
  // Leaves the turn's sequence idle with what it computed, or empties it.
  void leave(TurnRecord& turn);
  // Gives back a sequence that was leased but not touched.
  void give_back(TurnRecord& turn) noexcept;
  // Takes the sequence back to what the turn found there. Returns false if it cannot go back.
  bool step_back(TurnRecord& turn);
  // Counts a turn that was never carried out. `served`: it had the logits, and needed nothing else.
  void count_unexecuted(TurnRecord& turn, bool served) noexcept;
  // Gives back everything that the turn holds, apart from its sequence.
  void end(TurnRecord& turn) noexcept;

  Books& books_;
  Capturer& capturer_;
  Clearer& clearer_;
  SessionCloser& sessions_;
};

}  // namespace stemma::sequence
