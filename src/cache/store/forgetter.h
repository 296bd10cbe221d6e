// The Forgetter makes parts of the index unfindable on request: what is below a cell, a scope, or
// everything.
//
// What is forgotten becomes an orphan at once: no lookup finds it. It is freed as soon as nobody
// holds it; pins that held it end.
//
// Threading:  one thread at a time.
// Cost:       O(cells forgotten); needs no memory, because sub-trees are walked in place.
#pragma once

#include <cstdint>

#include "cache/store/timed_pins.h"

namespace stemma::cache {

class Forgetter {
 public:
  Forgetter(Books& books, Cells& cells, TimedPins& pins) noexcept
      : books_(books), cells_(cells), pins_(pins) {}

  // Forgets a cell and everything below it. Returns the number of cells.
  uint32_t cut(CellIndex top, uint32_t tenant_index);
  // Forgets a scope. Returns the number of cells.
  uint32_t drop_root(CellIndex root);
  void drop_all();

 private:
  // For the cells just cut off at `top`: tells the policy and observers, and frees unheld cells.
  // Returns the number of cells.
  enum class Top : uint8_t { included, left_out };
  uint32_t let_go_below(CellIndex top, Top which, uint32_t tenant_index);
  // Tells observers that nothing of a cell can be found any more.
  void tell_forgotten(CellIndex cell) noexcept;

  Books& books_;
  Cells& cells_;
  TimedPins& pins_;
};

}  // namespace stemma::cache
