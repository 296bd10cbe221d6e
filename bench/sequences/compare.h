// Runs all policies over all workloads on one model, and checks what must hold between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/sequences/policy.h"

namespace stemma::bench::sequences {

enum class Kind : uint8_t {
  baseline,   // Competes for the best, unless it was wrong.
  reference,  // Shown only for information.
  variant,    // The same, a variant of ours.
  ours,
};

// How a policy is made for a setting, and under which name it is shown.
struct Contender {
  std::string name;
  Kind kind = Kind::baseline;
  std::function<std::unique_ptr<Policy>(const Setting&)> make;
};
std::vector<Contender> contenders();

struct Line {
  std::string name;
  Kind kind = Kind::baseline;
  std::vector<Outcome> outcomes;  // One a workload.
};
struct Comparison {
  Model model = Model::full;
  Memory memory = Memory::normal;
  std::vector<std::string> workloads;
  std::vector<uint64_t> minimum;  // Tokens, one a workload.
  std::vector<Line> lines;
};

Comparison compare(std::span<const Workload> workloads, Model model, Memory memory);

// The most bytes stored if nothing is evicted; 0 for a policy that is missing.
struct StoredBytes {
  // The states that serve as much as possible: if a state cannot go back, the earlier ones stay.
  uint64_t whole_states = 0;
  // Only the longest states, those that no other contains. They serve less, unless they can go
  // back.
  uint64_t longest_states = 0;
  uint64_t ours = 0;
};
StoredBytes compare_bytes(const Workload& workload, Model model);

}  // namespace stemma::bench::sequences
