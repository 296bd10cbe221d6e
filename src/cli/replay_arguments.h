// What `stemma replay` is asked for. Threading: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/trace.h"
#include "replay/ttft.h"

namespace stemma::cli {

extern const char* const kReplayHelp;

// A size of the cache as it was written: blocks, bytes, or % of the trace's blocks.
struct CapacityWish {
  enum class Unit : uint8_t { blocks, bytes, percent };
  Unit unit = Unit::percent;
  double amount = 0;
  std::string text;
  bool asked_for = true;  // False: of the sweep for those who ask for nothing; may be too small.
};

struct ReplayArguments {
  std::string trace;
  std::vector<std::string> policies;
  std::vector<CapacityWish> capacities;
  replay::TtftModel model;  // kv_bytes_per_token 0: sizes are blocks only.
  uint32_t block_tokens = 512;
  bool hints = true;
  uint32_t threads = 0;  // 0: as many as there are cores.
  bool json = false;
  bool lenient = false;
  std::string report;
  bool help = false;
};

// Returns an empty string, or what is wrong.
std::string parse_replay(std::span<const std::string_view> words, ReplayArguments& out);

// Capacities in blocks of this trace, ascending, each once. Returns an empty string, or what is wrong.
std::string capacities_of(const ReplayArguments& arguments, const replay::Trace& trace,
                          std::vector<uint64_t>& out);

}  // namespace stemma::cli
