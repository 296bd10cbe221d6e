#include "retain/sieve.h"

namespace stemma::retain {

CellIndex SievePolicy::choose(const Choice& choice) noexcept {
  for (;;) {
    CellIndex cell = choice.first(0, hand_);
    if (cell == kNoCell) cell = choice.first(0);  // Start again.
    hand_ = key(cell);
    if (!block(cell).again) return cell;
    block(cell).again = false;
    ++hand_;
  }
}

}  // namespace stemma::retain
