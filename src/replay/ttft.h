// Time to first token, expected: what the hits of a replay mean for those who wait.
//
// A request waits until its prompt is there: what the device has cost nothing, what a lower tier has is
// loaded at the tier's bandwidth or computed again, whichever is faster, the rest is computed at the
// prefill speed. Waiting in queues is not modelled.
//
// Tiers hold what the tiers above gave up, so all of them together hold what one cache of their summed
// size would: the hits of a tier are those that a replay with its size added finds and the one before
// did not. For `lru` that is exact, for other policies it is what they would do with one choice for all.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/replay.h"

namespace stemma::replay {

struct TierModel {
  std::string name;
  uint64_t bytes = 0;
  double bytes_per_second = 0;
};

struct TtftModel {
  double prefill_tokens_per_second = 0;
  uint64_t kv_bytes_per_token = 0;
  std::vector<TierModel> tiers;  // Below the device, the fastest first.
};

struct Ttft {
  double mean_s = 0;
  double p50_s = 0;
  double p95_s = 0;
};

// `levels` are replays of one policy, each with kept request hits: the device alone, with the first
// tier added, and so on; at most one more than there are tiers. None: without any cache.
Ttft expected_ttft(const Trace& trace, const TtftModel& model,
                   const std::vector<const ReplayResult*>& levels);

}  // namespace stemma::replay
