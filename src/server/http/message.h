// What an HTTP handler gets: a complete request, and a reply to fill.
//
// HttpReply is an interface, so that handlers can be tested without a socket. A reply is sent whole
// or as a stream:
//
//   waiting --respond()--> complete
//   waiting --begin()--> streaming --send()...--end()--> complete
//   waiting --nothing was sent for a while, and keep_alive() was called--> streaming
//   waiting, streaming --the client went away--> gone
//
// Calls that do not fit the state change nothing and return false.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stemma::server {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// A body of at most this size is small: it does not wait behind large ones.
inline constexpr size_t kSmallBodyBytes = size_t{64} << 10U;

// Threading: a plain value.
struct HttpRequest {
  std::string method;  // As sent: "GET", "POST", ... A HEAD is called HEAD; see reads().
  std::string path;  // Percent-decoded, begins with '/' (or is "*"). Dot segments stay as they are.
  std::string query;  // What follows '?', as sent.
  HttpHeaders headers;
  std::string body;
  std::string peer;  // "127.0.0.1:41234", "[::1]:41234".
  std::string id;    // X-Request-Id, as sent or generated here. The answer repeats it.
  // How many purges there had been when the handler got it (schedule/purge_log.h).
  uint64_t purges = 0;
  // The body's share of the server's memory for bodies. Its last owner gives it back.
  std::shared_ptr<const void> body_share;

  // The first header of that name, ignoring case; empty if there is none.
  std::string_view header(std::string_view name) const noexcept;
  // The first value of a query parameter, decoded ('+' is a space). Returns nothing if it is
  // missing or cannot be decoded.
  std::optional<std::string> parameter(std::string_view name) const;
  // Whether it is a GET or a HEAD. Answer both alike: the body of a HEAD's answer is not sent.
  bool reads() const noexcept { return method == "GET" || method == "HEAD"; }
};

// What logs and counters need to know about an answered request. Fields that could not be parsed
// are empty.
struct HttpAsked {
  std::string method = {};
  std::string path = {};
  std::string peer = {};
  std::string id = {};
  std::string why = {};   // The reason for a refusal, as a sentence.
  bool own_line = false;  // The handler writes the request's log line itself.
};

// A refusal, with a JSON body.
struct HttpRefusal {
  int status = 400;
  std::string body = {};
  HttpHeaders headers = {};
  std::string why = {};  // For the log.
};

// What an idle stream sends to show that it is alive.
struct HttpKeepAlive {
  std::chrono::milliseconds every{0};  // 0: only to clients that have closed their side.
  std::string piece;                   // What it sends.
  // The head, if the stream has not begun.
  std::string content_type;
  HttpHeaders headers = {};
};

// Threading:  thread-safe; any thread may complete it at any time, even after its server is gone.
// Ownership:  when the last owner drops an incomplete reply, the client gets a 500. A stream that
//             has begun is closed so that the client can tell: without its last chunk, or with a
//             reset.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // Sends the whole answer. Drops headers that name a length, an encoding or the connection: the
  // server sets those. Also drops, and logs, headers with line breaks in them.
  virtual bool respond(int status, std::string_view content_type, std::string body,
                       HttpHeaders headers = {}) = 0;

  // Begin, continue and end a stream. The head and every piece are sent at once; while the client
  // is slow, pieces gather and leave together. Empty pieces are ignored.
  virtual bool begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  virtual bool send(std::string piece) = 0;
  virtual bool end() = 0;

  // Declares that the reply will be a stream. Whenever it is idle for a while before its end, the
  // server sends the piece. If the stream has not begun by then, the server begins it with status
  // 200: begin() and respond() return false from then on, and only send() and end() are left.
  virtual void keep_alive(HttpKeepAlive manner) = 0;

  // Set fields of HttpAsked. Call them before the reply begins.
  virtual void because(std::string_view /*why*/) {}
  virtual void own_line(bool /*own*/) {}

  // Whether the client closed, or was cut off, before the reply was complete. Stays true.
  virtual bool gone() const = 0;
  // Calls `callback` once if the client goes before the reply is complete: on a thread of the
  // server, with no lock held; if it has gone already, at once on this thread. The callback is
  // destroyed when the reply is complete or the client gone, so it may hold the reply. A second
  // callback replaces the first.
  virtual void on_gone(std::function<void()> callback) = 0;
};

// Called on an I/O thread, which serves other clients too: it must return soon. An exception is
// logged and answered with 500.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

// Decodes "a%20b" to "a b". Returns nothing for an invalid escape and for %00.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);
// Compares texts, ignoring the case of ASCII letters.
bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

}  // namespace stemma::server
