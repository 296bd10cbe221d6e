#include "retain/s3_fifo.h"

#include <algorithm>

namespace stemma::retain {

// Uses since it came, less those spent on going round. (They stay in its history, which its parent
// inherits.)
uint32_t S3FifoPolicy::uses_left(CellIndex cell) const noexcept {
  const Block& b = block(cell);
  const uint32_t spent = b.own_count + 1;
  return b.uses <= spent ? 0 : std::min<uint32_t>(kMostUses, b.uses - spent);
}

void S3FifoPolicy::to_main(CellIndex cell, uint32_t left) noexcept {
  Block& b = block(cell);
  if (b.cached && in_small(cell)) --small_;
  b.own = kMain;
  b.own_count = b.uses - 1 - left;
  b.born = next_time();
  put(cell, place(cell));
}

CellIndex S3FifoPolicy::choose(const Choice& choice) noexcept {
  for (;;) {
    const CellIndex small = choice.first(kSmall);
    const CellIndex main = choice.first(kMain);
    const bool from_small = small != kNoCell && (small_ >= most_small_ || main == kNoCell);
    const CellIndex cell = from_small ? small : main;
    const uint32_t left = uses_left(cell);
    if (from_small ? left <= 1 : left == 0) return cell;
    to_main(cell, from_small ? 0 : left - 1);
  }
}

void S3FifoPolicy::on_inserted(CellIndex cell) noexcept {
  if (ghosts_.take(block(cell).print).found) {
    block(cell).own = kMain;
  } else {
    ++small_;
  }
}

void S3FifoPolicy::on_reused(CellIndex cell) noexcept {
  if (block(cell).cached && block(cell).own == kSmall) --small_;
}

void S3FifoPolicy::on_gone(CellIndex cell) noexcept {
  if (in_small(cell)) --small_;
}

void S3FifoPolicy::on_evicted(CellIndex cell) noexcept {
  if (block(cell).own == kSmall) ghosts_.add(block(cell).print, Ghosts::Kind::first);
}

void S3FifoPolicy::clear() {
  LeafPolicy::clear();
  ghosts_.clear();
}

}  // namespace stemma::retain
