// TurnEnd: what becomes of a turn and its sequence when the request is over.
//
// A finished turn leaves what it computed, idle and waiting to be saved, as far as its options
// allow. An abandoned one leaves what it found in its sequence, if the memory can go back to that.
// A turn that was never carried out gives its sequence back as it was.
//
// Invariant:  afterwards the sequence is idle, free or broken, and nothing points to the turn.
// Threading:  one thread at a time, that of the engine, which holds the books' lock; it is let go
//             while the engine is called.
// Ownership:  the record stays the caller's. The books and the other parts outlive it.
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

  // As Turn::finish(). Error: stale, and then the turn has ended; invalid_argument (`retain`),
  // out_of_memory, and then it goes on.
  Result<void> finish(TurnRecord& turn, const Retain* retain);
  // As Turn::abandon(). The turn has ended, whatever the answer. Error: stale.
  Result<void> abandon(TurnRecord& turn);

 private:
  // What a turn kept comes to rest, or goes.
  void leave(TurnRecord& turn);
  // Gives a sequence back that was leased and not touched.
  void give_back(TurnRecord& turn) noexcept;
  // The sequence goes back to what the turn found there. False: it cannot.
  bool step_back(TurnRecord& turn);
  // Counts a turn that was never carried out. `served`: it had the logits, and needed nothing else.
  void count_unexecuted(TurnRecord& turn, bool served) noexcept;
  // Gives everything back that the turn holds, apart from its sequence.
  void end(TurnRecord& turn) noexcept;

  Books& books_;
  Capturer& capturer_;
  Clearer& clearer_;
  SessionCloser& sessions_;
};

}  // namespace stemma::sequence
