// Sums over requests: totals, a sliding window, histograms.
//
// Threading:  one thread at a time.
// Cost:       fixed memory (about 25 KB); the window is kept in kSlices slices, so it is exact to
//             one slice. Threads count in shards that are added up when read: all counting is under
//             one lock, but a cache line that all threads write would move between cores on every
//             call.
#pragma once

#include <array>
#include <cstdint>

#include "base/thread_number.h"
#include "stemma/stats.h"

namespace stemma::cache {

class Counters {
 public:
  // Eviction ages are accurate to about `blocks` / 16 publications, over the lifetime of a block in
  // a pool of `blocks`.
  Counters(uint64_t window_ns, uint32_t blocks) noexcept
      : slice_ns_(window_ns / kSlices + 1), sample_step_(blocks / 16 + 1) {}

  void count(const Report& report, uint64_t now_ns) noexcept;
  void add_computed(uint64_t tokens, uint64_t now_ns) noexcept;
  // Remembers when publication number `birth` happened, roughly.
  void sample_birth(uint32_t birth, uint64_t now_ns) noexcept;
  void count_eviction(uint32_t birth, uint64_t now_ns) noexcept {
    if (birth - cached_begin_ >= cached_span_ || now_ns != cached_now_ns_) find_age(birth, now_ns);
    ++eviction_age_us_[cached_bucket_];
  }

  Counts total() const noexcept;
  Counts window(uint64_t now_ns) const noexcept;
  Histogram match_tokens() const noexcept;
  const Histogram& eviction_age_us() const noexcept { return eviction_age_us_; }

 private:
  static constexpr uint32_t kSlices = 12;
  static constexpr uint32_t kShards = 8;
  static constexpr uint32_t kSamples = 64;
  struct alignas(64) Slice {
    uint64_t number = ~uint64_t{0};
    Counts counts;
  };
  struct alignas(64) Shard {
    std::array<Slice, kSlices> slices{};
    Counts past;  // Sum of the slices that were reused.
    Histogram match_tokens{};
  };
  struct Sample {
    uint32_t birth = 0;
    uint64_t now_ns = 0;
  };
  Shard& shard() noexcept { return shards_[base::thread_number() % kShards]; }
  Counts& counts(Shard& shard, uint64_t now_ns) noexcept;
  void find_age(uint32_t birth, uint64_t now_ns) noexcept;

  uint64_t slice_ns_;
  std::array<Shard, kShards> shards_{};
  Histogram eviction_age_us_{};
  std::array<Sample, kSamples> samples_{};  // A ring, ascending from samples_begin_.
  uint32_t sample_count_ = 0;
  uint32_t samples_begin_ = 0;
  uint32_t sample_step_;
  // The sample found last. It serves births in [begin, begin + span): evictions come in runs.
  uint32_t cached_begin_ = 0;
  uint32_t cached_span_ = 0;
  uint32_t cached_bucket_ = 0;
  uint64_t cached_now_ns_ = 0;
};

uint32_t histogram_bucket(uint64_t value) noexcept;

}  // namespace stemma::cache
