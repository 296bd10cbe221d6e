// Errors in the format of Anthropic's API.
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "server/api/error.h"

namespace stemma::server {

// The error code for a request with a thread: a conversation that the server stores.
inline constexpr std::string_view kThreadUnsupported = "thread_unsupported_request";

// {"type":"error","error":{"type","message"},"request_id"}; an empty id becomes null. The message
// names the field at fault.
std::string encode_anthropic_error(const ApiError& error, std::string_view request_id);
// The status of Anthropic's API for this error: 529 for an overloaded server.
int anthropic_status(const ApiError& error) noexcept;

}  // namespace stemma::server
