// oxide-rs, system 4 of the survey: prompts are looked up by their text, but the KV given to it is
// dropped, and the generator clears everything before each turn. So nothing is ever reused: this
// row shows having no cache.
#pragma once

#include "bench/sequences/baseline.h"

namespace stemma::bench::sequences {

class OxideRs final : public BaselinePolicy {
 public:
  using BaselinePolicy::BaselinePolicy;
  uint64_t stored_bytes() const override { return 0; }
  uint64_t budget_bytes() const override { return 0; }

 private:
  Start start(const Request& /*request*/) override { return {}; }
  void finish(const Request& /*request*/, SequenceId sequence) override { clear(sequence); }
};

}  // namespace stemma::bench::sequences
