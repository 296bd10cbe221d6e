// PageRuns: the free pages of the slab, and the record that has each other one. It does no I/O.
//
// All pages are in runs, in order of place. A run is free, set aside (never to be used), or a
// record's; a record has a chain of up to kMostExtents runs. Free runs are also in bins by size:
// exact below sixteen pages, then eight bins for each power of two.
//
//   take(): the tightest free run that fits; else the largest ones, then a tight one for the
//   rest
//
// Invariant:  the runs cover [0, pages()) without gaps; no two free runs touch.
// Threading:  one thread at a time.
// Cost:       28 bytes a run. take() and release() are O(kMostExtents); only reserve() and append()
//             allocate.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tier/disk/layout.h"

namespace stemma::tier::disk {

using RunId = uint32_t;
inline constexpr RunId kNoRun = 0xFFFF'FFFFU;

class PageRuns {
 public:
  static constexpr uint32_t kFree = 0xFFFF'FFFFU;      // As owners.
  static constexpr uint32_t kSetAside = 0xFFFF'FFFEU;  // Others are records.

  struct Run {
    uint32_t first = 0;
    uint32_t count = 0;
    uint32_t owner = kFree;
    RunId before = kNoRun, after = kNoRun;  // By place.
    RunId next = kNoRun;                    // Of the same record, or in its bin.
    RunId previous = kNoRun;                // In its bin.
  };
  PageRuns() noexcept { bins_.fill(kNoRun); }

  const Run& operator[](RunId id) const noexcept { return runs_[id]; }
  RunId last() const noexcept { return last_; }  // By place.
  uint64_t pages() const noexcept { return pages_; }
  uint64_t free_pages() const noexcept { return free_pages_; }
  uint64_t bytes() const noexcept { return runs_.capacity() * sizeof(Run); }

  // Ensures that the next take() needs no memory. False: no memory.
  bool reserve() noexcept;
  // Adds pages after the last one. Free ones join free neighbours. Throws std::bad_alloc.
  RunId append(uint32_t count, uint32_t owner);
  void link(RunId run, RunId next) noexcept { runs_[run].next = next; }

  bool fits_in_one(uint64_t count) const noexcept { return fit(count) != kNoRun; }
  // A chain of `count` pages for `owner`; kNoRun: the free pages are too few or too scattered.
  // Requires: reserve().
  RunId take(uint64_t count, uint32_t owner) noexcept;
  // Gives the chain to another owner.
  void give(RunId run, uint32_t owner) noexcept;
  // Frees the run. Returns the free run that it is part of now.
  RunId release(RunId run) noexcept;
  void release_chain(RunId run) noexcept;
  // Sets aside pages at the end of a free run. Returns which. Requires: reserve().
  Extent set_aside(RunId run, uint32_t count) noexcept;
  // Removes the last `count` pages. Requires: they are free; reserve().
  void drop(uint32_t count) noexcept;

  void check_invariants() const;

 private:
  static constexpr uint32_t kBins = 240;
  static uint32_t bin_of(uint32_t count) noexcept;
  RunId fit(uint64_t count) const noexcept;
  RunId first_from(uint32_t bin) const noexcept;
  RunId largest() const noexcept;
  void enter(RunId id) noexcept;  // Makes it free, in its bin.
  void leave(RunId id) noexcept;
  RunId new_run();
  RunId split(RunId id, uint32_t count) noexcept;  // Keeps `count`; returns the rest.
  void unlink(RunId id) noexcept;                  // By place; its node becomes spare.

  std::vector<Run> runs_;
  RunId spare_ = kNoRun;  // Nodes without a run.
  RunId last_ = kNoRun;
  uint64_t pages_ = 0;
  uint64_t free_pages_ = 0;
  std::array<RunId, kBins> bins_;
  std::array<uint64_t, 4> filled_ = {};  // Bins that are not empty.
};

}  // namespace stemma::tier::disk
