// How replies look on the wire. Pure functions; a head is built once per reply.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace stemma::server {

// "Not Found"; "Status" for numbers without a name.
std::string_view status_text(int status) noexcept;

// How the client learns where the body ends.
enum class BodyEnd : uint8_t { length, chunks, close, no_body };

struct ReplyHead {
  int status = 200;
  std::string_view content_type;  // May be empty.
  BodyEnd end = BodyEnd::length;
  size_t length = 0;  // Of BodyEnd::length.
  bool keep_alive = true;
  bool http_1_0 = false;
};

// Appends a head, with the date. Leaves out headers that only the server sets and headers with a
// line break in them. Returns false if a header had a line break.
bool append_head(std::string& out, const ReplyHead& head, const HttpHeaders& extra,
                 const HttpHeaders& always);

void append_chunk(std::string& out, std::string_view piece);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
// An interim reply: clients ignore it if they did not ask for it.
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// {"error":{"message":...,"type":"invalid_request_error","code":null}}; the type is "server_error"
// from status 500 on. `message` is one of ours, so nothing in it needs an escape.
std::string error_body(int status, std::string_view message);

// A whole reply with an error that closes the connection.
std::string error_reply(int status, std::string_view message, const HttpHeaders& always,
                        bool http_1_0 = false);

}  // namespace stemma::server
