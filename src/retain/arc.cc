#include "retain/arc.h"

#include <algorithm>

namespace stemma::retain {

CellIndex ArcPolicy::choose(const Choice& choice) noexcept {
  const CellIndex once = choice.first(kOnce);
  const CellIndex again = choice.first(kAgain);
  if (once == kNoCell) return again;
  return again == kNoCell || once_ > target_ ? once : again;
}

void ArcPolicy::on_inserted(CellIndex cell) noexcept {
  const double first = ghosts_.count(Ghosts::Kind::first);
  const double second = ghosts_.count(Ghosts::Kind::second);
  const Ghosts::Found ghost = ghosts_.take(block(cell).print);
  if (!ghost.found) {
    ++once_;
    return;
  }
  block(cell).own = 1;
  if (ghost.kind == Ghosts::Kind::first) {
    target_ = std::min<double>(cells(), target_ + std::max(1.0, second / first));
  } else {
    target_ = std::max(0.0, target_ - std::max(1.0, first / second));
  }
}

void ArcPolicy::on_reused(CellIndex cell) noexcept {
  if (block(cell).cached && block(cell).own == 0) --once_;
}

void ArcPolicy::on_gone(CellIndex cell) noexcept {
  if (segment(cell) == kOnce) --once_;
}

void ArcPolicy::on_evicted(CellIndex cell) noexcept {
  ghosts_.add(block(cell).print,
              segment(cell) == kOnce ? Ghosts::Kind::first : Ghosts::Kind::second);
}

void ArcPolicy::clear() {
  LeafPolicy::clear();
  ghosts_.clear();
  target_ = 0;
}

}  // namespace stemma::retain
