// Takes the pages of a memory range from the system before they are needed: a fresh page costs its
// first writer 0.5 us (mostly to clear the page), which is longer than filling it.
//
// Contract:   pages are taken from the start of the memory up to the limit given to warm_up_to(),
//             in steps of 32 MiB. A page not yet taken works as usual: its first writer takes it.
//             Bytes do not change. If the system cannot take pages ahead (Linux before 5.14, no
//             thread), nothing happens.
// Ownership:  the caller owns the memory, which is mapped for writing up to the limit and outlives
//             the warmer.
// Threading:  thread-safe. It has one thread, which starts with the first call and sleeps when
//             there is nothing to take.
#pragma once

#include <cstdint>
#include <thread>

#include "base/lock.h"

namespace stemma::base {

class PageWarmer {
 public:
  explicit PageWarmer(uint8_t* memory) noexcept : memory_(memory) {}
  ~PageWarmer();  // Waits for the current step.
  PageWarmer(const PageWarmer&) = delete;
  PageWarmer& operator=(const PageWarmer&) = delete;

  // The limit never falls.
  void warm_up_to(uint64_t bytes) noexcept;
  // Waits until the limit is reached or known to be unreachable.
  void wait() noexcept;
  // Bytes up to which pages were taken.
  uint64_t warm_bytes() const noexcept;

 private:
  void run() noexcept;

  uint8_t* memory_;
  mutable base::WaitMutex mutex_;
  base::Condition changed_;
  uint64_t wanted_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t warm_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool ends_ STEMMA_GUARDED_BY(mutex_) = false;
  bool gave_up_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stemma::base
