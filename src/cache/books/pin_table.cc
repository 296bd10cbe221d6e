#include "cache/books/pin_table.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "base/vectors.h"

namespace stemma::cache {

PinId PinTable::add(Pin pin, uint64_t deadline_ns) {
  base::make_room(deadlines_, 1);
  base::make_room(slots_, 1);
  base::make_room(free_, slots_.size() + 1 - free_.size());
  const auto first = at_.try_emplace(pin.cell, kNone).first;
  uint32_t number;
  if (free_.empty()) {
    number = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[number];
  slot.before = kNone;
  slot.next = std::exchange(first->second, number);
  if (slot.next != kNone) slots_[slot.next].before = number;
  slot.pin = std::move(pin);
  depth_sum_ += slot.pin.depth_cells;
  // One counter for all caches, so that a pin of one cache is never valid in another.
  static std::atomic<uint32_t> pins_so_far{0};
  slot.generation = 1 + pins_so_far.fetch_add(1, std::memory_order_relaxed);
  if (deadline_ns != kNever) {
    deadlines_.push_back({deadline_ns, number, slot.generation});
    std::push_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
  }
  return PinId{uint64_t{slot.generation} << 32U | number};
}

PinTable::Pin PinTable::remove(uint32_t number) noexcept {
  unlink(number);
  Pin pin = std::exchange(slots_[number].pin, {});
  depth_sum_ -= pin.depth_cells;
  free_.push_back(number);
  if (deadlines_.size() > 2 * (slots_.size() - free_.size()) + 64) {
    std::erase_if(deadlines_,
                  [&](const Deadline& due) { return !lives(due.slot, due.generation); });
    std::make_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
  }
  return pin;
}

void PinTable::unlink(uint32_t number) noexcept {
  const Slot& slot = slots_[number];
  if (slot.next != kNone) slots_[slot.next].before = slot.before;
  if (slot.before != kNone) {
    slots_[slot.before].next = slot.next;
  } else if (slot.next != kNone) {
    at_.find(slot.pin.cell)->second = slot.next;
  } else {
    at_.erase(slot.pin.cell);
  }
}

uint32_t PinTable::find(PinId id) const noexcept {
  const auto slot = static_cast<uint32_t>(static_cast<uint64_t>(id));
  const auto generation = static_cast<uint32_t>(static_cast<uint64_t>(id) >> 32U);
  return lives(slot, generation) ? slot : kNone;
}

uint32_t PinTable::at(CellIndex cell) const noexcept {
  const auto first = at_.find(cell);
  return first == at_.end() ? kNone : first->second;
}

uint32_t PinTable::take_due(uint64_t now_ns) noexcept {
  while (is_due(now_ns)) {
    const Deadline due = deadlines_.front();
    std::pop_heap(deadlines_.begin(), deadlines_.end(), std::greater<>());
    deadlines_.pop_back();
    if (lives(due.slot, due.generation)) return due.slot;
  }
  return kNone;
}

uint64_t PinTable::bytes() const noexcept {
  return slots_.capacity() * sizeof(Slot) + deadlines_.capacity() * sizeof(Deadline) +
         at_.size() * 32 + at_.bucket_count() * sizeof(void*);
}

}  // namespace stemma::cache
