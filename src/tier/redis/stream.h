// Stream: one non-blocking TCP connection, plain or TLS, starting with the look-up of its host's
// name.
//
//   looking up --> connecting --> securing (TLS) --> open
//        '-------------'---------------'--> failed, with a sentence for the operator
//
// Threading:  one thread at a time; names are looked up on a separate thread, because that may take
//             seconds and cannot be stopped.
// Cost:       without TLS, one system call per read() and write(), directly between the socket and
//             the caller's memory.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stemma/result.h"
#include "stemma/tier/redis_url.h"
#include "tier/redis/slots.h"

struct ssl_ctx_st;
struct ssl_st;

namespace stemma::tier::redis {

// A counter that a thread in epoll_wait notices. Threading: thread-safe.
class Wakeup {
 public:
  static std::shared_ptr<Wakeup> make();  // nullptr: the system gave none.
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  int fd() const noexcept { return fd_; }
  void wake() noexcept;
  void clear() noexcept;

 private:
  explicit Wakeup(int fd) : fd_(fd) {}
  int fd_;
};

// Shared by all TLS connections of a tier: trusted certificates and our own. Threading: immutable.
class TlsContext {
 public:
  // Error: unsupported (no TLS in this build), invalid_argument (a file that cannot be used).
  static Result<std::shared_ptr<TlsContext>> create(const Place& place);
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ssl_ctx_st* get() const noexcept { return context_; }

 private:
  ssl_ctx_st* context_;
};

class Stream {
 public:
  enum class Stage : uint8_t { looking_up, connecting, securing, open, failed };
  enum class Io : uint8_t { some, blocked, closed, failed };
  struct Moved {
    Io io;
    size_t bytes;
  };

  // `tls` may be nullptr: plain. `wakeup` may be nullptr: names are looked up in the constructor's
  // thread.
  Stream(const Address& address, std::shared_ptr<TlsContext> tls, const Place& place,
         std::shared_ptr<Wakeup> wakeup);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Proceeds as far as it can without waiting. Call on events, and after a wakeup while looking up.
  Stage advance();
  Stage stage() const noexcept { return stage_; }
  const std::string& problem() const noexcept { return problem_; }
  // -1 while looking up, and it may change while connecting: a host can have several addresses. A
  // new one may have the number of the old one, so sockets() counts them.
  int fd() const noexcept { return fd_; }
  uint32_t sockets() const noexcept { return sockets_; }
  // Whether it (once open: TLS) waits to become writable.
  bool wants_write() const noexcept { return wants_write_; }

  // Require open.
  Moved read(std::span<const iovec> into);
  Moved write(std::span<const iovec> from);
  // Bytes received that no event will announce.
  bool pending() const noexcept;
  // Drops what the system has not sent when this ends.
  void discard_unsent() noexcept;

 private:
  struct LookUp;

  void connect_next();
  void secure();
  Stage fail(std::string problem);
  Moved tls_read(uint8_t* into, size_t bytes);
  Moved tls_write(const uint8_t* from, size_t bytes);
  Moved tls_result(int code, bool writing);

  Address address_;
  std::shared_ptr<TlsContext> tls_;
  std::string tls_name_;
  bool tls_verify_;
  Stage stage_ = Stage::looking_up;
  bool wants_write_ = false;
  int fd_ = -1;
  uint32_t sockets_ = 0;
  ssl_st* ssl_ = nullptr;
  std::shared_ptr<LookUp> look_up_;
  std::vector<sockaddr_storage> addresses_;
  size_t next_address_ = 0;
  std::string problem_;
};

}  // namespace stemma::tier::redis
