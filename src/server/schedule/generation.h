// A request to a model without HTTP and JSON (a prompt, how to sample, when to stop), and its
// answer, token by token.
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

// How the next token is chosen. These are the defaults.
struct Sampling {
  float temperature = 1.0F;  // 0: the likeliest token.
  float top_p = 1.0F;
  uint32_t top_k = 0;  // 0: all.
  float min_p = 0.0F;
  float frequency_penalty = 0.0F;  // OpenAI's: for each time a token was generated.
  float presence_penalty = 0.0F;   // OpenAI's: once if a token was generated at all.
  float repeat_penalty =
      1.0F;                   // llama.cpp's: divides (multiplies below 0) logits of recent tokens.
  uint32_t repeat_last = 64;  // How many recent tokens of prompt and answer it looks at.
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

class AnswerRules;  // answer_rules.h

// A part of a request and its place in the prompt.
struct PromptPart {
  std::string name;  // "messages[2]", "tools[0]"
  uint32_t end = 0;  // The depth, in tokens, where it ends.
};

// A request, ready for the engine.
struct Generation {
  std::vector<Token> prompt;           // At least one.
  std::vector<uint32_t> message_ends;  // Depths at which messages end, ascending.
  std::string session;                 // prompt_cache_key; may be empty.
  std::string salt;                    // cache_salt: each salt has its own scope; may be empty.
  bool reuse = true;                   // cache_prompt.
  Priority priority = kDefaultPriority;
  uint64_t priority_ns = kNever;      // After this time the priority falls back to the default.
  std::vector<PriorityRange> pinned;  // cache_control: soft pins, in positions.
  Sampling sampling;
  std::vector<std::string> stop;       // Texts that end the answer and are not part of it.
  uint32_t max_tokens = 0xFFFF'FFFFU;  // Clamped to what the context has left.
  uint32_t choices = 1;
  std::optional<uint32_t> top_logprobs;  // Report logprobs, with this many alternatives each.
  bool prompt_logprobs = false;  // Of the prompt too; all of it is then computed, cached or not.
  // Special tokens whose text is part of the answer, because the answer parser looks for them.
  // Ascending.
  std::shared_ptr<const std::vector<Token>> printed;
  // Tokens that end the answer, besides the model's own end tokens.
  std::vector<Token> end_tokens;
  // Texts that end the answer in the same way. The client is not told of them.
  std::vector<std::string> end_texts;
  std::vector<PromptPart> parts;  // Parts of the prompt, in order; for reports.
  // Which tokens the answer may have; null: any.
  std::shared_ptr<const AnswerRules> rules;
  bool retry = false;  // The client repeats a refused request: do not count another refusal.
  // PurgeLog::count() when the request arrived; if missing, it arrives with submit(). Once its salt
  // was purged since, it saves nothing.
  std::optional<uint64_t> purges;
};

// A piece of an answer: whole characters, and the tokens they came from.
struct TokenLogprob {
  TokenChance chosen;
  std::string bytes;  // The token's own.
  std::vector<std::pair<TokenChance, std::string>> others;
};
struct Piece {
  uint32_t choice = 0;
  std::string text;  // May be empty while a character, or a possible stop text, is incomplete.
  std::vector<TokenLogprob> logprobs;
  uint32_t tokens = 0;  // Tokens of this text. Those at the very end of an answer are not counted.
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
  std::string stop_text;  // For StopCause::stop_text.
  uint32_t generated_tokens = 0;
  std::vector<Token> tokens = {};  // As sampled, without the token that ended the answer.
};

// What is known when a request has begun.
struct AnswerBegun {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  // Prompt tokens that were not computed.
  uint32_t pinned_tokens = 0;  // Prompt tokens up to the end of the last pin.
  // The id under which the first choice will be remembered; further choices add "-1", "-2". Empty:
  // the answer will not be remembered.
  std::string transcript_id = {};
};

// How a request ended.
struct Summary {
  SequenceReport report;  // Of the first choice.
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t pinned_tokens = 0;     // Prompt tokens up to the end of the last pin.
  uint32_t generated_tokens = 0;  // Of all choices.
  // The depth where the prompt has the text of an earlier answer but other tokens, and the cache
  // knows no continuation; 0 = nowhere.
  uint32_t retokenised_at = 0;
  // The part of the request that has the first token the cache does not know. Empty: the cache
  // knows all of it.
  std::string parted_in;
  SequenceId sequence{};
  Timings timings;
  // How much of the prompt was loaded from tiers; `tier` names the slowest tier involved.
  uint32_t tier_tokens = 0;
  uint64_t tier_bytes = 0;
  uint64_t tier_ns = 0;
  std::string tier;
};

// Receives the events of a request: pieces, an end for every choice, then exactly one of done or
// failed. Called on the engine's thread, one call at a time; must return soon.
class Listener {
 public:
  virtual ~Listener() = default;
  // Called once, before everything else; not called if the request fails before it begins.
  virtual void begun(const AnswerBegun& /*begun*/) {}
  // The logprobs of all prompt tokens, if requested; before the first piece. The first token has no
  // probability: its logprob is NaN.
  virtual void prompt(std::vector<TokenLogprob>&& /*logprobs*/) {}
  virtual void piece(Piece piece) = 0;
  // Called after ended() of a choice. Returns whether the choice calls tools, which means that its
  // session will come back soon.
  virtual bool calls_tools(uint32_t /*choice*/) { return false; }
  virtual void ended(ChoiceEnd end) = 0;
  virtual void done(const Summary& summary) = 0;
  // Called before failed(), with the number of tokens generated so far in all choices.
  virtual void cut_off(uint32_t /*generated_tokens*/) {}
  // The last call. `overloaded`: the client may try again later.
  virtual void failed(const Error& error, const std::string& message, bool overloaded) = 0;
};

}  // namespace stemma::server
