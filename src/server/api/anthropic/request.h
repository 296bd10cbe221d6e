// Decodes bodies of Anthropic's Messages API to a conversation.
//
//   system                             a system message in front, a part for each block
//   {"role":"user"}                    a user message; its tool_result blocks are tool messages before or behind it
//   {"role":"assistant"}               an assistant's message: text, thinking and calls of all its blocks
//   {"role":"system"} between others   a system message that stays in place
//
// Several assistant messages in a row become one. One at the end is continued. Text blocks of a
// message are parts with an empty line between them; the assistant's are joined without one,
// because they were sampled that way. A block's cache_control pins the prompt up to the end of the
// block; that of the whole request, up to the last message.
//
// Hints, unknown fields, redacted_thinking, and signatures that are not ours are skipped and listed
// in `options.ignored`. Refused by name are blocks that would change the answer (images,
// documents), threads, tools that Anthropic runs itself, calls without results and results without
// calls, ids given twice.
//
// Threading:  pure functions.
// Cost:       one pass over the body and one over its values.
#pragma once

#include <optional>
#include <string_view>

#include "server/api/error.h"
#include "server/api/request.h"

namespace stemma::server {

enum class AnthropicBody : uint8_t { messages, count_tokens };

// Fills `request`, or returns what is wrong with the body; `request` is then unusable.
[[nodiscard]] std::optional<ApiError> decode_anthropic(std::string_view body, AnthropicBody kind,
                                                       const ApiRules& rules, ChatRequest& request);

}  // namespace stemma::server
