// An HttpServer listens on one address and hands whole requests to one handler.
//
// HTTP/1.1 and 1.0, without TLS: keep-alive, pipelining (one request at a time, answered in order),
// chunked bodies both ways, Expect: 100-continue, HEAD. What a request means is the handler's affair.
// Everything that a client can make us hold or wait for has a limit:
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
// A client that has closed. TCP says the same of a client that went away and of one that only has
// nothing more to ask (`nc -N`, shutdown(SHUT_WR)); the two differ in what they answer to the next byte:
// nothing, or a reset. An answer nobody reads costs a GPU minutes, so when nothing was sent for
// half_close_time after the end of input, the client is sent something to answer to: before the head of the
// reply an interim "100 Continue", which HTTP/1.1 clients pass over; in a stream the piece of its
// keep_alive(). While there is no reset it is served, and asked again, more and more rarely (up to
// 16 times half_close_time). Where there is nothing to send (HTTP/1.0 before the head, streams without
// keep_alive()) it is gone.
// A reset is always the end. All this is noticed while nothing is sent, too; a client whose machine
// vanished, after a minute.
//
// Threading:  thread-safe. The handler and on_gone callbacks run on I/O threads; stop_accepting(),
//             drain(), stop() and the destructor wait for those threads and must not be called on one.
// Ownership:  replies may outlive the server; their clients are then gone.
// Cost:       a connection is an I/O thread's for life. An idle one holds under 4 KiB of memory and a file
//             descriptor, of which the process must be allowed enough (RLIMIT_NOFILE). When there are
//             none, clients wait in the backlog until there are. Deadlines are looked at ten times a
//             second.
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
  // Of all requests that are arriving or have not been worked on. A quarter of it, or kSmallBodyBytes for each
  // connection if that is less, is kept for small bodies; it is raised where the rest would not hold one body.
  size_t bodies_bytes = size_t{1} << 30;
  // Of answers of more than kSmallBodyBytes that are not streamed and that their clients have not taken. One that
  // finds no room is a 503.
  size_t replies_bytes = size_t{1} << 30;
  size_t connections = 4096;
  size_t stream_buffer_bytes = size_t{1}
                               << 20;  // Unsent bytes of a stream; one send() may go over it.

  std::chrono::milliseconds header_time{15'000};      // From the first byte to the blank line.
  std::chrono::milliseconds body_time{120'000};       // From there to the last byte.
  std::chrono::milliseconds write_time{30'000};       // Without the client taking a byte.
  std::chrono::milliseconds keep_alive_time{75'000};  // Between requests.
  std::chrono::milliseconds half_close_time{500};

  // Not empty: the origin ("*" for all) that browsers are told may read our replies. Preflights are
  // then answered here.
  std::string cors_origin = {};

  // Asked at the end of the head of a request that has a body, before any of it is taken; empty: all bodies are
  // wanted. A refusal is sent at once, and the connection closes. On an I/O thread; must return soon.
  std::function<std::optional<HttpRefusal>(const HttpRequest& head)> admit = {};
  // Told of every answer, also of those made here, and 499 of clients that did not wait for theirs. On any
  // thread, with locks held: it must only count and leave notes.
  std::function<void(const HttpAsked& asked, int status)> answered = {};

  // For what a person should know; empty: stemma::log(). Called from any thread, also by replies that
  // outlive the server.
  std::function<void(std::string_view line)> log = {};
};

// Since create(), except connections_open.
struct HttpCounters {
  uint64_t connections_open = 0;
  uint64_t connections_total = 0;
  uint64_t requests = 0;      // Handed to the handler.
  uint64_t bad_requests = 0;  // Answered here, 4xx and 501, except for what admit() said.
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t refused = 0;   // For want of room: 503, or no answer at all.
  uint64_t timeouts = 0;  // Of heads, bodies and writes.
  uint64_t gone = 0;      // Replies that did not get through to their end.
  uint64_t accept_failures = 0;
};

class HttpServer {
 public:
  // Listens: from now on clients can connect, and wait for start().
  // Errors: busy (the address is in use), invalid_argument (an address that is not ours, an option
  // without sense), out_of_memory. `why`, if given, says it in a sentence that names host and port.
  static Result<std::unique_ptr<HttpServer>> create(const HttpOptions& options, HttpHandler handler,
                                                    std::string* why = nullptr);
  ~HttpServer();  // stop().

  // Errors: wrong_state (after stop()), out_of_memory (no threads). A second call does nothing.
  Result<void> start();

  uint16_t port() const noexcept;
  // Only this machine can connect.
  bool is_loopback() const noexcept;
  HttpCounters counters() const noexcept;

  // Closes the listening socket. Clients that are connected stay.
  void stop_accepting();
  // stop_accepting(); closes connections without a request, and each of the others after its reply. Those
  // that are not done after `at_most` are cut off. True if there were none.
  bool drain(std::chrono::milliseconds at_most);
  // Cuts all connections off and ends the threads.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace stemma::server
