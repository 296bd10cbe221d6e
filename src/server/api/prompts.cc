#include "server/api/prompts.h"

#include <utility>
#include <variant>

namespace stemma::server {
namespace {

// Reads one of several prompts.
void read_one(Fields& fields, std::string_view name, const Json& value, CompletionPrompt& prompt) {
  if (const std::string* text = value.string()) {
    prompt.text = *text;
  } else if (const Json::Array* tokens = value.array()) {
    if (tokens->empty()) fields.fail_value(name, "expected at least one token", "empty_array");
    read_tokens(fields, name, *tokens, prompt.tokens);
  } else {
    fields.fail_type(name, "texts or arrays of tokens", value);
  }
}

}  // namespace

void read_tokens(Fields& fields, std::string_view name, const Json::Array& array,
                 std::vector<Token>& tokens) {
  tokens.reserve(array.size());
  for (const Json& entry : array) {
    const std::optional<int64_t> token = whole_number(entry);
    if (!token && !std::holds_alternative<uint64_t>(entry.value)) {
      fields.fail_type(name, "token ids", entry);
      return;
    }
    if (!token || *token < 0 || *token >= kTokenLimit) {
      fields.fail_range(name, entry, 0.0, kTokenLimit - 1.0);
      return;
    }
    tokens.push_back(static_cast<Token>(*token));
  }
}

std::vector<CompletionPrompt> read_prompts(Fields& fields, std::string_view name,
                                           const PromptLimit& limit) {
  std::vector<CompletionPrompt> prompts;
  const Json* const value = fields.take(name);
  if (value == nullptr) {
    fields.fail_missing(name);
    return prompts;
  }
  if (const std::string* text = value->string()) {
    prompts.push_back({.text = *text, .tokens = {}});
    return prompts;
  }
  const Json::Array* const array = value->array();
  if (array == nullptr) {
    fields.fail_type(name, "a string or an array", *value);
  } else if (array->empty()) {
    fields.fail_value(name, "expected at least one prompt", "empty_array");
  } else if (array->front().string() == nullptr && array->front().array() == nullptr) {
    read_tokens(fields, name, *array, prompts.emplace_back().tokens);
  } else if (array->size() > limit.prompts) {
    fields.fail_value(name, limit.too_many);
  } else {
    prompts.resize(array->size());
    for (size_t i = 0; i < array->size(); ++i) read_one(fields, name, (*array)[i], prompts[i]);
  }
  return prompts;
}

}  // namespace stemma::server
