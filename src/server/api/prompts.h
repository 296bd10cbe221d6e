// Reads the prompts of a request: one text, one list of tokens, or a list of either.
//
// Threading:  pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "server/api/fields.h"
#include "server/api/request.h"

namespace stemma::server {

// The most that a list may have, and how an error says so.
struct PromptLimit {
  size_t prompts = 0;
  std::string too_many;
};

// Reads a list of token ids.
void read_tokens(Fields& fields, std::string_view name, const Json::Array& array,
                 std::vector<Token>& tokens);
// Reads a field that must be there. At least one prompt, unless the body is wrong.
std::vector<CompletionPrompt> read_prompts(Fields& fields, std::string_view name,
                                           const PromptLimit& limit);

}  // namespace stemma::server
