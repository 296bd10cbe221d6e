#include "replay/ttft.h"

#include <algorithm>

namespace stemma::replay {

Ttft expected_ttft(const Trace& trace, const TtftModel& model,
                   const std::vector<const ReplayResult*>& levels) {
  std::vector<double> waits;
  waits.reserve(trace.requests.size());
  double sum = 0;
  for (size_t r = 0; r < trace.requests.size(); ++r) {
    const TraceRequest& request = trace.requests[r];
    double wait = 0;
    uint64_t there = 0;  // Blocks that are cached or already paid for.
    for (size_t level = 0; level < levels.size(); ++level) {
      const uint64_t hits = std::max<uint64_t>(there, levels[level]->request_hits[r]);
      if (level > 0) {
        const auto tokens = static_cast<double>((hits - there) * trace.block_tokens);
        const double load = tokens * static_cast<double>(model.kv_bytes_per_token) /
                            model.tiers[level - 1].bytes_per_second;
        wait += std::min(load, tokens / model.prefill_tokens_per_second);
      }
      there = hits;
    }
    const uint64_t rest = request.input_tokens - there * trace.block_tokens;
    wait += static_cast<double>(rest) / model.prefill_tokens_per_second;
    waits.push_back(wait);
    sum += wait;
  }
  if (waits.empty()) return {};
  std::sort(waits.begin(), waits.end());
  const auto quantile = [&](double q) {
    return waits[static_cast<size_t>(q * static_cast<double>(waits.size() - 1))];
  };
  return {sum / static_cast<double>(waits.size()), quantile(0.5), quantile(0.95)};
}

}  // namespace stemma::replay
