// SLRU, segmented LRU: blocks that were used again are protected, up to four fifths of the cache
// (Karedla, Love and Wherry, Computer 1994; the same idea as 2Q's two queues).
//
// A block begins on probation. When it is used again, it becomes protected. When too many blocks
// are protected, the least recently used protected leaf goes back on probation, as if it had just
// been used. Victims are blocks on probation, least recently used first, then protected ones.
// Parents of protected leaves stay protected until they are leaves, so more may be protected than
// the limit says where paths are long.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy; amortised, one leaf goes back for each one that becomes
//             protected.
#pragma once

#include <algorithm>

#include "retain/leaf_policy.h"

namespace stemma::retain {

class SlruPolicy final : public LeafPolicy {
 public:
  explicit SlruPolicy(uint32_t cells)
      : LeafPolicy(cells, 2), most_protected_(static_cast<uint32_t>(uint64_t{cells} * 4 / 5)) {}
  std::string_view name() const noexcept override { return "slru"; }

 private:
  enum Segment : uint8_t { kProbation, kProtected };
  Place place(CellIndex cell) const noexcept override {
    // A block that went back on probation counts as new.
    return {block(cell).own, std::max(block(cell).last, block(cell).born)};
  }
  CellIndex choose(const Choice& choice) noexcept override;
  void on_reused(CellIndex cell) noexcept override;
  void on_gone(CellIndex cell) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<SlruPolicy>(*this); }

  uint32_t most_protected_;
  uint32_t protected_ = 0;  // Number of blocks; each block's `own` is its segment.
};

}  // namespace stemma::retain
