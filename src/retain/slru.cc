#include "retain/slru.h"

namespace stemma::retain {

CellIndex SlruPolicy::choose(const Choice& choice) noexcept {
  CellIndex oldest = choice.first(kProtected);
  while (protected_ > most_protected_ && oldest != kNoCell) {
    Block& b = block(oldest);
    if (b.cached) --protected_;
    b.own = kProbation;
    b.again = false;  // The next use protects it again.
    b.born = next_time();
    put(oldest, place(oldest));
    oldest = choice.first(kProtected);
  }
  const CellIndex probation = choice.first(kProbation);
  return probation != kNoCell ? probation : oldest;
}

void SlruPolicy::on_reused(CellIndex cell) noexcept {
  block(cell).own = kProtected;
  if (block(cell).cached) ++protected_;
}

void SlruPolicy::on_gone(CellIndex cell) noexcept {
  if (block(cell).own == kProtected) --protected_;
}

}  // namespace stemma::retain
