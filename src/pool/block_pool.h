// A BlockPool keeps the books of a fixed number of equal places and lends them out.
//
// It knows places, not contents: the tree knows which words a block holds, and the engine has the
// bytes. A block is in exactly one state, and carries a count of holds (pins):
//
//   free --draft()--> draft --publish()--> cached
//     ^                 |                     |
//     '---- no holds ---+----- release() -----'
//                       '--- held: dying --- last unpin() --> free
//
// One lease writes a draft; any lease may read a cached block. Releasing a block that is still held
// (by a copy that reads it or a lease that shares it) makes it dying: nobody else can find it, and
// it becomes free when the last hold ends.
//
// Invariant:  free + draft + cached + dying == capacity; a held block is never handed out again.
// Threading:  one thread at a time.
// Cost:       every call O(1); four bytes a block, taken as blocks are first used. Free blocks are
//             reused last-in-first-out, never-used ones in order 0, 1, 2, ...
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/slab.h"
#include "stemma/ids.h"

namespace stemma::pool {

class BlockPool {
 public:
  static constexpr uint32_t kNone = 0x0FFF'FFFFU;
  static constexpr uint32_t kMaxBlocks = kNone - 1;

  // Returns false if the system gives no address space. Requires capacity <= kMaxBlocks.
  [[nodiscard]] bool create(uint32_t capacity_blocks);

  // Allocates memory so that the next `count` drafts cannot run out of it. Returns false if there
  // is none.
  [[nodiscard]] bool prepare(uint32_t count) noexcept;
  // The same for drafting exactly `block`.
  [[nodiscard]] bool ensure(uint32_t block) noexcept { return block < capacity_ && grow(block); }
  // One more than the highest block that `count` drafts could use for the first time.
  uint32_t fresh_after(uint32_t count) const noexcept;
  // One writable block, or kNone when none is free.
  uint32_t draft() noexcept;
  // Makes a draft cached: others may find its contents from now on.
  void publish(uint32_t block) noexcept;
  // Takes the block back: free at once, or when the last hold ends.
  void release(uint32_t block) noexcept;

  void pin(uint32_t block) noexcept;
  // Returns true if this was the last hold.
  bool unpin(uint32_t block) noexcept;

  bool is_free(uint32_t block) const noexcept { return state(block) == State::kFree; }
  bool is_draft(uint32_t block) const noexcept { return state(block) == State::kDraft; }
  bool is_cached(uint32_t block) const noexcept { return state(block) == State::kCached; }
  bool is_dying(uint32_t block) const noexcept { return state(block) == State::kDying; }
  uint32_t pins(uint32_t block) const noexcept {
    return is_free(block) ? 0 : words_[block] & kCountMask;
  }

  uint32_t capacity() const noexcept { return capacity_; }
  uint32_t free_blocks() const noexcept { return free_; }
  uint32_t cached_blocks() const noexcept { return cached_; }
  uint32_t used_blocks() const noexcept { return capacity_ - free_; }
  uint32_t peak_used_blocks() const noexcept { return peak_used_; }
  uint64_t bytes() const noexcept { return words_.bytes(); }

  // For loading a dump: makes exactly `block` a draft, or returns false if it is not free. Before
  // draft() is used again, call relist(), which rebuilds the free list, lowest block first.
  bool draft_exactly(uint32_t block) noexcept;
  void relist() noexcept;
  void prefetch(uint32_t block) const noexcept { __builtin_prefetch(&words_[block], 1); }
  // Stops the process with a description if the books do not balance. O(capacity).
  void check_invariants() const;

 private:
  enum class State : uint32_t { kFree = 0, kDraft = 1, kCached = 2, kDying = 3 };
  static constexpr uint32_t kStateShift = 30;
  static constexpr uint32_t kCountMask = 0x3FFF'FFFFU;

  State state(uint32_t block) const noexcept {
    return block < fresh_ ? static_cast<State>(words_[block] >> kStateShift) : State::kFree;
  }
  void set(uint32_t block, State state, uint32_t value) noexcept {
    words_[block] = static_cast<uint32_t>(state) << kStateShift | value;
  }
  bool grow(uint32_t block) noexcept;
  void push_free(uint32_t block) noexcept;

  base::Slab<uint32_t> words_;  // Free: the next free block. Otherwise: the number of holds.
  base::Growth growth_;
  uint32_t capacity_ = 0;
  uint32_t fresh_ = 0;  // Blocks from here on were never used.
  uint32_t head_ = kNone;
  uint32_t free_ = 0;
  uint32_t cached_ = 0;
  uint32_t peak_used_ = 0;
};

// Small and called per block: inline.

inline uint32_t BlockPool::draft() noexcept {
  uint32_t block = head_;
  if (block != kNone) {
    head_ = words_[block] & kCountMask;
  } else {
    if (fresh_ == capacity_ || !grow(fresh_)) return kNone;
    block = fresh_++;
  }
  set(block, State::kDraft, 0);
  --free_;
  peak_used_ = std::max(peak_used_, capacity_ - free_);
  return block;
}

inline void BlockPool::publish(uint32_t block) noexcept {
  STEMMA_CHECK(state(block) == State::kDraft);
  set(block, State::kCached, words_[block] & kCountMask);
  ++cached_;
}

inline void BlockPool::push_free(uint32_t block) noexcept {
  set(block, State::kFree, head_);
  head_ = block;
  ++free_;
}

inline void BlockPool::release(uint32_t block) noexcept {
  const State old = state(block);
  STEMMA_CHECK(old == State::kDraft || old == State::kCached);
  if (old == State::kCached) --cached_;
  const uint32_t holds = words_[block] & kCountMask;
  if (holds == 0) {
    push_free(block);
  } else {
    set(block, State::kDying, holds);
  }
}

inline void BlockPool::pin(uint32_t block) noexcept {
  STEMMA_CHECK(state(block) != State::kFree && (words_[block] & kCountMask) != kCountMask);
  ++words_[block];
}

inline bool BlockPool::unpin(uint32_t block) noexcept {
  STEMMA_CHECK(state(block) != State::kFree && (words_[block] & kCountMask) != 0);
  const bool last = (--words_[block] & kCountMask) == 0;
  if (last && state(block) == State::kDying) push_free(block);
  return last;
}

}  // namespace stemma::pool
