// Counts what the program allocates through operator new while a counting window is open.
//
// The program `stemma` replaces the global operators (allocations.cc); outside a counting window
// they cost one relaxed load more than the usual ones.
// Threading: thread-safe; one window at a time.
#pragma once

#include <cstdint>

namespace stemma::bench {

class AllocationWindow {
 public:
  AllocationWindow() noexcept;
  ~AllocationWindow();
  AllocationWindow(const AllocationWindow&) = delete;
  AllocationWindow& operator=(const AllocationWindow&) = delete;

  // Calls of operator new since the window opened.
  uint64_t calls() const noexcept;
  // Bytes taken less bytes given back since then, with malloc's rounding.
  int64_t live_bytes() const noexcept;
};

}  // namespace stemma::bench
