// What a stack reports about itself.
#include <algorithm>

#include "tier/layered_stack.h"

namespace stemma::tier {

size_t TierStack::covered(std::span<const LevelMask> levels) noexcept {
  const auto hole = std::find(levels.begin(), levels.end(), 0U);
  return static_cast<size_t>(hole - levels.begin());
}

StackStats LayeredStack::stats() const {
  StackStats stats;
  for (const auto& level : levels_) {
    LevelStats one;
    one.name = level->tier->traits().name;
    one.tier = level->tier->stats();
    one.hits = level->hits.load(std::memory_order_relaxed);
    one.hit_bytes = level->hit_bytes.load(std::memory_order_relaxed);
    one.misses = level->misses.load(std::memory_order_relaxed);
    one.stored = level->stored.load(std::memory_order_relaxed);
    one.promoted = level->promoted.load(std::memory_order_relaxed);
    one.written_back = level->written_back.load(std::memory_order_relaxed);
    one.waiting = level->writer->waiting();
    one.dropped = level->writer->dropped();
    one.lost = level->lost.load(std::memory_order_relaxed);
    one.too_large = level->too_large.load(std::memory_order_relaxed);
    one.too_slow = level->too_slow.load(std::memory_order_relaxed);
    stats.levels.push_back(std::move(one));
  }
  stats.queries = queries_.load(std::memory_order_relaxed);
  stats.late_queries = late_queries_.load(std::memory_order_relaxed);
  stats.shared_loads = shared_loads_.load(std::memory_order_relaxed);
  stats.crowded = crowded_.load(std::memory_order_relaxed);
  const base::Lock lock(mutex_);
  for (size_t l = 0; l < levels_.size(); ++l) {
    stats.levels[l].latency_ns = speeds_[l].latency_ns();
    const double per_byte = speeds_[l].ns_per_byte();
    stats.levels[l].bytes_per_second = per_byte == 0 ? 0 : 1e9 / per_byte;
  }
  stats.prefetches = prefetches_;
  stats.dropped_prefetches = dropped_prefetches_;
  stats.probes = probes_;
  stats.rests = rests_;
  stats.token_ns = token_ns_.value();
  return stats;
}

}  // namespace stemma::tier
