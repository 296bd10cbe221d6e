// Expected time to first token: what the hits of a replay mean for users who wait.
//
// A request waits until its prompt is ready. What the device holds costs nothing. What a lower tier
// holds is loaded at the tier's bandwidth or computed again, whichever is faster. The rest is
// computed at the prefill speed. Waiting in queues is not modelled.
//
// A tier holds what the tiers above evicted, so all tiers together hold what one cache of their
// total size would: a tier's hits are those that a replay with its size added finds and the replay
// before did not. That is exact for `lru`. For other policies it assumes that one policy manages
// all tiers together.
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
// tier added, and so on; at most one more than there are tiers. Empty: without any cache.
Ttft expected_ttft(const Trace& trace, const TtftModel& model,
                   const std::vector<const ReplayResult*>& levels);

}  // namespace stemma::replay
