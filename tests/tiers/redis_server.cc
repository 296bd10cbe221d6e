#include "tiers/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "tier/redis/slots.h"

namespace stemma::test {

using tier::redis::Reply;

namespace {

constexpr int kPatienceMs = 60'000;

bool within(int milliseconds, const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::string on_path(const char* name) {
  const char* path = std::getenv("PATH");
  std::string_view left = path != nullptr ? path : "";
  while (!left.empty()) {
    const std::string_view folder = left.substr(0, left.find(':'));
    const std::string program = std::string(folder) + "/" + name;
    if (access(program.c_str(), X_OK) == 0) return program;
    left.remove_prefix(std::min(left.size(), folder.size() + 1));
  }
  return "";
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "stemma-redis-XXXXXX").string();
  path_ = mkdtemp(name.data()) != nullptr ? name : "";
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

RawClient::RawClient(uint16_t port, const char* host) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  inet_pton(AF_INET, host, &to.sin_addr);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return;
  // So that a stopped server does not hold up a test for ever.
  const timeval patience{30, 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return;
  close(fd_);
  fd_ = -1;
}

RawClient::~RawClient() {
  if (fd_ >= 0) close(fd_);
}

Reply RawClient::command(const std::vector<std::string>& words) {
  std::string bytes = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) {
    bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  }
  if (fd_ < 0 ||
      send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return {};
  }
  tier::redis::ReplyParser parser({.text_bytes = size_t{64} << 20U});
  char buffer[4096];
  while (parser.stage() != tier::redis::ReplyParser::Stage::done) {
    const ssize_t got = recv(fd_, buffer, sizeof buffer, 0);
    if (got <= 0) return {};
    parser.feed({buffer, static_cast<size_t>(got)});
    if (parser.stage() == tier::redis::ReplyParser::Stage::failed) return {};
  }
  return parser.reply();
}

Port::Port() {
  // Ports that the system gives to outgoing connections are not for servers.
  uint32_t low = 32'768, high = 60'999;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  std::random_device random;
  for (int tries = 0; tries < 10'000; ++tries) {
    const uint32_t number = 10'000 + random() % 55'000;
    // If the system reserves nearly all ports for that, one of those is better than none.
    if (number >= low && number <= high && tries < 5'000) continue;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(number));
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0) break;
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
      // Only now: binding would have failed if another socket were at this port.
      const int yes = 1;
      setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      number_ = static_cast<uint16_t>(number);
      return;
    }
    close(fd_);
    fd_ = -1;
  }
  std::cerr << "there is no port for a test's server: " << std::strerror(errno) << "\n";
}

Port::~Port() {
  if (fd_ >= 0) close(fd_);
}

Port::Port(Port&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), number_(std::exchange(other.number_, 0)) {}

Port& Port::operator=(Port&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(number_, other.number_);
  return *this;
}

std::string server_program() {
  // STEMMA_REDIS_SERVER names the program to use; if that does not exist, there is none.
  if (const char* wanted = std::getenv("STEMMA_REDIS_SERVER")) return on_path(wanted);
  const std::string redis = on_path("redis-server");
  return redis.empty() ? on_path("valkey-server") : redis;
}

RedisServer::RedisServer(std::vector<std::string> options, Port port)
    : options_(std::move(options)), port_(std::move(port)) {
  std::ranges::replace(options_, std::string(kSecondPort), second_port_.text());
  start();
}

RedisServer::~RedisServer() { kill(); }

void RedisServer::start() {
  std::vector<std::string> words = {server_program(),
                                    "--port",
                                    port_.text(),
                                    "--bind",
                                    "127.0.0.1",
                                    "--save",
                                    "",
                                    "--appendonly",
                                    "no",
                                    "--dir",
                                    folder_.path(),
                                    "--repl-diskless-sync-delay",
                                    "0"};
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = folder_.path() + "/log";
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ != 0) return;
  // A test that crashes leaves no server behind.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (out < 0) _exit(1);
  dup2(out, 1);
  dup2(out, 2);
  execv(arguments[0], arguments.data());
  _exit(127);
}

bool RedisServer::runs() const {
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ > 0;
}

bool RedisServer::answers() const {
  const std::string is_ours = "\r\nprocess_id:" + std::to_string(pid_) + "\r\n";
  const Reply reply = RawClient(port()).command({"INFO", "server"});
  return (reply.text.find(is_ours) != std::string::npos || reply.text.starts_with("NOAUTH")) &&
         runs();
}

bool RedisServer::wait_up() const {
  const bool up = within(kPatienceMs, [this] { return answers() || !runs(); }) && runs();
  if (!up) std::cerr << "a server at port " << port() << " does not answer\n" << log();
  return up;
}

std::string RedisServer::log() const {
  std::ifstream file(folder_.path() + "/log");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr size_t kMost = 4'000;
  if (text.size() > kMost) text.erase(0, text.find('\n', text.size() - kMost) + 1);
  return "---- the log of the server at port " + port_.text() +
         (runs() ? "" : ", which has ended") + "\n" + text;
}

void RedisServer::kill() {
  if (!runs()) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::stop() {
  ::kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);  // It has stopped.
}
void RedisServer::go_on() { ::kill(pid_, SIGCONT); }

void RedisServer::restart() {
  kill();
  start();
}

