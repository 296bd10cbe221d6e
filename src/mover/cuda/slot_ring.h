// A ring of slots that are given out in order and come back in any order.
//
// Invariant:  a slot is in at most one range that was taken and has not come back. A range is
//             contiguous: where the end is too near, the rest of the ring is skipped.
// Threading:  the owner's lock.
// Cost:       take() and give_back() are O(ranges that are out).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace stemma::mover::cuda {

class SlotRing {
 public:
  explicit SlotRing(uint32_t slots) noexcept : slots_(slots) {}

  // The first of `count` slots; none if so many are not free together. Requires 0 < count <=
  // slots().
  std::optional<uint32_t> take(uint32_t count) {
    if (ranges_.empty()) head_ = 0;
    // Free are [head, end of the ring) and [0, tail), or [head, tail).
    const uint32_t tail = ranges_.empty() ? 0 : ranges_.front().begin;
    const bool wrapped = !ranges_.empty() && head_ <= tail;
    if (wrapped) {
      if (tail - head_ < count) return std::nullopt;
    } else if (slots_ - head_ < count) {
      if (tail < count) return std::nullopt;
      if (head_ != slots_) ranges_.push_back({head_, slots_ - head_, true});
      head_ = 0;
    }
    const uint32_t begin = head_;
    ranges_.push_back({begin, count, false});
    head_ += count;
    return begin;
  }

  void give_back(uint32_t begin) noexcept {
    for (Range& range : ranges_) {
      if (range.begin == begin && !range.back) {
        range.back = true;
        break;
      }
    }
    while (!ranges_.empty() && ranges_.front().back) ranges_.pop_front();
  }

  uint32_t slots() const noexcept { return slots_; }
  bool idle() const noexcept { return ranges_.empty(); }

 private:
  struct Range {
    uint32_t begin, count;
    bool back;
  };
  uint32_t slots_;
  uint32_t head_ = 0;  // Where the next range begins.
  std::deque<Range> ranges_;
};

}  // namespace stemma::mover::cuda
