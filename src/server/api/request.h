// What clients ask, decoded: requests as plain values, whichever API they came through. Each API has functions
// of its own that make them from bodies (openai/request.h).
//
// Threading:  plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/api/error.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// What a server allows, and what it takes where a request says nothing.
struct ApiRules {
  uint32_t max_choices = 128;
  uint32_t max_stops = 16;
  uint32_t max_stop_bytes = 1024;
  uint32_t max_top_logprobs = 20;
  uint32_t max_biases = 1024;
  uint32_t max_messages = 4096;
  uint32_t max_pins = 64;          // cache_control in one request.
  uint32_t max_name_bytes = 1024;  // model, prompt_cache_key, cache_salt, name.
  JsonLimits json = {};
  Sampling sampling = {};
};

// cache_control: the prompt up to the end of what bears it is worth keeping.
struct CacheControl {
  uint64_t ttl_ns = 300'000'000'000U;  // "5m", the default, or "1h".
};

struct ContentPart {
  std::string text;
  std::optional<CacheControl> cache_control;
};

struct Message {
  std::string role;  // system, developer, user or assistant.
  std::string name;  // May be empty.
  std::vector<ContentPart> parts;
  bool plain = true;  // The content was one string, and not a list of parts.
  std::optional<CacheControl> cache_control;

  std::string text() const;  // All parts, joined.
};

enum class CacheRetention : uint8_t { unsaid, in_memory, day };

// What both kinds of completions have.
struct RequestOptions {
  std::string model;  // Empty: not said.
  bool stream = false;
  bool include_usage = false;  // stream_options.
  uint32_t choices = 1;        // n
  // max_completion_tokens, max_tokens or n_predict. Absent (or -1): as many as there is room for.
  std::optional<uint32_t> max_tokens;
  Sampling sampling;
  std::vector<std::string> stop;
  std::optional<uint32_t> top_logprobs;               // Logprobs are wanted, with so many others.
  std::string session;                                // prompt_cache_key
  std::string salt;                                   // cache_salt
  CacheRetention retention = CacheRetention::unsaid;  // prompt_cache_retention
  bool reuse = true;                                  // cache_prompt
  std::optional<uint32_t> slot;                       // id_slot: a wish.
  std::vector<std::string> ignored;                   // Fields that were said and change nothing.

  // The part of a Generation that these decide. The prompt and its pins are the caller's.
  Generation generation() const;
};

struct ChatRequest {
  RequestOptions options;
  std::vector<Message> messages;  // At least one.
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // The last one, an assistant's, is to be continued.
  Json template_kwargs;                 // chat_template_kwargs: an object, or null.
};

struct CompletionRequest {
  RequestOptions options;
  std::string prompt;
  std::vector<Token> tokens;  // The prompt, if it was given as tokens; `prompt` is empty then.
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

// What only the model knows: whether tokens of the request (prompt, logit_bias) are in its vocabulary.
[[nodiscard]] std::optional<ApiError> check_vocabulary(const RequestOptions& options,
                                                       uint32_t vocabulary);
[[nodiscard]] std::optional<ApiError> check_vocabulary(const std::vector<Token>& tokens,
                                                       std::string_view param, uint32_t vocabulary);

}  // namespace stemma::server
