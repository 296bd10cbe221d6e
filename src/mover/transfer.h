// One load, store or copy from its beginning until nobody asks about it any more.
//
//   Mover plans it -> a Copier starts it -> sums arrive -> finish() -> wait(), results()
//
// Invariant:  a transfer that is over touches neither pages nor host memory, and its outcome does
//             not change. It is over at most once, and then calls `done`.
// Threading:  thread-safe, except where a comment says who may call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/lock.h"
#include "mover/plan.h"

namespace stemma::mover {

inline constexpr uint64_t kNoStream = UINT64_MAX;
inline constexpr uint64_t kOwnStream = UINT64_MAX - 1;

// What a mover has done so far. Transfers share it with their mover.
struct Counters {
  std::atomic<uint64_t> loads{0}, stores{0}, copies{0};
  std::atomic<uint64_t> load_bytes{0}, store_bytes{0}, copy_bytes{0};
  std::atomic<uint64_t> staged_bytes{0}, batched_bytes{0}, wrong_blocks{0}, ring_waits{0};
  std::atomic<uint32_t> running{0};
};

// How a request wants its transfer; the plan is made from the rest of it.
struct TransferOptions {
  Way way = Way::to_pages;
  bool sum = false;
  std::vector<uint64_t> expected;  // A sum for each item, if the transfer checks them.
  size_t items = 0;
  uint64_t stream = kOwnStream;
  uint64_t after_stream = kNoStream;
  bool on_device = false;  // Both sides are the device's memory.
  // The host memory of the items, one after the other; `host_end` counts the pieces up to the end
  // of each item.
  std::vector<HostPiece> host;
  std::vector<size_t> host_end;
  void (*done)(void* user, std::optional<Errc> outcome) = nullptr;
  void* user = nullptr;
};

class Transfer {
 public:
  struct Outcome {
    uint64_t sum = 0;
    std::optional<Errc> error;
  };

  // `planner` has the steps whose pieces are not in the plan yet; it borrows from options.host.
  Transfer(Plan plan, BlockPlanner planner, TransferOptions options,
           std::shared_ptr<Counters> counters);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  const TransferOptions& options() const noexcept { return options_; }
  // Copiers may change `packed` of pieces before they start.
  Plan& plan() noexcept { return plan_; }
  // Copiers call one of these before they look at pieces: the next step is planned (false: there
  // is none), or all of them. Both throw std::bad_alloc.
  bool plan_next() { return planner_.next(plan_); }
  void plan_all() {
    while (plan_next()) {
    }
  }
  // The step that has the layer. Error: out_of_range.
  Result<uint32_t> step_of(uint32_t layer) const noexcept;

  // ---- For the copier.
  void add_sum(uint32_t item, uint64_t sum) noexcept {
    sums_[item].fetch_add(sum, std::memory_order_relaxed);
  }
  // Everything has arrived, or (failed) never will. Once; calls `done` on this thread. The copier
  // holds the transfer until this returns.
  void finish(bool failed) noexcept;
  // Whatever the copier wants to keep with the transfer.
  struct Extra {
    virtual ~Extra() = default;
  };
  std::unique_ptr<Extra> extra;

  // ---- For callers.
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  // Errors: busy (not over in time), corrupt (the value is the first wrong item), copy_failed.
  Result<void> wait(uint64_t wait_ns) const;
  // Requires over().
  size_t items() const noexcept { return options_.items; }
  Outcome outcome_of(size_t item) const noexcept;

 private:
  Result<void> outcome() const noexcept;

  Plan plan_;
  BlockPlanner planner_;
  TransferOptions options_;
  std::shared_ptr<Counters> counters_;
  std::unique_ptr<std::atomic<uint64_t>[]> sums_;
  mutable base::WaitMutex mutex_;
  mutable base::Condition ended_ STEMMA_GUARDED_BY(mutex_);
  std::atomic<bool> over_{false};      // Set under mutex_, so that wait() does not miss it.
  bool failed_ = false;                // Written before over_.
  uint32_t first_wrong_ = UINT32_MAX;  // Likewise.
};

}  // namespace stemma::mover
