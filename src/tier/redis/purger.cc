#include "tier/redis/purger.h"

#include <poll.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "tier/entry.h"
#include "tier/purge_choice.h"
#include "tier/redis/connection.h"
#include "tier/redis/key_name.h"
#include "tier/redis/slots.h"
#include "tier/wait_until.h"

namespace stemma::tier::redis {

namespace {

constexpr int kPollMs = 5;
constexpr size_t kMostWaiting = 20'000;  // Names that may wait before the next SCAN.
constexpr uint32_t kMostPasses = 4;

// Any other error may come from a cluster node; then the cluster's other nodes would be skipped.
bool means_one_server(std::string_view error) {
  for (const std::string_view words :
       {"cluster support disabled", "unknown command", "unknown subcommand"}) {
    const auto same = [](char a, char b) { return (a | 0x20) == (b | 0x20); };
    if (std::search(error.begin(), error.end(), words.begin(), words.end(), same) != error.end()) {
      return error.starts_with("ERR ");
    }
  }
  return false;
}

class Purger final : public ConnectionOwner {
 public:
  Purger(const RedisOptions& options, std::shared_ptr<TlsContext> tls, const Purge& what,
         uint64_t until_ns)
      : options_(options),
        tls_(std::move(tls)),
        what_(what),
        choice_(what),
        until_ns_(until_ns),
        wakeup_(Wakeup::make()) {}

  Purged run();

 private:
  struct Node {
    std::unique_ptr<Connection> connection;
    std::deque<Command> waiting;
    uint32_t scans = 0;  // Wanted or under way.
    bool over = false;
  };

  bool find_primaries();
  void remove_all();
  bool pass();
  void connect(const Address& address);
  bool work(const std::function<bool()>& over);
  void pump(Node& node);
  void answered(Connection& from, Command& command, const Reply& reply, TierOutcome value) override;
  void entered(Connection& connection) override { pump(nodes_[connection.node]); }
  void answered_scan(Node& node, const Command& command, const Reply& reply);
  void answered_probe(Node& node, const Command& command, const Reply& reply);
  void answered_slots(const Connection& from, const Reply& reply);
  Command scan_from(uint64_t cursor, bool old) const;
  void fail(std::string error) {
    if (purged_.error.empty()) purged_.error = std::move(error);
  }

