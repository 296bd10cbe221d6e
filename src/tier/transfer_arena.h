// Memory for bytes on their way between tiers and an engine: taken once, perhaps pinned, and
// reused, so that a device can read and write it directly.
//
// A range is consecutive whole pages of 4 KiB; free neighbours form one range.
//
// Invariant:  every page is in exactly one range, taken or free; no two free ranges are neighbours.
// Threading:  thread-safe.
// Cost:       take() searches from the range taken last, at worst through all ranges; give_back()
//             is O(1). Nothing is allocated after create(). 8 bytes of books a page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/page_warmer.h"
#include "base/slab.h"
#include "stemma/tier/host_tier.h"

namespace stemma::tier {

class TransferArena {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  // The hook may be null, and must outlive the arena. Returns null without memory. `bytes` is
  // rounded down to whole pages, at least one.
  static std::shared_ptr<TransferArena> create(uint64_t bytes, HostMemoryHook* hook);
  ~TransferArena();
  TransferArena(const TransferArena&) = delete;
  TransferArena& operator=(const TransferArena&) = delete;

  // Null: no free range is long enough.
  uint8_t* take(uint64_t bytes) noexcept;
  void give_back(const uint8_t* memory) noexcept;

  uint64_t bytes() const noexcept { return uint64_t{pages_} * kPageBytes; }
  uint64_t taken_bytes() const noexcept;
  void check_invariants() const;

 private:
  // About a range: at its first and its last page.
  struct Range {
    uint32_t pages;
    uint32_t free;
  };

  TransferArena() = default;
  void mark(uint32_t first, uint32_t pages, bool free) noexcept STEMMA_REQUIRES(mutex_) {
    ranges_[first] = ranges_[first + pages - 1] = {pages, free ? 1U : 0U};
  }

  mutable base::Mutex mutex_;
  uint32_t pages_ = 0;
  base::Slab<uint8_t> memory_;
  std::optional<base::PageWarmer> warmer_;  // If the memory is not pinned. Ends before it.
  base::Slab<Range> ranges_;
  HostMemoryHook* pinned_by_ = nullptr;
  uint32_t next_ STEMMA_GUARDED_BY(mutex_) = 0;  // The first page of a range: where take() begins.
  uint32_t taken_ STEMMA_GUARDED_BY(mutex_) = 0;
};

}  // namespace stemma::tier
