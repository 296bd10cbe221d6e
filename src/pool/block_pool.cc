#include "pool/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace stemma::pool {

bool BlockPool::create(uint32_t capacity_blocks) {
  STEMMA_CHECK(capacity_blocks <= kMaxBlocks);
  capacity_ = capacity_blocks;
  free_ = capacity_blocks;
  growth_ = base::Growth(0, capacity_blocks);
  return words_.reserve(capacity_blocks);
}

bool BlockPool::grow(uint32_t block) noexcept {
  if (growth_.covers(block)) return true;
  const size_t end = growth_.next(block);
  if (!words_.commit(growth_.committed(), end)) return false;
  growth_.advance(end);
  return true;
}

uint32_t BlockPool::fresh_after(uint32_t count) const noexcept {
  const uint32_t unused = capacity_ - fresh_;
  const uint32_t recycled = free_ - unused;
  return fresh_ + (count > recycled ? std::min(count - recycled, unused) : 0);
}

bool BlockPool::prepare(uint32_t count) noexcept {
  const uint32_t end = fresh_after(count);
  return end == fresh_ || grow(end - 1);
}

bool BlockPool::draft_exactly(uint32_t block) noexcept {
  if (block >= capacity_ || !grow(block) || state(block) != State::kFree) return false;
  fresh_ = std::max(fresh_, block + 1);  // Zeroed words below it are free blocks, not yet listed.
  set(block, State::kDraft, 0);
  --free_;
  peak_used_ = std::max(peak_used_, capacity_ - free_);
  return true;
}

void BlockPool::relist() noexcept {
  head_ = kNone;
  for (uint32_t i = fresh_; i-- > 0;) {
    if (state(i) != State::kFree) continue;
    set(i, State::kFree, head_);
    head_ = i;
  }
}

void BlockPool::check_invariants() const {
  uint32_t counts[4] = {};
  for (uint32_t i = 0; i < fresh_; ++i) ++counts[static_cast<uint32_t>(state(i))];
  counts[0] += capacity_ - fresh_;
  STEMMA_CHECK(counts[0] == free_);
  STEMMA_CHECK(counts[2] == cached_);
  STEMMA_CHECK(counts[0] + counts[1] + counts[2] + counts[3] == capacity_);
  uint32_t listed = 0;
  for (uint32_t i = head_; i != kNone; i = words_[i] & kCountMask) {
    STEMMA_CHECK(i < fresh_ && state(i) == State::kFree);
    STEMMA_CHECK(++listed <= free_);
  }
  STEMMA_CHECK(listed + (capacity_ - fresh_) == free_);
}

}  // namespace stemma::pool
