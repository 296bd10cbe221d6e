// Nodes, their connections and breakers, and the slot map.
#include <sys/epoll.h>

#include "stemma/log.h"
#include "tier/redis/key_name.h"
#include "tier/redis/loop.h"
#include "tier/wait_until.h"

namespace stemma::tier::redis {

namespace {

constexpr size_t kMostNodes = 1'024;
constexpr uint8_t kMostLosses = 2;
// Pause between two readings of the slot map.
constexpr uint64_t kMapPauseNs = 100'000'000;
// The pause while a node of the map is down: another may have taken its place.
constexpr uint64_t kMapWatchNs = 500'000'000;
// Payloads get five eighths of a server's limit: its allocator rounds values up to its next size,
// up to a quarter more, and the server needs memory for itself.
constexpr uint64_t kRoomParts = 8;
constexpr uint64_t kRoomOfParts = 5;
// The gets in flight ask for one part in this many of a server's memory.
constexpr uint64_t kGetParts = 128;

}  // namespace

uint32_t Loop::node_for(const Address& address) {
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->address == address) return i;
  }
  if (nodes_.size() == kMostNodes) return kNowhere;
  seed_ = seed_ * 6'364'136'223'846'793'005U + 1'442'695'040'888'963'407U;
  const Breaker::Options patience{
      .first_ns = options_.probe_first_ns, .longest_ns = options_.probe_longest_ns, .seed = seed_};
  nodes_.push_back(std::make_unique<Node>(address, patience));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

bool Loop::all_ways_failed() const {
  for (const auto& node : nodes_) {
    if ((map_known_ ? node->in_map : node->seed) && node->breaker.closed()) return false;
  }
  return true;
}

void Loop::route(Command command) {
  if (!map_known_) {
    if (all_ways_failed()) return end_item(command, TierOutcome::failed);
    if (unrouted_.empty()) unrouted_since_ns_ = monotonic_ns();
    unrouted_.push_back(command);
    return;
  }
  const uint32_t node = slots_[cluster_ ? hash_slot(KeyName(command.key).text()) : 0];
  if (node == kNowhere) {
    map_wanted_ = true;
    return end_item(command, TierOutcome::failed);
  }
  enqueue(node, command);
}

void Loop::enqueue(uint32_t node, const Command& command) {
  if (!nodes_[node]->breaker.closed()) return end_item(command, TierOutcome::failed);
  nodes_[node]->queues[is_bulk(command.verb) ? bulk : quick].push_back(command);
}

Connection* Loop::open(uint32_t index, Lane lane, uint64_t now_ns) {
  Node& node = *nodes_[index];
  auto connection =
      std::make_unique<Connection>(options_, node.address, tls_, wakeup_, counters_, *this, now_ns);
  connection->node = index;
  connection->bulk_lane = lane == bulk;
  node.connections.push_back(std::move(connection));
  limit_gets(node);
  Connection* opened = node.connections.back().get();
  // On the same machine it is already connected.
  opened->work(now_ns);
  return opened;
}

// A server counts unsent answers as memory, and evicts entries to make room for them.
void Loop::limit_gets(Node& node) noexcept {
  if (node.limit_bytes == 0) return;
  for (const auto& connection : node.connections)
    connection->limit_gets(node.limit_bytes / kGetParts);
}

void Loop::watch(Connection& connection) {
  if (connection.closed()) return;
  const int fd = connection.fd();
  const uint32_t events = EPOLLIN | (connection.wants_write() ? EPOLLOUT : 0U);
  if (fd == connection.watched_fd && connection.sockets() == connection.watched_socket &&
      events == connection.watched_events) {
    return;
  }
  epoll_event event{};
  event.events = events;
  event.data.ptr = &connection;
  // A closed descriptor is no longer watched, even if a new one has the same number.
  if (fd >= 0 && epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) != 0) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event);
  }
  connection.watched_fd = fd;
  connection.watched_socket = connection.sockets();
  connection.watched_events = events;
}

