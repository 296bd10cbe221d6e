#include "retain/gdsf.h"

#include <algorithm>

namespace stemma::retain {

LeafPolicy::Place GdsfPolicy::place(CellIndex cell) const noexcept {
  const Block& b = block(cell);
  return {0, b.last + uint64_t{b.uses} * std::max<uint32_t>(1, b.depth)};
}

void GdsfPolicy::on_used(CellIndex end) noexcept { block(end).last = worth_evicted_; }

void GdsfPolicy::on_evicted(CellIndex cell) noexcept {
  if (holds(cell)) worth_evicted_ = std::max(worth_evicted_, key(cell));
}

void GdsfPolicy::clear() {
  LeafPolicy::clear();
  worth_evicted_ = 0;
}

}  // namespace stemma::retain
