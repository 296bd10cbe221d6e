// RangeMover: buffers for large ranges of saved bytes, and threads that take them apart or put them
// together.
//
// An engine on a device moves one large range much faster than many small ones, and fastest from
// and to memory that the device's driver has pinned. But the cache keeps small segments. So a range
// is read into a buffer here, and several threads cut it into segments, each with its checksum,
// while the engine goes on. For loading, the threads join segments, and the engine takes the range
// in one call.
//
// A separate thread pins the buffers one after the other, beginning with create(). Until then, and
// if the driver refuses, they are plain memory.
//
// If an engine claims to have written bytes but has not, old contents of the buffer must not pass
// for them. So a free buffer is zeroed or, if much of it was used, has marks at short distances;
// unwritten() looks for these.
//
// Invariant:  a buffer is free, or taken by one caller, or being pinned or made ready for the next.
// Threading:  thread-safe. Tasks run on the mover's threads and on threads that wait for a batch.
// Ownership:  the caller owns a Batch, and keeps it until it is done. The hook outlives the mover.
// Cost:       buffers * buffer_bytes of memory, taken as they are pinned or first used. Nothing is
//             allocated later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "base/slab.h"
#include "stemma/pinned_memory.h"

namespace stemma::sequence {

class RangeMover {
 public:
  struct Options {
    uint64_t buffer_bytes = 0;
    uint32_t buffers = 8;
    // Unset: two fewer than the machine has, at most 12. 0: start() does all the work.
    std::optional<uint32_t> threads;
    HostMemoryHook* hook = nullptr;  // Null: nothing is pinned.
  };
  // Returns null if the system gives no memory or no thread.
  static std::unique_ptr<RangeMover> create(const Options& options);
  ~RangeMover();
  RangeMover(const RangeMover&) = delete;
  RangeMover& operator=(const RangeMover&) = delete;

  // ---- Buffers ----
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  uint32_t buffers() const noexcept { return static_cast<uint32_t>(marked_.size()); }
  // Takes a free buffer and returns its number; kNone: all are in use, or the system gives no
  // memory.
  uint32_t take() noexcept;
  // Gives back a buffer whose first `used` bytes were written. The threads make it ready for the
  // next user.
  void give_back(uint32_t buffer, uint64_t used);
  // Whether bytes [begin, end) of a taken buffer have a part of 1 KiB that was not written since.
  bool unwritten(uint32_t buffer, uint64_t begin, uint64_t end) const noexcept;
  std::span<uint8_t> bytes(uint32_t buffer) const noexcept {
    return {memory_.data() + buffer * buffer_bytes_, buffer_bytes_};
  }

  // ---- Work ----
  // Tasks 0 to count - 1, which do not depend on each other and do not throw.
  struct Batch {
    std::function<void(uint32_t)> task;
    uint32_t count = 0;

   private:
    friend class RangeMover;
    uint32_t next = 0;              // Not begun yet. Under the mover's lock.
    std::atomic<uint32_t> left{0};  // Not done yet.
  };
  uint32_t threads() const noexcept { return thread_count_; }
  // `urgent`: done before all other work, by all threads. Only half of the threads do other work,
  // because more would slow down the device's copies, which need the same memory.
  void start(Batch& batch, bool urgent = false);
  static bool done(const Batch& batch) noexcept {
    return batch.left.load(std::memory_order_acquire) == 0;
  }
  // Helps with the work until the batch is done.
  void wait(Batch& batch);
  // Waits until a buffer is free, if one will be. Returns false if callers have taken all.
  bool wait_for_buffer();

  uint64_t pinned_bytes() const noexcept { return pinned_bytes_.load(std::memory_order_relaxed); }
  // For tests: waits until pinning was tried for all buffers.
  void wait_until_pinned();

 private:
  enum class Use : uint8_t { fresh, free, taken, pinning, cleaning, refused };

  RangeMover() = default;
  bool set_up(const Options& options);
  void work();
  void pin_all();
  // Zeroes, or marks, one part of what was used of a buffer.
  void make_ready(uint32_t buffer, uint32_t part) noexcept;
  // Does one task of `only`, or of any batch if that is null. The lock is given up meanwhile.
  // Returns false if there is no task.
  bool do_one(Batch* only) STEMMA_REQUIRES(mutex_);

  uint64_t buffer_bytes_ = 0;
  uint32_t thread_count_ = 0;
  HostMemoryHook* hook_ = nullptr;
  base::Slab<uint8_t> memory_;
  std::atomic<uint64_t> pinned_bytes_{0};
  // By buffer, and owned by the thread that has the buffer: the batch that makes it ready, how many
  // bytes must be made ready, and how many of its bytes have marks.
  std::vector<Batch> cleaning_;
  std::vector<uint64_t> used_;
  std::vector<uint64_t> marked_;

  base::WaitMutex mutex_;
  base::Condition work_;  // There is something to do, or the mover ends.
  base::Condition done_;  // A batch is done, or everything is pinned.
  std::vector<Use> uses_ STEMMA_GUARDED_BY(mutex_);
  std::vector<uint8_t> pinned_ STEMMA_GUARDED_BY(mutex_);  // By buffer.
  std::vector<Batch*> batches_
      STEMMA_GUARDED_BY(mutex_);  // Batches with tasks not begun, urgent ones first.
  std::ptrdiff_t urgent_ STEMMA_GUARDED_BY(mutex_) = 0;  // How many of batches_ are urgent.
  uint32_t leisurely_ STEMMA_GUARDED_BY(mutex_) = 0;     // Threads that do something not urgent.
  bool pinning_ STEMMA_GUARDED_BY(mutex_) = false;
  bool ending_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
  std::thread pinner_;
};

}  // namespace stemma::sequence
