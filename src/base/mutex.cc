#include "base/mutex.h"

namespace stemma::base {
namespace {

void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Mutex::lock_slowly() noexcept {
  // Sections are well under a microsecond apart from bulk commits; a sleep costs several.
  constexpr uint32_t kLooks = 512;
  for (uint32_t i = 0; i < kLooks; ++i) {
    spin_pause();
    uint32_t seen = state_.load(std::memory_order_relaxed);
    if (seen == 0 && state_.compare_exchange_weak(seen, 1, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
      return;
    }
  }
  while (state_.exchange(2, std::memory_order_acquire) != 0) {
    state_.wait(2, std::memory_order_relaxed);
  }
}

}  // namespace stemma::base
