#include "server/http/connection.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <random>
#include <sstream>

#include "server/http/format.h"

namespace stemma::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kLingerTime = std::chrono::milliseconds(1000);
constexpr size_t kReadAheadBytes = size_t{64} << 10;  // Of requests after the current one.
constexpr size_t kKeptBytes = 1024;                   // Buffers larger than this are not kept.
constexpr int kMostProbeTimes = 16;     // Longest probe interval, in half_close_times.
constexpr int kProbeAfterSeconds = 30;  // After this long without data from the client's machine,
constexpr int kProbeSeconds = 10;       // probe it this often,
constexpr int kProbes = 3;              // and give up after so many unanswered probes.

void clear(std::string& text) {
  if (text.capacity() > kKeptBytes) {
    text = std::string();
  } else {
    text.clear();
  }
}

// An error at the end of a connection changes nothing.
void ignore(const error_code&) {}

bool would_block(const error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again ||
         error == asio::error::interrupted;
}

std::string name_of(const asio::ip::tcp::socket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return {};
  std::ostringstream text;
  text << endpoint;
  return text.str();
}

bool is_sane_id(std::string_view id) noexcept {
  constexpr size_t kMostBytes = 128;
  return !id.empty() && id.size() <= kMostBytes && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:/+=@~").find(c) != std::string_view::npos;
  });
}

std::string made_id() {
  thread_local std::mt19937_64 bits{std::random_device{}()};
  char id[33];
  std::snprintf(id, sizeof id, "%016llx%016llx", static_cast<unsigned long long>(bits()),
                static_cast<unsigned long long>(bits()));
  return id;
}

short poll_now(int socket, short events) {
  pollfd query{.fd = socket, .events = events, .revents = 0};
  return ::poll(&query, 1, 0) > 0 ? query.revents : short{0};
}

// Lets the kernel detect at some time that a client's machine or network was lost, whether or not
// there is something to send. Systems without Linux's options get plain keep-alive.
void notice_silence(int socket, std::chrono::milliseconds write_time) {
  const auto set = [socket](int level, int name, int value) {
    static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
#if defined(TCP_KEEPIDLE) && defined(TCP_USER_TIMEOUT)
  set(IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  const auto most = std::chrono::milliseconds(std::chrono::hours(24));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min(write_time, most).count()));
#endif
}

}  // namespace

// --- the loop -----------------------------------------------------------------------------------

void HttpLoop::add(const std::shared_ptr<HttpConnection>& connection) {
  connections.insert(connection);
  if (stopped) return connection->close();
  connection->start();
  if (!ticking) tick();
}

std::vector<std::shared_ptr<HttpConnection>> HttpLoop::all() const {
  return {connections.begin(), connections.end()};
}

void HttpLoop::tick() {
  ticking = !connections.empty() && !stopped;
  if (!ticking) return;
  timer.expires_after(kTick);
  timer.async_wait([this](const error_code& error) {
    if (error) return;
    for (const auto& connection : all()) connection->tick();
    tick();
  });
}

void HttpLoop::drain() {
  draining = true;
  for (const auto& connection : all()) connection->drain();
}

void HttpLoop::cut_all() {
  for (const auto& connection : all()) connection->cut();
}

void HttpLoop::stop() {
  stopped = true;
  cut_all();
  timer.cancel();
  work.reset();
}

// --- the next step -------------------------------------------------------------------------------

HttpConnection::HttpConnection(HttpLoop& loop, asio::ip::tcp::socket socket, bool refused)
    : loop_(loop),
      shared_(loop.shared),
      socket_(std::move(socket)),
      parser_(HttpLimits{.header_bytes = loop.shared.options.header_bytes,
                         .body_bytes = loop.shared.options.body_bytes}),
      refused_(refused) {}

void HttpConnection::start() {
  error_code error;
  if (socket_.non_blocking(true, error) ||
      socket_.set_option(asio::ip::tcp::no_delay(true), error)) {
    return close();  // It has gone already.
  }
  notice_silence(socket_.native_handle(), shared_.options.write_time);
  peer_ = name_of(socket_);
  since_ = steady_clock::now();
  if (refused_) {
    refuse(503, "too many connections");
  }
  run();
}

void HttpConnection::run() {
  try {
    while (step()) {
    }
    wait();
  } catch (const std::exception& failure) {
    shared_.log(std::string("http: a connection is closed: ") + failure.what());
    close();
  }
}

