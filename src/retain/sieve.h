// SIEVE: a queue, a mark per block, and a hand (Zhang, Yang, Yue, Vigfusson and Rashmi, NSDI 2024).
//
// Blocks are in order of insertion. A use marks a block and moves nothing. The hand goes from old
// to new: it removes marks and evicts the first block without one; the next search goes on from
// there. Very cheap, and good if a few blocks are popular for long. New blocks are judged early, so
// it does badly on traffic whose prompts all come back some time later.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy; a victim removes as many marks as were made.
#pragma once

#include "retain/leaf_policy.h"

namespace stemma::retain {

class SievePolicy final : public LeafPolicy {
 public:
  explicit SievePolicy(uint32_t cells) : LeafPolicy(cells, 1) {}
  std::string_view name() const noexcept override { return "sieve"; }

 private:
  Place place(CellIndex cell) const noexcept override { return {0, block(cell).born}; }
  CellIndex choose(const Choice& choice) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<SievePolicy>(*this); }

  uint64_t hand_ = 0;  // The time at which the next search starts; one for all classes.
};

}  // namespace stemma::retain
