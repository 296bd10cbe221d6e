// Stemma: SequenceCache over the fake engine, called as a server calls it.
//
// A request tells its session, where its messages end and how long its answer may be. Waiting
// captures are saved after each request, when the engine is quiet. Time is the engine's virtual
// clock.
#pragma once

#include <optional>

#include "bench/sequences/policy.h"
#include "stemma/clock.h"
#include "stemma/sequence.h"
#include "support/fake_sequences.h"

namespace stemma::bench::sequences {

class Ours final : public Policy {
 public:
  // With a retention policy of this name.
  Ours(const Setting& setting, const char* retention);
  Served serve(const Request& request) override;
  uint64_t stored_bytes() const override { return cache_->stats().saved_bytes; }
  uint64_t budget_bytes() const override { return setting_.stored_bytes; }
  uint64_t elapsed_ns() const override { return engine_.elapsed_ns(); }

 private:
  class EngineClock final : public Clock {
   public:
    explicit EngineClock(const test::FakeSequences& engine) : engine_(engine) {}
    uint64_t now_ns() const noexcept override { return engine_.elapsed_ns() + 1; }

   private:
    const test::FakeSequences& engine_;
  };

  // Computes the turn's words that are not yet available.
  void compute(Turn& turn, const Tokens& words);

  const Setting setting_;
  test::FakeSequences engine_;
  EngineClock clock_;
  std::optional<SequenceCache> cache_;
};

}  // namespace stemma::bench::sequences
