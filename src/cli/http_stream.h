// An HttpStream asks a server one thing over plain HTTP/1.1 and gives its answer piece by piece, as it comes.
//
// For commands that talk to a running `stemma serve`: names and IPv4 and IPv6 addresses, chunked answers and
// those that end with the connection; no TLS, no redirects.
// Threading:  one thread at a time.
// Ownership:  a socket, closed at the end.
#pragma once

#include <chrono>
#include <csignal>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stemma::cli {

struct HttpUrl {
  std::string host;  // Without brackets.
  std::string port;
  std::string prefix;  // What comes before the paths of the server: "", "/models/a".

  std::string authority() const;  // "host:port", as Host says it.
};
// http://HOST[:PORT][/PREFIX]. A /v1 at the end, as OpenAI's clients want it, is passed over. Returns an empty
// string, or what is wrong with it.
std::string parse_url(std::string_view text, HttpUrl& out);

class HttpStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  HttpStream() = default;
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  // Connects, asks, and reads the head of the answer. Returns an empty string, or what went wrong. Once.
  std::string open(const HttpUrl& url, std::string_view method, std::string_view target,
                   const std::string& api_key, std::chrono::seconds patience);
  int status() const noexcept { return status_; }
  // Of the answer; empty if there is none.
  std::string header(std::string_view name) const;

  enum class Next : uint8_t {
    piece,        // Was appended.
    end,          // The answer is complete.
    broken,       // The connection ended before it, or what came is not HTTP.
    interrupted,  // A signal came that `mask` lets through.
    late,         // Nothing more until `until`.
  };
  // Waits for more of the body. While it waits, and only then, the signals of `mask` are the blocked ones;
  // null: those that are blocked stay so.
  Next read(std::string& out, std::optional<Time> until, const sigset_t* mask = nullptr);

 private:
  std::string connect(const HttpUrl& url, Time until);
  Next fill(std::optional<Time> until, const sigset_t* mask);
  bool decode(std::string& out);
  bool decode_chunks(std::string& out);

  enum class Body : uint8_t { chunks, length, until_close, ended, broken };
  int socket_ = -1;
  int status_ = 0;
  std::string head_;
  std::string buffer_;
  Body body_ = Body::until_close;
  size_t left_ = 0;          // Of a chunk, or of Body::length.
  bool in_chunk_ = false;    // Its bytes, or the line break behind them, are still to come.
  bool last_chunk_ = false;  // Only lines follow, up to an empty one.
};

}  // namespace stemma::cli
