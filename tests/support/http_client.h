// A small blocking HTTP/1.1 client for tests: it sends whatever a test wants, however wrong, and
// parses answers strictly. Loopback only.
//
//   HttpClient client(server.port());
//   HttpAnswer answer = client.post("/v1/completions", R"({"prompt":"the"})");
//   EXPECT_EQ(answer.status, 200);
//
//   client.send(request_text("POST", "/v1/chat/completions", body));   // A stream, piece by piece:
//   client.read_head();
//   while (auto piece = client.read_piece()) ...
//
// Every wait ends after the client's timeout; then the answer is missing (status 0, no piece,
// complete == false). Threading: one thread at a time. Ownership: a socket, closed at the end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stemma::test {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpAnswer {
  int status = 0;  // 0: there was none, or it was not HTTP.
  HttpFields headers;
  std::string body;
  bool complete = false;  // The body ended as the head announced.

  // The first header of that name, whatever its case; empty if there is none.
  std::string header(std::string_view name) const;
};

// A request as text, with Host, and Content-Length where there is a body.
std::string request_text(std::string_view method, std::string_view target,
                         std::string_view body = {}, const HttpFields& headers = {});

// The payloads of the "data:" lines of a stream of server-sent events.
std::vector<std::string> sse_data(std::string_view stream);

class HttpClient {
 public:
  // If nobody listens, connected() is false. `receive_bytes`: the size of the kernel's buffer, for
  // clients that are slow.
  explicit HttpClient(uint16_t port,
                      std::chrono::milliseconds timeout = std::chrono::milliseconds(10'000),
                      int receive_bytes = 0);
  ~HttpClient();
  HttpClient(HttpClient&& other) noexcept;
  HttpClient& operator=(HttpClient&& other) noexcept;

  bool connected() const noexcept { return socket_ >= 0; }

  // A request and its answer, on this connection.
  HttpAnswer get(std::string_view target, const HttpFields& headers = {});
  HttpAnswer post(std::string_view target, std::string_view body, const HttpFields& headers = {});

  // Bytes as they are. False: not all could be sent.
  bool send(std::string_view bytes);

  // The next whole answer. `to_head`: it answers a HEAD request and has no body. Skips 100 Continue
  // unless asked not to.
  enum class Interim : uint8_t { skip, show };
  HttpAnswer read_answer(bool to_head = false, Interim interim = Interim::skip);

  // The next answer in pieces: its head, then one chunk at a time (or what has arrived, where there
  // are no chunks). Returns nothing after the last piece; complete() tells a proper end from a
  // broken connection.
  HttpAnswer read_head(Interim interim = Interim::skip);
  std::optional<std::string> read_piece();
  bool complete() const noexcept { return body_ == Body::ended; }

  // Returns the raw bytes up to the server's close. closed(): the server closed in time.
  std::string read_all();
  bool closed() const noexcept { return closed_; }
  bool reset() const noexcept { return reset_; }  // The server closed with a reset.

  void half_close();  // shutdown(SHUT_WR): no more requests.
  void close();
  void abort();  // With a reset.

 private:
  enum class Body : uint8_t { none, length, chunks, until_close, ended, broken };

  bool fill();  // Waits for bytes. False: none came.
  std::optional<std::string> read_line();
  std::optional<std::string> read_chunk();

  int socket_ = -1;
  std::chrono::milliseconds timeout_;
  std::string buffer_;
  Body body_ = Body::none;
  size_t left_ = 0;  // Of Body::length.
  bool closed_ = false;
  bool reset_ = false;
};

}  // namespace stemma::test
