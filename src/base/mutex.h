// The lock of caches. Its sections are short, so a waiter spins a little before it sleeps.
// Annotated for clang's thread-safety analysis.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__clang__)
#define STEMMA_ANNOTATE(x) __attribute__((x))
#else
#define STEMMA_ANNOTATE(x)
#endif
#define STEMMA_CAPABILITY(x) STEMMA_ANNOTATE(capability(x))
#define STEMMA_SCOPED_CAPABILITY STEMMA_ANNOTATE(scoped_lockable)
#define STEMMA_GUARDED_BY(x) STEMMA_ANNOTATE(guarded_by(x))
#define STEMMA_REQUIRES(...) STEMMA_ANNOTATE(requires_capability(__VA_ARGS__))
#define STEMMA_ACQUIRE(...) STEMMA_ANNOTATE(acquire_capability(__VA_ARGS__))
#define STEMMA_TRY_ACQUIRE(...) STEMMA_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define STEMMA_RELEASE(...) STEMMA_ANNOTATE(release_capability(__VA_ARGS__))
#define STEMMA_EXCLUDES(...) STEMMA_ANNOTATE(locks_excluded(__VA_ARGS__))
#define STEMMA_NO_ANALYSIS STEMMA_ANNOTATE(no_thread_safety_analysis)

namespace stemma::base {

// States: 0 free, 1 held, 2 held and a thread may be sleeping.
//   lock:    0 -> 1 by compare-exchange; after a while of polling (loads only, so that waiters
//            leave the cache line with the holder) any -> 2 by exchange, then sleep until it
//            changes.
//   unlock:  -> 0 by exchange; if it was 2, wake one.
class STEMMA_CAPABILITY("mutex") Mutex {
 public:
  void lock() noexcept STEMMA_ACQUIRE() {
    uint32_t expected = 0;
    if (state_.compare_exchange_strong(expected, 1, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
      return;
    }
    lock_slowly();
  }
  void unlock() noexcept STEMMA_RELEASE() {
    if (state_.exchange(0, std::memory_order_release) == 2) state_.notify_one();
  }

 private:
  void lock_slowly() noexcept;

  std::atomic<uint32_t> state_{0};
};

class STEMMA_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) noexcept STEMMA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() STEMMA_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace stemma::base
