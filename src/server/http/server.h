// An HttpServer listens on one address and hands whole requests to one handler.
//
// HTTP/1.1 and 1.0, without TLS: keep-alive, pipelining (one request at a time, answered in order),
// chunked bodies both ways, Expect: 100-continue, HEAD. The handler decides what a request means.
// Everything that a client can make the server hold or wait for has a limit:
//
//   what is wrong                                            what the client gets
//   not HTTP; two readings possible (lengths, encodings)     400, closed
//   no progress with head or body in time                    408, closed; silently if it sent nothing
//   body, head too large                                     413, 431 that names the limit, closed
//   a transfer encoding that is not chunked                  501, closed
//   too many connections, too many bytes of bodies           503 with Retry-After, closed
//   a large answer while too many are not read               503 with Retry-After
//   a body that HttpOptions::admit does not want             its refusal, closed; nothing of it is kept
//   reads nothing for a while, or falls too far behind       cut off; the reply is gone
//
// Clients that close. TCP reports the same for a client that went away and for one that only
// finished sending (`nc -N`, shutdown(SHUT_WR)). They react differently to the next byte: a client
// that went away sends a reset, the other nothing. An answer nobody reads costs a GPU minutes, so
// when nothing was sent for half_close_time after the end of input, the server sends a probe:
// before the head of the reply an interim "100 Continue", which HTTP/1.1 clients ignore; in a
// stream the piece of its keep_alive(). Without a reset the client is served and probed again, less
// and less often (up to 16 times half_close_time apart). If there is nothing to send (HTTP/1.0
// before the head, streams without keep_alive()), the client counts as gone. A reset always ends
// the connection. The server notices all this even while it sends nothing; a client whose machine
// vanished, after a minute.
//
// Threading:  thread-safe. The handler and on_gone callbacks run on I/O threads; stop_accepting(),
//             drain(), stop() and the destructor wait for those threads and must not be called on
//             one.
// Ownership:  replies may outlive the server; their clients are then gone.
// Cost:       a connection stays on one I/O thread. An idle one holds under 4 KiB of memory and a
//             file descriptor; RLIMIT_NOFILE must allow enough of them. When they run out, clients
//             wait in the backlog. Deadlines are checked ten times a second.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "stemma/result.h"

namespace stemma::server {

struct HttpOptions {
  std::string host =
      "127.0.0.1";    // An IPv4 or IPv6 literal, or a name; its first address that works.
  uint16_t port = 0;  // 0: any that is free; see port().
  uint32_t threads = 2;
  int backlog = 4096;

  size_t header_bytes = size_t{16} << 10;
  size_t body_bytes = size_t{64} << 20;  // Of one request.
  // Limit for the bodies of all requests that are arriving or waiting. A quarter of it, or
  // kSmallBodyBytes for each connection if that is less, is reserved for small bodies. The limit is
  // raised if the rest could not hold one body.
  size_t bodies_bytes = size_t{1} << 30;
  // Limit for all unsent answers of more than kSmallBodyBytes that are not streamed. An answer that
  // finds no room becomes a 503.
  size_t replies_bytes = size_t{1} << 30;
  size_t connections = 4096;
  size_t stream_buffer_bytes = size_t{1}
                               << 20;  // Unsent bytes of a stream; one send() may go over it.

  std::chrono::milliseconds header_time{15'000};      // From the first byte to the blank line.
  std::chrono::milliseconds body_time{120'000};       // From the blank line to the last byte.
  std::chrono::milliseconds write_time{30'000};       // Without the client taking a byte.
  std::chrono::milliseconds keep_alive_time{75'000};  // Between requests.
  std::chrono::milliseconds half_close_time{500};

  // If not empty, browsers may let pages of this origin ("*": all) read our replies, and the server
  // answers preflights itself.
  std::string cors_origin = {};

  // Called after the head of a request that has a body, before any of the body is read; empty: all
  // bodies are wanted. A refusal is sent at once, and the connection closes. Runs on an I/O thread
  // and must return soon.
  std::function<std::optional<HttpRefusal>(const HttpRequest& head)> admit = {};
  // Called for each accepted client, on an I/O thread. If it throws, that client is cut off.
  std::function<void()> accepted = {};
  // Makes the server's own refusals of a request with this path (too large, too slow, no room);
  // empty: errors in OpenAI's shape. Runs on an I/O thread.
  std::function<HttpRefusal(std::string_view path, int status, std::string_view message)> refusal =
      {};
  // Called for every answer, including the server's own, and with 499 for clients that did not wait
  // for theirs. Runs on any thread, with locks held: it must only count and leave notes.
  std::function<void(const HttpAsked& asked, int status)> answered = {};

  // Gets messages for the operator; empty: stemma::log(). Called from any thread, also by replies
  // that outlive the server.
  std::function<void(std::string_view line)> log = {};
};

// Counted since create(), except connections_open.
struct HttpCounters {
  uint64_t connections_open = 0;
  uint64_t connections_total = 0;
  uint64_t requests = 0;      // Handed to the handler.
  uint64_t bad_requests = 0;  // The server's own 4xx and 501 answers, without those of admit().
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t refused = 0;   // No room: answered 503, or not at all.
  uint64_t timeouts = 0;  // Of heads, bodies and writes.
  uint64_t gone = 0;      // Replies whose end did not reach the client.
  uint64_t accept_failures = 0;
};

class HttpServer {
 public:
  // Opens the listening socket. Clients can connect from now on, and wait until start().
  // Errors: busy (the address is in use), invalid_argument (not an address of this machine, or a
  // meaningless option), out_of_memory. `why`, if given, gets a sentence that names host and port.
  static Result<std::unique_ptr<HttpServer>> create(const HttpOptions& options, HttpHandler handler,
                                                    std::string* why = nullptr);
  ~HttpServer();  // stop().

  // Errors: wrong_state (after stop()), out_of_memory (no threads). A second call does nothing.
  Result<void> start();

  uint16_t port() const noexcept;
  // Whether only this machine can connect.
  bool is_loopback() const noexcept;
  HttpCounters counters() const noexcept;

  // Closes the listening socket. Connected clients stay.
  void stop_accepting();
  // Calls stop_accepting(), closes idle connections, and closes each of the others after its reply.
  // Cuts off those that are not done after `at_most`. Returns true if it cut off none.
  bool drain(std::chrono::milliseconds at_most);
  // Cuts off all connections and ends the threads.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stemma::server
