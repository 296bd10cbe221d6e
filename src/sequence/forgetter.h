// Forgetter: forgets on request: the context, a scope, what was saved, or what follows a prefix.
//
// Invariant:  what was forgotten is not found again. Turns under way are not disturbed, but for
//             those of a context that was made anew: they become stale.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the other parts outlive it.
// Cost:       O(sequences), and what the stores need to forget.
#pragma once

#include <cstdint>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/session_closer.h"

namespace stemma::sequence {

class Forgetter {
 public:
  Forgetter(Books& books, Capturer& capturer, Clearer& clearer, SessionCloser& sessions) noexcept
      : books_(books), capturer_(capturer), clearer_(clearer), sessions_(sessions) {}

  // Each does what the function of the same name of SequenceCache says.
  void forget_context();
  void drop_scope(const Scope& scope);
  void drop_saved();
  Result<Truncated> truncate(const Scope& scope, const Prompt& prompt, uint32_t keep);

 private:
  // May throw std::bad_alloc; nothing has changed then.
  Result<Truncated> truncate(const Scope& scope, const Text& text, uint32_t keep);
  // Cuts an idle sequence to [0, n), or empties it if it cannot go back there. Returns the length
  // that is left.
  uint32_t cut_back(uint32_t sequence, uint32_t n);

  Books& books_;
  Capturer& capturer_;
  Clearer& clearer_;
  SessionCloser& sessions_;
};

}  // namespace stemma::sequence
