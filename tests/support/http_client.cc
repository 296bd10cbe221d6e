#include "support/http_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

namespace stemma::test {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

std::optional<size_t> number(std::string_view text, int base) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return {};
}

std::string request_text(std::string_view method, std::string_view target, std::string_view body,
                         const HttpFields& headers) {
  std::string text;
  text.append(method).append(" ").append(target).append(" HTTP/1.1\r\nHost: test\r\n");
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  for (const auto& [name, value] : headers) text.append(name + ": " + value + "\r\n");
  return text.append("\r\n").append(body);
}

std::vector<std::string> sse_data(std::string_view stream) {
  std::vector<std::string> found;
  while (!stream.empty()) {
    const std::string_view line = stream.substr(0, stream.find('\n'));
    stream.remove_prefix(std::min(line.size() + 1, stream.size()));
    if (line.starts_with("data: ")) found.emplace_back(line.substr(6));
  }
  return found;
}

HttpClient::HttpClient(uint16_t port, std::chrono::milliseconds timeout, int receive_bytes)
    : timeout_(timeout) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return;
  if (receive_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
  }
  const int on = 1;
  ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  timeval time{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
  ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

HttpClient::~HttpClient() { close(); }

HttpClient::HttpClient(HttpClient&& other) noexcept { *this = std::move(other); }

HttpClient& HttpClient::operator=(HttpClient&& other) noexcept {
  if (this == &other) return *this;
  close();
  socket_ = std::exchange(other.socket_, -1);
  timeout_ = other.timeout_;
  buffer_ = std::move(other.buffer_);
  body_ = other.body_;
  left_ = other.left_;
  closed_ = other.closed_;
  reset_ = other.reset_;
  return *this;
}

HttpAnswer HttpClient::get(std::string_view target, const HttpFields& headers) {
  send(request_text("GET", target, {}, headers));
  return read_answer();
}

HttpAnswer HttpClient::post(std::string_view target, std::string_view body,
                            const HttpFields& headers) {
  send(request_text("POST", target, body, headers));
  return read_answer();
}

bool HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool HttpClient::fill() {
  if (socket_ < 0 || closed_) return false;
  pollfd query{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&query, 1, static_cast<int>(timeout_.count())) <= 0) return false;
  std::array<char, 16384> bytes{};
  const ssize_t count = ::recv(socket_, bytes.data(), bytes.size(), 0);
  if (count > 0) {
    buffer_.append(bytes.data(), static_cast<size_t>(count));
    return true;
  }
  closed_ = true;
  reset_ = count < 0;
  return false;
}

std::optional<std::string> HttpClient::read_line() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) return std::nullopt;
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return line;
}

HttpAnswer HttpClient::read_head(Interim interim) {
  HttpAnswer answer;
  body_ = Body::broken;
  const auto first = read_line();
  if (!first || !first->starts_with("HTTP/1.1 ") || first->size() < 12) return answer;
  const auto status = number(std::string_view(*first).substr(9, 3), 10);
  for (;;) {
    const auto line = read_line();
    if (!line) return answer;
    if (line->empty()) break;
    const size_t colon = line->find(": ");
    if (colon == std::string::npos) return answer;
    answer.headers.emplace_back(line->substr(0, colon), line->substr(colon + 2));
  }
  answer.status = static_cast<int>(status.value_or(0));
  if (answer.status / 100 == 1) {
    body_ = Body::ended;
    return interim == Interim::show ? answer : read_head();
  }
  const std::string length = answer.header("content-length");
  if (answer.status == 204 || answer.status == 304) {
    body_ = Body::ended;
  } else if (answer.header("transfer-encoding") == "chunked") {
    body_ = Body::chunks;
  } else if (length.empty()) {
    body_ = Body::until_close;
  } else if (const auto bytes = number(length, 10)) {
    left_ = *bytes;
    body_ = left_ > 0 ? Body::length : Body::ended;
  }
  return answer;
}

std::optional<std::string> HttpClient::read_chunk() {
  body_ = Body::broken;
  const auto size_line = read_line();
  const auto size = size_line ? number(*size_line, 16) : std::nullopt;
  if (!size) return std::nullopt;
  while (buffer_.size() < *size + 2) {
    if (!fill()) return std::nullopt;
  }
  if (buffer_.compare(*size, 2, "\r\n") != 0) return std::nullopt;
  std::string piece = buffer_.substr(0, *size);
  buffer_.erase(0, *size + 2);
  body_ = *size > 0 ? Body::chunks : Body::ended;
  if (*size == 0) return std::nullopt;
  return piece;
}

std::optional<std::string> HttpClient::read_piece() {
  if (body_ == Body::chunks) return read_chunk();
  if (body_ != Body::length && body_ != Body::until_close) return std::nullopt;
  if (buffer_.empty() && !fill()) {
    body_ = body_ == Body::until_close && closed_ && !reset_ ? Body::ended : Body::broken;
    return std::nullopt;
  }
  const size_t count = body_ == Body::length ? std::min(left_, buffer_.size()) : buffer_.size();
  std::string piece = buffer_.substr(0, count);
  buffer_.erase(0, count);
  if (body_ == Body::length && (left_ -= count) == 0) body_ = Body::ended;
  return piece;
}

HttpAnswer HttpClient::read_answer(bool to_head, Interim interim) {
  HttpAnswer answer = read_head(interim);
  if (to_head && answer.status != 0) body_ = Body::ended;
  while (const auto piece = read_piece()) answer.body += *piece;
  answer.complete = complete();
  return answer;
}

std::string HttpClient::read_all() {
  while (fill()) {
  }
  return std::exchange(buffer_, {});
}

void HttpClient::half_close() { ::shutdown(socket_, SHUT_WR); }

void HttpClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void HttpClient::abort() {
  const linger now{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close();
}

}  // namespace stemma::test
