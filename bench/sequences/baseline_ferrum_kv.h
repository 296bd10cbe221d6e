// ferrum-kv, system 2 of the survey: the state at the end of a prompt is kept with its last logits,
// and serves exactly that prompt. A hit computes nothing; any other prompt is computed whole.
//
// 256 entries as in its engine, within the bytes that all policies have, logits of 150,000 words
// included; the entry used longest ago goes. Recurrent models bypass it. The original lets requests
// write into shared entries, and is therefore off by default; here a hit is a copy.
#pragma once

#include <list>

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class FerrumKv final : public BaselinePolicy {
 public:
  using BaselinePolicy::BaselinePolicy;
  uint64_t stored_bytes() const override;
  uint64_t budget_bytes() const override { return setting_.copies_bytes(); }

 private:
  static constexpr size_t kEntries = 256;
  static constexpr auto kLogitsBytes = static_cast<uint64_t>(150'000 * 4 / kByteFactor);

  Start start(const Request& request) override;
  void prompt_done(const Request& request, SequenceId sequence) override;
  void finish(const Request& request, SequenceId sequence) override;

  std::list<WholeState> entries_;  // The one used longest ago first.
};

}  // namespace stemma::bench::sequences
