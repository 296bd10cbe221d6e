#include "server/api/error.h"

#include "json/json.h"

namespace stemma::server {
namespace {

void append_or_null(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

}  // namespace

std::string encode_error(const ApiError& error) {
  std::string out = R"({"error":{"message":)";
  append_json_string(out, error.message);
  out += R"(,"type":)";
  append_json_string(out, error.type);
  out += R"(,"param":)";
  append_or_null(out, error.param);
  out += R"(,"code":)";
  append_or_null(out, error.code);
  out += "}}";
  return out;
}

std::string encode_error_event(const ApiError& error) {
  return "data: " + encode_error(error) + "\n\n";
}

ApiError unknown_model(std::string_view model) {
  return {.status = 404,
          .message = "The model '" + std::string(model) + "' does not exist.",
          .param = "model",
          .code = "model_not_found"};
}

ApiError wrong_key() {
  return {.status = 401,
          .message = "The API key is missing or wrong. It is sent as 'Authorization: Bearer KEY'.",
          .type = "authentication_error",
          .code = "invalid_api_key"};
}

ApiError context_exceeded(uint64_t prompt_tokens, uint64_t limit) {
  return {.message = "The prompt has " + std::to_string(prompt_tokens) +
                     " tokens, but the context has room for " + std::to_string(limit) + " of them.",
          .code = "context_length_exceeded"};
}

ApiError no_token_possible(std::string_view message) {
  return {.message = std::string(message), .param = "logit_bias", .code = "no_token_possible"};
}

ApiError context_surely_exceeded(uint64_t least_tokens, uint64_t limit) {
  return {.message = "The prompt has at least " + std::to_string(least_tokens) +
                     " tokens, but the context has room for " + std::to_string(limit) + " of them.",
          .code = "context_length_exceeded"};
}

ApiError answer_too_large(uint64_t limit_bytes, std::string_view remedy) {
  return {.message = "The answer would have more than " + std::to_string(limit_bytes) + " bytes. " +
                     std::string(remedy),
          .code = "answer_too_large"};
}

ApiError overloaded(std::string_view message) {
  return {.status = 503,
          .message = std::string(message),
          .type = "overloaded_error",
          .code = "overloaded"};
}

ApiError internal_error(std::string_view message) {
  return {.status = 500, .message = std::string(message), .type = "server_error"};
}

}  // namespace stemma::server
