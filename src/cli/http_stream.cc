#include "cli/http_stream.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>

namespace stemma::cli {

namespace {

constexpr size_t kMaxHeadBytes = size_t{64} << 10U;
constexpr size_t kMaxChunkLineBytes = size_t{16} << 10U;

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return made;
}

std::string reason(int error) { return std::error_code(error, std::generic_category()).message(); }

// Returns 1 if `events` happened, 0 after `until`, -1 if a signal arrived.
int wait(int socket, short events, std::optional<HttpStream::Time> until, const sigset_t* mask) {
  pollfd watched{.fd = socket, .events = events, .revents = 0};
  timespec left{};
  if (until) {
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        *until - std::chrono::steady_clock::now())
                        .count();
    left.tv_sec = static_cast<time_t>(std::max<int64_t>(ns, 0) / 1'000'000'000);
    left.tv_nsec = static_cast<long>(std::max<int64_t>(ns, 0) % 1'000'000'000);
  }
  return ppoll(&watched, 1, until ? &left : nullptr, mask);
}

}  // namespace

std::string HttpUrl::authority() const {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

std::string parse_url(std::string_view text, HttpUrl& out) {
  constexpr std::string_view kPlain = "http://";
  const std::string scheme = lower(text.substr(0, text.find("://") + 1));
  if (scheme == "https:") {
    return "https is not supported: name the server's own address (http://127.0.0.1:8080), on its "
           "machine or "
           "through a tunnel";
  }
  if (!lower(text).starts_with(kPlain)) {
    return "'" + std::string(text) + "' is no address like http://127.0.0.1:8080";
  }
  text.remove_prefix(kPlain.size());
  const std::string_view where = text.substr(0, text.find('/'));
  std::string_view prefix = text.substr(where.size());
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
  std::string_view host = where;
  std::string_view port = "80";
  if (where.starts_with('[')) {
    const size_t close = where.find(']');
    if (close == std::string_view::npos) return "']' is missing behind the address";
    host = where.substr(1, close - 1);
    if (const std::string_view rest = where.substr(close + 1); !rest.empty()) {
      if (!rest.starts_with(':')) return "between ']' and '/' there may be a port";
      port = rest.substr(1);
    }
  } else if (const size_t colon = where.find(':'); colon != std::string_view::npos) {
    host = where.substr(0, colon);
    port = where.substr(colon + 1);
  }
  if (host.empty()) return "the address names no host";
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0) {
    return "'" + std::string(port) + "' is no port; ports are from 1 to 65535";
  }
  const auto unfit = [](unsigned char c) {
    return c <= ' ' || c == 127 || c == '@' || c == '?' || c == '#';
  };
  if (std::ranges::any_of(text, unfit)) {
    return "the address may have a host, a port and a path, and no spaces, names of users or "
           "questions";
  }
  out = {.host = std::string(host), .port = std::string(port), .prefix = std::string(prefix)};
  return {};
}

HttpStream::~HttpStream() {
  if (socket_ >= 0) close(socket_);
}

std::string HttpStream::connect(const HttpUrl& url, Time until) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
      error != 0) {
    return "there is no host '" + url.host + "': " + gai_strerror(error);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  int error = ECONNREFUSED;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    socket_ =
        socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol);
    if (socket_ < 0) {
      error = errno;
      continue;
    }
    error = ::connect(socket_, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      if (wait(socket_, POLLOUT, until, nullptr) == 1) {
        socklen_t size = sizeof error;
        getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
      } else {
        error = ETIMEDOUT;
      }
    }
    if (error == 0) break;
    close(socket_);
    socket_ = -1;
  }
  if (socket_ < 0) return "cannot reach " + url.authority() + ": " + reason(error);
  // A machine that disappears sends no notice, so the kernel probes for it.
  const int on = 1;
  const int idle_s = 30;
  setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  return {};
}

