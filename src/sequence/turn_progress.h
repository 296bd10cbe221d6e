// TurnProgress: a turn between execute() and its end. Words are computed, added, taken back.
//
// The books follow what the engine has done: how long the sequence is, and which of its words
// others can find. At a boundary that cannot be saved later, the checkpoint is saved at once.
//
// Invariant:  others find only words that were computed. After a failed rewind or shift the
//             sequence's contents do not count, and the turn can only end.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine and the listener are called.
// Ownership:  the books and the other parts outlive it.
// Cost:       O(words that are new), and what saving a checkpoint takes. Nothing throws.
#pragma once

#include <cstdint>
#include <span>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/notifier.h"
#include "sequence/restorer.h"

namespace stemma::sequence {

class TurnProgress {
 public:
  TurnProgress(Books& books, Notifier& notifier, Capturer& capturer, Clearer& clearer,
               Restorer& restorer) noexcept
      : books_(books),
        notifier_(notifier),
        capturer_(capturer),
        clearer_(clearer),
        restorer_(restorer) {}

  // Error: stale, wrong_state (execute() comes first, or the turn can only end).
  Result<void> check_ready(const TurnRecord& turn);

  // Each does what the function of the same name of Turn says.
  Result<void> computed(TurnRecord& turn, uint32_t n, uint64_t spent_ns);
  Result<void> extend(TurnRecord& turn, std::span<const Token> tokens);
  Result<void> reserve(TurnRecord& turn, uint32_t tokens);
  Result<void> rewind(TurnRecord& turn, uint32_t n);
  Result<void> attach_logits(TurnRecord& turn, uint32_t depth, std::span<const float> logits);
  Result<void> shift(TurnRecord& turn, uint32_t keep, uint32_t discard);

 private:
  // Saves the boundaries up to n that were reached.
  void keep_stops(TurnRecord& turn, uint32_t n);
  // Takes the memory back to n, which was computed.
  Result<void> go_back(TurnRecord& turn, uint32_t n);

  Books& books_;
  Notifier& notifier_;
  Capturer& capturer_;
  Clearer& clearer_;
  Restorer& restorer_;
};

}  // namespace stemma::sequence
