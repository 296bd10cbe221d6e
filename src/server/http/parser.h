// HttpParser turns bytes into HTTP/1.x requests, one at a time, however the bytes are cut.
//
// It is strict where two readers might otherwise see different requests in the same bytes: lines
// end in CRLF; no folded headers, no blank before a colon, no control characters; one
// Content-Length, or chunks, never both; exactly one Host in HTTP/1.1. Its memory is bounded by its
// limits and by what has arrived: a Content-Length reserves nothing.
//
//   idle --first byte--> head --blank line--> body --last byte--> done --take()--> idle
//                          '------------------- anything wrong ---> failed
//
// Threading:  one thread at a time.
// Cost:       each byte is examined a constant number of times; a head cut in many pieces is copied
//             once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace stemma::server {

struct HttpLimits {
  size_t header_bytes = size_t{16} << 10;  // Request line and headers; trailers too.
  size_t header_count = 256;
  size_t body_bytes = size_t{64} << 20;
};

class HttpParser {
 public:
  enum class Stage : uint8_t { idle, head, body, done, failed };

  explicit HttpParser(const HttpLimits& limits) : limits_(limits) {}

  // Takes bytes up to the end of one request. Returns how many it took.
  size_t feed(std::string_view bytes);
  // The same, but only up to the end of the head.
  size_t feed_head(std::string_view bytes);

  Stage stage() const noexcept;
  // After a failure: the status to answer, and a sentence. The connection must not be used again.
  int status() const noexcept { return status_; }
  const std::string& message() const noexcept { return message_; }

  // The part of the head that was read so far.
  const HttpRequest& head() const noexcept { return request_; }
  // Valid once the head is complete. expects_continue(): the client waits for "100 Continue" before
  // it sends its body.
  bool expects_continue() const noexcept { return expects_continue_; }
  bool keep_alive() const noexcept { return keep_alive_; }
  bool http_1_0() const noexcept { return http_1_0_; }
  size_t body_bytes() const noexcept { return request_.body.size(); }

  // Returns the request; requires Stage::done. The parser is then ready for the next one.
  HttpRequest take();
  // Drops everything and starts again.
  void clear() { *this = HttpParser(limits_); }

 private:
  enum class Part : uint8_t {
    request_line,
    header_line,
    sized_body,
    chunk_size,
    chunk_data,
    chunk_end,
    trailer_line,
    done,
    failed,
  };

  void take_line(std::string_view& bytes);
  void take_body(std::string_view& bytes);
  void line(std::string_view line);
  void request_line(std::string_view line);
  void target(std::string_view target);
  void header_line(std::string_view line);
  void head_done();
  bool transfer_encoding();
  bool content_length();
  void chunk_size(std::string_view line);
  void fail(int status, std::string message);
  void fail_body();
  void fail_head();
  size_t count(std::string_view name) const noexcept;
  bool connection_says(std::string_view token) const noexcept;

  HttpLimits limits_;
  Part part_ = Part::request_line;
  HttpRequest request_;
  std::string line_;       // The beginning of an incomplete line.
  size_t head_bytes_ = 0;  // Of the head, then of the trailers.
  size_t body_left_ = 0;   // Of the body, or of the chunk.
  int status_ = 0;
  std::string message_;
  bool started_ = false;
  bool chunked_ = false;
  bool expects_continue_ = false;
  bool keep_alive_ = false;
  bool http_1_0_ = false;
};

}  // namespace stemma::server
