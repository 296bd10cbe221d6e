#include "tier/redis/stream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/lock.h"

namespace stemma::tier::redis {

namespace {

std::string say_errno(int error) { return std::generic_category().message(error); }

socklen_t size_of(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

}  // namespace

std::shared_ptr<Wakeup> Wakeup::make() {
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return fd < 0 ? nullptr : std::shared_ptr<Wakeup>(new Wakeup(fd));
}

Wakeup::~Wakeup() { close(fd_); }

void Wakeup::wake() noexcept {
  const uint64_t one = 1;
  // It fails only if the counter is full, and then the reader is awake.
  [[maybe_unused]] const ssize_t ignored = ::write(fd_, &one, sizeof one);
}

void Wakeup::clear() noexcept {
  uint64_t count;
  [[maybe_unused]] const ssize_t ignored = ::read(fd_, &count, sizeof count);
}

// Shared with the thread that resolves the host, which may outlive the stream.
struct Stream::LookUp {
  std::string host, port;
  std::shared_ptr<Wakeup> wakeup;
  base::WaitMutex mutex;
  bool done STEMMA_GUARDED_BY(mutex) = false;
  std::string problem STEMMA_GUARDED_BY(mutex);
  std::vector<sockaddr_storage> addresses STEMMA_GUARDED_BY(mutex);

  void run() {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
    {
      const base::Lock lock(mutex);
      if (code != 0) problem = gai_strerror(code);
      for (const addrinfo* one = found; code == 0 && one != nullptr; one = one->ai_next) {
        if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
        std::memcpy(&addresses.emplace_back(), one->ai_addr, one->ai_addrlen);
      }
      done = true;
    }
    if (code == 0) freeaddrinfo(found);
    if (wakeup) wakeup->wake();
  }
};

Stream::Stream(const Address& address, std::shared_ptr<TlsContext> tls, const Place& place,
               std::shared_ptr<Wakeup> wakeup)
    : address_(address),
      tls_(std::move(tls)),
      tls_name_(place.tls_name),
      tls_verify_(place.tls_verify) {
  sockaddr_storage numeric{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&numeric);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&numeric);
  if (inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    addresses_.push_back(numeric);
  } else if (inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(address.port);
    addresses_.push_back(numeric);
  }
  if (!addresses_.empty()) {
    connect_next();
    return;
  }
  look_up_ = std::make_shared<LookUp>();
  look_up_->host = address.host;
  look_up_->port = std::to_string(address.port);
  look_up_->wakeup = std::move(wakeup);
  if (!look_up_->wakeup) {
    look_up_->run();
    advance();
    return;
  }
  try {
    std::thread([shared = look_up_] { shared->run(); }).detach();
  } catch (const std::system_error&) {
    fail("no thread to look up the host's name");
  }
}

Stream::Stage Stream::fail(std::string problem) {
  problem_ = std::move(problem);
  stage_ = Stage::failed;
  return stage_;
}

Stream::Stage Stream::advance() {
  if (stage_ == Stage::looking_up && look_up_) {
    const base::Lock lock(look_up_->mutex);
    if (!look_up_->done) return stage_;
    if (look_up_->addresses.empty()) {
      return fail("no address is known for this name (" + look_up_->problem + ")");
    }
    addresses_ = look_up_->addresses;
    connect_next();
  } else if (stage_ == Stage::connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    sockaddr_storage peer;
    socklen_t peer_size = sizeof peer;
    if (error == 0 && getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) {
      if (errno == ENOTCONN) return stage_;  // Not yet.
      error = errno;
    }
    if (error != 0) {
      problem_ = say_errno(error);
      connect_next();
    } else {
      secure();
    }
  } else if (stage_ == Stage::securing) {
    secure();
  }
  return stage_;
}

void Stream::discard_unsent() noexcept {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// Tries the host's next addresses until one accepts a connection.
void Stream::connect_next() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  while (next_address_ < addresses_.size()) {
    const sockaddr_storage& to = addresses_[next_address_++];
    fd_ = socket(to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) {
      problem_ = say_errno(errno);
      continue;
    }
    ++sockets_;
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&to), size_of(to)) == 0) return secure();
    if (errno == EINPROGRESS) {
      stage_ = Stage::connecting;
      wants_write_ = true;
      return;
    }
    problem_ = say_errno(errno);
    close(fd_);
    fd_ = -1;
  }
  fail(problem_.empty() ? "it has no address" : problem_);
}

Stream::Moved Stream::read(std::span<const iovec> into) {
  if (ssl_ == nullptr) {
    ssize_t got;
    do {
      got = readv(fd_, into.data(), static_cast<int>(into.size()));
    } while (got < 0 && errno == EINTR);
    if (got > 0) return {Io::some, static_cast<size_t>(got)};
    if (got == 0) return {Io::closed, 0};
    if (errno == EAGAIN) return {Io::blocked, 0};
    problem_ = say_errno(errno);
    return {Io::failed, 0};
  }
  size_t total = 0;
  for (const iovec& part : into) {
    size_t done = 0;
    while (done < part.iov_len) {
      const Moved moved =
          tls_read(static_cast<uint8_t*>(part.iov_base) + done, part.iov_len - done);
      if (moved.io != Io::some) return total != 0 ? Moved{Io::some, total} : moved;
      done += moved.bytes;
      total += moved.bytes;
    }
  }
  return {Io::some, total};
}

Stream::Moved Stream::write(std::span<const iovec> from) {
  if (ssl_ == nullptr) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from.data());
    message.msg_iovlen = from.size();
    ssize_t sent;
    do {
      sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0) return {Io::some, static_cast<size_t>(sent)};
    if (errno == EAGAIN) return {Io::blocked, 0};
    problem_ = say_errno(errno);
    return {Io::failed, 0};
  }
  size_t total = 0;
  for (const iovec& part : from) {
    size_t done = 0;
    while (done < part.iov_len) {
      const Moved moved =
          tls_write(static_cast<const uint8_t*>(part.iov_base) + done, part.iov_len - done);
      if (moved.io != Io::some) return total != 0 ? Moved{Io::some, total} : moved;
      done += moved.bytes;
      total += moved.bytes;
    }
  }
  return {Io::some, total};
}

}  // namespace stemma::tier::redis
