// A mutex under which threads may wait for a condition: the standard library's, annotated for
// clang's thread-safety analysis. Use base::Mutex where sections are short and nobody waits.
//
//   base::WaitMutex mutex_;
//   base::Condition changed_;
//   uint32_t count_ STEMMA_GUARDED_BY(mutex_) = 0;
//
//   base::Lock lock(mutex_);
//   changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return count_ != 0; });
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/mutex.h"

namespace stemma::base {

class STEMMA_CAPABILITY("mutex") WaitMutex {
 public:
  void lock() STEMMA_ACQUIRE() { mutex_.lock(); }
  bool try_lock() STEMMA_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() STEMMA_RELEASE() { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

// Holds a mutex until its end; may give it up and take it again meanwhile.
class STEMMA_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(WaitMutex& mutex) STEMMA_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~Lock() STEMMA_RELEASE() {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() STEMMA_ACQUIRE() { lock_.lock(); }
  void unlock() STEMMA_RELEASE() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

// Gives up a mutex that is held until its end, also if an exception passes through.
class STEMMA_SCOPED_CAPABILITY Unlocked {
 public:
  explicit Unlocked(WaitMutex& mutex) STEMMA_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~Unlocked() STEMMA_RELEASE() { mutex_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  WaitMutex& mutex_;
};

class Condition {
 public:
  void wait(Lock& lock) { condition_.wait(lock.lock_); }
  template <class Ready>
  void wait(Lock& lock, const Ready& ready) STEMMA_NO_ANALYSIS {
    condition_.wait(lock.lock_, ready);
  }
  template <class Rep, class Period>
  std::cv_status wait_for(Lock& lock, std::chrono::duration<Rep, Period> time) {
    return condition_.wait_for(lock.lock_, time);
  }
  template <class Rep, class Period, class Ready>
  bool wait_for(Lock& lock, std::chrono::duration<Rep, Period> time,
                const Ready& ready) STEMMA_NO_ANALYSIS {
    return condition_.wait_for(lock.lock_, time, ready);
  }
  template <class Clock, class Duration>
  std::cv_status wait_until(Lock& lock, std::chrono::time_point<Clock, Duration> time) {
    return condition_.wait_until(lock.lock_, time);
  }
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace stemma::base
