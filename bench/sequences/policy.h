// A policy serves requests one after the other on its own engine, and decides what to keep.
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "bench/sequences/setting.h"
#include "bench/sequences/workloads.h"

namespace stemma::bench::sequences {

struct Served {
  // Tokens of the prompt that were computed, at least 1: a token sampled from kept logits counts as
  // one computed token.
  uint32_t evaluated = 0;
  std::string wrong;  // How the sequence's contents were wrong after the answer; "" if right.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Served serve(const Request& request) = 0;
  // Bytes now kept outside the engine's context, as the engine counts them.
  virtual uint64_t stored_bytes() const = 0;
  // The most it may be.
  virtual uint64_t budget_bytes() const = 0;
  // On the engine's virtual clock.
  virtual uint64_t elapsed_ns() const = 0;
};

// The result of a policy on a workload.
struct Outcome {
  uint64_t evaluated = 0;
  uint64_t stored_bytes_peak = 0;  // The largest after any request.
  uint64_t stored_bytes_last = 0;
  // Virtual time without the answers' time, which is the same for all.
  uint64_t spent_ns = 0;
  uint32_t wrong_requests = 0;
  std::string first_wrong;
};

// Throws std::runtime_error when the policy cannot serve a request, or stores more than it may.
Outcome run(Policy& policy, const Workload& workload);

}  // namespace stemma::bench::sequences
