// An HttpStream sends one request to a server over plain HTTP/1.1 and returns the answer piece by
// piece, as it arrives.
//
// It serves commands that talk to a running `stemma serve`. It supports names, IPv4 and IPv6
// addresses, chunked answers and answers that end with the connection; no TLS, no redirects.
// Threading:  one thread at a time.
// Ownership:  owns a socket, which the destructor closes.
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
  std::string prefix;  // The prefix of the server's paths: "", "/models/a".

  std::string authority() const;  // "host:port", as in the header Host.
};
// Parses http://HOST[:PORT][/PREFIX]. Ignores a /v1 at the end, which OpenAI's clients need.
// Returns an empty string, or what is wrong with the URL.
std::string parse_url(std::string_view text, HttpUrl& out);

class HttpStream {
 public:
  using Time = std::chrono::steady_clock::time_point;

  HttpStream() = default;
  ~HttpStream();
  HttpStream(const HttpStream&) = delete;
  HttpStream& operator=(const HttpStream&) = delete;

  // Connects, sends the request, and reads the head of the answer. Returns an empty string, or what
  // went wrong. Call it once.
  std::string open(const HttpUrl& url, std::string_view method, std::string_view target,
                   const std::string& api_key, std::chrono::seconds patience);
  int status() const noexcept { return status_; }
  // A header of the answer; empty if there is none.
  std::string header(std::string_view name) const;

  enum class Next : uint8_t {
    piece,        // A piece was appended.
    end,          // The answer is complete.
    broken,       // The connection ended too early, or the answer is not HTTP.
    interrupted,  // A signal came that `mask` does not block.
    late,         // Nothing came before `until`.
  };
  // Waits for more of the body. Only while it waits, the blocked signals are those of `mask`; null:
  // they do not change.
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
  size_t left_ = 0;          // Bytes left of a chunk, or of Body::length.
  bool in_chunk_ = false;    // Its bytes, or the line break behind them, have not all come.
  bool last_chunk_ = false;  // Only lines follow, up to an empty one.
};

}  // namespace stemma::cli
