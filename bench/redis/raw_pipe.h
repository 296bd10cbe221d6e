// RawPipe: the simplest client that moves values to and from Redis, as the limit for all others.
//
// One blocking connection. Puts send a whole batch before they read the first reply. Only a limited
// number of gets is sent ahead, because a server that has to keep many large replies is slower.
// Values go directly between the socket and the caller's memory. It knows all lengths beforehand
// and checks nothing else.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace stemma::bench::redis {

class RawPipe {
 public:
  explicit RawPipe(uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) return;
    const int yes = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    good_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~RawPipe() {
    if (fd_ >= 0) close(fd_);
  }
  RawPipe(const RawPipe&) = delete;
  RawPipe& operator=(const RawPipe&) = delete;

  bool put(std::span<const std::string> keys, std::span<const std::vector<uint8_t>> values) {
    for (size_t i = 0; i < keys.size() && good_; ++i) {
      std::string head = "*3\r\n$3\r\nSET\r\n$" + std::to_string(keys[i].size()) + "\r\n" +
                         keys[i] + "\r\n$" + std::to_string(values[i].size()) + "\r\n";
      char end[] = "\r\n";
      iovec parts[3] = {{head.data(), head.size()},
                        {const_cast<uint8_t*>(values[i].data()), values[i].size()},
                        {end, 2}};
      send_all(parts);
    }
    for (size_t i = 0; i < keys.size() && good_; ++i) expect("+OK\r\n");
    return good_;
  }

  bool get(std::span<const std::string> keys, std::span<std::vector<uint8_t>> rooms, size_t ahead) {
    size_t asked = 0;
    for (size_t i = 0; i < keys.size() && good_; ++i) {
      std::string heads;
      for (; asked < std::min(keys.size(), i + ahead); ++asked) {
        heads += "*2\r\n$3\r\nGET\r\n$" + std::to_string(keys[asked].size()) + "\r\n" +
                 keys[asked] + "\r\n";
      }
      iovec part = {heads.data(), heads.size()};
      if (!heads.empty()) send_all({&part, 1});
      expect("$" + std::to_string(rooms[i].size()) + "\r\n");
      receive(rooms[i].data(), rooms[i].size());
      expect("\r\n");
    }
    return good_;
  }

  bool ping() {
    char text[] = "*1\r\n$4\r\nPING\r\n";
    iovec part = {text, sizeof text - 1};
    send_all({&part, 1});
    expect("+PONG\r\n");
    return good_;
  }
  bool flush() {
    char text[] = "*2\r\n$8\r\nFLUSHALL\r\n$4\r\nSYNC\r\n";
    iovec part = {text, sizeof text - 1};
    send_all({&part, 1});
    expect("+OK\r\n");
    return good_;
  }

 private:
  void send_all(std::span<iovec> parts) {
    while (!parts.empty() && good_) {
      ssize_t sent = writev(fd_, parts.data(), static_cast<int>(parts.size()));
      if (sent < 0) good_ = false;
      while (good_ && !parts.empty() && sent >= static_cast<ssize_t>(parts[0].iov_len)) {
        sent -= static_cast<ssize_t>(parts[0].iov_len);
        parts = parts.subspan(1);
      }
      if (good_ && !parts.empty()) {
        parts[0].iov_base = static_cast<char*>(parts[0].iov_base) + sent;
        parts[0].iov_len -= static_cast<size_t>(sent);
      }
    }
  }
  void receive(void* to, size_t bytes) {
    good_ = good_ && recv(fd_, to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  void expect(const std::string& text) {
    char got[64];
    receive(got, text.size());
    good_ = good_ && std::memcmp(got, text.data(), text.size()) == 0;
  }

  int fd_;
  bool good_ = false;
};

}  // namespace stemma::bench::redis
