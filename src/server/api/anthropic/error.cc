#include "server/api/anthropic/error.h"

#include "json/json.h"

namespace stemma::server {
namespace {

std::string_view type_of(int status) noexcept {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return "request_too_large";
    case 429: return "rate_limit_error";
    case 503:
    case 529: return "overloaded_error";
    default: return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

int anthropic_status(const ApiError& error) noexcept {
  constexpr int kOverloaded = 529;
  return error.status == 503 ? kOverloaded : error.status;
}

std::string encode_anthropic_error(const ApiError& error, std::string_view request_id) {
  std::string out = R"({"type":"error","error":{"type":)";
  append_json_string(out, type_of(error.status));
  out += R"(,"message":)";
  append_json_string(out, error.message);
  if (error.code == kThreadUnsupported) {
    out += R"(,"details":{"error_code":"thread_unsupported_request","unsupported":["thread"]})";
  }
  out += R"(},"request_id":)";
  if (request_id.empty()) {
    out += "null";
  } else {
    append_json_string(out, request_id);
  }
  out += '}';
  return out;
}

}  // namespace stemma::server
