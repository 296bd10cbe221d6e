// LRU-K with K = 2: first evicts the block whose last use but one is longest ago (O'Neil, O'Neil
// and Weikum, SIGMOD 1993).
//
// Blocks used once have no such use: they are evicted before all others, least recently used first.
// So one scan of long prompts cannot flush blocks that are used again and again. It costs dearly
// where traffic is fresh and regular: a conversation's newest blocks are always evicted first. The
// last use of evicted blocks is remembered, for as many as the cache has blocks. Uses close
// together count as two.
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

  Ghosts ghosts_;  // Their notes: the low half of the time of last use.
};

}  // namespace stemma::retain
