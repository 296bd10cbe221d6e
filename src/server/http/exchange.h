// An HttpExchange is where a handler's reply and the connection that carries it meet.
//
// The handler's side (HttpReply) puts bytes in from any thread; the connection's side takes out what has
// gathered whenever the socket has room. That is all the coalescing there is, and all the memory a
// stream takes: what waits here is bounded, and a client that lets it fill counts as gone.
//
// Threading:  thread-safe. Callbacks run without the lock.
// Ownership:  the connection lets go with leave() or cut(); after that the reply may outlive everything.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "server/http/byte_budget.h"
#include "server/http/message.h"

namespace stemma::server {

// What a connection is to an exchange: somebody to wake. Called under the exchange's lock, so it must
// only leave a note.
class HttpWaker {
 public:
  virtual ~HttpWaker() = default;
  virtual void wake() = 0;
};

// What all exchanges of a server have in common.
struct HttpManner {
  HttpHeaders headers;                  // Of every reply.
  size_t buffer_bytes = 0;              // Beyond it a streaming client is gone.
  std::shared_ptr<ByteBudget> replies;  // For whole answers that are large; null: no limit.
  std::function<void(std::string_view line)> log;
  // Told the status of every answer before the client can know it, and 499 of clients that did not wait for theirs.
  // Called under the exchange's lock, so it must only count and leave notes.
  std::function<void(const HttpAsked& asked, int status)> answered;
};

// What the request says about its reply.
struct HttpReplyForm {
  bool head_only = false;  // A HEAD.
  bool http_1_0 = false;
  bool keep_alive = true;
};

class HttpExchange {
 public:
  HttpExchange(std::shared_ptr<const HttpManner> manner, HttpReplyForm form, HttpAsked asked,
               std::shared_ptr<HttpWaker> waker)
      : manner_(std::move(manner)),
        form_(form),
        asked_(std::move(asked)),
        waker_(std::move(waker)) {}

  // --- the handler's side -------------------------------------------------------------------------

  bool respond(int status, std::string_view content_type, std::string_view body,
               const HttpHeaders& headers);
  bool begin(int status, std::string_view content_type, const HttpHeaders& headers);
  bool send(std::string_view piece);
  bool end();
  void keep_alive(HttpKeepAlive manner);
  void because(std::string_view why);
  void own_line(bool own);
  void dropped();
  bool gone() const;
  void on_gone(std::function<void()> callback);

  // --- the connection's side ----------------------------------------------------------------------

  enum class Next : uint8_t {
    more,      // Bytes may follow.
    finish,    // These were the last; the connection goes on, or closes, as keep_alive() says.
    abort,     // These were the last, and the client must see that something is missing.
    overflow,  // The client is too slow.
  };
  struct Taken {
    Next next = Next::more;
    bool keep_alive = false;  // Of Next::finish.
    bool reset = false;       // Of Next::abort: a plain close would look like an end.
  };
  // Requires `out` to be empty. Moves what has gathered into it. The waker is woken for what comes
  // after that; it takes for the first time without being woken.
  Taken take(std::string& out);
  bool overflowed() const;
  // So many of the bytes taken have not been sent yet.
  void set_unsent(size_t bytes);
  // How long a reply may say nothing; 0: for ever.
  std::chrono::milliseconds keep_alive_time() const;
  // Says what keep_alive() was given; a reply that waits begins with it.
  void say_alive();
  // Puts bytes in that a client who is gone answers with a reset, and that mean nothing to another: before
  // the head, an interim 100; in a stream, what keep_alive() was given. False: there are none.
  bool probe();
  // The head that is not yet made will say that the connection closes.
  void close_after();
  // What a whole answer takes of the budget, to be let go when the client has it; null: nothing.
  std::shared_ptr<ByteShare> take_share();
  // The reply is sent.
  void leave();
  // The client is gone. True if the reply was not complete.
  bool cut();

 private:
  enum class State : uint8_t { waiting, streaming, complete, broken, gone };

  // False if something of it could not be said.
  bool open_head(int status, std::string_view content_type, const HttpHeaders& headers, bool stream,
                 size_t length) STEMMA_REQUIRES(mutex_);
  void append(std::string_view piece) STEMMA_REQUIRES(mutex_);
  // The last bytes are there. The callback comes back to be destroyed without the lock.
  std::function<void()> complete(State state) STEMMA_REQUIRES(mutex_);
  void wake() STEMMA_REQUIRES(mutex_);
  void tell(int status) STEMMA_REQUIRES(mutex_);
  // False: a large answer finds no room.
  bool take_room(size_t bytes) STEMMA_REQUIRES(mutex_);
  void say(std::string_view line) const;

  mutable base::Mutex mutex_;
  const std::shared_ptr<const HttpManner> manner_;
  HttpReplyForm form_ STEMMA_GUARDED_BY(mutex_);
  HttpAsked asked_ STEMMA_GUARDED_BY(mutex_);
  std::shared_ptr<HttpWaker> waker_ STEMMA_GUARDED_BY(mutex_);
  std::string pending_ STEMMA_GUARDED_BY(mutex_);
  std::shared_ptr<ByteShare> share_ STEMMA_GUARDED_BY(mutex_);
  size_t unsent_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_gone_ STEMMA_GUARDED_BY(mutex_);
  HttpKeepAlive alive_ STEMMA_GUARDED_BY(mutex_);
  State state_ STEMMA_GUARDED_BY(mutex_) = State::waiting;
  bool chunked_ STEMMA_GUARDED_BY(mutex_) = false;
  bool bodiless_ STEMMA_GUARDED_BY(mutex_) = false;
  bool overflowed_ STEMMA_GUARDED_BY(mutex_) = false;
  bool woken_ STEMMA_GUARDED_BY(mutex_) = true;  // It has been told and has not come yet.
};

// The reply that a handler holds.
std::shared_ptr<HttpReply> make_reply(std::shared_ptr<HttpExchange> exchange);

}  // namespace stemma::server
