// The lock of caches: short sections, so a waiter spins a little before it sleeps. Annotated for
// clang's thread-safety analysis.
#pragma once

#include <mutex>

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
#define STEMMA_RELEASE(...) STEMMA_ANNOTATE(release_capability(__VA_ARGS__))
#define STEMMA_EXCLUDES(...) STEMMA_ANNOTATE(locks_excluded(__VA_ARGS__))

namespace stemma::base {

inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class STEMMA_CAPABILITY("mutex") Mutex {
 public:
  void lock() noexcept STEMMA_ACQUIRE() {
    // Sections are well under a microsecond apart from bulk commits; a futex sleep costs several.
    for (int i = 0; i < 256; ++i) {
      if (mutex_.try_lock()) return;
      spin_pause();
    }
    mutex_.lock();
  }
  void unlock() noexcept STEMMA_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
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