std::string HttpStream::open(const HttpUrl& url, std::string_view method, std::string_view target,
                             const std::string& api_key, std::chrono::seconds patience) {
  const Time until = std::chrono::steady_clock::now() + patience;
  if (std::string problem = connect(url, until); !problem.empty()) return problem;
  std::string request = std::string(method) + " " + url.prefix + std::string(target) +
                        " HTTP/1.1\r\nHost: " + url.authority() + "\r\nConnection: close\r\n";
  if (!api_key.empty()) request += "Authorization: Bearer " + api_key + "\r\n";
  if (method == "POST") request += "Content-Length: 0\r\n";
  request += "\r\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t count = send(socket_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if ((errno != EAGAIN && errno != EINTR) || wait(socket_, POLLOUT, until, nullptr) == 0) {
      return "cannot send to " + url.authority();
    }
  }
  std::string unlike = url.authority() + " does not answer like an HTTP server";
  for (;;) {
    const size_t end = buffer_.find("\r\n\r\n");
    if (end == std::string::npos) {
      if (buffer_.size() > kMaxHeadBytes) return unlike;
      const Next next = fill(until, nullptr);
      if (next == Next::late) return url.authority() + " has not answered in time";
      if (next == Next::end || next == Next::broken) return unlike;
      continue;
    }
    head_ = buffer_.substr(0, end + 2);
    buffer_.erase(0, end + 4);
    const char* const at = head_.data() + 9;
    if (!head_.starts_with("HTTP/1.") || head_.size() < 14 ||
        std::from_chars(at, at + 3, status_).ptr != at + 3) {
      return unlike;
    }
    if (status_ >= 200) break;  // Skip interim answers.
  }
  if (lower(header("transfer-encoding")).find("chunked") != std::string::npos) {
    body_ = Body::chunks;
  } else if (const std::string length = header("content-length"); !length.empty()) {
    body_ = Body::length;
    const char* const end = length.data() + length.size();
    if (std::from_chars(length.data(), end, left_).ptr != end) return unlike;
  }
  return {};
}

std::string HttpStream::header(std::string_view name) const {
  const std::string wanted = "\r\n" + lower(name) + ":";
  const std::string head = lower(head_);
  const size_t at = head.find(wanted);
  if (at == std::string::npos) return {};
  const size_t begin = head_.find_first_not_of(" \t", at + wanted.size());
  return head_.substr(begin, head_.find("\r\n", begin) - begin);
}

HttpStream::Next HttpStream::fill(std::optional<Time> until, const sigset_t* mask) {
  for (;;) {
    const int ready = wait(socket_, POLLIN, until, mask);
    if (ready == 0) return Next::late;
    if (ready < 0) return errno == EINTR ? Next::interrupted : Next::broken;
    char bytes[16 << 10];
    const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
    if (count > 0) {
      buffer_.append(bytes, static_cast<size_t>(count));
      return Next::piece;
    }
    if (count == 0) return Next::end;
    if (errno != EAGAIN && errno != EINTR) return Next::broken;
  }
}

HttpStream::Next HttpStream::read(std::string& out, std::optional<Time> until,
                                  const sigset_t* mask) {
  for (;;) {
    if (decode(out)) return Next::piece;
    if (body_ == Body::ended) return Next::end;
    if (body_ == Body::broken) return Next::broken;
    const Next next = fill(until, mask);
    if (next == Next::piece) continue;
    if (next == Next::end) body_ = body_ == Body::until_close ? Body::ended : Body::broken;
    if (next == Next::broken) body_ = Body::broken;
    if (next == Next::late || next == Next::interrupted) return next;
  }
}

// Returns true if it appended something.
bool HttpStream::decode(std::string& out) {
  if (body_ == Body::chunks) return decode_chunks(out);
  size_t count = buffer_.size();
  if (body_ == Body::length) {
    count = std::min(count, left_);
    left_ -= count;
    if (left_ == 0) body_ = Body::ended;
  }
  out.append(buffer_, 0, count);
  buffer_.erase(0, count);
  return count != 0;
}

bool HttpStream::decode_chunks(std::string& out) {
  const size_t before = out.size();
  while (body_ == Body::chunks) {
    if (in_chunk_ && left_ != 0) {
      const size_t count = std::min(left_, buffer_.size());
      out.append(buffer_, 0, count);
      buffer_.erase(0, count);
      left_ -= count;
      if (left_ != 0) break;
    }
    const size_t end = buffer_.find("\r\n");
    if (end == std::string::npos) {
      if (buffer_.size() > kMaxChunkLineBytes) body_ = Body::broken;
      break;
    }
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 2);
    if (in_chunk_) {
      in_chunk_ = false;  // This was the line break after its bytes.
      if (!line.empty()) body_ = Body::broken;
    } else if (last_chunk_) {
      if (line.empty()) body_ = Body::ended;
    } else {
      const char* const stop = line.data() + line.size();
      const auto [after, error] = std::from_chars(line.data(), stop, left_, 16);
      const bool good = error == std::errc() && (after == stop || *after == ';' || *after == ' ');
      if (!good) {
        body_ = Body::broken;
      } else if (left_ == 0) {
        last_chunk_ = true;
      } else {
        in_chunk_ = true;
      }
    }
  }
  return out.size() != before;
}

}  // namespace stemma::cli
