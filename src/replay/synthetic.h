// Synthetic traces, for users without a trace of their own, and small ones for tests.
//
//   chat    conversations under a few system prompts; half end after a turn; minutes between turns
//   agents  long sessions of tool calls, seconds apart, over prompts that grow to 100k tokens and more
//   rag     one question each, about documents of which few are asked about often
//   mix     all three through one cache
//
// They imitate real traffic: gaps and lengths vary as widely as real ones (their medians are near
// those of published traces). They prove nothing about your traffic.
// Threading: pure functions; equal options give equal traces.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "replay/trace.h"

namespace stemma::replay {

enum class Workload : uint8_t { chat, agents, rag, mix };
std::optional<Workload> parse_workload(std::string_view name);

struct SyntheticOptions {
  Workload workload = Workload::mix;
  uint32_t requests = 10'000;
  uint64_t seed = 1;
  uint32_t block_tokens = 512;
  double requests_per_second = 2;  // On average, over the whole trace.
};

Trace make_trace(const SyntheticOptions& options);

}  // namespace stemma::replay