// Returns true if there may be more to do.
bool HttpConnection::step() {
  if (state_ == State::closed || state_ == State::lingering || !flush()) return false;
  switch (state_) {
    case State::reading: return parse();
    case State::replying: return take_reply();
    case State::closing:
      if (reset_) {
        reset();
      } else {
        linger();
      }
      return false;
    default: return false;
  }
}

// Returns false if the client takes no more for now, or is gone.
bool HttpConnection::flush() {
  while (out_sent_ < out_.size()) {
    error_code error;
    const size_t count =
        socket_.write_some(asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_), error);
    if (would_block(error)) {
      if (exchange_ != nullptr) exchange_->set_unsent(out_.size() - out_sent_);
      return false;
    }
    if (error) {
      close();
      return false;
    }
    out_sent_ += count;
    sent_bytes_ += count;
    shared_.bytes_out.fetch_add(count, std::memory_order_relaxed);
    progress_ = said_ = steady_clock::now();
  }
  clear(out_);
  out_sent_ = 0;
  reply_share_.reset();
  return true;
}

bool HttpConnection::parse() {
  const HttpParser::Stage before = parser_.stage();
  const bool in_head = before == HttpParser::Stage::idle || before == HttpParser::Stage::head;
  const std::string_view unread = std::string_view(in_).substr(in_used_);
  in_used_ += in_head ? parser_.feed_head(unread) : parser_.feed(unread);
  if (unread_bytes() == 0) {
    clear(in_);
    in_used_ = 0;
  }
  if (parser_.stage() == HttpParser::Stage::failed) {
    refuse(parser_.status(), parser_.message());
    return true;
  }
  const bool head_ended = in_head && parser_.stage() == HttpParser::Stage::body;
  if (head_ended && !admitted()) return true;
  if (!within_bodies()) {
    shared_.refused.fetch_add(1, std::memory_order_relaxed);
    refuse(503, "too many large requests at once");
    return true;
  }
  if (parser_.stage() == HttpParser::Stage::done) {
    dispatch();
    return true;
  }
  if (enter_stage(before)) return true;
  if (head_ended && unread_bytes() > 0) return true;
  // The rest will never come, and nobody waits for an answer to half a request.
  if (ended_) close();
  return false;
}

// Returns true if there is something to send.
bool HttpConnection::enter_stage(HttpParser::Stage before) {
  if (parser_.stage() != before) since_ = steady_clock::now();
  if (parser_.stage() != HttpParser::Stage::body || !parser_.expects_continue() || continued_ ||
      parser_.body_bytes() > 0 || unread_bytes() > 0) {
    return false;
  }
  continued_ = true;
  out_ = kContinue;
  progress_ = steady_clock::now();
  return true;
}

// Returns false if the body is not wanted; the client gets an error.
bool HttpConnection::admitted() {
  if (!shared_.options.admit) return true;
  std::optional<HttpRefusal> refusal = shared_.options.admit(parser_.head());
  if (!refusal) return true;
  say_refusal(asked(), *std::move(refusal));
  return false;
}

void HttpConnection::say_refusal(HttpAsked who, HttpRefusal refusal) {
  who.why = std::move(refusal.why);
  refusal.headers.push_back({"X-Request-Id", who.id});
  std::string reply;
  append_head(reply,
              {.status = refusal.status,
               .content_type = "application/json",
               .length = refusal.body.size(),
               .keep_alive = false,
               .http_1_0 = parser_.http_1_0()},
              refusal.headers, shared_.manner->headers);
  say_last(who, refusal.status, reply + refusal.body);
}

bool HttpConnection::within_bodies() {
  if (parser_.body_bytes() == 0) return true;
  if (body_share_ == nullptr) body_share_ = std::make_shared<ByteShare>(shared_.bodies);
  return body_share_->grow_to(parser_.body_bytes());
}

HttpAsked HttpConnection::asked() {
  const HttpRequest& head = parser_.head();
  if (request_id_.empty()) {
    const std::string_view given = head.header("x-request-id");
    request_id_ = is_sane_id(given) ? std::string(given) : made_id();
  }
  return {.method = head.method, .path = head.path, .peer = peer_, .id = request_id_};
}

