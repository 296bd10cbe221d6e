// IdleDropper: empties idle sequences that slow down other computing.
//
// In a unified context every token that is computed looks at the cells of every sequence, idle ones
// too. A saved sequence can be loaded again, often in less time than a long prompt loses by being
// computed beside it. Such sequences are emptied before computing begins (docs/decisions/0022).
//
// Invariant:  keeps sequences that wait to be saved and are worth it, that are being read, or that
//             another turn plans to copy.
// Threading:  one thread at a time, the engine's. It holds the books' lock, and releases it while
//             the engine is called.
// Ownership:  the books and the other parts outlive it.
// Cost:       O(idle sequences), and a lookup of what is saved for each that could go. Nothing
//             throws: without memory the sequences that are left stay.
#pragma once

#include <cstdint>

#include "sequence/books.h"
#include "sequence/capturer.h"
#include "sequence/clearer.h"
#include "sequence/finder.h"

namespace stemma::sequence {

class IdleDropper {
 public:
  IdleDropper(Books& books, Finder& finder, Capturer& capturer, Clearer& clearer) noexcept
      : books_(books), finder_(finder), capturer_(capturer), clearer_(clearer) {}

  // Empties idle sequences if the time that they cost this turn and have cost others exceeds the
  // cost of restoring them. The turn's extra time is charged to those that stay, so call this once
  // for a turn.
  void drop_for(TurnRecord& turn) noexcept;
  // The same for every turn whose prompt is being computed: a sequence that had to stay may have
  // been saved since.
  void drop_for_all() noexcept;

 private:
  enum class Stayers : uint8_t { charged, free };
  void drop_for(TurnRecord& turn, Stayers stayers) noexcept;
  bool may_go(uint32_t sequence, const TurnRecord& turn) const noexcept;
  // How much of what an idle sequence holds could be restored if it were emptied now.
  uint32_t restorable_part(uint32_t sequence);

  Books& books_;
  Finder& finder_;
  Capturer& capturer_;
  Clearer& clearer_;
};

}  // namespace stemma::sequence
