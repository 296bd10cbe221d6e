// mistral.rs, system 0 of the survey: it keeps the caches of finished sequences by their tokens. A
// lookup copies the one with the longest common prefix that it can be rewound to.
//
// At most 16 entries, here also within the bytes that all policies have. The first one added is the
// first to go, hits do not count, and adding the same tokens again keeps the old place. A prompt
// that is known whole is no hit, and hides shorter ones. A window that has rolled over serves only
// its end. A recurrent state serves only its own depth; earlier versions ignored that and gave
// wrong answers.
#pragma once

#include <deque>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class MistralRs final : public BaselinePolicy {
 public:
  using BaselinePolicy::BaselinePolicy;
  uint64_t stored_bytes() const override;
  uint64_t budget_bytes() const override { return setting_.copies_bytes(); }

 private:
  static constexpr size_t kEntries = 16;

  Start start(const Request& request) override;
  void finish(const Request& request, SequenceId sequence) override;
  bool can_rewind(uint32_t length, uint32_t n) const;

  std::deque<WholeState> entries_;  // Oldest first.
};

}  // namespace stemma::bench::sequences
