// Real servers for tests: redis-server (or valkey-server) processes on loopback, with their own
// ports and folders, which end with the test even if it crashes.
//
// Nothing here assumes a fast machine: each wait lasts up to a minute, and takes that long only if
// the event never comes. A wait that gives up prints what it waited for and the end of the servers'
// logs to stderr.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stemma/tier/redis_url.h"
#include "tier/redis/resp.h"

namespace stemma::test {

// A folder in the system's temporary directory, removed with its contents.
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

// The simplest client: one blocking connection, one command at a time.
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

// A loopback port that nobody else gets while this lives. Outgoing connections do not get it,
// because it is outside the system's range for them. Other Ports, of any process, do not, because a
// socket is bound to it. The socket does not listen, so connections are refused until a server that
// sets SO_REUSEADDR, as Redis does, listens there too.
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

// The server's program; empty if there is none.
std::string server_program();

class RedisServer {
 public:
  // Among the options: a second port that the server listens on.
  static constexpr const char* kSecondPort = "(a second port)";

  // Starts it on `port`, or on a port of its own; `options` are added to the command line.
  explicit RedisServer(std::vector<std::string> options = {}, Port port = {});
  ~RedisServer();
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  uint16_t port() const { return port_.number(); }
  uint16_t second_port() const { return second_port_.number(); }
  std::string url() const { return "redis://127.0.0.1:" + port_.text(); }
  bool runs() const;     // The process runs.
  bool answers() const;  // It answers itself, and not another program at its port.
  // Waits until it answers; false if it has ended, or after a minute.
  bool wait_up() const;
  // The end of its log.
  std::string log() const;

  void kill();     // At once and for good, with its memory.
  void stop();     // SIGSTOP: it exists and does nothing.
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
  // The server that has this slot now, or null.
  std::optional<uint32_t> owner_of(uint16_t slot, uint32_t ask) const;
  void flush();
  // Moves a slot with all its keys, as an operator would.
  bool move_slot(uint16_t slot, uint32_t from, uint32_t to);

 private:
  // What failed; empty if the cluster was formed.
  std::string form(uint32_t primaries);
  // Waits until each node knows all others by their names.
  bool meet();

  std::vector<std::string> ids_;
  bool formed_ = false;
};

}  // namespace stemma::test
