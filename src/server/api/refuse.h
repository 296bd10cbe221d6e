// An ApiError as a reply, with the headers that belong to its status; and who comes again after one.
#pragma once

#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

#include "server/api/error.h"
#include "server/http/message.h"

namespace stemma::server {

inline constexpr std::string_view kJson = "application/json";

inline HttpRefusal refusal_of(const ApiError& error) {
  HttpHeaders headers;
  if (error.status == 503) headers.push_back({"Retry-After", "1"});
  if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  return {.status = error.status,
          .body = encode_error(error),
          .headers = std::move(headers),
          .why = error.message};
}
// False: the reply has begun, or its client is gone.
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

// Clients and proxies that try again say so.
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
