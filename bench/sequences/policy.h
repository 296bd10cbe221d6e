// A policy serves requests one after the other on an engine of its own, and decides what is kept.
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "bench/sequences/setting.h"
#include "bench/sequences/workloads.h"

namespace stemma::bench::sequences {

struct Served {
  // Tokens of the prompt that were computed, at least 1: a token that is sampled from kept logits
  // counts like one that had to be computed for them.
  uint32_t evaluated = 0;
  std::string wrong;  // What the sequence held beside what it should, after the answer.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Served serve(const Request& request) = 0;
  // What is kept outside the engine's context, in the engine's bytes, now.
  virtual uint64_t stored_bytes() const = 0;
  // What it may be at most.
  virtual uint64_t budget_bytes() const = 0;
  // On the engine's virtual clock.
  virtual uint64_t elapsed_ns() const = 0;
};

// What a policy made of a workload.
struct Outcome {
  uint64_t evaluated = 0;
  uint64_t stored_bytes_peak = 0;  // After any request.
  uint64_t stored_bytes_last = 0;
  // Virtual time without that of the answers, which is the same for all.
  uint64_t spent_ns = 0;
  uint32_t wrong_requests = 0;
  std::string first_wrong;
};

// Throws std::runtime_error when the policy cannot serve a request, or stores more than it may.
Outcome run(Policy& policy, const Workload& workload);

}  // namespace stemma::bench::sequences