void HttpConnection::dispatch() {
  HttpReplyForm form{.head_only = false,
                     .http_1_0 = parser_.http_1_0(),
                     .keep_alive = parser_.keep_alive() && !loop_.draining};
  HttpAsked who = asked();
  HttpRequest request = parser_.take();
  request.peer = peer_;
  request.id = std::exchange(request_id_, {});
  request.body_share = std::exchange(body_share_, nullptr);
  served_ = true;
  continued_ = false;
  form.head_only = request.method == "HEAD";
  exchange_ =
      std::make_shared<HttpExchange>(shared_.manner, form, std::move(who), shared_from_this());
  state_ = State::replying;
  said_ = steady_clock::now();
  if (half_closed_) input_ended();  // Its probe times begin with this request.
  if (!shared_.options.cors_origin.empty() && request.method == "OPTIONS" &&
      !request.header("access-control-request-method").empty()) {
    return preflight();
  }
  shared_.requests.fetch_add(1, std::memory_order_relaxed);
  std::string problem;
  try {
    shared_.handler(std::move(request), make_reply(exchange_));
    return;
  } catch (const std::exception& thrown) {
    problem = thrown.what();
  } catch (...) {
    problem = "something that is no std::exception";
  }
  shared_.log("http: the handler threw: " + problem);
  exchange_->dropped();
}

void HttpConnection::preflight() {
  exchange_->respond(
      204, "", "",
      {{"Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"},
       {"Access-Control-Allow-Headers", "*, Authorization"},
       {"Access-Control-Max-Age", "86400"}});
}

bool HttpConnection::take_reply() {
  const HttpExchange::Taken taken = exchange_->take(out_);
  const auto now = steady_clock::now();
  progress_ = now;
  switch (taken.next) {
    case HttpExchange::Next::more: return !out_.empty();
    case HttpExchange::Next::overflow: reset(); return false;
    case HttpExchange::Next::finish:
      state_ = taken.keep_alive && !loop_.draining ? State::reading : State::closing;
      break;
    case HttpExchange::Next::abort:
      state_ = State::closing;
      reset_ = taken.reset;
      break;
  }
  since_ = now;
  reply_share_ = exchange_->take_share();
  exchange_->leave();
  exchange_.reset();
  return true;
}

void HttpConnection::refuse(int status, std::string_view message) {
  shared_.bad_requests.fetch_add(status == 503 ? 0 : 1, std::memory_order_relaxed);
  HttpAsked who = asked();
  if (shared_.options.refusal && !who.path.empty()) {
    HttpRefusal refusal = shared_.options.refusal(who.path, status, message);
    return say_refusal(std::move(who), std::move(refusal));
  }
  who.why = message;
  HttpHeaders headers = shared_.manner->headers;
  headers.push_back({"X-Request-Id", who.id});
  say_last(who, status, error_reply(status, message, headers));
}

void HttpConnection::say_last(const HttpAsked& asked, int status, const std::string& reply) {
  if (shared_.manner->answered) shared_.manner->answered(asked, status);
  parser_.clear();
  body_share_.reset();
  out_ += reply;
  progress_ = steady_clock::now();
  state_ = State::closing;
}

// --- the ends -----------------------------------------------------------------------------------

void HttpConnection::linger() {
  error_code error;
  if (socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error) || ended_) return close();
  state_ = State::lingering;
  since_ = steady_clock::now();
  in_ = std::string();
  in_used_ = 0;
}

// Closes so that the client sees a failure, and the kernel keeps no data for it.
void HttpConnection::reset() {
  error_code error;
  ignore(socket_.set_option(asio::socket_base::linger(true, 0), error));
  close();
}

void HttpConnection::cut() {
  if (exchange_ != nullptr || !out_.empty()) {
    reset();
  } else {
    close();
  }
}

void HttpConnection::close() {
  if (state_ == State::closed) return;
  const auto self = shared_from_this();
  state_ = State::closed;
  error_code error;
  ignore(socket_.close(error));
  body_share_.reset();
  reply_share_.reset();
  bool gone = !out_.empty() && !refused_;
  out_ = std::string();
  in_ = std::string();
  if (const auto exchange = std::exchange(exchange_, nullptr)) {
    try {
      gone = exchange->cut() || gone;
    } catch (const std::exception& thrown) {
      gone = true;
      shared_.log(std::string("http: an on_gone callback threw: ") + thrown.what());
    } catch (...) {
      gone = true;
      shared_.log("http: an on_gone callback threw");
    }
  }
  if (gone) shared_.gone.fetch_add(1, std::memory_order_relaxed);
  loop_.connections.erase(self);
  (refused_ ? shared_.refused_open : shared_.connections_open).fetch_sub(1);
  shared_.on_closed();
}

void HttpConnection::drain() {
  if (state_ == State::reading && parser_.stage() == HttpParser::Stage::idle &&
      unread_bytes() == 0 && out_.empty()) {
    return close();
  }
  if (exchange_ != nullptr) exchange_->close_after();
}

