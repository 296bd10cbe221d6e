// A request's line in the log.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/message.h"
#include "server/schedule/generation.h"

namespace stemma::server {

// Escapes a client's text, so that it cannot make a line look like two, or like another line.
std::string printable(std::string_view text);

// Names of fields as a header's value: a client's own names cannot end the header.
std::string header_list(const std::vector<std::string>& names);

// The line of a request whose handler writes none.
std::string answered_line(const HttpAsked& asked, int status);

struct RequestLine {
  std::string id;  // The answer's id.
  std::string path;
  std::string client;
  std::string request_id;
  uint32_t prompt_tokens = 0;

  // `summary` is null if the request failed; then `error` says why.
  std::string text(int status, const Summary* summary, std::string_view error) const;
};

}  // namespace stemma::server
