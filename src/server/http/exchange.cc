#include "server/http/exchange.h"

#include <utility>

#include "server/http/format.h"

namespace stemma::server {
namespace {

constexpr std::string_view kNoRoom = "too many large answers wait for their clients to read them";
constexpr int kClientGone = 499;  // As proxies count clients that left.

class ExchangeReply final : public HttpReply {
 public:
  explicit ExchangeReply(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~ExchangeReply() override { exchange_->dropped(); }

  bool respond(int status, std::string_view content_type, std::string body,
               HttpHeaders headers) override {
    return exchange_->respond(status, content_type, body, headers);
  }
  bool begin(int status, std::string_view content_type, HttpHeaders headers) override {
    return exchange_->begin(status, content_type, headers);
  }
  bool send(std::string piece) override { return exchange_->send(piece); }
  bool end() override { return exchange_->end(); }
  void keep_alive(HttpKeepAlive manner) override { exchange_->keep_alive(std::move(manner)); }
  void because(std::string_view why) override { exchange_->because(why); }
  void own_line(bool own) override { exchange_->own_line(own); }
  bool gone() const override { return exchange_->gone(); }
  void on_gone(std::function<void()> callback) override { exchange_->on_gone(std::move(callback)); }

 private:
  std::shared_ptr<HttpExchange> exchange_;
};

}  // namespace

std::shared_ptr<HttpReply> make_reply(std::shared_ptr<HttpExchange> exchange) {
  return std::make_shared<ExchangeReply>(std::move(exchange));
}

// --- the handler's side -------------------------------------------------------------------------

bool HttpExchange::open_head(int status, std::string_view content_type, const HttpHeaders& headers,
                             bool stream, size_t length) {
  const bool known = status >= 200 && status <= 599;
  bodiless_ = form_.head_only || status == 204 || status == 304;
  chunked_ = stream && !form_.http_1_0;
  ReplyHead head{.status = known ? status : 500,
                 .content_type = content_type,
                 .end = chunked_ ? BodyEnd::chunks
                        : stream ? BodyEnd::close
                                 : BodyEnd::length,
                 .length = length,
                 .http_1_0 = form_.http_1_0};
  if (status == 204 || status == 304) head.end = BodyEnd::no_body;
  if (head.end == BodyEnd::close) form_.keep_alive = false;
  head.keep_alive = form_.keep_alive;
  HttpHeaders all = headers;
  if (!asked_.id.empty()) all.push_back({"X-Request-Id", asked_.id});
  const bool whole = append_head(pending_, head, all, manner_->headers);
  tell(head.status);
  return whole && known;
}

bool HttpExchange::respond(int status, std::string_view content_type, std::string_view body,
                           const HttpHeaders& headers) {
  std::function<void()> released;
  bool fine = true;
  {
    const base::MutexLock lock(mutex_);
    if (state_ != State::waiting) return false;
    if (take_room(body.size())) {
      fine = open_head(status, content_type, headers, false, body.size());
      if (!bodiless_) pending_ += body;
    } else {
      asked_.why = kNoRoom;
      const std::string refusal = error_body(503, kNoRoom);
      open_head(503, "application/json", {{"Retry-After", "1"}}, false, refusal.size());
      pending_ += refusal;
    }
    released = complete(State::complete);
  }
  if (!fine) say("http: a reply with a status or header that cannot be sent");
  return true;
}

bool HttpExchange::take_room(size_t bytes) {
  if (manner_->replies == nullptr || bytes <= kSmallBodyBytes || form_.head_only) return true;
  auto share = std::make_shared<ByteShare>(manner_->replies);
  if (!share->grow_to(bytes)) return false;
  share_ = std::move(share);
  return true;
}

bool HttpExchange::begin(int status, std::string_view content_type, const HttpHeaders& headers) {
  bool fine = true;
  {
    const base::MutexLock lock(mutex_);
    if (state_ != State::waiting) return false;
    fine = open_head(status, content_type, headers, true, 0);
    state_ = State::streaming;
    wake();
  }
  if (!fine) say("http: a reply with a status or header that cannot be sent");
  return true;
}

bool HttpExchange::send(std::string_view piece) {
  const base::MutexLock lock(mutex_);
  if (state_ != State::streaming || overflowed_) return false;
  if (piece.empty() || bodiless_) return true;
  if (pending_.size() + unsent_ >= manner_->buffer_bytes) {
    // The connection cuts the client off and calls on_gone, because the sender may hold locks. It
    // may have been woken before and wait for room now, so wake it once more.
    overflowed_ = true;
    woken_ = false;
    wake();
    return false;
  }
  append(piece);
  wake();
  return true;
}

void HttpExchange::append(std::string_view piece) {
  if (chunked_) {
    append_chunk(pending_, piece);
  } else {
    pending_ += piece;
  }
}

bool HttpExchange::end() {
  std::function<void()> released;
  const base::MutexLock lock(mutex_);
  if (state_ != State::streaming || overflowed_) return false;
  if (chunked_ && !bodiless_) pending_ += kLastChunk;
  released = complete(State::complete);
  return true;
}

void HttpExchange::keep_alive(HttpKeepAlive manner) {
  const base::MutexLock lock(mutex_);
  std::swap(alive_, manner);
}

void HttpExchange::because(std::string_view why) {
  const base::MutexLock lock(mutex_);
  asked_.why = why;
}

void HttpExchange::own_line(bool own) {
  const base::MutexLock lock(mutex_);
  asked_.own_line = own;
}

void HttpExchange::tell(int status) {
  if (manner_->answered) manner_->answered(asked_, status);
}

void HttpExchange::dropped() {
  std::function<void()> released;
  {
    const base::MutexLock lock(mutex_);
    if (state_ == State::waiting) {
      const std::string body = error_body(500, "the request was not answered");
      open_head(500, "application/json", {}, false, body.size());
      if (!bodiless_) pending_ += body;
      released = complete(State::complete);
    } else if (state_ == State::streaming) {
      released = complete(State::broken);
    } else {
      return;
    }
  }
  say("http: a reply was dropped before it was complete");
}

bool HttpExchange::gone() const {
  const base::MutexLock lock(mutex_);
  return state_ == State::gone || overflowed_;
}

void HttpExchange::on_gone(std::function<void()> callback) {
  {
    const base::MutexLock lock(mutex_);
    if (state_ == State::waiting || state_ == State::streaming) {
      // The old callback is destroyed with `callback`, without the lock.
      std::swap(on_gone_, callback);
      return;
    }
    if (state_ != State::gone) return;
  }
  if (callback) callback();
}

std::function<void()> HttpExchange::complete(State state) {
  state_ = state;
  wake();
  return std::exchange(on_gone_, nullptr);
}

void HttpExchange::wake() {
  if (woken_ || waker_ == nullptr) return;
  woken_ = true;
  waker_->wake();
}

void HttpExchange::say(std::string_view line) const {
  if (manner_->log) manner_->log(line);
}

// --- the connection's side ----------------------------------------------------------------------

HttpExchange::Taken HttpExchange::take(std::string& out) {
  const base::MutexLock lock(mutex_);
  woken_ = false;
  unsent_ = pending_.size();
  out.swap(pending_);
  if (overflowed_) return {.next = Next::overflow};
  if (state_ == State::complete) return {.next = Next::finish, .keep_alive = form_.keep_alive};
  if (state_ == State::broken) return {.next = Next::abort, .reset = !chunked_};
  return {};
}

bool HttpExchange::overflowed() const {
  const base::MutexLock lock(mutex_);
  return overflowed_;
}

void HttpExchange::set_unsent(size_t bytes) {
  const base::MutexLock lock(mutex_);
  unsent_ = bytes;
}

std::chrono::milliseconds HttpExchange::keep_alive_time() const {
  const base::MutexLock lock(mutex_);
  return alive_.every;
}

void HttpExchange::say_alive() {
  const base::MutexLock lock(mutex_);
  if (alive_.piece.empty() || overflowed_) return;
  if (state_ == State::waiting) {
    open_head(200, alive_.content_type, alive_.headers, true, 0);
    state_ = State::streaming;
  }
  if (state_ != State::streaming || bodiless_) return;
  append(alive_.piece);
  wake();
}

bool HttpExchange::probe() {
  const base::MutexLock lock(mutex_);
  if (overflowed_) return true;
  if (state_ == State::waiting) {
    if (form_.http_1_0) return false;
    pending_ += kContinue;
  } else if (state_ == State::streaming) {
    if (alive_.piece.empty() || bodiless_) return false;
    append(alive_.piece);
  }
  wake();
  return true;
}

void HttpExchange::close_after() {
  const base::MutexLock lock(mutex_);
  form_.keep_alive = false;
}

std::shared_ptr<ByteShare> HttpExchange::take_share() {
  const base::MutexLock lock(mutex_);
  return std::exchange(share_, nullptr);
}

void HttpExchange::leave() {
  std::shared_ptr<HttpWaker> released;
  const base::MutexLock lock(mutex_);
  released = std::exchange(waker_, nullptr);
}

bool HttpExchange::cut() {
  std::shared_ptr<HttpWaker> released;
  std::function<void()> callback;
  {
    const base::MutexLock lock(mutex_);
    released = std::exchange(waker_, nullptr);
    pending_.clear();
    pending_.shrink_to_fit();
    share_.reset();
    if (state_ != State::waiting && state_ != State::streaming) return false;
    if (state_ == State::waiting) tell(kClientGone);
    state_ = State::gone;
    callback = std::exchange(on_gone_, nullptr);
  }
  if (callback) callback();
  return true;
}

}  // namespace stemma::server
