// HttpLoop is an I/O thread's share of a server; HttpConnection is one client on it.
//
// A connection does every step that is possible now, then waits for the socket, its exchange or the
// loop's tick:
//
//   reading --request there--> replying --reply taken--> reading, or closing --all sent--> lingering --> closed
//      '----- bad request, 408, body not wanted -----------> closing
//
// Lingering: for a moment, what the client still sends is thrown away. Closing over unread bytes
// would make the kernel reset the connection, and the client might never read our last bytes.
//
// Threading:  everything runs on the loop's thread, except wake() and atomic members.
// Only connection.cc and server.cc include this: Asio takes seconds to compile.
#pragma once

// Asio's fences add nothing to the locks around its queues, and the thread sanitizer knows no
// fences.
#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif
#include <utility>  // Before Asio: its 1.74 uses std::exchange without it.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "server/http/byte_budget.h"
#include "server/http/exchange.h"
#include "server/http/parser.h"
#include "server/http/server.h"

namespace stemma::server {

// What the connections of a server have in common. Thread-safe.
struct HttpShared {
  HttpOptions options;
  HttpHandler handler;
  std::shared_ptr<const HttpManner> manner;
  std::function<void()> on_closed;  // Called after each connection that counts.

  std::atomic<uint64_t> connections_open{0};
  std::atomic<uint64_t> refused_open{0};  // Open connections that only get a 503.
  std::atomic<uint64_t> connections_total{0};
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> bad_requests{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> refused{0};
  std::atomic<uint64_t> timeouts{0};
  std::atomic<uint64_t> gone{0};
  std::atomic<uint64_t> accept_failures{0};
  std::shared_ptr<ByteBudget> bodies;

  void log(const std::string& line) const { manner->log(line); }
};

class HttpConnection;

struct HttpLoop {
  explicit HttpLoop(HttpShared& shared_by_all) : shared(shared_by_all) {}

  // Call these on the loop's thread.
  void add(const std::shared_ptr<HttpConnection>& connection);
  void drain();
  void cut_all();
  void stop();

  HttpShared& shared;
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  boost::asio::steady_timer timer{io};
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
  std::array<char, size_t{64} << 10> buffer{};  // For every read.
  bool draining = false;
  bool stopped = false;
  bool ticking = false;
  std::thread thread;

 private:
  void tick();
  std::vector<std::shared_ptr<HttpConnection>> all() const;
};

class HttpConnection final : public HttpWaker, public std::enable_shared_from_this<HttpConnection> {
 public:
  // `refused`: the client only gets a 503.
  HttpConnection(HttpLoop& loop, boost::asio::ip::tcp::socket socket, bool refused);

  void start();
  void tick();
  void drain();
  void close();
  void cut();            // The client can tell that an unfinished reply was cut.
  void wake() override;  // Any thread.

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class State : uint8_t { reading, replying, closing, lingering, closed };

  void run();
  bool step();
  bool flush();
  bool parse();
  bool take_reply();
  void dispatch();
  void preflight();
  bool enter_stage(HttpParser::Stage before);
  bool admitted();
  bool within_bodies();
  HttpAsked asked();
  void refuse(int status, std::string_view message);
  void say_refusal(HttpAsked who, HttpRefusal refusal);
  void say_last(const HttpAsked& asked, int status, const std::string& reply);
  void linger();
  void reset();
  void wait();
  void readable();
  void input_ended();
  void look_at_peer(Time now);
  void keep_alive(Time now);
  Time deadline() const;
  void expire();
  size_t unread_bytes() const noexcept { return in_.size() - in_used_; }

  HttpLoop& loop_;
  HttpShared& shared_;
  boost::asio::ip::tcp::socket socket_;
  std::string peer_;
  HttpParser parser_;
  std::shared_ptr<HttpExchange> exchange_;  // While replying.
  std::string in_;                          // Bytes read; not yet parsed from in_used_ on.
  std::string out_;                         // Bytes to send; not yet sent from out_sent_ on.
  size_t in_used_ = 0;
  size_t out_sent_ = 0;
  std::shared_ptr<ByteShare> body_share_;   // For the body that is arriving.
  std::shared_ptr<ByteShare> reply_share_;  // For a whole answer that is being sent.
  std::string request_id_;                  // The arriving request's, once its head is there.
  uint64_t sent_bytes_ = 0;                 // In all.
  uint64_t sent_before_ = 0;                // sent_bytes_ when half_close_until_ was set.
  Time since_;                              // When this stage of reading, or lingering, began.
  Time progress_;  // When the client last took something, or was first offered it.
  Time said_;      // When something was last sent, or the request handed on.
  Time half_close_until_;
  std::chrono::milliseconds probe_time_{0};  // From one probe of a half-closed client to the next.
  State state_ = State::reading;
  const bool refused_;
  bool served_ = false;  // There was an earlier request.
  bool continued_ = false;
  bool ended_ = false;        // All the client's input has been read.
  bool half_closed_ = false;  // The client will send no more.
  bool reset_ = false;        // Closing: with a reset.
  bool read_waits_ = false;
  bool write_waits_ = false;
};

}  // namespace stemma::server
