// Turns an ApiError into a reply with the headers of its status, and recognises retries.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "server/api/error.h"
#include "server/http/message.h"

namespace stemma::server {

inline constexpr std::string_view kJson = "application/json";

// `body`: the error in the shape of the API that was called.
inline HttpRefusal refusal_of(const ApiError& error, std::string body) {
  HttpHeaders headers;
  if (error.status == 503) headers.push_back({"Retry-After", "1"});
  if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  return {.status = error.status,
          .body = std::move(body),
          .headers = std::move(headers),
          .why = error.message};
}
inline HttpRefusal refusal_of(const ApiError& error) {
  return refusal_of(error, encode_error(error));
}
// Returns false if the reply has begun, or its client is gone.
inline bool try_refuse(HttpReply& reply, HttpRefusal refusal) {
  reply.because(refusal.why);
  return reply.respond(refusal.status, kJson, std::move(refusal.body), std::move(refusal.headers));
}
inline bool try_refuse(HttpReply& reply, const ApiError& error) {
  return try_refuse(reply, refusal_of(error));
}
inline void refuse(HttpReply& reply, const ApiError& error) {
  static_cast<void>(try_refuse(reply, error));
}

// Whether the client or a proxy marks the request as a retry.
inline bool is_retry(const HttpRequest& request) {
  const auto number = [&](std::string_view name) {
    const std::string_view text = request.header(name);
    uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  return number("x-stainless-retry-count") > 0 || number("x-envoy-attempt-count") > 1;
}

}  // namespace stemma::server
