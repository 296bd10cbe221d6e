// Counts values into fixed buckets, as Prometheus wants them. A value, copied freely.
// Threading:  one thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace stemma::server {

class Histogram {
 public:
  static constexpr uint32_t kBuckets = 16;

  // From a millisecond to two minutes.
  static Histogram latency() noexcept {
    Histogram made;
    made.bounds_ = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,  0.2,
                    0.5,   1.0,   2.0,   5.0,  10.0, 30.0, 60.0, 120.0};
    return made;
  }

  void add(double value) noexcept {
    uint32_t bucket = 0;
    while (bucket < kBuckets && value > bounds_[bucket]) ++bucket;
    ++counts_[bucket];
    ++count_;
    sum_ += value;
  }

  // Bucket i counts values up to bound(i); the last bucket, i == kBuckets, counts all others.
  double bound(uint32_t bucket) const noexcept { return bounds_[bucket]; }
  uint64_t in_bucket(uint32_t bucket) const noexcept { return counts_[bucket]; }
  uint64_t count() const noexcept { return count_; }
  double sum() const noexcept { return sum_; }

 private:
  std::array<double, kBuckets> bounds_{};
  std::array<uint64_t, kBuckets + 1> counts_{};
  uint64_t count_ = 0;
  double sum_ = 0;
};

}  // namespace stemma::server
