// What an HTTP handler sees: a request that is there completely, and a reply to fill.
//
// HttpReply is an interface, so that handlers can be tested without a socket. A reply takes one of two
// roads, or none:
//
//   waiting --respond()--> complete
//   waiting --begin()--> streaming --send()...--end()--> complete
//   waiting --nothing was said for a while, and keep_alive() allows it--> streaming
//   waiting, streaming --the client went away--> gone
//
// Calls that do not fit the state change nothing and return false.
#pragma once

#include <chrono>
#include <cstddef>
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

// A body of at most so many bytes is a small one: it does not wait behind large ones.
inline constexpr size_t kSmallBodyBytes = size_t{64} << 10U;

// Threading: a plain value.
struct HttpRequest {
  std::string method;  // As sent: "GET", "POST", ... A HEAD is called HEAD; see reads().
  std::string path;  // Percent-decoded, begins with '/' (or is "*"). Dot segments stay as they are.
  std::string query;  // What follows '?', as sent.
  HttpHeaders headers;
  std::string body;
  std::string peer;  // "127.0.0.1:41234", "[::1]:41234".
  std::string id;    // X-Request-Id, as sent or made here; the answer has it, too.
  // What the body takes of the server's memory for bodies. Given back when its last owner lets go.
  std::shared_ptr<const void> body_share;

  // The first header of that name, whatever its case; empty if there is none.
  std::string_view header(std::string_view name) const noexcept;
  // The first value of a query parameter, decoded ('+' is a space); nothing if it is not there or not
  // decodable.
  std::optional<std::string> parameter(std::string_view name) const;
  // GET or HEAD: the answer to a HEAD is made like the other one, and its body is not sent.
  bool reads() const noexcept { return method == "GET" || method == "HEAD"; }
};

// What a log and a count want to know of a request that is answered. What was not understood is empty.
struct HttpAsked {
  std::string method = {};
  std::string path = {};
  std::string peer = {};
  std::string id = {};
  std::string why = {};   // Of a refusal: a sentence.
  bool own_line = false;  // Whoever answers it writes its line in the log.
};

// An answer that says no, in JSON.
struct HttpRefusal {
  int status = 400;
  std::string body = {};
  HttpHeaders headers = {};
  std::string why = {};  // For the log.
};

// How a stream shows that it is alive while it has nothing to say.
struct HttpKeepAlive {
  std::chrono::milliseconds every{0};  // 0: only to clients that have closed their side.
  std::string piece;                   // What it says.
  // What it begins with, if it has not begun.
  std::string content_type;
  HttpHeaders headers = {};
};

// Threading:  thread-safe; completed from any thread, at any time, also after its server is gone.
// Ownership:  the last owner who lets go of a reply that is not complete answers 500 with that; a stream
//             is then closed so that the client can tell: without its last chunk, or with a reset.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // The whole answer. Headers that name a length, an encoding or the connection are left out: they are
  // the server's. So are headers with line breaks in them, and they are logged.
  virtual bool respond(int status, std::string_view content_type, std::string body,
                       HttpHeaders headers = {}) = 0;

  // A stream: its head is sent at once, so is every piece; pieces that come while the client is slow
  // leave together. An empty piece is nothing.
  virtual bool begin(int status, std::string_view content_type, HttpHeaders headers = {}) = 0;
  virtual bool send(std::string piece) = 0;
  virtual bool end() = 0;

  // The reply is to be a stream, and when it says nothing for a while this is said for it, at any time before
  // its end. If it has not begun by then, it is begun with status 200: begin() and respond() answer false
  // from then on, and send() is what is left.
  virtual void keep_alive(HttpKeepAlive manner) = 0;

  // For HttpAsked, before the reply begins.
  virtual void because(std::string_view /*why*/) {}
  virtual void own_line(bool /*own*/) {}

  // The client closed, or was cut off, before the reply was complete. Stays true.
  virtual bool gone() const = 0;
  // Calls `callback` once if the client goes before the reply is complete: on a thread of the server,
  // with no lock held; at once and here if it has gone already. The callback is let go when the reply is
  // complete or the client gone, so it may hold the reply. A second one takes the place of the first.
  virtual void on_gone(std::function<void()> callback) = 0;
};

// Called on an I/O thread, which serves other clients too: it must return soon. What it throws is
// logged and answered with 500.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpReply> reply)>;

// "a%20b" is "a b". Nothing for an escape that is none, and for %00.
std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space = false);
// ASCII letters of either case are equal.
bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept;

}  // namespace stemma::server
