// The course of a request that all baselines share. They differ in where a request starts, and in
// what they keep and when.
//
//   start() --> [before_chunk() compute]... --> prompt_done() --> answer --> finish()
//
// Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/sequences/policy.h"
#include "support/fake_sequences.h"

namespace stemma::bench::sequences {

// The only sequence that the simpler systems use.
inline constexpr SequenceId kWorking{0};

using Blob = std::vector<uint8_t>;

// How many words two texts begin with in common.
uint32_t common_prefix(const Tokens& a, const Tokens& b);

class BaselinePolicy : public Policy {
 public:
  explicit BaselinePolicy(const Setting& setting);
  Served serve(const Request& request) final;
  uint64_t elapsed_ns() const final { return engine_.elapsed_ns(); }

 protected:
  // A sequence that holds [0, reused) of the prompt. It holds the whole prompt only if the logits
  // were kept.
  struct Start {
    SequenceId sequence{};
    uint32_t reused = 0;
  };
  virtual Start start(const Request& request) = 0;
  // Where the chunk that begins at `begin` ends; at most the end of the prompt.
  virtual uint32_t chunk_end(const Request& request, uint32_t begin);
  virtual void before_chunk(const Request& request, SequenceId sequence, Range chunk);
  virtual void prompt_done(const Request& request, SequenceId sequence);
  virtual void finish(const Request& request, SequenceId sequence) = 0;
  // Empties some other sequence; returns false if there is none.
  virtual bool give_up_room(SequenceId working);

  Blob save(SequenceId sequence, Part part, Range range);
  // Returns whether it was loaded. If not, the sequence is empty.
  bool load(SequenceId sequence, Part part, Range range, const Blob& blob);
  void clear(SequenceId sequence);
  bool trim(SequenceId sequence, uint32_t n) { return engine_.trim(sequence, n).has_value(); }

  const Setting setting_;
  test::FakeSequences engine_;

 private:
  void compute(SequenceId sequence, std::span<const Token> words);
};

// A whole sequence, saved.
struct WholeState {
  Tokens tokens;
  Blob bytes;
};

}  // namespace stemma::bench::sequences
