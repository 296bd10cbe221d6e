// Bodies of OpenAI's and llama-server's endpoints, decoded to plain values.
//
// Nothing is dropped in silence. A field either means something here, or is listed in `ignored` because it
// changes no answer ("user", "metadata"), or is refused by name: 400 with the code unsupported_parameter
// for what others support and we do not (unless its value asks for nothing), unknown_parameter for what
// nobody knows. null is the same as absent. A name twice in one object is refused, since two readers of it
// could differ. Values outside their range are refused with the range.
//
// Threading:  pure functions.
// Cost:       one pass over the body and one over its values.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

// Each fills `request`, or says what is wrong with the body; `request` is then of no use.
[[nodiscard]] std::optional<ApiError> decode_chat(std::string_view body, const ApiRules& rules,
                                                  ChatRequest& request);
[[nodiscard]] std::optional<ApiError> decode_completion(std::string_view body,
                                                        const ApiRules& rules,
                                                        CompletionRequest& request);
// The body of /apply-template is that of a chat completion.
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
