#include "stemma/clock.h"

#include <chrono>

namespace stemma {
namespace {

class MonotonicClock final : public Clock {
 public:
  uint64_t now_ns() const noexcept override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }
};

}  // namespace

const Clock& Clock::monotonic() noexcept {
  static const MonotonicClock clock;
  return clock;
}

}  // namespace stemma