RedisCluster::RedisCluster(uint32_t primaries, bool replicas, uint32_t node_timeout_ms) {
  // A cluster whose formation failed midway is not repaired but formed anew.
  for (int tries = 0; tries < 3 && !formed_; ++tries) {
    servers.clear();
    ids_.clear();
    const uint32_t count = replicas ? primaries * 2 : primaries;
    for (uint32_t i = 0; i < count; ++i) {
      servers.push_back(std::make_unique<RedisServer>(std::vector<std::string>{
          "--cluster-enabled", "yes", "--cluster-port", RedisServer::kSecondPort,
          "--cluster-node-timeout", std::to_string(node_timeout_ms), "--cluster-config-file",
          "nodes.conf"}));
    }
    const std::string problem = form(primaries);
    formed_ = problem.empty();
    if (formed_) break;
    std::cerr << "a cluster was not formed: " << problem << "\n";
    for (const auto& server : servers) std::cerr << server->log();
  }
}

std::string RedisCluster::form(uint32_t primaries) {
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const std::string which = "server " + std::to_string(i) + ": ";
    if (!servers[i]->wait_up()) return which + "it does not come up";
    RawClient client(servers[i]->port());
    ids_.push_back(client.command({"CLUSTER", "MYID"}).text);
    if (ids_.back().empty()) return which + "CLUSTER MYID";
    if (!client.command({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)}).is_text("OK")) {
      return which + "CLUSTER SET-CONFIG-EPOCH";
    }
    if (i >= primaries) continue;
    const std::string first = std::to_string(i * tier::redis::kSlots / primaries);
    const std::string last = std::to_string((i + 1) * tier::redis::kSlots / primaries - 1);
    if (!client.command({"CLUSTER", "ADDSLOTSRANGE", first, last}).is_text("OK")) {
      return which + "CLUSTER ADDSLOTSRANGE";
    }
  }
  if (!meet()) return "they did not all come to know each other";
  for (uint32_t i = primaries; i < servers.size(); ++i) {
    if (!within(kPatienceMs, [&] {
          return RawClient(servers[i]->port())
              .command({"CLUSTER", "REPLICATE", ids_[i - primaries]})
              .is_text("OK");
        })) {
      return "server " + std::to_string(i) + ": CLUSTER REPLICATE";
    }
  }
  const auto says = [&](uint32_t server, const char* command, const char* section,
                        const char* line) {
    return within(kPatienceMs, [&] {
      const Reply reply = RawClient(servers[server]->port()).command({command, section});
      return reply.text.find(line) != std::string::npos;
    });
  };
  for (uint32_t i = 0; i < servers.size(); ++i) {
    const std::string which = "server " + std::to_string(i) + " never said ";
    if (!says(i, "CLUSTER", "INFO", "cluster_state:ok")) return which + "cluster_state:ok";
    if (i >= primaries && !says(i, "INFO", "replication", "master_link_status:up")) {
      return which + "master_link_status:up";
    }
  }
  return "";
}

bool RedisCluster::meet() {
  using std::chrono::steady_clock;
  auto next_meet = steady_clock::now();
  return within(kPatienceMs, [&] {
    // A handshake that takes longer than the nodes' timeout is given up and never repeated, so a
    // node that does not know another by now is told again.
    const bool tell = steady_clock::now() >= next_meet;
    if (tell) next_meet = steady_clock::now() + std::chrono::seconds(1);
    bool all = true;
    for (const auto& server : servers) {
      RawClient client(server->port());
      const std::string known = client.command({"CLUSTER", "NODES"}).text;
      for (uint32_t i = 0; i < servers.size(); ++i) {
        // While a node is being met it has a name made up for it.
        if (known.find(ids_[i]) != std::string::npos) continue;
        all = false;
        if (!tell) continue;
        client.command({"CLUSTER", "MEET", "127.0.0.1", std::to_string(servers[i]->port()),
                        std::to_string(servers[i]->second_port())});
      }
    }
    return all;
  });
}

std::string RedisCluster::url() const {
  std::string out = "redis://";
  for (const auto& server : servers) {
    out += (out.size() > 8 ? "," : "") + std::string("127.0.0.1:") + std::to_string(server->port());
  }
  return out;
}

std::optional<uint32_t> RedisCluster::owner_of(uint16_t slot, uint32_t ask) const {
  const auto ranges = tier::redis::read_slots(
      RawClient(servers[ask]->port()).command({"CLUSTER", "SLOTS"}), "127.0.0.1");
  if (!ranges) return std::nullopt;
  for (const auto& range : *ranges) {
    if (slot < range.first || slot > range.last) continue;
    for (uint32_t i = 0; i < servers.size(); ++i) {
      if (servers[i]->port() == range.primary.port) return i;
    }
  }
  return std::nullopt;
}

void RedisCluster::flush() {
  for (const auto& server : servers) RawClient(server->port()).command({"FLUSHALL"});
}

bool RedisCluster::move_slot(uint16_t slot, uint32_t from, uint32_t to) {
  RawClient source(servers[from]->port());
  RawClient target(servers[to]->port());
  const std::string number = std::to_string(slot);
  target.command({"CLUSTER", "SETSLOT", number, "IMPORTING", ids_[from]});
  source.command({"CLUSTER", "SETSLOT", number, "MIGRATING", ids_[to]});
  for (;;) {
    const Reply keys = source.command({"CLUSTER", "GETKEYSINSLOT", number, "16"});
    if (keys.type != Reply::Type::array) return false;
    if (keys.elements.empty()) break;
    for (const Reply& key : keys.elements) {
      const Reply moved = source.command(
          {"MIGRATE", "127.0.0.1", std::to_string(servers[to]->port()), key.text, "0", "60000"});
      if (moved.type == Reply::Type::error) return false;
    }
  }
  return target.command({"CLUSTER", "SETSLOT", number, "NODE", ids_[to]}).is_text("OK") &&
         source.command({"CLUSTER", "SETSLOT", number, "NODE", ids_[to]}).is_text("OK");
}

}  // namespace stemma::test
