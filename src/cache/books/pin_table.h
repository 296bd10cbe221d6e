// A PinTable numbers the pins that callers made, and knows when each of them ends.
//
// It only keeps the list: TimedPins holds and releases what is pinned. A pin's number is valid in
// one cache only, and never comes back.
//
// Invariant:  every pin is in the list of its cell; every pin with a deadline is in the heap.
// Threading:  one thread at a time.
// Cost:       O(log pins) with a deadline, otherwise O(1). remove() needs no memory.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cache/books/group.h"
#include "stemma/cache.h"
#include "stemma/clock.h"
#include "stemma/ids.h"
#include "stemma/retention.h"

namespace stemma::cache {

// A block of a window or recurrent group.
struct LooseBlock {
  GroupIndex group;
  uint32_t page;
  auto operator<=>(const LooseBlock&) const = default;
};

class PinTable {
 public:
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  struct Pin {
    CellIndex cell = kNoCell;  // kNoCell: this slot is free.
    uint32_t depth_cells = 0;
    std::vector<LooseBlock> blocks;
  };

  // May throw std::bad_alloc before anything changes.
  PinId add(Pin pin, uint64_t deadline_ns);
  // Ends a pin and returns what it held.
  Pin remove(uint32_t slot) noexcept;

  // The slot of a pin; kNone: it has ended.
  uint32_t find(PinId id) const noexcept;
  const Pin& pin(uint32_t slot) const noexcept { return slots_[slot].pin; }
  // Any pin of the cell, or kNone.
  uint32_t at(CellIndex cell) const noexcept;
  bool empty() const noexcept { return at_.empty(); }
  // Whether a deadline has passed. take_due() takes such deadlines off the heap and returns the
  // first pin that still lives and whose deadline has passed, or kNone.
  bool is_due(uint64_t now_ns) const noexcept {
    return !deadlines_.empty() && deadlines_.front().at_ns <= now_ns;
  }
  uint32_t take_due(uint64_t now_ns) noexcept;

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.pin.cell != kNoCell) visit(slot.pin);
    }
  }
  uint32_t slots() const noexcept { return static_cast<uint32_t>(slots_.size()); }
  bool is_used(uint32_t slot) const noexcept { return slots_[slot].pin.cell != kNoCell; }
  // The sum of all pins' depths.
  uint64_t depth_sum() const noexcept { return depth_sum_; }
  uint64_t bytes() const noexcept;

 private:
  struct Slot {
    Pin pin;
    uint32_t generation = 0;
    // Links to the other pins of the same cell.
    uint32_t next = kNone;
    uint32_t before = kNone;
  };
  struct Deadline {
    uint64_t at_ns;
    uint32_t slot;
    uint32_t generation;
    bool operator>(const Deadline& other) const noexcept { return at_ns > other.at_ns; }
  };
  bool lives(uint32_t slot, uint32_t generation) const noexcept {
    return slot < slots_.size() && is_used(slot) && slots_[slot].generation == generation;
  }
  void unlink(uint32_t slot) noexcept;

  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
  std::unordered_map<CellIndex, uint32_t> at_;  // The first of a cell's pins.
  // A heap, earliest on top. Deadlines of ended pins stay a while.
  std::vector<Deadline> deadlines_;
  uint64_t depth_sum_ = 0;
};

}  // namespace stemma::cache
