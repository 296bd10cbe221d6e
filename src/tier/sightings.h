// Sightings remembers for each entry how often it was seen, which levels have it and when each was
// last known to have it, which levels are known not to have it, and which levels keep losing it.
// The table has a fixed size, so it forgets.
//
// Two entries may share a slot; the newer one stays. So answers are hints: at worst, an entry is
// stored one sighting late, or a second time.
// Threading: one thread at a time. Cost: O(1) a question, 72 bytes a slot; no allocation after
// creation.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "stemma/tier/tier_stack.h"

namespace stemma::tier {

class Sightings {
 public:
  explicit Sightings(uint32_t slots) : slots_(std::bit_ceil(slots < 2 ? 2U : slots)) {}

  // Counts a sighting; returns how many there were.
  uint32_t saw(const EntryKey& key) noexcept {
    Slot& slot = own(key);
    if (slot.seen < 255) ++slot.seen;
    return slot.seen;
  }
  LevelMask stored(const EntryKey& key) const noexcept { return look(key).levels; }
  // These levels have it: it was put or found there in this tick, or (0) at a time already noted.
  void set_stored(const EntryKey& key, LevelMask levels, uint32_t tick) noexcept {
    Slot& slot = own(key);
    slot.levels |= static_cast<uint8_t>(levels);
    slot.lacking &= static_cast<uint8_t>(~levels);
    slot.refused &= static_cast<uint8_t>(~levels);
    for (uint32_t l = 0; l < kMostLevels; ++l) {
      if ((levels & LevelMask{1} << l) == 0) continue;
      slot.known_ticks[l] = std::max(slot.known_ticks[l], tick);
    }
  }
  // When this level was last known to have it. 0: never, or forgotten.
  uint32_t known_tick(const EntryKey& key, uint32_t level) const noexcept {
    return look(key).known_ticks[level];
  }
  // The levels that refused it when it was put: there was no room.
  LevelMask refused(const EntryKey& key) const noexcept { return look(key).refused; }
  void set_refused(const EntryKey& key, LevelMask levels) noexcept {
    Slot& slot = own(key);
    slot.levels &= static_cast<uint8_t>(~levels);
    slot.refused |= static_cast<uint8_t>(levels);
  }
  // The levels that can never take it because it is too large.
  LevelMask too_large(const EntryKey& key) const noexcept { return look(key).too_large; }
  void set_too_large(const EntryKey& key, LevelMask levels) noexcept {
    own(key).too_large |= static_cast<uint8_t>(levels);
  }
  // Notes that the level does not, or no longer, have it.
  void clear_stored(const EntryKey& key, LevelMask levels) noexcept {
    if (stored(key) != 0) own(key).levels &= static_cast<uint8_t>(~levels);
  }
  // The levels that are known not to have it: they said so, or a put failed.
  LevelMask lacking(const EntryKey& key) const noexcept { return look(key).lacking; }
  void set_lacking(const EntryKey& key, LevelMask levels) noexcept {
    Slot& slot = own(key);
    slot.levels &= static_cast<uint8_t>(~levels);
    slot.lacking |= static_cast<uint8_t>(levels);
  }

  // ---- What a level keeps losing ----
  // The level lost it. After the first loss it is wanted at the next use; after each further loss
  // twice as many uses must pass first.
  void lost(const EntryKey& key, uint32_t level) noexcept {
    Slot& slot = own(key);
    uint8_t& losses = slot.losses[level];
    if (losses < kMostLosses) ++losses;
    slot.uses_to_wait[level] = static_cast<uint8_t>((1U << losses) - 2);
  }
  // The level still had it at a use: one loss is forgiven.
  void stayed(const EntryKey& key, uint32_t level) noexcept {
    uint8_t& losses = own(key).losses[level];
    if (losses != 0) --losses;
  }
  // Counts a use of an entry that the level lost. Returns whether it is too early to put it again.
  bool waits(const EntryKey& key, uint32_t level) noexcept {
    uint8_t& left = own(key).uses_to_wait[level];
    if (left == 0) return false;
    --left;
    return true;
  }

  void forget_all() noexcept { std::fill(slots_.begin(), slots_.end(), Slot()); }
  // Whether the levels have yet to be told of a use in this tick (a number above 0).
  bool is_due(const EntryKey& key, uint32_t tick) noexcept { return own(key).tick != tick; }
  void set_told(const EntryKey& key, uint32_t tick) noexcept { own(key).tick = tick; }
  uint32_t told_tick(const EntryKey& key) const noexcept { return look(key).tick; }
  // Makes is_due() true again, even in the same tick.
  void make_due(const EntryKey& key) noexcept { own(key).tick = 0; }

 private:
  static constexpr uint8_t kMostLosses = 6;  // 62 uses pass between two puts, at most.
  struct Slot {
    uint64_t hash = 0;
    uint32_t tick = 0;
    std::array<uint32_t, kMostLevels> known_ticks{};
    uint8_t levels = 0;
    uint8_t lacking = 0;
    uint8_t seen = 0;
    uint8_t refused = 0;
    uint8_t too_large = 0;
    std::array<uint8_t, kMostLevels> losses{};
    std::array<uint8_t, kMostLevels> uses_to_wait{};
  };
  static_assert(kMostLevels <= 8 && sizeof(Slot) == 72);
  static uint64_t hash(const EntryKey& key) noexcept { return std::hash<EntryKey>()(key); }
  // Another hash: nothing is known about it.
  const Slot& look(const EntryKey& key) const noexcept {
    static constexpr Slot kUnknown;
    const uint64_t wanted = hash(key);
    const Slot& slot = slots_[wanted & (slots_.size() - 1)];
    return slot.hash == wanted ? slot : kUnknown;
  }
  Slot& own(const EntryKey& key) noexcept {
    const uint64_t wanted = hash(key);
    Slot& slot = slots_[wanted & (slots_.size() - 1)];
    if (slot.hash != wanted) slot = {.hash = wanted};
    return slot;
  }

  std::vector<Slot> slots_;
};

}  // namespace stemma::tier
