// An HttpExchange passes bytes from a handler's reply to the connection that carries it.
//
// The handler's side (HttpReply) puts bytes in from any thread; the connection's side takes out
// what has gathered whenever the socket has room. There is no other coalescing, and a stream takes
// no other memory. The waiting bytes are bounded; a client that lets them reach the limit counts as
// gone.
//
// Threading:  thread-safe. Callbacks run without the lock.
// Ownership:  the connection leaves with leave() or cut(); after that the reply may outlive
//             everything.
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

// How an exchange wakes its connection. Called under the exchange's lock, so it must only leave a
// note.
class HttpWaker {
 public:
  virtual ~HttpWaker() = default;
  virtual void wake() = 0;
};

// What all exchanges of a server have in common.
struct HttpManner {
  HttpHeaders headers;                  // Added to every reply.
  size_t buffer_bytes = 0;              // A streaming client that falls further behind is gone.
  std::shared_ptr<ByteBudget> replies;  // For whole answers that are large; null: no limit.
  std::function<void(std::string_view line)> log;
  // Gets the status of every answer before the client can know it, and 499 for clients that did not
  // wait for theirs. Called under the exchange's lock, so it must only count and leave notes.
  std::function<void(const HttpAsked& asked, int status)> answered;
};

// What the request requires of its reply.
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

  // --- the handler's side ------------------------------------------------------------------------

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

  // --- the connection's side ---------------------------------------------------------------------

  enum class Next : uint8_t {
    more,      // Bytes may follow.
    finish,    // These were the last; Taken::keep_alive says whether the connection goes on.
    abort,     // These were the last, and the client must see that something is missing.
    overflow,  // The client is too slow.
  };
  struct Taken {
    Next next = Next::more;
    bool keep_alive = false;  // For Next::finish.
    bool reset = false;       // For Next::abort: a plain close would look like an end.
  };
  // Requires `out` to be empty. Moves the gathered bytes into it. Bytes that come later wake the
  // waker; the first call needs no wake-up.
  Taken take(std::string& out);
  bool overflowed() const;
  // Reports how many of the taken bytes have not been sent yet.
  void set_unsent(size_t bytes);
  // How long a reply may be idle; 0: for ever.
  std::chrono::milliseconds keep_alive_time() const;
  // Sends the piece given to keep_alive(); a waiting reply begins with it.
  void say_alive();
  // Adds bytes that make a vanished client answer with a reset and that other clients ignore:
  // before the head, an interim 100; in a stream, the piece given to keep_alive(). Returns false if
  // there are none.
  bool probe();
  // Makes a head that is not yet sent say that the connection closes.
  void close_after();
  // A whole answer's share of the budget, to release when the client has the answer; null: none.
  std::shared_ptr<ByteShare> take_share();
  // Call it when the reply is sent.
  void leave();
  // Call it when the client is gone. Returns true if the reply was not complete.
  bool cut();

 private:
  enum class State : uint8_t { waiting, streaming, complete, broken, gone };

  // Returns false if a header could not be sent.
  bool open_head(int status, std::string_view content_type, const HttpHeaders& headers, bool stream,
                 size_t length) STEMMA_REQUIRES(mutex_);
  void append(std::string_view piece) STEMMA_REQUIRES(mutex_);
  // Marks the last bytes. Returns the callback, to be destroyed without the lock.
  std::function<void()> complete(State state) STEMMA_REQUIRES(mutex_);
  void wake() STEMMA_REQUIRES(mutex_);
  void tell(int status) STEMMA_REQUIRES(mutex_);
  // Returns false if a large answer finds no room.
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
  bool woken_ STEMMA_GUARDED_BY(mutex_) = true;  // The waker was woken and has not taken yet.
};

// The reply that a handler holds.
std::shared_ptr<HttpReply> make_reply(std::shared_ptr<HttpExchange> exchange);

}  // namespace stemma::server
