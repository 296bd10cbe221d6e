// RangeMover: buffers for large ranges of saved bytes, and threads that take them apart or put them together.
//
// An engine on a device moves one large range much faster than many small ones, and fastest from and to memory that
// the device's driver has pinned. What is kept are small segments. So a range is read into a buffer here, and
// several threads cut it into segments, each with its checksum, while the engine goes on; to load, they put segments
// together, and the engine takes the range in one call.
//
// Buffers are pinned one after the other by a thread of their own, beginning with create(); until then, and where the
// driver refuses, they are plain memory.
//
// What an engine says it has written, and has not, must not pass for what somebody else left in the buffer. So a free
// buffer is zeroes, or, where it was used for much, has marks at short distances, and unwritten() looks for them.
//
// Invariant:  a buffer is free, or taken by one caller, or being pinned or made ready for the next.
// Threading:  thread-safe. Tasks run on the mover's threads, and on that of whoever waits.
// Ownership:  a Batch is the caller's, and must be done before it goes. The hook outlives the mover.
// Cost:       buffers * buffer_bytes of memory, taken as they are pinned or first used. Nothing is allocated later.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/slab.h"
#include "stemma/pinned_memory.h"

namespace stemma::sequence {

class RangeMover {
 public:
  struct Options {
    uint64_t buffer_bytes = 0;
    uint32_t buffers = 8;
    // Without a number as many as the machine has but two, 12 at most. 0: start() does all the work.
    std::optional<uint32_t> threads;
    HostMemoryHook* hook = nullptr;  // Null: nothing is pinned.
  };
  // Null: the system gives no memory or no thread.
  static std::unique_ptr<RangeMover> create(const Options& options);
  ~RangeMover();
  RangeMover(const RangeMover&) = delete;
  RangeMover& operator=(const RangeMover&) = delete;

  // ---- Buffers ----
  static constexpr uint32_t kNone = 0xFFFF'FFFFU;
  uint64_t buffer_bytes() const noexcept { return buffer_bytes_; }
  uint32_t buffers() const noexcept { return static_cast<uint32_t>(marked_.size()); }
  // The number of a free one; kNone: all are in use, or the system gives no memory.
  uint32_t take() noexcept;
  // Of its bytes the first `used` were written. The threads make it ready for the next.
  void give_back(uint32_t buffer, uint64_t used);
  // Whether bytes [begin, end) of a buffer that was taken have a part of 1 KiB that nobody has written since.
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
  // `urgent`: before everything that waits to be done, and by all threads. Half of them do what is not: they would
  // slow down the copies of the device, which need the same memory.
  void start(Batch& batch, bool urgent = false);
  static bool done(const Batch& batch) noexcept {
    return batch.left.load(std::memory_order_acquire) == 0;
  }
  // Works along until the batch is done.
  void wait(Batch& batch);
  // Waits until a buffer is free, if any is on its way to be. False: all are taken by callers.
  bool wait_for_buffer();

  uint64_t pinned_bytes() const noexcept { return pinned_bytes_.load(std::memory_order_relaxed); }
  // Has tried to pin everything. For tests: waits until then.
  void wait_until_pinned();

 private:
  enum class Use : uint8_t { fresh, free, taken, pinning, cleaning, refused };

  RangeMover() = default;
  bool set_up(const Options& options);
  void work();
  void pin_all();
  // Zeroes or marks for a part of what was used of a buffer.
  void make_ready(uint32_t buffer, uint32_t part) noexcept;
  // Does one task of some batch, or of this one. The lock is held before and after. False: there is none.
  bool do_one(std::unique_lock<std::mutex>& lock, Batch* only);

  uint64_t buffer_bytes_ = 0;
  uint32_t thread_count_ = 0;
  HostMemoryHook* hook_ = nullptr;
  base::Slab<uint8_t> memory_;
  std::atomic<uint64_t> pinned_bytes_{0};

  std::mutex mutex_;
  std::condition_variable work_;  // There is something to do, or it ends.
  std::condition_variable done_;  // A batch is done, or everything is pinned.
  std::vector<Use> uses_;
  std::vector<uint8_t> pinned_;   // By buffer.
  std::vector<Batch> cleaning_;   // By buffer.
  std::vector<uint64_t> used_;    // By buffer: what is to be made ready.
  std::vector<uint64_t> marked_;  // By buffer: so many of its bytes have marks.
  std::vector<Batch*> batches_;   // That have tasks not begun, urgent ones first.
  std::ptrdiff_t urgent_ = 0;     // So many.
  uint32_t leisurely_ = 0;        // Threads that do something not urgent.
  bool pinning_ = false;
  bool ending_ = false;
  std::vector<std::thread> threads_;
  std::thread pinner_;
};

}  // namespace stemma::sequence
