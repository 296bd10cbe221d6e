// Which entries were seen before, and on which levels they were put: a table of fixed size that forgets.
//
// Two entries may meet in a slot; the newer stays. So it is a hint: an entry may be stored a sighting
// late, or a second time, and nothing else.
// Threading: one thread at a time. Cost: O(1) a question, 16 bytes a slot; no allocation after creation.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "stemma/tier_stack.h"

namespace stemma::tier {

class Sightings {
 public:
  explicit Sightings(uint32_t slots) : slots_(std::bit_ceil(slots < 2 ? 2U : slots)) {}

  // Counts one more; returns how often it was seen by now.
  uint32_t saw(const EntryKey& key) noexcept {
    Slot& slot = own(key);
    if (slot.seen < 255) ++slot.seen;
    return slot.seen;
  }
  LevelMask stored(const EntryKey& key) const noexcept {
    const Slot& slot = slots_[hash(key) & (slots_.size() - 1)];
    return slot.hash == hash(key) ? slot.levels : 0;
  }
  void set_stored(const EntryKey& key, LevelMask levels) noexcept { own(key).levels |= levels; }
  // It is known not to be there (any more).
  void clear_stored(const EntryKey& key, LevelMask levels) noexcept {
    if (stored(key) != 0) own(key).levels &= ~levels;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    LevelMask levels = 0;
    uint32_t seen = 0;
  };
  static uint64_t hash(const EntryKey& key) noexcept { return std::hash<EntryKey>()(key); }
  Slot& own(const EntryKey& key) noexcept {
    const uint64_t wanted = hash(key);
    Slot& slot = slots_[wanted & (slots_.size() - 1)];
    if (slot.hash != wanted) slot = {wanted, 0, 0};
    return slot;
  }

  std::vector<Slot> slots_;
};

}  // namespace stemma::tier
