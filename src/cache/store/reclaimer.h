// The Reclaimer evicts ahead of need and holds what it evicts, so that a caller can save the bytes
// before the blocks are written again.
//
// Invariant:  Books::reclaimed counts the evicted blocks of each group that are still held.
// Threading:  one thread at a time.
// Cost:       O(blocks evicted) and their paths.
#pragma once

#include <cstdint>
#include <span>

#include "cache/store/evictor.h"
#include "cache/store/reclaim_list.h"

namespace stemma::cache {

class Reclaimer {
 public:
  Reclaimer(Books& books, Anchors& anchors, Evictor& evictor) noexcept
      : books_(books), anchors_(anchors), evictor_(evictor) {}

  // Evicts until `positions` more positions could be drafted at once, at most `most` cells and
  // loose blocks. Holds the evicted blocks until end(). Stops early if memory runs out. Returns how
  // many it evicted.
  uint32_t reclaim(uint32_t positions, uint32_t most, ReclaimList& out);
  void end(std::span<const Reclaimed::Block> blocks) noexcept;

 private:
  // The least number of cells to evict before `positions` positions can be drafted in all full
  // groups.
  uint32_t cells_short_of(uint32_t positions) const noexcept;
  // Makes room for one window in window groups and for one slot in recurrent groups.
  uint32_t reclaim_loose(uint32_t positions, uint32_t most, ReclaimList& out);

  Books& books_;
  Anchors& anchors_;
  Evictor& evictor_;
};

}  // namespace stemma::cache