// Sends queued commands, as far as there is room.
void Loop::pump(uint32_t index, uint64_t now_ns) {
  Node& node = *nodes_[index];
  if (!node.breaker.closed()) return;
  for (const Lane lane : {quick, bulk}) {
    std::deque<Command>& queue = node.queues[lane];
    while (!queue.empty()) {
      const Command command = queue.front();
      if (command.job != nullptr) {
        const TierOutcome verdict = command.job->batch->verdict(now_ns);
        if (verdict != TierOutcome::pending) {
          queue.pop_front();
          end_item(command, verdict);
          continue;
        }
      }
      Connection* chosen = nullptr;
      uint32_t in_lane = 0;
      bool opening = false;
      for (const auto& connection : node.connections) {
        if (connection->closed() || connection->bulk_lane != (lane == bulk)) continue;
        ++in_lane;
        opening = opening || !connection->ready();
        if (chosen == nullptr && connection->ready() && connection->has_room(command)) {
          chosen = connection.get();
        }
      }
      if (chosen == nullptr) {
        const uint32_t most = lane == bulk ? std::max(options_.bulk_connections, 1U) : 1U;
        if (!opening && in_lane < most) open(index, lane, now_ns);
        break;
      }
      queue.pop_front();
      chosen->send(command, now_ns);
      if (command.verb == Verb::set) chosen->flush(now_ns);
    }
    for (const auto& connection : node.connections) {
      if (connection->ready()) connection->flush(now_ns);
    }
  }
}

// Takes closed connections out of their nodes, and retries or ends what was in flight on them.
void Loop::reap(uint64_t now_ns) {
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    // Breaking a node closes more of its connections.
    for (bool found = true; found;) {
      found = false;
      auto& connections = nodes_[index]->connections;
      for (size_t i = 0; i < connections.size(); ++i) {
        if (!connections[i]->closed()) continue;
        std::unique_ptr<Connection> closed = std::move(connections[i]);
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
        settle_closed(index, *closed, now_ns);
        gone_.push_back(std::move(closed));
        found = true;
        break;
      }
    }
  }
}

void Loop::settle_closed(uint32_t index, Connection& connection, uint64_t now_ns) {
  Node& node = *nodes_[index];
  const bool owes_map = map_asked_ == &connection;
  if (owes_map) map_asked_ = nullptr;
  if (connection.watched_fd >= 0) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, connection.watched_fd, nullptr);
  }
  const Ending ending = connection.ending();
  const bool node_is_bad = ending == Ending::broken || ending == Ending::stalled ||
                           ending == Ending::insane || (ending == Ending::lost && owes_map);
  if (ending != Ending::given_up) count(counters_.drops);
  // The breaker first: when an item ends, its caller may ask the same again at once.
  if (node_is_bad) break_node(index, connection.problem(), now_ns);
  std::vector<Command> again;
  connection.take_flights([&](Command command, bool sent) {
    lose_if_put(command, sent);
    if (command.job == nullptr) return;
    if (ending == Ending::lost) ++command.tries;
    if (!node.breaker.closed() || command.tries > kMostLosses || stopping_) {
      return end_item(command, stopping_ ? TierOutcome::cancelled : TierOutcome::failed);
    }
    again.push_back(command);
  });
  for (auto command = again.rbegin(); command != again.rend(); ++command) {
    node.queues[is_bulk(command->verb) ? bulk : quick].push_front(*command);
  }
}

void Loop::break_node(uint32_t index, const std::string& problem, uint64_t now_ns) {
  Node& node = *nodes_[index];
  const bool news = node.breaker.fail(now_ns);
  const bool changed = news || node.problem != problem;
  node.problem = problem;
  node.has_failed = true;
  map_wanted_ = map_wanted_ || map_known_;
  if (news) count(counters_.breaks);
  if (changed) {
    log(LogLevel::warning, "redis: " + node.address.text() + ": " + problem +
                               "; it is not asked until it answers again");
  }
  for (const auto& other : node.connections) {
    other->close(Ending::given_up, "another connection to this node failed");
  }
  publish();
  std::deque<Command> waiting[2];
  waiting[quick].swap(node.queues[quick]);
  waiting[bulk].swap(node.queues[bulk]);
  for (const auto& queue : waiting) {
    for (const Command& command : queue) {
      if (command.job != nullptr) end_item(command, TierOutcome::failed);
    }
  }
  if (!map_known_ && all_ways_failed()) {
    std::deque<Command> unrouted;
    unrouted.swap(unrouted_);
    for (const Command& command : unrouted) end_item(command, TierOutcome::failed);
  }
}

