// What is asked of a model, apart from HTTP and JSON: a prompt, how to sample, when to stop; and what it
// answers, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stemma/ids.h"
#include "stemma/result.h"
#include "stemma/retention.h"
#include "stemma/sequence_engine.h"
#include "stemma/sequence_stats.h"

namespace stemma::server {

// How the next token is chosen. What a request does not say has these values.
struct Sampling {
  float temperature = 1.0F;  // 0: the likeliest.
  float top_p = 1.0F;
  uint32_t top_k = 0;  // 0: all.
  float min_p = 0.0F;
  float frequency_penalty = 0.0F;  // OpenAI's: times how often a token was generated.
  float presence_penalty = 0.0F;   // OpenAI's: if it was generated at all.
  float repeat_penalty =
      1.0F;                   // llama.cpp's: divides (multiplies below 0) logits of recent tokens.
  uint32_t repeat_last = 64;  // How many recent tokens that looks at, prompt and answer.
  std::optional<uint64_t> seed;               // Choice i of a request uses seed + i.
  std::vector<std::pair<Token, float>> bias;  // Added to logits; -100 and below: never.
  bool ignore_eos = false;
};

// One possible token and the natural logarithm of its probability, before temperature and filters.
struct TokenChance {
  Token token = 0;
  float logprob = 0.0F;
};

enum class StopCause : uint8_t { eos, stop_text, length, cancelled, failed };

// A request, ready for the engine.
struct Generation {
  std::vector<Token> prompt;           // At least one.
  std::vector<uint32_t> message_ends;  // Depths at which messages end, ascending.
  std::string session;                 // prompt_cache_key; may be empty.
  std::string salt;                    // cache_salt: a scope of its own; may be empty.
  bool reuse = true;                   // cache_prompt.
  Priority priority = kDefaultPriority;
  uint64_t priority_ns = kNever;      // After that long it falls back to the default.
  std::vector<PriorityRange> pinned;  // cache_control: soft pins, in positions.
  Sampling sampling;
  std::vector<std::string> stop;       // Texts that end the answer and are no part of it.
  uint32_t max_tokens = 0xFFFF'FFFFU;  // Clamped to what the context has left.
  uint32_t choices = 1;
  std::optional<uint32_t> top_logprobs;  // Logprobs are wanted, with so many others beside each.
  bool prompt_logprobs = false;  // Also of the prompt: all of it is computed, whatever is cached.
  bool retry = false;  // The client was refused before: if it is again, that is not counted twice.
};

// A piece of an answer: text of whole characters, and the tokens it came from.
struct TokenLogprob {
  TokenChance chosen;
  std::string bytes;  // The token's own.
  std::vector<std::pair<TokenChance, std::string>> others;
};
struct Piece {
  uint32_t choice = 0;
  std::string text;  // May be empty: part of a character, or of what may be a stop text.
  std::vector<TokenLogprob> logprobs;
};

struct Timings {
  uint64_t queued_ns = 0;
  uint64_t prompt_ns = 0;     // From the queue to the first token.
  uint64_t generated_ns = 0;  // From the first token to the last.
};

// How a choice ended.
struct ChoiceEnd {
  uint32_t choice = 0;
  StopCause cause = StopCause::eos;
  std::string stop_text;  // Of StopCause::stop_text.
  uint32_t generated_tokens = 0;
};

// How a request ended.
struct Summary {
  SequenceReport report;  // Of the first choice.
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t generated_tokens = 0;  // Of all choices.
  // Where the prompt parts from what was generated before, as text equal and as tokens not, and nothing known
  // goes on; 0 = nowhere.
  uint32_t retokenised_at = 0;
  SequenceId sequence{};
  Timings timings;
  // What tiers had of the prompt and was brought from there; of it, the slowest one's name.
  uint32_t tier_tokens = 0;
  uint64_t tier_bytes = 0;
  uint64_t tier_ns = 0;
  std::string tier;
};

// Who hears of a request. Called on the engine's thread, one call at a time, and must return soon:
// pieces, an end for every choice, then exactly one of done or failed.
class Listener {
 public:
  virtual ~Listener() = default;
  // Of every token of the prompt, where they were asked for; before the first piece. Nothing says how likely
  // the first one is: its logprob is NaN.
  virtual void prompt(std::vector<TokenLogprob>&& /*logprobs*/) {}
  virtual void piece(Piece piece) = 0;
  virtual void ended(ChoiceEnd end) = 0;
  virtual void done(const Summary& summary) = 0;
  // Before failed(): how many tokens there were by then, of all choices.
  virtual void cut_off(uint32_t /*generated_tokens*/) {}
  // Nothing more comes. `overloaded`: it may be tried again later.
  virtual void failed(const Error& error, const std::string& message, bool overloaded) = 0;
};

}  // namespace stemma::server
