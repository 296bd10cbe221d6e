#include "server/http/format.h"

#include <array>
#include <charconv>
#include <ctime>

namespace stemma::server {
namespace {

// Returns "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", made once a second on each thread.
std::string_view date_line() {
  thread_local std::time_t made_at = 0;
  thread_local std::array<char, 64> line{};
  thread_local size_t bytes = 0;
  const std::time_t now = std::time(nullptr);
  if (now == made_at && bytes > 0) return {line.data(), bytes};
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  gmtime_r(&now, &utc);
  // strftime's names depend on the locale.
  const int written = std::snprintf(
      line.data(), line.size(), "Date: %s, %02d %s %d %02d:%02d:%02d GMT\r\n", kDays[utc.tm_wday],
      utc.tm_mday, kMonths[utc.tm_mon], utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
  bytes = static_cast<size_t>(written);
  made_at = now;
  return {line.data(), bytes};
}

bool breaks_lines(std::string_view text) noexcept {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
}

bool is_servers_own(std::string_view name) noexcept {
  for (const std::string_view own :
       {"content-length", "transfer-encoding", "connection", "content-type", "date"}) {
    if (equal_ignoring_case(name, own)) return true;
  }
  return false;
}

void append_number(std::string& out, size_t number, int base = 10) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  out.append(digits.data(), end);
}

void append_line(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

bool append_headers(std::string& out, const HttpHeaders& headers) {
  bool whole = true;
  for (const HttpHeader& header : headers) {
    if (is_servers_own(header.name)) continue;
    if (header.name.empty() || header.name.find_first_of(": \t") != std::string::npos ||
        breaks_lines(header.name) || breaks_lines(header.value)) {
      whole = false;
      continue;
    }
    append_line(out, header.name, header.value);
  }
  return whole;
}

}  // namespace

std::string_view status_text(int status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    default: return "Status";
  }
}

bool append_head(std::string& out, const ReplyHead& head, const HttpHeaders& extra,
                 const HttpHeaders& always) {
  out += "HTTP/1.1 ";
  append_number(out, static_cast<size_t>(head.status));
  out.append(" ").append(status_text(head.status)).append("\r\n");
  out += date_line();
  bool whole = !breaks_lines(head.content_type);
  if (whole && !head.content_type.empty()) append_line(out, "Content-Type", head.content_type);
  switch (head.end) {
    case BodyEnd::length:
      out += "Content-Length: ";
      append_number(out, head.length);
      out += "\r\n";
      break;
    case BodyEnd::chunks: append_line(out, "Transfer-Encoding", "chunked"); break;
    case BodyEnd::close:
    case BodyEnd::no_body: break;
  }
  whole = append_headers(out, always) && whole;
  whole = append_headers(out, extra) && whole;
  if (!head.keep_alive) {
    append_line(out, "Connection", "close");
  } else if (head.http_1_0) {
    append_line(out, "Connection", "keep-alive");
  }
  out += "\r\n";
  return whole;
}

void append_chunk(std::string& out, std::string_view piece) {
  append_number(out, piece.size(), 16);
  out.append("\r\n").append(piece).append("\r\n");
}

std::string error_body(int status, std::string_view message) {
  std::string body = R"({"error":{"message":")";
  body += message;
  body += R"(","type":")";
  body += status >= 500 ? "server_error" : "invalid_request_error";
  body += R"(","code":null}})";
  return body;
}

std::string error_reply(int status, std::string_view message, const HttpHeaders& always,
                        bool http_1_0) {
  const std::string body = error_body(status, message);
  HttpHeaders extra;
  if (status == 503) extra.push_back({"Retry-After", "1"});
  std::string reply;
  append_head(reply,
              {.status = status,
               .content_type = "application/json",
               .length = body.size(),
               .keep_alive = false,
               .http_1_0 = http_1_0},
              extra, always);
  return reply + body;
}

}  // namespace stemma::server