// Probes nodes whose breakers are open.
void Loop::check_nodes(uint64_t now_ns) {
  bool some_broken = false;
  const bool none_left = all_ways_failed();
  for (uint32_t index = 0; index < nodes_.size(); ++index) {
    Node& node = *nodes_[index];
    if (node.in_map && !node.breaker.closed()) some_broken = true;
    // A node that left the cluster is not probed, unless no other node can report the map.
    const bool needed = node.in_map || (node.seed && (!map_known_ || none_left));
    if (!needed || !node.breaker.due(now_ns)) continue;
    node.breaker.probe();
    open(index, quick, now_ns);
  }
  if (cluster_ && some_broken && now_ns >= map_next_ns_ + kMapWatchNs) map_wanted_ = true;
}

void Loop::read_map(uint64_t now_ns) {
  if (!map_wanted_ || map_asked_ != nullptr || now_ns < map_next_ns_ || stopping_) return;
  bool asked_for_connection = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto index = static_cast<uint32_t>((map_turn_ + i) % nodes_.size());
    Node& node = *nodes_[index];
    if (!node.breaker.closed() || !(node.in_map || node.seed)) continue;
    Connection* usable = nullptr;
    bool has_quick = false;
    for (const auto& connection : node.connections) {
      if (connection->closed() || connection->bulk_lane) continue;
      has_quick = true;
      if (connection->ready()) usable = connection.get();
    }
    if (!has_quick) {
      // At the start, all hosts are tried at once; later, one after the other is enough.
      if (!map_known_ || !asked_for_connection) open(index, quick, now_ns);
      asked_for_connection = true;
      continue;
    }
    if (usable == nullptr) continue;
    Command command;
    command.verb = Verb::slots;
    if (!usable->has_room(command)) continue;
    usable->send(command, now_ns);
    usable->flush(now_ns);
    map_asked_ = usable;
    map_next_ns_ = now_ns + kMapPauseNs;
    map_turn_ = index + 1;
    return;
  }
}

void Loop::set_map(const std::vector<SlotRange>& ranges) {
  for (const auto& node : nodes_) node->in_map = false;
  slots_.fill(kNowhere);
  for (const SlotRange& range : ranges) {
    const uint32_t node = node_for(range.primary);
    if (node == kNowhere) continue;
    nodes_[node]->in_map = true;
    std::fill(slots_.begin() + range.first, slots_.begin() + range.last + 1,
              static_cast<uint16_t>(node));
  }
  map_known_ = true;
  publish();
}

// For other threads: whether any node can be asked, and the problem if not.
void Loop::publish() {
  if (map_known_) {
    std::deque<Command> unrouted;
    unrouted.swap(unrouted_);
    for (const Command& command : unrouted) route(command);
  }
  std::string problem;
  bool any_failed = true;
  bool limited = true;
  uint64_t room = 0;
  for (const auto& node : nodes_) {
    const bool counts = map_known_ ? node->in_map : node->seed;
    if (!counts) continue;
    limited = limited && node->limit_bytes != 0;
    room += node->limit_bytes / kRoomParts * kRoomOfParts;
    if (!node->has_failed) any_failed = false;
    if (node->problem.empty()) continue;
    if (!problem.empty()) problem += '\n';
    problem += node->address.text() + ": " + node->problem;
  }
  const bool ways = !all_ways_failed();
  {
    const base::Lock lock(mutex_);
    problem_ = std::move(problem);
    room_bytes_ = limited ? room : 0;
    ready_ = map_known_ && ways;
    gave_up_ = !ready_ && any_failed;
  }
  changed_.notify_all();
}

}  // namespace stemma::tier::redis
