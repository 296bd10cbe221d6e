// Clearer: empties sequences, because they are in the way or cannot be used any more.
//
// Invariant:  an emptied sequence holds nothing, in the engine and in the books. If the engine does
//             not clear it, it is dirty, and mend() tries again later.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the capturer outlive it.
// Cost:       one or two calls of the engine for each sequence that is emptied, and what saving it
//             takes. make_room_for() and free_up() may throw std::bad_alloc.
#pragma once

#include <cstdint>

#include "sequence/books.h"
#include "sequence/capturer.h"

namespace stemma::sequence {

class Clearer {
 public:
  Clearer(Books& books, Capturer& capturer) noexcept : books_(books), capturer_(capturer) {}

  // Notes in the books that the sequence holds nothing. Does not call the engine, and does not
  // change how much room the sequence takes.
  void forget(uint32_t sequence) noexcept;
  // Clears a sequence in the engine and in the books. The caller sets its state. Returns false if
  // the engine failed.
  bool empty(uint32_t sequence);
  // Empties a sequence that no turn uses: it is free afterwards, or broken.
  void release(uint32_t sequence);
  // Gives up the contents of the turn's sequence; the turn can only end.
  void lose(TurnRecord& turn);
  // Empties a sequence for another use, and first saves what waits in it if that is worth it. An
  // idle one is free or broken afterwards. Returns false if the engine did not clear it.
  bool retire(uint32_t sequence, SequenceReport* report);
  // Clears one sequence that could not be cleared before. Returns false if there is none, or if it
  // fails again.
  bool mend();

  // Empties idle sequences, except `spared`, until this sequence can have `tokens` more positions
  // without what other turns were promised. False: there is not enough. `report` may be null.
  bool make_room_for(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);
  // The same, but ignores what others were promised.
  bool free_up(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);

 private:
  Books& books_;
  Capturer& capturer_;
};

}  // namespace stemma::sequence
