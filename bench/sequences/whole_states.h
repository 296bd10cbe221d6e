// Whole states, done well: what one would write who has only save and load of a sequence.
//
// A finished sequence is saved whole and replaces those that it contains, unless it cannot go back to
// where they end; the prompt gets the state from which most of it can be used; the one used longest ago
// goes. Not one of the systems of the survey: it is here to tell what segments save in bytes, and what
// sharing saves beside good choices.
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
  // Whether a saved state of so many words can go on at n.
  bool serves(uint32_t length, uint32_t n) const;

  std::list<WholeState> entries_;  // The one used longest ago first.
};

}  // namespace stemma::bench::sequences
