// JobQueue: runs slow work on its own threads, in lanes, so that no job waits behind a much larger
// one.
//
//   lane     for                               done by
//   small    little text                       one thread that does nothing else, and those of `large`
//   large    much text                         `threads` - 1 threads (at least one), in order of arrival with `small`
//   errand   work that waits for the engine    one thread
//   vector   embeddings                        one thread
//
// A waiting job can be taken back; it is then destroyed at once.
//
// Invariant:  at most `most_waiting` jobs wait in a lane. Every job is run, taken back, or
//             destroyed at the end.
// Threading:  thread-safe. Jobs run, and are destroyed, without a lock held.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/lock.h"

namespace stemma::server {

enum class Lane : uint8_t { small, large, errand, vector };
inline constexpr uint32_t kLanes = 4;
const char* to_string(Lane lane) noexcept;

struct LaneStats {
  uint32_t waiting = 0;
  uint64_t refused = 0;     // Jobs that found the lane full.
  uint64_t taken_back = 0;  // Jobs taken back before they began.
};

class JobQueue {
 public:
  struct Options {
    uint32_t threads = 2;  // For text.
    uint32_t most_waiting = 1024;
  };
  explicit JobQueue(const Options& options);
  ~JobQueue();  // Waits for jobs that have begun; destroys those that wait.

  // Returns a number for a job, larger than all before it.
  uint64_t number() noexcept { return next_++; }
  // Returns false, and destroys the job, if the lane is full.
  bool push(Lane lane, uint64_t number, std::function<void()> work);
  // Returns false if the job has begun, is over, or was never pushed.
  bool take_back(uint64_t number);

  std::array<LaneStats, kLanes> stats() const;

 private:
  struct Job {
    uint64_t number = 0;
    std::function<void()> work;
  };
  void work(const std::vector<Lane>& lanes);
  // The lane whose first job is the oldest of these lanes; null if there is none.
  std::deque<Job>* oldest(const std::vector<Lane>& lanes) STEMMA_REQUIRES(mutex_);

  const Options options_;
  mutable base::WaitMutex mutex_;
  base::Condition wake_;
  std::array<std::deque<Job>, kLanes> jobs_ STEMMA_GUARDED_BY(mutex_);
  std::array<LaneStats, kLanes> stats_ STEMMA_GUARDED_BY(mutex_);
  std::atomic<uint64_t> next_ = 1;
  bool stopping_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace stemma::server
