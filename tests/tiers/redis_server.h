// Real servers for tests: redis-server (or valkey-server) processes on loopback, on ports that are theirs, in
// folders of their own, gone with the test whatever becomes of it.
//
// Nothing here assumes that a machine is quick: what is waited for is waited for a minute, and costs that only
// where it never comes. What gives up says to stderr what it waited for, and the end of the servers' logs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/redis_url.h"
#include "tier/redis/resp.h"

namespace stemma::test {

// A folder under the system's for temporary files, removed with what is in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A client as plain as can be: one blocking connection, one command at a time.
class RawClient {
 public:
  explicit RawClient(uint16_t port, const char* host = "127.0.0.1");
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return fd_ >= 0; }
  // A null reply when the connection is lost.
  tier::redis::Reply command(const std::vector<std::string>& words);

 private:
  int fd_ = -1;
};

// A port of loopback that nobody else gets while this lives: no outgoing connection, for it is none of those
// that the system gives to them, and no other Port, of whatever process, for a socket is bound to it. The socket
// does not listen, so connections are refused, until a server that sets SO_REUSEADDR, as Redis does, listens
// there too.
class Port {
 public:
  Port();
  ~Port();
  Port(Port&& other) noexcept;
  Port& operator=(Port&& other) noexcept;
  uint16_t number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

 private:
  int fd_ = -1;
  uint16_t number_ = 0;
};

// The server's program; empty when there is none.
std::string server_program();

class RedisServer {
 public:
  // Among the options: a second port that the server listens on.
  static constexpr const char* kSecondPort = "(a second port)";

  // On `port`, or on one of its own; more options as on the command line.
  explicit RedisServer(std::vector<std::string> options = {}, Port port = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  uint16_t port() const { return port_.number(); }
  uint16_t second_port() const { return second_port_.number(); }
  std::string url() const { return "redis://127.0.0.1:" + port_.text(); }
  bool runs() const;     // The process does.
  bool answers() const;  // It does, and not somebody else at its port.
  // Until it does; false when it has ended, or after a minute.
  bool wait_up() const;
  // The end of what it said.
  std::string log() const;

  void kill();     // At once and for good, with its memory.
  void stop();     // SIGSTOP: it is there and does nothing.
  void go_on();    // SIGCONT
  void restart();  // The same port, an empty memory.

 private:
  void start();

  std::vector<std::string> options_;
  Port port_, second_port_;
  TempFolder folder_;
  mutable pid_t pid_ = -1;
};

// A cluster of `primaries`, each with one replica if wanted, formed and ready.
class RedisCluster {
 public:
  RedisCluster(uint32_t primaries, bool replicas, uint32_t node_timeout_ms);

  bool formed() const { return formed_; }
  std::string url() const;
  std::vector<std::unique_ptr<RedisServer>> servers;  // The primaries first.
  std::string id_of(uint32_t server) const { return ids_[server]; }
  // The server that has this slot now, or none.
  std::optional<uint32_t> owner_of(uint16_t slot, uint32_t ask) const;
  void flush();
  // Moves a slot with all its keys, as an operator would.
  bool move_slot(uint16_t slot, uint32_t from, uint32_t to);

 private:
  // What could not be done; empty: formed.
  std::string form(uint32_t primaries);
  // Until each knows all of the others by their names.
  bool meet();

  std::vector<std::string> ids_;
  bool formed_ = false;
};

}  // namespace stemma::test
