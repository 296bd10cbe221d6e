#include "bench/sequences/policy.h"

#include <algorithm>
#include <stdexcept>

namespace stemma::bench::sequences {

Outcome run(Policy& policy, const Workload& workload) {
  Outcome outcome;
  for (const Request& request : workload.requests) {
    const Served served = policy.serve(request);
    outcome.evaluated += std::max(served.evaluated, 1U);
    if (!served.wrong.empty() && outcome.wrong_requests++ == 0) outcome.first_wrong = served.wrong;
    outcome.stored_bytes_last = policy.stored_bytes();
    if (outcome.stored_bytes_last > policy.budget_bytes()) {
      throw std::runtime_error("a policy stores more than it may");
    }
    outcome.stored_bytes_peak = std::max(outcome.stored_bytes_peak, outcome.stored_bytes_last);
  }
  const uint64_t answers_ns = workload.answer_tokens() * test::SequenceCosts{}.token_ns;
  outcome.spent_ns = policy.elapsed_ns() - std::min(policy.elapsed_ns(), answers_ns);
  return outcome;
}

}  // namespace stemma::bench::sequences
