// A sweep: one trace replayed with several policies at several capacities, on as many threads as asked.
//
// Results come in the order of policies, then capacities, whatever finished first; "infinite" has one
// result, at the size of all blocks. They do not depend on the number of threads, `seconds` excepted.
// Threading:  one thread at a time; starts and joins its own.
// Cost:       that of its replays; each running one has a cache of its own.
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
  // Told now and then which part of all the work is done, 0 to 1; from any of the threads, one at a
  // time. May be empty.
  std::function<void(double done)> progress = {};
};

// Returns an empty string, or why it cannot be done.
std::string sweep(const Trace& trace, const SweepOptions& options, std::vector<ReplayResult>& out);

// The result of a policy at a capacity; null if it is not among them. "infinite" is found at any.
const ReplayResult* find_result(const std::vector<ReplayResult>& results, const std::string& policy,
                                uint64_t capacity_blocks);

}  // namespace stemma::replay
