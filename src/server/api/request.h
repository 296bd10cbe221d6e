// Decoded client requests as plain values, whichever API they came through. Each API has its own
// functions that make them from bodies (openai/request.h).
//
// Threading:  plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/api/conversation.h"
#include "server/api/error.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// A server's limits, and its defaults for what a request leaves out.
struct ApiRules {
  uint32_t max_choices = 128;
  uint32_t max_stops = 16;
  uint32_t max_stop_bytes = 1024;
  uint32_t max_top_logprobs = 20;
  uint32_t max_biases = 1024;
  uint32_t max_messages = 4096;
  uint32_t max_pins = 64;          // cache_control in one request.
  uint32_t max_name_bytes = 1024;  // model, prompt_cache_key, cache_salt, name.
  // References to stored items in one request, those of its earlier turns included.
  uint32_t max_references = 4096;
  uint64_t max_referenced_bytes = uint64_t{16} << 20U;  // What they stand for, as JSON.
  JsonLimits json = {.depth = 128};                     // Schemas of tools are deep.
  Sampling sampling = {};
};

enum class CacheRetention : uint8_t { unsaid, in_memory, day };

// Options of both kinds of completions.
struct RequestOptions {
  std::string model;  // Empty: not given.
  bool stream = false;
  bool include_usage = false;  // stream_options.
  uint32_t choices = 1;        // n
  // max_completion_tokens, max_tokens or n_predict. Absent (or -1): as many as fit.
  std::optional<uint32_t> max_tokens;
  Sampling sampling;
  std::vector<std::string> stop;
  std::optional<uint32_t> top_logprobs;  // Report logprobs, with this many alternatives.
  std::string session;                   // prompt_cache_key
  std::string user_session;              // metadata.user_id: the session if nothing else names one.
  std::string salt;                      // cache_salt
  CacheRetention retention = CacheRetention::unsaid;  // prompt_cache_retention
  bool reuse = true;                                  // cache_prompt
  std::optional<uint32_t> slot;                       // id_slot: a preference only.
  std::vector<std::string> ignored;                   // Fields that were given and change nothing.

  // Makes the part of a Generation that these options decide. The caller adds the prompt and its
  // pins.
  Generation generation() const;
};

struct ChatRequest {
  RequestOptions options;
  std::vector<Message> messages;  // At least one.
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // Continue the last message, an assistant's.
  Json template_kwargs;                 // chat_template_kwargs: an object, or null.
  std::vector<ToolSpec> tools;
  ToolChoice tool_choice;
  bool parallel_calls = true;  // false: at most one call per answer.
  AnswerForm form;
  Thinking thinking;
};

// A prompt as text or as tokens; the other member is empty.
struct CompletionPrompt {
  std::string text;
  std::vector<Token> tokens;
};

struct CompletionRequest {
  RequestOptions options;
  std::string prompt;
  std::vector<Token> tokens;  // The prompt, if given as tokens; `prompt` is then empty.
  // Further prompts. Choice c of prompt p is choice p * options.choices + c of the answer.
  std::vector<CompletionPrompt> more;
  bool echo = false;
};

// Forgets one tenant.
struct PurgeRequest {
  std::string model;
  std::string salt;  // Never empty.
};

struct TokenizeRequest {
  std::string model;
  std::string content;
  bool add_special = false;
  bool parse_special = true;
  bool with_pieces = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<Token> tokens;
};

// Checks that the tokens of the request (prompt, logit_bias) are in the model's vocabulary.
[[nodiscard]] std::optional<ApiError> check_vocabulary(const RequestOptions& options,
                                                       uint32_t vocabulary);
[[nodiscard]] std::optional<ApiError> check_vocabulary(const std::vector<Token>& tokens,
                                                       std::string_view param, uint32_t vocabulary);

}  // namespace stemma::server