  const RedisOptions& options_;
  const std::shared_ptr<TlsContext> tls_;
  const Purge& what_;
  PurgeChoice choice_;
  bool only_looks_ = false;
  bool has_newer_ = false;  // Some entries are of a newer version and are left alone.
  const uint64_t until_ns_;
  const std::shared_ptr<Wakeup> wakeup_;
  RedisCounters counters_;
  std::vector<Node> nodes_;  // Indexed by Connection::node.
  std::vector<Address> primaries_;
  Address asked_;
  std::string slots_refused_;  // The server's error.
  bool cluster_ = false;
  Purged& purged_ = choice_.purged;
};

Purged Purger::run() {
  if (wakeup_ == nullptr) {
    fail("the system gives no event descriptor");
    return purged_;
  }
  if (!find_primaries()) return purged_;
  if (choice_.looks_first()) {
    only_looks_ = true;
    if (!pass()) return purged_;
    only_looks_ = false;
  }
  remove_all();
  if (has_newer_) fail("entries that a newer version wrote were left as they are");
  purged_.complete = purged_.error.empty();
  return purged_;
}

// A single server is done after one pass.
void Purger::remove_all() {
  for (uint32_t i = 0; purged_.error.empty(); ++i) {
    const uint64_t before = purged_.entries;
    if (!pass()) return;
    if (!cluster_ || (i != 0 && purged_.entries == before)) return;
    if (i + 1 == kMostPasses) fail("entries still appear; the cluster may be moving its slots");
  }
}

bool Purger::find_primaries() {
  std::string problems;
  for (const Address& address : options_.place.hosts) {
    nodes_.clear();
    connect(address);
    asked_ = address;
    nodes_[0].waiting.push_back({.verb = Verb::slots, .key = {}});
    const auto is_over = [&] { return nodes_[0].over || nodes_[0].connection->closed(); };
    slots_refused_.clear();
    if (!work(is_over)) return false;
    if (nodes_[0].over && slots_refused_.empty()) return purged_.error.empty();
    const std::string& problem = nodes_[0].over ? slots_refused_ : nodes_[0].connection->problem();
    problems += (problems.empty() ? "" : "; ") + address.text() + ": " + problem;
  }
  fail(problems);
  return false;
}

void Purger::answered_slots(const Connection& from, const Reply& reply) {
  Node& node = nodes_[from.node];
  node.over = true;
  if (reply.type == Reply::Type::error) {
    if (means_one_server(reply.text)) {
      primaries_ = {asked_};
    } else {
      slots_refused_ = "it does not say whether there are more servers (CLUSTER SLOTS: " +
                       reply.text.substr(0, 80) + ")";
    }
    return;
  }
  const auto ranges = read_slots(reply, asked_.host);
  if (!ranges) return fail("the server's slot map makes no sense");
  cluster_ = true;
  uint32_t slots = 0;
  for (const SlotRange& range : *ranges) {
    slots += range.last - range.first + 1U;
    if (std::find(primaries_.begin(), primaries_.end(), range.primary) == primaries_.end()) {
      primaries_.push_back(range.primary);
    }
  }
  if (slots != kSlots) fail("some slots of the cluster are served by no node");
}

void Purger::connect(const Address& address) {
  nodes_.emplace_back();
  nodes_.back().connection = std::make_unique<Connection>(options_, address, tls_, wakeup_,
                                                          counters_, *this, monotonic_ns());
  nodes_.back().connection->node = static_cast<uint32_t>(nodes_.size() - 1);
}

Command Purger::scan_from(uint64_t cursor, bool old) const {
  Command command{.verb = Verb::scan, .old = old, .key = {}, .cursor = cursor};
  if (!what_.owner || old) return command;
  command.key.group = 1;
  auto& bytes = command.key.chain.bytes;
  for (size_t i = 0; i < 8; ++i) {
    bytes[bytes.size() - 8 + i] = static_cast<uint8_t>(*what_.owner >> (8 * i));
  }
  return command;
}

// Scans every primary from its first name to its last. Returns false if something failed.
bool Purger::pass() {
  nodes_.clear();
  nodes_.reserve(primaries_.size());
  for (const Address& address : primaries_) {
    connect(address);
    // In parallel: both together take no more of the server's turns than one.
    nodes_.back().waiting.push_back(scan_from(0, /*old=*/false));
    if (!only_looks_) nodes_.back().waiting.push_back(scan_from(0, /*old=*/true));
    nodes_.back().scans = static_cast<uint32_t>(nodes_.back().waiting.size());
  }
  const auto is_over = [&] {
    return std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.over; });
  };
  return work(is_over) && purged_.error.empty();
}

// Works until it is over. Returns false if something failed or the time ran out.
bool Purger::work(const std::function<bool()>& over) {
  std::vector<pollfd> watched;
  while (!over()) {
    if (!purged_.error.empty()) return false;
    const uint64_t now_ns = monotonic_ns();
    if (now_ns >= until_ns_) {
      fail("the time was over before all entries were looked at");
      return false;
    }
    watched.assign(1, {.fd = wakeup_->fd(), .events = POLLIN, .revents = 0});
    bool more = false;
    for (const Node& node : nodes_) {
      const Connection& connection = *node.connection;
      more = more || connection.has_more();
      if (connection.closed() || connection.fd() < 0) continue;
      const short events = connection.wants_write() ? POLLIN | POLLOUT : POLLIN;
      watched.push_back({.fd = connection.fd(), .events = events, .revents = 0});
    }
    poll(watched.data(), watched.size(), more ? 0 : kPollMs);
    wakeup_->clear();
    for (Node& node : nodes_) {
      Connection& connection = *node.connection;
      if (connection.closed()) continue;
      connection.work(monotonic_ns());
      if (connection.ready()) pump(node);
      connection.check_time(monotonic_ns());
      if (!connection.closed() || node.over) continue;
      // While looking for the primaries, another host may answer.
      if (!primaries_.empty())
        fail(primaries_[connection.node].text() + ": " + connection.problem());
    }
  }
  return true;
}

