// The command-line arguments of `stemma replay`. Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/trace.h"
#include "replay/ttft.h"

namespace stemma::replay {

extern const char* const kReplayHelp;

// A cache size as the user wrote it: blocks, bytes, or % of the trace's blocks.
struct CapacityWish {
  enum class Unit : uint8_t { blocks, bytes, percent };
  Unit unit = Unit::percent;
  double amount = 0;
  std::string text;
  bool asked_for = true;  // False: from the default sweep; may be too small.
};

struct ReplayArguments {
  std::string trace;
  std::vector<std::string> policies;
  std::vector<CapacityWish> capacities;
  TtftModel model;  // kv_bytes_per_token 0: sizes are blocks only.
  uint32_t block_tokens = 512;
  bool hints = true;
  uint32_t threads = 0;  // 0: one per core.
  bool json = false;
  bool lenient = false;
  std::string report;
  bool help = false;
};

// Returns an empty string, or what is wrong.
std::string parse_replay(std::span<const std::string_view> words, ReplayArguments& out);

// Writes the capacities in blocks of this trace to `out`, ascending, each once. Returns an empty
// string, or what is wrong.
std::string capacities_of(const ReplayArguments& arguments, const Trace& trace,
                          std::vector<uint64_t>& out);

}  // namespace stemma::replay