// --- waiting -------------------------------------------------------------------------------------

void HttpConnection::wait() {
  if (state_ == State::closed) return;
  if (!read_waits_ && !ended_ && (state_ == State::lingering || unread_bytes() < kReadAheadBytes)) {
    read_waits_ = true;
    socket_.async_wait(asio::ip::tcp::socket::wait_read,
                       [self = shared_from_this()](const error_code& error) {
                         self->read_waits_ = false;
                         if (!error && self->state_ != State::closed) self->readable();
                       });
  }
  if (!write_waits_ && !out_.empty()) {
    write_waits_ = true;
    socket_.async_wait(asio::ip::tcp::socket::wait_write,
                       [self = shared_from_this()](const error_code& error) {
                         self->write_waits_ = false;
                         if (!error && self->state_ != State::closed) self->run();
                       });
  }
}

void HttpConnection::readable() {
  error_code error;
  const size_t count = socket_.read_some(asio::buffer(loop_.buffer), error);
  if (would_block(error)) return wait();
  if (error == asio::error::eof) {
    if (state_ == State::lingering) return close();
    ended_ = true;
    input_ended();
    return run();
  }
  if (error) return close();
  shared_.bytes_in.fetch_add(count, std::memory_order_relaxed);
  if (state_ == State::lingering || state_ == State::closing) return wait();
  try {
    in_.erase(0, in_used_);
    in_used_ = 0;
    in_.append(loop_.buffer.data(), count);
  } catch (const std::exception&) {
    return close();
  }
  run();
}

void HttpConnection::input_ended() {
  half_closed_ = true;
  half_close_until_ = steady_clock::now() + shared_.options.half_close_time;
  sent_before_ = sent_bytes_;
  probe_time_ = shared_.options.half_close_time;
}

// Requires the exchange's lock.
void HttpConnection::wake() {
  asio::post(loop_.io, [self = shared_from_this()] {
    if (self->exchange_ != nullptr && self->exchange_->overflowed()) return self->reset();
    self->run();
  });
}

void HttpConnection::tick() {
  const auto now = steady_clock::now();
  if (state_ == State::replying) look_at_peer(now);
  if (state_ == State::replying) keep_alive(now);
  if (state_ != State::closed && now >= deadline()) expire();
}

// Called while a reply is being made and nothing is read: either all input was read, or the client
// has sent as much ahead as we accept.
void HttpConnection::look_at_peer(Time now) {
  if (read_waits_) return;
  const short seen = poll_now(socket_.native_handle(), POLLRDHUP);
  if ((seen & (POLLERR | POLLHUP | POLLNVAL)) != 0) return close();
  if (!half_closed_ && (seen & POLLRDHUP) != 0) input_ended();
  // A slow client has its own deadline.
  if (!half_closed_ || !out_.empty() || now < half_close_until_) return;
  if (sent_bytes_ != sent_before_) return input_ended();
  // The client may be gone, or may only have no more requests. If it is gone, it answers the next
  // byte with a reset, which the poll above sees.
  if (!exchange_->probe()) return close();
  probe_time_ = std::min(2 * probe_time_, kMostProbeTimes * shared_.options.half_close_time);
  half_close_until_ = now + probe_time_;
  run();
  sent_before_ = sent_bytes_;
}

void HttpConnection::keep_alive(Time now) {
  const auto every = exchange_->keep_alive_time();
  if (every.count() == 0 || !out_.empty() || now - said_ < every) return;
  exchange_->say_alive();
  said_ = now;
}

HttpConnection::Time HttpConnection::deadline() const {
  const HttpOptions& options = shared_.options;
  if (state_ == State::lingering) return since_ + kLingerTime;
  if (!out_.empty()) return progress_ + options.write_time;
  if (state_ != State::reading) return Time::max();
  switch (parser_.stage()) {
    case HttpParser::Stage::idle:
      return since_ + (served_ ? options.keep_alive_time : options.header_time);
    case HttpParser::Stage::head: return since_ + options.header_time;
    default: return since_ + options.body_time;
  }
}

void HttpConnection::expire() {
  if (state_ == State::lingering) return close();
  if (state_ == State::reading && out_.empty() && parser_.stage() == HttpParser::Stage::idle) {
    return close();
  }
  shared_.timeouts.fetch_add(1, std::memory_order_relaxed);
  if (!out_.empty()) return reset();
  refuse(408, "the request did not arrive in time");
  run();
}

}  // namespace stemma::server
