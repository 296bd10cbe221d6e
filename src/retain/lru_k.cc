#include "retain/lru_k.h"

namespace stemma::retain {

LeafPolicy::Place LruKPolicy::place(CellIndex cell) const noexcept {
  const Block& b = block(cell);
  return b.previous == 0 ? Place{kOnce, b.last} : Place{kTwice, b.previous};
}

CellIndex LruKPolicy::choose(const Choice& choice) noexcept {
  const CellIndex once = choice.first(kOnce);
  return once != kNoCell ? once : choice.first(kTwice);
}

void LruKPolicy::on_inserted(CellIndex cell) noexcept {
  const Ghosts::Found ghost = ghosts_.take(block(cell).print);
  if (!ghost.found) return;
  // The latest time whose lower bits are the note.
  const uint64_t now = block(cell).born;
  const uint64_t used = (now & ~uint64_t{0xFFFF'FFFF}) | ghost.note;
  block(cell).last = used <= now ? used : used - (uint64_t{1} << 32U);
}

void LruKPolicy::on_evicted(CellIndex cell) noexcept {
  ghosts_.add(block(cell).print, Ghosts::Kind::first, static_cast<uint32_t>(block(cell).last));
}

void LruKPolicy::clear() {
  LeafPolicy::clear();
  ghosts_.clear();
}

}  // namespace stemma::retain
