// Replay: the requests of a trace, in order, through a PagedCache with a retention policy; what it would
// have found cached.
//
// It is the real cache and the real policy: a block is one word, block_tokens is 1, and time is the
// trace's. Each request is atomic: it is looked up, what it found is held while room is made for the
// rest, all of it is committed, and it is released, at one instant. A request that is longer than the
// cache is cut to its first capacity_blocks blocks. What the cache matched are its hits.
//
// With hints, the trace's optional fields are said to the cache as an engine would say them: the session
// when the request comes, how it finished when it ends. Without, only time and blocks are.
//
// Threading:  functions that share nothing; several replays of one trace may run at once.
// Cost:       with `lru` about 0.1 us a block reference; a cache of capacity_blocks cells in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "replay/trace.h"

namespace stemma::replay {

inline constexpr uint64_t kMostBlocks = uint64_t{1} << 27U;  // Of a cache.

// A block weighs 1 + its depth (where it ends) in tokens / kWeightTokens in weighted ratios: what it
// costs to compute again grows with what stands before it.
inline constexpr double kWeightTokens = 32'768;
double weight_of_first(uint64_t blocks, uint32_t block_tokens) noexcept;

struct ReplayOptions {
  std::string policy = "lru";    // Of make_policy(), or "min" or "infinite" (bounds.h).
  uint64_t capacity_blocks = 0;  // At least 1; "infinite" does not look at it.
  bool hints = false;
  // Blocks each request found, in order; for views by session and depth.
  bool keep_request_hits = false;
  // Told now and then how many requests are done. May be empty.
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
  double seconds = 0;  // Of this replay, loading the trace not included.
  std::vector<uint32_t> request_hits;

  double hit_ratio() const noexcept {
    return block_refs == 0 ? 0 : static_cast<double>(block_hits) / static_cast<double>(block_refs);
  }
  double weighted_hit_ratio() const noexcept {
    return weighted_refs == 0 ? 0 : weighted_hits / weighted_refs;
  }
};

// Whether a policy of this name can be replayed: those of make_policy(), "min", "infinite".
bool can_replay(const std::string& policy);

// Returns an empty string, or why it cannot be done.
std::string replay(const Trace& trace, const ReplayOptions& options, ReplayResult& out);

}  // namespace stemma::replay
