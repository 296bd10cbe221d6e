// S3-FIFO: three queues without reordering (Yang, Zhang, Qiu, Yue and Rashmi, SOSP 2023).
//
// New blocks enter a small queue of a tenth of the cache. A block that reaches its end and was used
// more than once since moves to the main queue; others are evicted and leave a ghost. A block that
// has a ghost enters the main queue at once. In the main queue a block goes round once for each
// use, at most three, and is then evicted. Most blocks that are never used again leave quickly.
//
// Only leaves can be evicted, so a block that was used again cannot move on while others stand
// behind it. Until then it does not count in the small queue. Otherwise a few long prompts would
// fill that queue for as long as they live, and every victim would be the end of some prompt (25
// points less on agents).
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy and 24 bytes a cell for ghosts; a victim moves as many blocks as
//             were used.
#pragma once

#include "retain/ghosts.h"
#include "retain/leaf_policy.h"

namespace stemma::retain {

class S3FifoPolicy final : public LeafPolicy {
 public:
  explicit S3FifoPolicy(uint32_t cells) : LeafPolicy(cells, 2), most_small_(cells / 10 + 1) {
    if (!ghosts_.create(cells)) fail();
  }
  std::string_view name() const noexcept override { return "s3_fifo"; }
  uint64_t bytes() const noexcept override { return LeafPolicy::bytes() + ghosts_.bytes(); }
  void clear() override;

 private:
  enum Segment : uint8_t { kSmall, kMain };
  static constexpr uint32_t kMostUses = 3;  // Counted after the first use.
  Place place(CellIndex cell) const noexcept override {
    return {block(cell).own, block(cell).born};
  }
  CellIndex choose(const Choice& choice) noexcept override;
  void on_inserted(CellIndex cell) noexcept override;
  void on_reused(CellIndex cell) noexcept override;
  void on_gone(CellIndex cell) noexcept override;
  void on_evicted(CellIndex cell) noexcept override;
  uint32_t uses_left(CellIndex cell) const noexcept;
  // Whether it counts in the small queue.
  bool in_small(CellIndex cell) const noexcept {
    return block(cell).own == kSmall && !block(cell).again;
  }
  void to_main(CellIndex cell, uint32_t left) noexcept;
  std::unique_ptr<LeafPolicy> copy() const override {
    return std::make_unique<S3FifoPolicy>(*this);
  }

  Ghosts ghosts_;
  uint32_t most_small_;
  uint32_t small_ = 0;  // Blocks that are in_small().
};

}  // namespace stemma::retain
