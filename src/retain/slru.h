// SLRU, segmented LRU: what was used again is protected, up to four fifths of the cache (Karedla, Love and
// Wherry, Computer 1994; the same idea as 2Q's two queues).
//
// A block begins on probation. Used again, it is protected; when too much is, the protected leaf that was
// not used for longest goes back on probation, as if it had just been used. Victims are those on probation,
// least recently used first, then the protected ones. Parents of protected leaves stay protected until they
// are leaves, so more may be protected than the limit says where paths are long.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy; putting back one leaf for one that was protected, amortised.
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
    // Who went back on probation is as if new.
    return {block(cell).own, std::max(block(cell).last, block(cell).born)};
  }
  CellIndex choose(const Choice& choice) noexcept override;
  void on_reused(CellIndex cell) noexcept override;
  void on_gone(CellIndex cell) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<SlruPolicy>(*this); }

  uint32_t most_protected_;
  uint32_t protected_ = 0;  // Blocks of the cache; `own` says of each which segment it is in.
};

}  // namespace stemma::retain
