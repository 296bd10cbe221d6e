#include "server/http/parser.h"

#include <algorithm>
#include <utility>

namespace stemma::server {
namespace {

constexpr size_t kMethodBytes = 32;
constexpr size_t kChunkLineBytes = 256;              // A size, and extensions, which are ignored.
constexpr size_t kReservedBytes = size_t{64} << 10;  // A Content-Length alone allocates no more.

bool is_token_char(char c) noexcept {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

// CR may come only before LF; that is checked once the line is whole.
bool has_control(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\r') || byte == 0x7F;
  });
}

std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Takes the next element of a comma-separated list.
std::string_view next_element(std::string_view& list) noexcept {
  const std::string_view element = list.substr(0, list.find(','));
  list.remove_prefix(std::min(element.size() + 1, list.size()));
  return trimmed(element);
}

}  // namespace

HttpParser::Stage HttpParser::stage() const noexcept {
  switch (part_) {
    case Part::request_line: return started_ ? Stage::head : Stage::idle;
    case Part::header_line: return Stage::head;
    case Part::done: return Stage::done;
    case Part::failed: return Stage::failed;
    default: return Stage::body;
  }
}

HttpRequest HttpParser::take() {
  HttpRequest request = std::exchange(request_, {});
  *this = HttpParser(limits_);
  return request;
}

size_t HttpParser::feed(std::string_view bytes) {
  const size_t offered = bytes.size();
  while (!bytes.empty() && part_ != Part::done && part_ != Part::failed) {
    if (part_ == Part::sized_body || part_ == Part::chunk_data) {
      take_body(bytes);
    } else {
      take_line(bytes);
    }
  }
  return offered - bytes.size();
}

size_t HttpParser::feed_head(std::string_view bytes) {
  const size_t offered = bytes.size();
  while (!bytes.empty() && (part_ == Part::request_line || part_ == Part::header_line)) {
    take_line(bytes);
  }
  return offered - bytes.size();
}

void HttpParser::take_body(std::string_view& bytes) {
  const size_t count = std::min(bytes.size(), body_left_);
  request_.body.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
  body_left_ -= count;
  if (body_left_ > 0) return;
  part_ = part_ == Part::sized_body ? Part::done : Part::chunk_end;
}

void HttpParser::take_line(std::string_view& bytes) {
  const bool of_head =
      part_ == Part::request_line || part_ == Part::header_line || part_ == Part::trailer_line;
  const size_t line_limit = part_ == Part::chunk_end ? 2 : kChunkLineBytes;
  const size_t room = of_head ? limits_.header_bytes - head_bytes_ : line_limit - line_.size();
  const size_t end = bytes.find('\n');
  const size_t count = std::min(end == std::string_view::npos ? bytes.size() : end + 1, room);
  const std::string_view part = bytes.substr(0, count);
  bytes.remove_prefix(count);
  if (of_head) head_bytes_ += count;
  const bool whole = !part.empty() && part.back() == '\n';
  if (has_control(part.substr(0, part.size() - (whole ? 1 : 0)))) {
    return fail(400, "a control character where there may be none");
  }
  if (!whole) {
    if (count == room) {
      return of_head ? fail_head()
                     : fail(400, "a chunk that does not fit its size, or a size without end");
    }
    if (part.find_first_not_of('\r') != std::string_view::npos) started_ = true;
    line_.append(part);
    return;
  }
  std::string_view text = part;
  if (!line_.empty()) text = line_.append(part);
  text.remove_suffix(1);
  if (text.empty() || text.back() != '\r') return fail(400, "a line that does not end in CRLF");
  text.remove_suffix(1);
  if (text.find('\r') != std::string_view::npos) {
    return fail(400, "a control character where there may be none");
  }
  line(text);
  line_.clear();
}

void HttpParser::line(std::string_view line) {
  switch (part_) {
    case Part::request_line:
      // Some clients send blank lines after a body.
      if (!line.empty()) request_line(line);
      return;
    case Part::header_line:
      if (line.empty()) return head_done();
      return header_line(line);
    case Part::chunk_size: return chunk_size(line);
    case Part::chunk_end:  // Only a line end fits here.
      part_ = Part::chunk_size;
      return;
    case Part::trailer_line:
      // Trailers are limited in size and ignored.
      if (line.empty()) part_ = Part::done;
      return;
    default: return;
  }
}

void HttpParser::request_line(std::string_view line) {
  started_ = true;
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return fail(400, "the request line is not METHOD TARGET VERSION");
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method) || method.size() > kMethodBytes) {
    return fail(400, "the method is not a word");
  }
  if (version.size() != 8 || !version.starts_with("HTTP/") || version[6] != '.' ||
      version[5] < '0' || version[5] > '9' || version[7] < '0' || version[7] > '9') {
    return fail(400, "the request line does not end in an HTTP version");
  }
  if (version[5] != '1') return fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  http_1_0_ = version[7] == '0';
  request_.method = method;
  part_ = Part::header_line;
  target(line.substr(first + 1, last - first - 1));
}

