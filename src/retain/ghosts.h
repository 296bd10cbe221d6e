// Ghosts: fingerprints of the last `capacity` evicted blocks, except those that came back. Each has
// one of two kinds and a note, a number that the policy gets back.
//
// A fingerprint has 30 bits: of two blocks that share one, the later is remembered. Good enough for
// what policies learn from ghosts, and for nothing else.
// Threading:  one thread at a time.
// Cost:       16 to 24 bytes a ghost, taken at the start; every call O(1) expected.
#pragma once

#include <bit>
#include <cstdint>

#include "retain/cell_array.h"

namespace stemma::retain {

class Ghosts {
 public:
  enum class Kind : uint8_t { first, second };

  // Returns false if out of memory.
  [[nodiscard]] bool create(uint32_t capacity) {
    capacity_ = capacity;
    mask_ = std::bit_ceil(2 * uint64_t{capacity} + 2) - 1;
    return ring_.reserve(capacity) && ring_.commit(capacity) &&
           slots_.reserve(static_cast<uint32_t>(mask_ + 1)) && slots_.commit(mask_ + 1);
  }
  uint32_t count(Kind kind) const noexcept { return counts_[static_cast<size_t>(kind)]; }

  void add(uint32_t print, Kind kind, uint32_t note = 0) noexcept {
    if (capacity_ == 0) return;
    (void)take(print);
    forget(next_);
    ring_[next_] = {(print & kPrint) << 2U | static_cast<uint32_t>(kind) << 1U | 1U, note};
    slots_[slot_of(print)] = next_ + 1;
    ++counts_[static_cast<size_t>(kind)];
    next_ = next_ + 1 == capacity_ ? 0 : next_ + 1;
  }
  struct Found {
    bool found = false;
    Kind kind = Kind::first;
    uint32_t note = 0;
  };
  // Finds and removes a ghost.
  Found take(uint32_t print) noexcept {
    const uint32_t at = slots_[slot_of(print)];
    if (at == 0) return {};
    const Found found{true, ring_[at - 1].kind(), ring_[at - 1].note};
    forget(at - 1);
    return found;
  }
  void clear() noexcept {
    for (uint32_t i = 0; i < capacity_; ++i) forget(i);
  }
  uint64_t bytes() const noexcept { return ring_.bytes() + slots_.bytes(); }

 private:
  static constexpr uint32_t kPrint = 0x3FFF'FFFFU;
  struct Ghost {
    uint32_t bits = 0;  // The print, its kind, and 1; 0 = empty.
    uint32_t note = 0;
    uint32_t print() const noexcept { return bits >> 2U; }
    Kind kind() const noexcept { return Kind{static_cast<uint8_t>(bits >> 1U & 1U)}; }
  };
  uint64_t home(uint32_t print) const noexcept {
    return ((print & kPrint) * 0x9E37'79B9'7F4A'7C15U >> 20U) & mask_;
  }
  // The slot where it is or would be.
  uint64_t slot_of(uint32_t print) const noexcept {
    uint64_t slot = home(print);
    while (slots_[slot] != 0 && ring_[slots_[slot] - 1].print() != (print & kPrint)) {
      slot = (slot + 1) & mask_;
    }
    return slot;
  }
  void forget(uint32_t at) noexcept {
    if (ring_[at].bits == 0) return;
    uint64_t hole = slot_of(ring_[at].print());
    --counts_[static_cast<size_t>(ring_[at].kind())];
    ring_[at] = {};
    slots_[hole] = 0;
    // Entries that it displaced move back.
    for (uint64_t slot = (hole + 1) & mask_; slots_[slot] != 0; slot = (slot + 1) & mask_) {
      const uint64_t wanted = home(ring_[slots_[slot] - 1].print());
      if (((slot - wanted) & mask_) < ((slot - hole) & mask_)) continue;
      slots_[hole] = slots_[slot];
      slots_[slot] = 0;
      hole = slot;
    }
  }

  CellArray<Ghost> ring_;
  CellArray<uint32_t> slots_;
  uint64_t mask_ = 0;
  uint32_t capacity_ = 0;
  uint32_t next_ = 0;
  uint32_t counts_[2] = {0, 0};
};

}  // namespace stemma::retain
