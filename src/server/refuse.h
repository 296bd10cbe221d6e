// An ApiError as a reply, with the headers that belong to its status.
#pragma once

#include <string_view>
#include <utility>

#include "server/api_error.h"
#include "server/http_message.h"

namespace stemma::server {

inline constexpr std::string_view kJson = "application/json";

// False: the reply has begun, or its client is gone.
inline bool try_refuse(HttpReply& reply, const ApiError& error) {
  HttpHeaders headers;
  if (error.status == 503) headers.push_back({"Retry-After", "1"});
  if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
  return reply.respond(error.status, kJson, encode_error(error), std::move(headers));
}
inline void refuse(HttpReply& reply, const ApiError& error) {
  static_cast<void>(try_refuse(reply, error));
}

}  // namespace stemma::server
