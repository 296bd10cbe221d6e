#include "replay/bounds.h"

#include <chrono>
#include <vector>

#include "replay/max_set.h"

namespace stemma::replay {
namespace {

ReplayResult begin(const Trace& trace, const ReplayOptions& options) {
  ReplayResult result;
  result.policy = options.policy;
  result.hints = options.hints;
  result.capacity_blocks = options.capacity_blocks;
  result.requests = trace.requests.size();
  result.block_refs = trace.block_refs;
  if (options.keep_request_hits) result.request_hits.reserve(trace.requests.size());
  return result;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// For every block reference, the number of the next one to the same block; block_refs if there is
// no next one.
std::vector<uint64_t> next_uses(const Trace& trace) {
  std::vector<uint64_t> next(trace.block_refs);
  std::vector<uint64_t> following(trace.unique_blocks, trace.block_refs);
  uint64_t at = trace.block_refs;
  for (size_t r = trace.requests.size(); r > 0; --r) {
    const std::span<const Token> blocks = trace.blocks_of(trace.requests[r - 1]);
    for (size_t i = blocks.size(); i > 0; --i) {
      next[--at] = following[blocks[i - 1]];
      following[blocks[i - 1]] = at;
    }
  }
  return next;
}

}  // namespace

ReplayResult replay_min(const Trace& trace, const ReplayOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  ReplayResult result = begin(trace, options);
  const std::vector<uint64_t> next = next_uses(trace);
  const uint64_t never = trace.block_refs;
  // A cached block is known by its next use. A block that does not come again is never kept:
  // whether it lies around in free room makes no difference.
  MaxSet kept(never + 1);
  uint64_t size = 0;
  uint64_t at = 0;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const TraceRequest& request = trace.requests[r];
    uint32_t hits = 0;
    for (uint32_t i = 0; i < request.blocks; ++i, ++at) {
      if (kept.contains(at)) {
        kept.erase(at);
        --size;
        ++hits;
      }
      if (next[at] == never) continue;
      kept.insert(next[at]);
      if (++size <= options.capacity_blocks) continue;
      kept.erase(kept.max());
      --size;
      ++result.evictions;
    }
    result.block_hits += hits;
    result.weighted_refs += weight_of_first(request.blocks, trace.block_tokens);
    result.weighted_hits += weight_of_first(hits, trace.block_tokens);
    if (options.keep_request_hits) result.request_hits.push_back(hits);
    if (options.progress && r % kProgressEvery == 0) options.progress(r);
  }
  result.seconds = seconds_since(start);
  return result;
}

ReplayResult replay_infinite(const Trace& trace, const ReplayOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  ReplayResult result = begin(trace, options);
  result.capacity_blocks = trace.unique_blocks;
  uint32_t known = 0;  // Words are numbered by first appearance.
  for (const TraceRequest& request : trace.requests) {
    uint32_t hits = 0;
    for (const Token word : trace.blocks_of(request)) {
      if (word < known) {
        ++hits;
      } else {
        known = word + 1;
      }
    }
    result.block_hits += hits;
    result.weighted_refs += weight_of_first(request.blocks, trace.block_tokens);
    result.weighted_hits += weight_of_first(hits, trace.block_tokens);
    if (options.keep_request_hits) result.request_hits.push_back(hits);
  }
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace stemma::replay
