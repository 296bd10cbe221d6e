// ARC: recency and frequency share the cache, and misses say how much each gets (Megiddo and Modha,
// FAST 2003).
//
// One list has the blocks used once, the other the blocks used again, each in order of last use.
// There are as many ghosts of evicted blocks as the cache has blocks. A miss on a block that was
// evicted from one of the lists gives that list more room. A block that comes back counts as used
// again. The paper keeps two lists of ghosts with limits of their own; here they share one limit,
// and the oldest ghost is dropped first.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy and 24 bytes a cell for ghosts; O(1) more per block inserted or
//             evicted.
#pragma once

#include "retain/ghosts.h"
#include "retain/leaf_policy.h"

namespace stemma::retain {

class ArcPolicy final : public LeafPolicy {
 public:
  explicit ArcPolicy(uint32_t cells) : LeafPolicy(cells, 2) {
    if (!ghosts_.create(cells)) fail();
  }
  std::string_view name() const noexcept override { return "arc"; }
  uint64_t bytes() const noexcept override { return LeafPolicy::bytes() + ghosts_.bytes(); }
  void clear() override;

 private:
  enum Segment : uint8_t { kOnce, kAgain };
  Segment segment(CellIndex cell) const noexcept {
    return block(cell).again || block(cell).own != 0 ? kAgain : kOnce;
  }
  Place place(CellIndex cell) const noexcept override { return {segment(cell), block(cell).last}; }
  CellIndex choose(const Choice& choice) noexcept override;
  void on_inserted(CellIndex cell) noexcept override;
  void on_reused(CellIndex cell) noexcept override;
  void on_gone(CellIndex cell) noexcept override;
  void on_evicted(CellIndex cell) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<ArcPolicy>(*this); }

  Ghosts ghosts_;      // First kind: blocks that were used once.
  double target_ = 0;  // The wanted number of blocks used once.
  uint32_t once_ = 0;  // Their number. `own` is 1 for blocks that came back.
};

}  // namespace stemma::retain
