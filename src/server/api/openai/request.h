// Decodes bodies of OpenAI's and llama-server's endpoints to plain values.
//
// Nothing is dropped silently. A field has a meaning here, is refused by name, or is listed in
// `ignored`. Unsupported fields that would change the answer are refused with the code
// unsupported_parameter, unless their value asks for nothing. Fields that change no answer ("user",
// "metadata") are listed; in chats unknown fields are listed too, because clients are often newer
// than servers. null is the same as absent. A name twice in one object is refused, because two
// readers could understand it differently. Values outside their range are refused with the range.
//
// Threading:  pure functions.
// Cost:       one pass over the body and one over its values.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

// Each fills `request`, or returns what is wrong with the body; `request` is then unusable.
[[nodiscard]] std::optional<ApiError> decode_chat(std::string_view body, const ApiRules& rules,
                                                  ChatRequest& request);
[[nodiscard]] std::optional<ApiError> decode_completion(std::string_view body,
                                                        const ApiRules& rules,
                                                        CompletionRequest& request);
// /apply-template takes the body of a chat completion.
[[nodiscard]] std::optional<ApiError> decode_apply_template(std::string_view body,
                                                            const ApiRules& rules,
                                                            ChatRequest& request);
[[nodiscard]] std::optional<ApiError> decode_purge(std::string_view body, const ApiRules& rules,
                                                   PurgeRequest& request);
[[nodiscard]] std::optional<ApiError> decode_tokenize(std::string_view body, const ApiRules& rules,
                                                      TokenizeRequest& request);
[[nodiscard]] std::optional<ApiError> decode_detokenize(std::string_view body,
                                                        const ApiRules& rules,
                                                        DetokenizeRequest& request);

}  // namespace stemma::server
