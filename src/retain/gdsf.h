// GDSF, Greedy-Dual-Size-Frequency, with the cost of computing a block again: uses x depth
// (Cherkasova, HP Labs 1998; blocks are of one size).
//
// A block is worth L + uses x depth in blocks. L is the worth of the last evicted block, as of the
// block's last use. As L rises, unused blocks lose against used ones. Deep blocks cost more to
// compute again, so they are kept longer; leaves of long prompts outlive many short ones, whether
// they are used again or not.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy.
#pragma once

#include "retain/leaf_policy.h"

namespace stemma::retain {

class GdsfPolicy final : public LeafPolicy {
 public:
  explicit GdsfPolicy(uint32_t cells) : LeafPolicy(cells, 1) {}
  std::string_view name() const noexcept override { return "gdsf"; }
  void clear() override;

 private:
  Place place(CellIndex cell) const noexcept override;
  CellIndex choose(const Choice& choice) noexcept override { return choice.first(0); }
  void on_used(CellIndex end) noexcept override;
  void on_evicted(CellIndex cell) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<GdsfPolicy>(*this); }

  // The value L, which never falls. Blocks store it as the time of their last use.
  uint64_t worth_evicted_ = 0;
};

}  // namespace stemma::retain
