// A Sampler chooses the next token of one choice of a request.
//
// The steps have llama.cpp's order, so that settings mean here what they mean in llama-server and
// on the model cards written for it:
//
//   logits -> bias -> penalties -> top_k -> top_p -> min_p -> temperature -> draw
//
// top_p and min_p use the model's own probabilities (top_p those of the top_k tokens), before
// temperature: a hot temperature does not let the tail back in. OpenAI does not document its order;
// vLLM applies temperature first. At temperature 1 both orders are the same.
//
// Among equal logits the lower token comes first, in all filters and at temperature 0, which always
// takes the first token. Equal logits and an equal seed give equal tokens on every machine, because
// randomness, exponentials and the order of sums are our own.
//
// Threading:  one thread at a time, also for a Workspace; samplers of one thread share one.
// Cost:       O(vocabulary) a token, without sorting the vocabulary; allocates only while a
//             Workspace or the table of seen tokens grows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "server/schedule/generation.h"
#include "stemma/result.h"

namespace stemma::server {

// xoshiro256**, seeded through splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept;
  uint64_t next() noexcept;
  // A number in [0, 1) with 53 random bits.
  double unit() noexcept;

 private:
  std::array<uint64_t, 4> state_;
};

// A token that may be chosen.
struct Candidate {
  float logit;
  Token token;
};

// Memory that a call needs while it runs.
struct Workspace {
  std::vector<float> logits;  // After bias and penalties.
  std::vector<float> weights;
  std::vector<double> sums;  // One per block of weights.
  std::vector<Candidate> candidates;
  std::vector<Candidate> spare;
};

class Sampler {
 public:
  // `choice`: which of a request's choices; it draws with seed + choice. Without a seed the system
  // provides one.
  Sampler(const Sampling& sampling, uint32_t choice, uint32_t vocabulary);

  // Never chooses this token: used for end tokens with ignore_eos.
  void ban(Token token);
  // Takes the prompt's tokens, of which repeat_penalty sees the last `repeat_last`. Call it before
  // the first accept().
  void prime(std::span<const Token> prompt);

  // Draws the next token. Error: invalid_argument (not `vocabulary` logits), corrupt (a logit is
  // NaN or +inf; value() is its token), out_of_range (no token is possible).
  Result<Token> sample(std::span<const float> logits, Workspace& workspace);
  // Adds `token` to the answer, so that penalties count it.
  void accept(Token token);

  uint64_t seed() const noexcept { return seed_; }

 private:
  // A slot of an open-addressed table: a token of the prompt's end or of the answer.
  struct Seen {
    Token token;
    uint32_t generated;
    uint32_t recent;
    bool used;
  };

  bool penalises() const noexcept;
  Seen& seen(Token token);
  void grow();
  void remember(Token token);
  std::span<const float> adjusted(std::span<const float> logits, Workspace& workspace) const;
  Token draw(std::span<const float> logits, float top, Workspace& workspace);

  Sampling sampling_;
  uint32_t vocabulary_;
  uint64_t seed_;
  Random random_;
  std::vector<Seen> table_;
  uint32_t table_used_ = 0;
  std::vector<Token> window_;  // The last tokens, as a ring of repeat_last.
  uint32_t window_next_ = 0;
};

// Returns the natural logarithm of `chosen`'s probability, before bias, penalties, filters and
// temperature. Writes the `count` likeliest tokens to `top`, likeliest first.
// Error: invalid_argument (no logits, or no such token), corrupt (a logit is NaN or +inf, or all
// -inf).
Result<TokenChance> chances(std::span<const float> logits, Token chosen, uint32_t count,
                            Workspace& workspace, std::vector<TokenChance>& top);

}  // namespace stemma::server
