// JobQueue: work that takes time, on threads of its own, in lanes: nobody waits behind what is much larger.
//
//   lane     for                               done by
//   small    little text                       one thread that does nothing else, and those of `large`
//   large    much text                         `threads` - 1 threads (at least one), in order of arrival with `small`
//   errand   what waits for the engine         one thread
//
// A job can be taken back while it waits: what it holds is then let go at once.
//
// Invariant:  at most `most_waiting` jobs wait in a lane. Every job is run, taken back, or let go at the end.
// Threading:  thread-safe. Jobs run, and are destroyed, without a lock held.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace stemma::server {

enum class Lane : uint8_t { small, large, errand };
inline constexpr uint32_t kLanes = 3;
const char* to_string(Lane lane) noexcept;

struct LaneStats {
  uint32_t waiting = 0;
  uint64_t refused = 0;     // The lane was full.
  uint64_t taken_back = 0;  // Before they had begun.
};

class JobQueue {
 public:
  struct Options {
    uint32_t threads = 2;  // For text.
    uint32_t most_waiting = 1024;
  };
  explicit JobQueue(const Options& options);
  ~JobQueue();  // Waits for jobs that have begun; those that wait are let go.

  // A number for a job, larger than all before it.
  uint64_t number() noexcept { return next_++; }
  // False: the lane is full, and the job is let go.
  bool push(Lane lane, uint64_t number, std::function<void()> work);
  // False: it has begun, is over, or never came.
  bool take_back(uint64_t number);

  std::array<LaneStats, kLanes> stats() const;

 private:
  struct Job {
    uint64_t number = 0;
    std::function<void()> work;
  };
  void work(const std::vector<Lane>& lanes);
  // The oldest job of these lanes; null: there is none.
  std::deque<Job>* oldest(const std::vector<Lane>& lanes);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::array<std::deque<Job>, kLanes> jobs_;
  std::array<LaneStats, kLanes> stats_;
  std::atomic<uint64_t> next_ = 1;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stemma::server