void HttpParser::target(std::string_view target) {
  if (target.find_first_of(" \t#") != std::string_view::npos) {
    return fail(400, "the target of the request is not a path");
  }
  if (target == "*" && request_.method == "OPTIONS") {
    request_.path = "*";
    return;
  }
  bool absolute = false;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (absolute || !equal_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    absolute = true;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  const size_t question = std::min(target.find('?'), target.size());
  std::string_view path = target.substr(0, question);
  request_.query = target.substr(std::min(question + 1, target.size()));
  if (absolute && path.empty()) path = "/";
  auto decoded = percent_decoded(path);
  if (!decoded || !path.starts_with('/')) {
    return fail(400, "the target of the request is not a path");
  }
  request_.path = *std::move(decoded);
}

void HttpParser::header_line(std::string_view line) {
  if (request_.headers.size() >= limits_.header_count) {
    return fail(431,
                "the request has more than " + std::to_string(limits_.header_count) + " headers");
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    return fail(400, "a header is not NAME: VALUE");
  }
  request_.headers.push_back(
      {std::string(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1)))});
}

size_t HttpParser::count(std::string_view name) const noexcept {
  return static_cast<size_t>(
      std::count_if(request_.headers.begin(), request_.headers.end(),
                    [&](const HttpHeader& h) { return equal_ignoring_case(h.name, name); }));
}

bool HttpParser::connection_says(std::string_view token) const noexcept {
  for (const HttpHeader& header : request_.headers) {
    if (!equal_ignoring_case(header.name, "connection")) continue;
    std::string_view list = header.value;
    while (!list.empty()) {
      if (equal_ignoring_case(next_element(list), token)) return true;
    }
  }
  return false;
}

void HttpParser::head_done() {
  const size_t hosts = count("host");
  if (hosts > 1 || (hosts == 0 && !http_1_0_)) {
    return fail(400, "an HTTP/1.1 request has exactly one Host header");
  }
  keep_alive_ = !connection_says("close") && (!http_1_0_ || connection_says("keep-alive"));
  if (!transfer_encoding() || !content_length()) return;
  const std::string_view expect = request_.header("expect");
  if (!expect.empty() && !http_1_0_) {
    if (!equal_ignoring_case(expect, "100-continue")) {
      return fail(417, "an expectation other than 100-continue");
    }
    expects_continue_ = chunked_ || body_left_ > 0;
  }
  head_bytes_ = 0;
  if (chunked_) {
    part_ = Part::chunk_size;
  } else if (body_left_ > 0) {
    request_.body.reserve(std::min(body_left_, kReservedBytes));
    part_ = Part::sized_body;
  } else {
    part_ = Part::done;
  }
}

bool HttpParser::transfer_encoding() {
  const size_t headers = count("transfer-encoding");
  if (headers == 0) return true;
  // Both are ways to smuggle one request inside another past a proxy.
  if (count("content-length") > 0) {
    fail(400, "both Content-Length and Transfer-Encoding");
  } else if (http_1_0_) {
    fail(400, "Transfer-Encoding in HTTP/1.0");
  } else if (headers > 1) {
    fail(400, "more than one Transfer-Encoding header");
  } else if (!equal_ignoring_case(request_.header("transfer-encoding"), "chunked")) {
    fail(501, "a Transfer-Encoding other than chunked");
  } else {
    chunked_ = true;
  }
  return chunked_;
}

bool HttpParser::content_length() {
  const std::string* first = nullptr;
  for (const HttpHeader& header : request_.headers) {
    if (!equal_ignoring_case(header.name, "content-length")) continue;
    if (first != nullptr && *first != header.value) {
      fail(400, "two Content-Length headers that differ");
      return false;
    }
    first = &header.value;
  }
  if (first == nullptr) return true;
  const bool digits = !first->empty() && std::all_of(first->begin(), first->end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) {
    fail(400, "Content-Length is not a number");
    return false;
  }
  size_t length = 0;
  for (const char c : *first) {
    length = length * 10 + static_cast<size_t>(c - '0');
    if (length > limits_.body_bytes) {
      fail_body();
      return false;
    }
  }
  body_left_ = length;
  return true;
}

void HttpParser::chunk_size(std::string_view line) {
  size_t size = 0;
  size_t digits = 0;
  for (; digits < line.size(); ++digits) {
    const char c = line[digits];
    const char* const hex = "0123456789abcdefABCDEF";
    const size_t at = std::string_view(hex).find(c);
    if (at == std::string_view::npos) break;
    size = size * 16 + (at < 16 ? at : at - 6);
    if (size > limits_.body_bytes) return fail_body();
  }
  const std::string_view rest = trimmed(line.substr(digits));
  if (digits == 0 || (!rest.empty() && rest.front() != ';')) {
    return fail(400, "the size of a chunk is not a number");
  }
  if (size > limits_.body_bytes - request_.body.size()) {
    return fail_body();
  }
  body_left_ = size;
  part_ = size > 0 ? Part::chunk_data : Part::trailer_line;
}

void HttpParser::fail(int status, std::string message) {
  part_ = Part::failed;
  status_ = status;
  message_ = std::move(message);
}

void HttpParser::fail_body() {
  fail(413, "the body of the request has more than " + std::to_string(limits_.body_bytes) +
                " bytes; the server's --body-bytes sets the limit");
}

void HttpParser::fail_head() {
  fail(431, "the head of the request has more than " + std::to_string(limits_.header_bytes) +
                " bytes; the server's --header-bytes sets the limit");
}

}  // namespace stemma::server
