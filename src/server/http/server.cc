#include "server/http/server.h"

#include "base/lock.h"
#include "server/http/connection.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <future>
#include <system_error>
#include <thread>

#include "stemma/log.h"

namespace stemma::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr uint64_t kRefusedAtOnce =
    1024;  // Clients that get a 503; others are closed without an answer.

void ignore_error(const error_code&) {}  // Closing cannot fail in a harmful way.

bool is_sane(const HttpOptions& options) {
  const auto sane = [](std::chrono::milliseconds time) {
    return time.count() > 0 && time <= std::chrono::hours(24 * 365);
  };
  return options.threads >= 1 && options.threads <= 256 && options.backlog >= 1 &&
         options.header_bytes >= 64 && options.connections >= 1 &&
         options.stream_buffer_bytes >= 1 && options.body_bytes <= (size_t{1} << 40) &&
         sane(options.header_time) && sane(options.body_time) && sane(options.write_time) &&
         sane(options.keep_alive_time) && sane(options.half_close_time);
}

Errc code_of(const error_code& error) {
  if (error == asio::error::address_in_use) return Errc::busy;
  if (error == asio::error::no_descriptors || error == asio::error::no_buffer_space ||
      error == asio::error::no_memory) {
    return Errc::out_of_memory;
  }
  return Errc::invalid_argument;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpHandler handler) {
    shared_.options = options;
    shared_.handler = std::move(handler);
    HttpManner manner;
    manner.buffer_bytes = options.stream_buffer_bytes;
    manner.log = [log = options.log](std::string_view line) {
      try {
        log ? log(line) : stemma::log(LogLevel::warning, line);
      } catch (...) {
        // There is no way to report that the log fails.
      }
    };
    if (!options.cors_origin.empty()) {
      manner.headers.push_back({"Access-Control-Allow-Origin", options.cors_origin});
      if (options.cors_origin != "*") manner.headers.push_back({"Vary", "Origin"});
    }
    manner.answered = options.answered;
    manner.replies =
        std::make_shared<ByteBudget>(ByteBudget::Options{.capacity_bytes = options.replies_bytes});
    shared_.manner = std::make_shared<const HttpManner>(std::move(manner));
    const size_t reserve =
        std::min(options.bodies_bytes / 4, options.connections * kSmallBodyBytes);
    shared_.bodies = std::make_shared<ByteBudget>(ByteBudget::Options{
        .capacity_bytes = std::max(options.bodies_bytes, options.body_bytes + reserve),
        .small_bytes = kSmallBodyBytes,
        .reserve_bytes = reserve});
    shared_.on_closed = [this] {
      {
        const base::Lock lock(mutex_);
      }
      closed_.notify_all();
    };
    for (uint32_t i = 0; i < options.threads; ++i) {
      loops_.push_back(std::make_unique<HttpLoop>(shared_));
    }
    acceptor_ = std::make_unique<tcp::acceptor>(loops_[0]->io);
    pause_ = std::make_unique<asio::steady_timer>(loops_[0]->io);
  }

  ~Impl() { stop(); }

  error_code listen() {
    std::string host = shared_.options.host;
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    error_code error;
    tcp::resolver resolver(loops_[0]->io);
    const auto found =
        resolver.resolve(host, std::to_string(shared_.options.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error) return error;
    for (const auto& entry : found) {
      error = listen_on(entry.endpoint());
      if (!error) return error;
    }
    return error;
  }

  uint16_t port() const noexcept { return port_; }
  bool is_loopback() const noexcept { return loopback_; }

  Result<void> start() {
    const base::Lock lock(life_);
    if (stopped_) return Error(Errc::wrong_state, "the HTTP server has been stopped");
    if (started_) return {};
    try {
      for (const auto& loop : loops_) {
        loop->thread = std::thread([this, loop = loop.get()] { serve(*loop); });
      }
    } catch (const std::system_error&) {
      for (const auto& loop : loops_) {
        loop->io.stop();
        if (loop->thread.joinable()) loop->thread.join();
        loop->io.restart();
      }
      return Error(Errc::out_of_memory, "the system gave no thread for the HTTP server");
    }
    started_ = true;
    asio::post(loops_[0]->io, [this] { go_on_accepting(); });
    return {};
  }

  void stop_accepting() {
    const base::Lock lock(life_);
    on_loop(*loops_[0], [this] { close_acceptor(); });
  }

  bool drain(std::chrono::milliseconds at_most) {
    {
      const base::Lock lock(life_);
      on_loop(*loops_[0], [this] { close_acceptor(); });
      for (const auto& loop : loops_) {
        on_loop(*loop, [loop = loop.get()] { loop->drain(); });
      }
    }
    bool all_done = false;
    {
      base::Lock lock(mutex_);
      all_done = closed_.wait_for(lock, at_most, [this] { return shared_.connections_open == 0; });
    }
    const base::Lock lock(life_);
    for (const auto& loop : loops_) {
      on_loop(*loop, [loop = loop.get()] { loop->cut_all(); });
    }
    return all_done;
  }

  void stop() {
    const base::Lock lock(life_);
    if (std::exchange(stopped_, true)) return;
    on_loop(*loops_[0], [this] { close_acceptor(); });
    for (const auto& loop : loops_) {
      on_loop(*loop, [loop = loop.get()] { loop->stop(); });
    }
    for (const auto& loop : loops_) {
      if (loop->thread.joinable()) loop->thread.join();
    }
    started_ = false;
  }

  HttpCounters counters() const noexcept {
    return {.connections_open = shared_.connections_open,
            .connections_total = shared_.connections_total,
            .requests = shared_.requests,
            .bad_requests = shared_.bad_requests,
            .bytes_in = shared_.bytes_in,
            .bytes_out = shared_.bytes_out,
            .refused = shared_.refused,
            .timeouts = shared_.timeouts,
            .gone = shared_.gone,
            .accept_failures = shared_.accept_failures};
  }

 private:
  error_code listen_on(const tcp::endpoint& endpoint) {
    error_code error;
    ignore_error(acceptor_->close(error));
    if (acceptor_->open(endpoint.protocol(), error) ||
        acceptor_->set_option(tcp::acceptor::reuse_address(true), error) ||
        acceptor_->bind(endpoint, error) || acceptor_->listen(shared_.options.backlog, error)) {
      return error;
    }
    const tcp::endpoint bound = acceptor_->local_endpoint(error);
    port_ = bound.port();
    loopback_ = bound.address().is_loopback();
    return error;
  }

  void serve(HttpLoop& loop) {
    for (;;) {
      try {
        loop.io.run();
        return;
      } catch (const std::exception& thrown) {
        // Probably out of memory: the current work is lost, other clients continue.
        shared_.log(std::string("http: an I/O thread goes on after: ") + thrown.what());
      } catch (...) {
        shared_.log("http: an I/O thread goes on after something that is no std::exception");
      }
    }
  }

  // Runs `what` on the loop's thread and waits for it.
  template <class What>
  void on_loop(HttpLoop& loop, What what) STEMMA_REQUIRES(life_) {
    if (!started_) return what();
    std::promise<void> done;
    asio::post(loop.io, [&] {
      try {
        what();
      } catch (const std::exception& thrown) {
        shared_.log(std::string("http: not all connections could be reached: ") + thrown.what());
      }
      done.set_value();
    });
    done.get_future().wait();
  }

  void close_acceptor() {
    error_code error;
    ignore_error(acceptor_->close(error));
    pause_->cancel();
  }

  // Waits for the next client, even if there is no memory to do so now.
  void go_on_accepting() noexcept {
    for (;;) {
      try {
        return accept();
      } catch (...) {
        shared_.accept_failures.fetch_add(1, std::memory_order_relaxed);
        std::this_thread::sleep_for(kAcceptPause);
      }
    }
  }

  // Runs on loop 0, for one client at a time; clients are spread over the loops in turn.
  void accept() {
    if (!acceptor_->is_open()) return;
    HttpLoop& loop = *loops_[next_loop_++ % loops_.size()];
    acceptor_->async_accept(loop.io, [this, &loop](const error_code& error, tcp::socket socket) {
      if (!acceptor_->is_open()) return;
      if (!error) {
        try {
          welcome(loop, std::move(socket));
          short_of_something_ = false;
        } catch (...) {  // No memory: this client is lost, others are not.
          shared_.accept_failures.fetch_add(1, std::memory_order_relaxed);
        }
        return go_on_accepting();
      }
      shared_.accept_failures.fetch_add(1, std::memory_order_relaxed);
      if (error == asio::error::connection_aborted || error == asio::error::interrupted) {
        return go_on_accepting();  // That client has gone; accept the next one.
      }
      // Descriptors become free when clients go. Until then new clients wait in the backlog.
      if (!std::exchange(short_of_something_, true)) {
        shared_.log("http: no client can be accepted for now: " + error.message());
      }
      try {
        pause_->expires_after(kAcceptPause);
        pause_->async_wait([this](const error_code& cancelled) {
          if (!cancelled) go_on_accepting();
        });
      } catch (...) {
        go_on_accepting();
      }
    });
  }

  void welcome(HttpLoop& loop, tcp::socket socket) {
    shared_.connections_total.fetch_add(1, std::memory_order_relaxed);
    if (shared_.options.accepted) shared_.options.accepted();
    const bool refused = shared_.connections_open >= shared_.options.connections;
    if (refused) {
      shared_.refused.fetch_add(1, std::memory_order_relaxed);
      if (shared_.refused_open >= kRefusedAtOnce) return;
    }
    auto connection = std::make_shared<HttpConnection>(loop, std::move(socket), refused);
    std::atomic<uint64_t>& open = refused ? shared_.refused_open : shared_.connections_open;
    open.fetch_add(1);
    try {
      asio::post(loop.io, [&loop, connection = std::move(connection)] { loop.add(connection); });
    } catch (...) {
      open.fetch_sub(1);
      throw;
    }
  }

  HttpShared shared_;
  base::WaitMutex mutex_;  // For closed_.
  base::Condition closed_;
  base::WaitMutex life_;  // start, drain and stop run one at a time. Never taken on an I/O thread.
  std::vector<std::unique_ptr<HttpLoop>> loops_;
  std::unique_ptr<tcp::acceptor> acceptor_;  // On loop 0, like pause_ and the members after it.
  std::unique_ptr<asio::steady_timer> pause_;
  size_t next_loop_ = 0;
  bool short_of_something_ = false;
  uint16_t port_ = 0;
  bool loopback_ = false;
  bool started_ STEMMA_GUARDED_BY(life_) = false;
  bool stopped_ STEMMA_GUARDED_BY(life_) = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::create(const HttpOptions& options,
                                                       HttpHandler handler, std::string* why) {
  const auto say = [&](const std::string& what) {
    if (why != nullptr) *why = what;
  };
  if (!handler || !is_sane(options)) {
    say("the HTTP server has no handler, or an option without sense");
    return Error(Errc::invalid_argument, "no handler, or an option without sense");
  }
  try {
    auto impl = std::make_unique<Impl>(options, std::move(handler));
    if (const error_code error = impl->listen()) {
      say("cannot listen on " + options.host + ":" + std::to_string(options.port) + ": " +
          error.message());
      return Error(code_of(error), "cannot listen on this address", options.port);
    }
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& thrown) {
    say(std::string("the HTTP server cannot be made: ") + thrown.what());
    return Error(Errc::out_of_memory, "the system gave no memory or descriptors");
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
Result<void> HttpServer::start() { return impl_->start(); }
uint16_t HttpServer::port() const noexcept { return impl_->port(); }
bool HttpServer::is_loopback() const noexcept { return impl_->is_loopback(); }
HttpCounters HttpServer::counters() const noexcept { return impl_->counters(); }
void HttpServer::stop_accepting() { impl_->stop_accepting(); }
bool HttpServer::drain(std::chrono::milliseconds at_most) { return impl_->drain(at_most); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace stemma::server
