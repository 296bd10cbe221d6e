// Decodes the bodies of Ollama's /api/chat and /api/generate to a conversation or a plain prompt.
//
// Streaming is the default, as in Ollama. Unknown fields and fields for Ollama's own running of
// models (num_ctx, num_gpu, keep_alive ...) are skipped and listed in `options.ignored`. Refused by
// name: images, suffix, template. A tool result that names no call answers the earliest call of its
// tool that has no result yet.
//
// Threading:  pure functions.
// Cost:       one pass over the body and one over its values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

struct OllamaRequest {
  ChatRequest chat;
  CompletionRequest plain;  // /api/generate with `raw`: its prompt and the same options.
  bool raw = false;
  bool load_only = false;  // No messages, no prompt: only asks whether the model is there.
};

[[nodiscard]] std::optional<ApiError> decode_ollama_chat(std::string_view body,
                                                         const ApiRules& rules,
                                                         OllamaRequest& request);
[[nodiscard]] std::optional<ApiError> decode_ollama_generate(std::string_view body,
                                                             const ApiRules& rules,
                                                             OllamaRequest& request);

// Turns "tiny:latest" into "tiny": clients add this tag to names without a tag.
std::string ollama_model_name(std::string name);

}  // namespace stemma::server
