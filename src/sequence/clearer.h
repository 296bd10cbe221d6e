// Clearer: empties sequences, because they are in the way or cannot be used any more.
//
// Invariant:  after a sequence was emptied it holds nothing, in the engine and in the books; if the
//             engine does not clear it, it is dirty, and mend() tries again later.
// Threading:  one thread at a time, that of the engine, which holds the books' lock; it is let go
//             while the engine is called.
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

  // The books say that the sequence holds nothing. The engine is not called; how much room it takes
  // is not changed.
  void forget(uint32_t sequence) noexcept;
  // Clears a sequence in the engine and in the books. False: the engine did not do it. Its state is
  // for the caller to set.
  bool empty(uint32_t sequence);
  // Empties a sequence that no turn uses: it is free afterwards, or broken.
  void release(uint32_t sequence);
  // Nothing of the turn's sequence counts any more; the turn can only end.
  void lose(TurnRecord& turn);
  // Empties a sequence for somebody else, and saves what waits in it first if that is worth it. An
  // idle one is free or broken afterwards. False: the engine did not clear it.
  bool retire(uint32_t sequence, SequenceReport* report);
  // Clears one sequence that could not be cleared before. False: there is none, or it still cannot.
  bool mend();

  // Empties idle sequences, but not `spared`, until so many positions are free for this one beyond
  // what other turns were promised. False: not enough. `report` may be null.
  bool make_room_for(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);
  // The same, whatever others were promised.
  bool free_up(uint32_t sequence, uint64_t tokens, uint32_t spared, SequenceReport* report);

 private:
  Books& books_;
  Capturer& capturer_;
};

}  // namespace stemma::sequence
