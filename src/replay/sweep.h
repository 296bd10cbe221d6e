// A sweep: replays one trace with several policies at several capacities, on a given number of
// threads.
//
// Results are in the order of policies, then capacities, whichever finished first; "infinite" has
// one result, at the size of all blocks. They do not depend on the number of threads, except
// `seconds`.
// Threading:  one thread at a time; starts and joins its own threads.
// Cost:       that of its replays; each running replay has its own cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace stemma::replay {

struct SweepOptions {
  std::vector<std::string> policies;
  std::vector<uint64_t> capacities;  // In blocks; ascending, each once.
  bool hints = false;
  bool keep_request_hits = false;
  uint32_t threads = 1;
  // Called now and then with the finished part of the work, 0 to 1; from any of the threads, one at
  // a time. May be empty.
  std::function<void(double done)> progress = {};
};

// Returns an empty string, or the reason why it failed.
std::string sweep(const Trace& trace, const SweepOptions& options, std::vector<ReplayResult>& out);

// The result of a policy at a capacity; null if there is none. "infinite" is found at any capacity.
const ReplayResult* find_result(const std::vector<ReplayResult>& results, const std::string& policy,
                                uint64_t capacity_blocks);

}  // namespace stemma::replay