void Purger::pump(Node& node) {
  const uint64_t now_ns = monotonic_ns();
  while (!node.waiting.empty() && node.connection->has_room(node.waiting.front())) {
    node.connection->send(node.waiting.front(), now_ns);
    node.waiting.pop_front();
  }
  node.connection->flush(now_ns);
}

void Purger::answered(Connection& from, Command& command, const Reply& reply, TierOutcome) {
  Node& node = nodes_[from.node];
  if (command.verb == Verb::slots) return answered_slots(from, reply);
  // Somebody put a list or the like under one of our names.
  const bool other_type = command.verb == Verb::probe && reply.text.starts_with("WRONGTYPE");
  if (reply.type == Reply::Type::error && !other_type) {
    const bool moved = reply.text.starts_with("MOVED") || reply.text.starts_with("ASK") ||
                       reply.text.starts_with("TRYAGAIN");
    return fail(moved ? "the cluster moves slots just now; try again when that is over"
                      : "the server refuses a command: " + reply.text.substr(0, 80));
  }
  switch (command.verb) {
    case Verb::scan: answered_scan(node, command, reply); break;
    case Verb::probe: answered_probe(node, command, reply); break;
    case Verb::remove:
      if (command.old && reply.integer > 0) ++purged_.entries;
      break;
    default: break;
  }
  node.over = node.scans == 0 && node.waiting.empty() && from.idle();
}

void Purger::answered_scan(Node& node, const Command& command, const Reply& reply) {
  const bool sane = reply.type == Reply::Type::array && reply.elements.size() == 2 &&
                    reply.elements[0].type == Reply::Type::text &&
                    reply.elements[1].type == Reply::Type::array;
  uint64_t cursor = 0;
  if (sane) {
    const std::string& text = reply.elements[0].text;
    const char* const end = text.data() + text.size();
    if (std::from_chars(text.data(), end, cursor).ptr != end) return fail("SCAN made no sense");
  } else {
    return fail("SCAN made no sense");
  }
  for (const Reply& name : reply.elements[1].elements) {
    const auto key = parse_key_name(name.text, command.old ? kOldKeyPrefix : kKeyPrefix);
    if (key && command.old) {
      node.waiting.push_back({.verb = Verb::remove, .old = true, .key = *key});
    } else if (key && what_.names(*key)) {
      node.waiting.push_back({.verb = Verb::probe, .key = *key});
    }
  }
  if (cursor == 0) {
    --node.scans;
  } else if (node.waiting.size() < kMostWaiting) {
    node.waiting.push_front(scan_from(cursor, command.old));
  } else {
    node.waiting.push_back(scan_from(cursor, command.old));
  }
}

// Removes an entry that it cannot read, but not an entry that another version wrote.
void Purger::answered_probe(Node& node, const Command& command, const Reply& reply) {
  const bool unreadable = reply.type == Reply::Type::error;
  // Is it gone already?
  if (!unreadable && (reply.type != Reply::Type::text || reply.text.empty())) return;
  bool whole = false;
  if (!unreadable && reply.text.size() == kHeaderBytes) {
    const std::span<const uint8_t, kHeaderBytes> given(
        reinterpret_cast<const uint8_t*>(reply.text.data()), kHeaderBytes);
    const auto header = read_header(given);
    if (!header && header.error().code() == Errc::unsupported && !what_.is_by_key()) {
      has_newer_ = true;
      return;
    }
    if (header && only_looks_) return choice_.look(command.key, header->info);
    if (header && !choice_.takes(command.key, header->info)) return;
    whole = header.has_value();
  }
  if (only_looks_) return;
  if (!whole) ++purged_.entries;
  node.waiting.push_front({.verb = Verb::remove, .key = command.key});
}

}  // namespace

Purged purge(const RedisOptions& options, const std::shared_ptr<TlsContext>& tls, const Purge& what,
             uint64_t until_ns) try {
  return Purger(options, tls, what, until_ns).run();
} catch (const std::bad_alloc&) {
  return {.error = "there is no memory for it"};
}

}  // namespace stemma::tier::redis
