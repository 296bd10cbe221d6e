// Replay: runs the requests of a trace, in order, through a PagedCache with a retention policy, to
// see what it would have found cached.
//
// It uses the real cache and the real policy: a block is one word, block_tokens is 1, and time is
// the trace's. Each request happens at one instant: it is looked up, its hits are held while room
// is made for the rest, all of it is committed, and it is released. A request that is longer than
// the cache is cut to its first capacity_blocks blocks. The blocks that the cache matched are its
// hits.
//
// With hints, the cache gets the trace's optional fields as an engine would pass them: the session
// when the request arrives, the finish reason when it ends. Without, it gets only time and blocks.
//
// Threading:  the functions share no state; several replays of one trace may run at once.
// Cost:       with `lru` about 0.1 us a block reference; a cache of capacity_blocks cells in
//             memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/trace.h"

namespace stemma::replay {

inline constexpr uint64_t kMostBlocks = uint64_t{1} << 27U;  // Of a cache.

// A block weighs 1 + its depth (where it ends) in tokens / kWeightTokens in weighted ratios: the
// cost to compute it again grows with its depth.
inline constexpr double kWeightTokens = 32'768;
double weight_of_first(uint64_t blocks, uint32_t block_tokens) noexcept;

struct ReplayOptions {
  std::string policy = "lru";    // For make_policy(), or "min" or "infinite" (bounds.h).
  uint64_t capacity_blocks = 0;  // At least 1; "infinite" ignores it.
  bool hints = false;
  // Whether to keep each request's hits, in order, for views by session and depth.
  bool keep_request_hits = false;
  // Called now and then with the number of finished requests. May be empty.
  std::function<void(uint64_t requests)> progress = {};
};

struct ReplayResult {
  std::string policy;
  bool hints = false;
  uint64_t capacity_blocks = 0;
  uint64_t requests = 0;
  uint64_t block_refs = 0;
  uint64_t block_hits = 0;
  double weighted_refs = 0;
  double weighted_hits = 0;
  uint64_t evictions = 0;
  double seconds = 0;  // Of this replay, without loading the trace.
  std::vector<uint32_t> request_hits;

  double hit_ratio() const noexcept {
    return block_refs == 0 ? 0 : static_cast<double>(block_hits) / static_cast<double>(block_refs);
  }
  double weighted_hit_ratio() const noexcept {
    return weighted_refs == 0 ? 0 : weighted_hits / weighted_refs;
  }
};

// Whether a policy of this name can be replayed: one of make_policy(), "min" or "infinite".
bool can_replay(const std::string& policy);

// Returns an empty string, or the reason why it failed.
std::string replay(const Trace& trace, const ReplayOptions& options, ReplayResult& out);

}  // namespace stemma::replay
