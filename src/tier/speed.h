// How fast a tier has been so far, and whether loading from it beats computing again.
//
// A get takes a round trip plus time for its bytes: two numbers a tier, each a moving average.
// worth_loading() compares them with the engine's time for a token, so that nobody waits for a slow
// tier.
// Threading: one thread at a time. Cost: O(1); worth_loading() O(candidates + levels).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "stemma/tier/tier_stack.h"

namespace stemma::tier {

// The weight of the newest sample in the average.
inline constexpr double kNewest = 0.25;

class Average {
 public:
  explicit Average(double guess = 0) : value_(guess) {}
  void add(double sample) noexcept {
    value_ = samples_++ == 0 ? sample : value_ + kNewest * (sample - value_);
  }
  double value() const noexcept { return value_; }
  uint64_t samples() const noexcept { return samples_; }

 private:
  double value_;
  uint64_t samples_ = 0;
};

class Speed {
 public:
  // Assumed before the first sample.
  explicit Speed(double latency_ns = 0, double ns_per_byte = 0)
      : latency_ns_(latency_ns), ns_per_byte_(ns_per_byte) {}

  // A question without payload took this long.
  void answered(uint64_t ns) noexcept { latency_ns_.add(static_cast<double>(ns)); }
  // Getting this many bytes took this long.
  void moved(uint64_t bytes, uint64_t ns) noexcept {
    if (bytes == 0) return;
    const double without = std::max(0.0, static_cast<double>(ns) - latency_ns_.value());
    ns_per_byte_.add(without / static_cast<double>(bytes));
  }

  double latency_ns() const noexcept { return latency_ns_.value(); }
  double ns_per_byte() const noexcept { return ns_per_byte_.value(); }
  double estimate_ns(uint64_t bytes) const noexcept {
    return latency_ns() + ns_per_byte() * static_cast<double>(bytes);
  }

 private:
  Average latency_ns_, ns_per_byte_;
};

struct LoadCandidate {
  uint32_t level = 0;
  uint32_t tokens = 0;  // That loading it saves computing.
  uint64_t bytes = 0;
};

// The choice that saves most by loading candidates from the first on, none skipped. `token_ns` is
// the engine's time for a token; 0: unknown, so everything is worth loading. With `caution` above
// 1, loading must be that many times faster.
inline LoadChoice worth_loading(std::span<const LoadCandidate> candidates,
                                std::span<const Speed> levels, double token_ns,
                                double caution = 1.0) noexcept {
  double level_ns[kMostLevels] = {};
  LoadChoice best, so_far;
  for (const LoadCandidate& one : candidates) {
    double& ns = level_ns[one.level];
    if (ns == 0) ns = levels[one.level].latency_ns();
    ns += levels[one.level].ns_per_byte() * static_cast<double>(one.bytes);
    so_far.expected_ns = std::max(so_far.expected_ns, ns);
    so_far.saved_ns += token_ns * one.tokens;
    ++so_far.count;
    const double gain = so_far.saved_ns - caution * so_far.expected_ns;
    const double best_gain = best.saved_ns - caution * best.expected_ns;
    if (token_ns == 0 || gain > best_gain) best = so_far;
  }
  return best;
}

}  // namespace stemma::tier
