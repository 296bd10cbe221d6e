// A tier's counts of ended items. Every item counts in exactly one place, so that
//
//   puts + gets + contains + removed + touched + absent + refused + corrupt + failed + late + cancelled
//
// is the number of items that have ended. `already_there` counts some of the puts a second time.
// Threading: thread-safe; read() is consistent once nothing is under way.
#pragma once

#include <atomic>
#include <cstdint>

#include "stemma/tier/tier.h"

namespace stemma::tier {

class Counters {
 public:
  // `bytes` of a payload; they count if the outcome is done.
  void count(TierOp op, TierOutcome outcome, uint64_t bytes) noexcept {
    add(cell(op, outcome), 1);
    if (outcome != TierOutcome::done) return;
    if (op == TierOp::put) add(put_bytes_, bytes);
    if (op == TierOp::get) add(get_bytes_, bytes);
  }
  void count_already_there() noexcept { add(already_there_, 1); }
  void count_eviction(uint64_t bytes) noexcept {
    add(evictions_, 1);
    add(evicted_bytes_, bytes);
  }

  void read(TierStats& stats) const noexcept {
    const auto all = [this](TierOutcome outcome) {
      uint64_t sum = 0;
      for (const auto& of_op : ended_) sum += get(of_op[static_cast<size_t>(outcome)]);
      return sum;
    };
    const auto done = [this](TierOp op) {
      return get(ended_[static_cast<size_t>(op)][static_cast<size_t>(TierOutcome::done)]);
    };
    stats.puts = done(TierOp::put);
    stats.put_bytes = get(put_bytes_);
    stats.already_there = get(already_there_);
    stats.gets = done(TierOp::get);
    stats.get_bytes = get(get_bytes_);
    stats.contains = done(TierOp::contains);
    stats.removed = done(TierOp::remove);
    stats.touched = done(TierOp::touch);
    stats.absent = all(TierOutcome::absent);
    stats.refused = all(TierOutcome::refused);
    stats.corrupt = all(TierOutcome::corrupt);
    stats.failed = all(TierOutcome::failed);
    stats.late = all(TierOutcome::late);
    stats.cancelled = all(TierOutcome::cancelled);
    stats.evictions = get(evictions_);
    stats.evicted_bytes = get(evicted_bytes_);
  }

 private:
  using Count = std::atomic<uint64_t>;
  static void add(Count& count, uint64_t by) noexcept {
    count.fetch_add(by, std::memory_order_relaxed);
  }
  static uint64_t get(const Count& count) noexcept { return count.load(std::memory_order_relaxed); }
  Count& cell(TierOp op, TierOutcome outcome) noexcept {
    return ended_[static_cast<size_t>(op)][static_cast<size_t>(outcome)];
  }

  Count ended_[5][8] = {};
  Count put_bytes_{0}, get_bytes_{0}, already_there_{0}, evictions_{0}, evicted_bytes_{0};
};

// Time in which at least one of several things was under way.
class BusyTime {
 public:
  void begin(uint64_t now_ns) noexcept {
    if (under_way_++ == 0) since_ns_ = now_ns;
  }
  void end(uint64_t now_ns) noexcept {
    if (--under_way_ == 0) total_ns_ += now_ns - since_ns_;
  }
  uint64_t total_ns(uint64_t now_ns) const noexcept {
    return total_ns_ + (under_way_ != 0 ? now_ns - since_ns_ : 0);
  }

 private:
  uint64_t since_ns_ = 0, total_ns_ = 0;
  uint32_t under_way_ = 0;
};

}  // namespace stemma::tier
