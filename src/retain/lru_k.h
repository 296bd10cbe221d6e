// LRU-K with K = 2: the block whose last use but one is longest ago goes first (O'Neil, O'Neil and Weikum,
// SIGMOD 1993).
//
// Blocks used once have no such use: they go before all others, least recently used first. So one scan of
// long prompts cannot flush what is used again and again. It costs dearly where traffic is fresh and
// regular: a conversation's newest blocks are always the first to go. The last use of what was evicted is
// remembered, for as many blocks as the cache has. Uses close together count as two.
//
// Threading:  one thread at a time.
// Cost:       that of LeafPolicy and 24 bytes a cell for ghosts.
#pragma once

#include "retain/ghosts.h"
#include "retain/leaf_policy.h"

namespace stemma::retain {

class LruKPolicy final : public LeafPolicy {
 public:
  explicit LruKPolicy(uint32_t cells) : LeafPolicy(cells, 2) {
    if (!ghosts_.create(cells)) fail();
  }
  std::string_view name() const noexcept override { return "lru_k"; }
  uint64_t bytes() const noexcept override { return LeafPolicy::bytes() + ghosts_.bytes(); }
  void clear() override;

 private:
  enum Segment : uint8_t { kOnce, kTwice };
  Place place(CellIndex cell) const noexcept override;
  CellIndex choose(const Choice& choice) noexcept override;
  void on_inserted(CellIndex cell) noexcept override;
  void on_evicted(CellIndex cell) noexcept override;
  std::unique_ptr<LeafPolicy> copy() const override { return std::make_unique<LruKPolicy>(*this); }

  Ghosts ghosts_;  // With the low half of when they were used last.
};

}  // namespace stemma::retain
