// Sightings remembers, for each entry: how often it was seen, which levels have it, and which levels are known
// not to. The table has a fixed size, so it forgets.
//
// Two entries may meet in a slot; the newer stays. So it is a hint: an entry may be stored a sighting
// late, or a second time, and nothing else.
// Threading: one thread at a time. Cost: O(1) a question, 16 bytes a slot; no allocation after creation.
#pragma once

#include <algorithm>
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
  void set_stored(const EntryKey& key, LevelMask levels) noexcept {
    Slot& slot = own(key);
    slot.levels |= static_cast<uint8_t>(levels);
    slot.lacking &= static_cast<uint8_t>(~levels);
    slot.refused &= static_cast<uint8_t>(~levels);
  }
  // The levels that refused it when it was put: too large, or no room.
  LevelMask refused(const EntryKey& key) const noexcept {
    const Slot& slot = slots_[hash(key) & (slots_.size() - 1)];
    return slot.hash == hash(key) ? slot.refused : 0;
  }
  void set_refused(const EntryKey& key, LevelMask levels) noexcept {
    Slot& slot = own(key);
    slot.levels &= static_cast<uint8_t>(~levels);
    slot.refused |= static_cast<uint8_t>(levels);
  }
  // It is known not to be there (any more).
  void clear_stored(const EntryKey& key, LevelMask levels) noexcept {
    if (stored(key) != 0) own(key).levels &= static_cast<uint8_t>(~levels);
  }
  // The levels that are known not to have it: they said so, or a put failed.
  LevelMask lacking(const EntryKey& key) const noexcept {
    const Slot& slot = slots_[hash(key) & (slots_.size() - 1)];
    return slot.hash == hash(key) ? slot.lacking : 0;
  }
  void set_lacking(const EntryKey& key, LevelMask levels) noexcept {
    Slot& slot = own(key);
    slot.levels &= static_cast<uint8_t>(~levels);
    slot.lacking |= static_cast<uint8_t>(levels);
  }
  void forget_all() noexcept { std::fill(slots_.begin(), slots_.end(), Slot()); }
  // Whether the levels were not told of a use in this tick (a number above 0) yet.
  bool is_due(const EntryKey& key, uint32_t tick) noexcept { return own(key).tick != tick; }
  void set_told(const EntryKey& key, uint32_t tick) noexcept { own(key).tick = tick; }
  // is_due() says yes again, in the same tick too.
  void make_due(const EntryKey& key) noexcept { own(key).tick = 0; }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t tick = 0;
    uint8_t levels = 0;
    uint8_t lacking = 0;
    uint8_t seen = 0;
    uint8_t refused = 0;
  };
  static_assert(kMostLevels <= 8 && sizeof(Slot) == 16);
  static uint64_t hash(const EntryKey& key) noexcept { return std::hash<EntryKey>()(key); }
  Slot& own(const EntryKey& key) noexcept {
    const uint64_t wanted = hash(key);
    Slot& slot = slots_[wanted & (slots_.size() - 1)];
    if (slot.hash != wanted) slot = {.hash = wanted};
    return slot;
  }

  std::vector<Slot> slots_;
};

}  // namespace stemma::tier
