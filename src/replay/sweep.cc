#include "replay/sweep.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/lock.h"

namespace stemma::replay {

std::string sweep(const Trace& trace, const SweepOptions& options, std::vector<ReplayResult>& out) {
  std::vector<ReplayOptions> points;
  for (const std::string& policy : options.policies) {
    for (const uint64_t capacity : options.capacities) {
      ReplayOptions point;
      point.policy = policy;
      point.capacity_blocks = capacity;
      point.hints = options.hints;
      point.keep_request_hits = options.keep_request_hits;
      points.push_back(point);
      if (policy == "infinite") break;
    }
  }
  out.assign(points.size(), {});
  std::vector<std::string> problems(points.size());
  std::atomic<size_t> next{0};
  base::WaitMutex telling;
  uint64_t requests_done = 0;
  const double requests_all =
      static_cast<double>(std::max<size_t>(1, points.size() * trace.requests.size()));
  const auto work = [&] {
    for (size_t i = next++; i < points.size(); i = next++) {
      uint64_t told = 0;
      const auto tell = [&](uint64_t requests) {
        const base::Lock lock(telling);
        requests_done += requests - told;
        told = requests;
        options.progress(static_cast<double>(requests_done) / requests_all);
      };
      if (options.progress) points[i].progress = tell;
      problems[i] = replay(trace, points[i], out[i]);
      if (options.progress) tell(trace.requests.size());
    }
  };
  const size_t threads = std::clamp<size_t>(options.threads, 1, std::max<size_t>(1, points.size()));
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  for (size_t i = 0; i < points.size(); ++i) {
    if (!problems[i].empty()) return points[i].policy + ": " + problems[i];
  }
  return {};
}

const ReplayResult* find_result(const std::vector<ReplayResult>& results, const std::string& policy,
                                uint64_t capacity_blocks) {
  for (const ReplayResult& result : results) {
    if (result.policy != policy) continue;
    if (result.capacity_blocks == capacity_blocks || policy == "infinite") return &result;
  }
  return nullptr;
}

}  // namespace stemma::replay
