// Computes what a report shows beside the ratios of a sweep: memory saved at equal hits, hits by
// depth and by session, and how long blocks wait to be used again.
// Threading: pure functions. Cost: O(block references) for the gaps, O(requests) for the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace stemma::replay {

// The number of blocks with which a policy would reach `ratio`, by straight lines between its
// points and (0, 0); nullopt if it does not reach it. `curve` ascends by capacity.
std::optional<double> blocks_needed(const std::vector<const ReplayResult*>& curve, double ratio);

// The policy that the recommendation is about: "adaptive", or the first that is not a bound; empty
// if there is none.
std::string recommended_policy(const std::vector<std::string>& policies);

// Block references by the depth where the block ends: bucket 0 up to 1024 tokens, each next bucket
// up to twice as far.
struct DepthView {
  std::vector<uint64_t> limit_tokens;  // Of each bucket, inclusive.
  std::vector<uint64_t> refs;
  std::vector<uint64_t> hits;
};
// Requires kept request hits.
DepthView by_depth(const Trace& trace, const ReplayResult& result);

struct SessionView {
  struct Session {
    uint32_t session = 0;
    uint64_t requests = 0;
    uint64_t refs = 0;
    uint64_t hits = 0;
  };
  std::vector<Session> sessions;  // Most misses first; empty if the trace names none.
  // How many sessions found 0-10 %, 10-20 %, ... of their blocks after their first request.
  std::vector<uint64_t> tenths = std::vector<uint64_t>(10, 0);
};
// Requires kept request hits.
SessionView by_session(const Trace& trace, const ReplayResult& result);

struct GapView {
  std::vector<std::string> labels;
  std::vector<uint64_t> refs;  // Block references, by the time since the block's last use.
  uint64_t first_uses = 0;
};
GapView reuse_gaps(const Trace& trace);

}  // namespace stemma::replay
