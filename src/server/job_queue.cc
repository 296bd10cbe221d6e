#include "server/job_queue.h"

#include <algorithm>
#include <utility>

namespace stemma::server {

const char* to_string(Lane lane) noexcept {
  switch (lane) {
    case Lane::small: return "small";
    case Lane::large: return "large";
    case Lane::errand: return "errand";
    case Lane::vector: return "vector";
  }
  return "";
}

JobQueue::JobQueue(const Options& options) : options_(options) {
  threads_.emplace_back([this] { work({Lane::small}); });
  threads_.emplace_back([this] { work({Lane::errand}); });
  threads_.emplace_back([this] { work({Lane::vector}); });
  for (uint32_t i = 1; i < std::max(2U, options_.threads); ++i) {
    threads_.emplace_back([this] { work({Lane::small, Lane::large}); });
  }
}

JobQueue::~JobQueue() {
  {
    const base::Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool JobQueue::push(Lane lane, uint64_t number, std::function<void()> work) {
  const auto index = static_cast<uint32_t>(lane);
  {
    const base::Lock lock(mutex_);
    if (jobs_[index].size() >= options_.most_waiting) {
      ++stats_[index].refused;
      return false;
    }
    jobs_[index].push_back({number, std::move(work)});
  }
  // Threads serve different lanes, so wake all: one of them serves this lane.
  wake_.notify_all();
  return true;
}

bool JobQueue::take_back(uint64_t number) {
  Job taken;
  const base::Lock lock(mutex_);
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const auto found = std::ranges::find(jobs_[lane], number, &Job::number);
    if (found == jobs_[lane].end()) continue;
    taken = std::move(*found);
    jobs_[lane].erase(found);
    ++stats_[lane].taken_back;
    return true;
  }
  return false;
}

std::array<LaneStats, kLanes> JobQueue::stats() const {
  const base::Lock lock(mutex_);
  std::array<LaneStats, kLanes> now = stats_;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    now[lane].waiting = static_cast<uint32_t>(jobs_[lane].size());
  }
  return now;
}

std::deque<JobQueue::Job>* JobQueue::oldest(const std::vector<Lane>& lanes) {
  std::deque<Job>* first = nullptr;
  for (const Lane lane : lanes) {
    std::deque<Job>& jobs = jobs_[static_cast<uint32_t>(lane)];
    if (jobs.empty()) continue;
    if (first == nullptr || jobs.front().number < first->front().number) first = &jobs;
  }
  return first;
}

void JobQueue::work(const std::vector<Lane>& lanes) {
  for (;;) {
    Job job;
    {
      base::Lock lock(mutex_);
      std::deque<Job>* jobs = nullptr;
      wake_.wait(lock, [&]() STEMMA_REQUIRES(mutex_) {
        jobs = oldest(lanes);
        return stopping_ || jobs != nullptr;
      });
      if (stopping_) return;
      job = std::move(jobs->front());
      jobs->pop_front();
    }
    job.work();
  }
}

}  // namespace stemma::server
