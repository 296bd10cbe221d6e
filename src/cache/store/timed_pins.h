// TimedPins: what callers pinned holds until it is unpinned, its deadline passes, or it is
// forgotten.
//
// Invariant:  pins never hold more than their share of a pool (Options::pin_share).
// Threading:  one thread at a time. Ending a pin needs no memory.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/store/census.h"

namespace stemma::cache {

class TimedPins {
 public:
  TimedPins(Books& books, Blocks& blocks, Holds& holds, Census& census) noexcept
      : books_(books), blocks_(blocks), holds_(holds), census_(census) {}

  // Holds the path to a cell and, in addition, blocks of loose groups. Error: over_pin_share. May
  // throw std::bad_alloc before anything changes.
  Result<PinId> add(CellIndex cell, uint32_t depth_cells, std::vector<LooseBlock> blocks,
                    uint64_t deadline_ns);
  // Returns false if there is no such pin.
  bool end(PinId id);
  // Ends the pins whose deadline has passed.
  void expire();
  // Ends the pins of a cell that was forgotten. O(its pins).
  void forget_at(CellIndex cell);
  void end_all();

 private:
  // What was pinned counts as used now, unless it was forgotten.
  enum class Because : uint8_t { used, forgotten };
  void end(uint32_t slot, Because why);

  Books& books_;
  Blocks& blocks_;
  Holds& holds_;
  Census& census_;
};

}  // namespace stemma::cache
