// Whole states, done well: a good policy for engines that can only save and load a sequence.
//
// A finished sequence is saved whole and replaces the states that it contains, unless it cannot go
// back to where they end. A prompt loads the state of which it can use most. The state used longest
// ago goes first. This is not a system of the survey: it shows how many bytes segments save, and
// what sharing adds to good choices.
#pragma once

#include <list>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class WholeStates final : public BaselinePolicy {
 public:
  using BaselinePolicy::BaselinePolicy;
  uint64_t stored_bytes() const override;
  uint64_t budget_bytes() const override { return setting_.copies_bytes(); }

 private:
  Start start(const Request& request) override;
  void finish(const Request& request, SequenceId sequence) override;
  // Whether a saved state of `length` words can continue at n.
  bool serves(uint32_t length, uint32_t n) const;

  std::list<WholeState> entries_;  // The one used longest ago first.
};

}  // namespace stemma::bench::sequences
