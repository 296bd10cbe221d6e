// An error in OpenAI's format, and the errors that several parts of the server use.
// Threading: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stemma::server {

struct ApiError {
  int status = 400;  // The HTTP status.
  std::string message = {};
  std::string type = "invalid_request_error";
  std::string param = {};  // The field at fault, "messages[2].content"; empty: none, sent as null.
  std::string code = {};   // For programs, "unknown_parameter"; empty: none, sent as null.
};

// {"error":{"message","type","param","code"}}, valid JSON whatever bytes the strings hold.
std::string encode_error(const ApiError& error);
// The same as an event of a stream that has begun.
std::string encode_error_event(const ApiError& error);

ApiError unknown_model(std::string_view model);                     // 404
ApiError wrong_key();                                               // 401
ApiError context_exceeded(uint64_t prompt_tokens, uint64_t limit);  // 400
ApiError no_token_possible(std::string_view message);               // 400
// The same as context_exceeded, for a prompt of at least this many tokens that was not even
// tokenised.
ApiError context_surely_exceeded(uint64_t least_tokens, uint64_t limit);
ApiError answer_too_large(uint64_t limit_bytes, std::string_view remedy);  // 400
ApiError overloaded(std::string_view message);                             // 503
ApiError internal_error(std::string_view message);                         // 500

}  // namespace stemma::server
