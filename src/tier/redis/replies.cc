// How replies are handled.
#include <array>
#include <charconv>
#include <cstring>
#include <system_error>

#include "stemma/log.h"
#include "tier/entry.h"
#include "tier/redis/key_name.h"
#include "tier/redis/loop.h"
#include "tier/wait_until.h"

namespace stemma::tier::redis {

namespace {

constexpr uint8_t kMostHops = 5;
constexpr uint8_t kMostTries = 3;
constexpr uint64_t kTryAgainNs = 20'000'000;
constexpr uint64_t kReadOnlyNs = 100'000'000;
constexpr size_t kMostRemarks = 32;
// After this many refusals in a row, the server is taken to refuse everything.
constexpr uint32_t kManyRefusals = 16;

// Whether a value with this head is what a put would write. Its payload is trusted until a get
// checks it: a key names exactly one content.
bool describes(std::string_view head, const TierItem& item) {
  if (head.size() != kHeaderBytes) return false;
  std::array<uint8_t, kHeaderBytes> bytes;
  std::memcpy(bytes.data(), head.data(), bytes.size());
  const Result<EntryHeader> header = read_header(bytes);
  return header && header->key == item.key && header->info == item.info;
}

// The value of a line "name:value" of INFO; empty if it is missing.
std::string_view info_field(std::string_view info, std::string_view name) {
  for (size_t at = 0; at < info.size();) {
    const size_t end = std::min(info.find("\r\n", at), info.size());
    const std::string_view line = info.substr(at, end - at);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      return line.substr(name.size() + 1);
    }
    at = end + 2;
  }
  return {};
}

// Printable characters of a server's message, truncated.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

std::string_view first_word(std::string_view text) { return text.substr(0, text.find(' ')); }

}  // namespace

void Loop::entered(Connection& connection) {
  Node& node = *nodes_[connection.node];
  if (!node.breaker.closed()) {
    node.breaker.succeed();
    log(LogLevel::info, "redis: " + node.address.text() + " answers again");
    // It may have come back in another role.
    map_wanted_ = true;
  }
  node.problem.clear();
  node.has_failed = false;
  if (!node.memory_known) {
    // Sent on every connection until there is an answer: a connection that breaks loses the
    // question.
    Command command;
    command.verb = Verb::memory;
    node.queues[quick].push_back(command);
  }
  publish();
}

// A cache needs a server with a memory limit and eviction. Warns the operator now, not when the
// machine is out of memory or the server refuses writes.
void Loop::answered_memory(const Connection& from, const Reply& reply) {
  Node& node = *nodes_[from.node];
  if (node.memory_known) return;
  // LOADING and similar errors: the next connection asks again. ERR and NOPERM: the server does not
  // tell, or does not tell us.
  const std::string_view word = first_word(reply.text);
  if (reply.type == Reply::Type::error && word != "ERR" && word != "NOPERM") return;
  node.memory_known = true;
  if (reply.type != Reply::Type::text) return;
  const std::string_view limit = info_field(reply.text, "maxmemory");
  const std::string_view policy = info_field(reply.text, "maxmemory_policy");
  if (limit.empty() || policy.empty()) return;
  if (std::from_chars(limit.data(), limit.data() + limit.size(), node.limit_bytes).ec !=
      std::errc())
    node.limit_bytes = 0;
  limit_gets(node);
  publish();
  const std::string who = "redis: " + node.address.text();
  if (limit == "0") {
    log(LogLevel::warning,
        who +
            " has no maxmemory: entries fill it until its machine has no memory left. "
            "Set maxmemory, and maxmemory-policy allkeys-lru");
  } else if (policy == "noeviction" ||
             (policy.starts_with("volatile") && options_.place.ttl_s == 0)) {
    log(LogLevel::warning, who + " refuses writes when its maxmemory is full (maxmemory-policy " +
                               shown(policy) + "). Set maxmemory-policy allkeys-lru");
  } else {
    log(LogLevel::info,
        who + " keeps " + shown(limit) + " bytes, maxmemory-policy " + shown(policy));
  }
}

void Loop::heard(bool refused, std::string_view why) {
  const bool all_before = refusals_ >= kManyRefusals;
  refusals_ = refused ? std::min(refusals_ + 1, kManyRefusals) : 0;
  const bool all_now = refusals_ >= kManyRefusals;
  if (all_before == all_now) return;
  const base::Lock lock(mutex_);
  refusal_ = all_now ? "the server refuses every command: " + shown(why) : "";
}

// No server gives this kind of reply to this command: the two are out of step.
void Loop::insane(Connection& from, const Command& command) {
  if (command.job != nullptr) end_item(command, TierOutcome::failed);
  from.close(Ending::insane, "the server's reply does not fit what was asked");
}

void Loop::answered(Connection& from, Command& command, const Reply& reply, TierOutcome value) {
  if (command.verb == Verb::slots) return answered_slots(from, reply);
  if (command.verb == Verb::memory) return answered_memory(from, reply);
  if (command.verb == Verb::get && value == TierOutcome::corrupt && command.job != nullptr) {
    // Before it ends, so that the next request finds it gone.
    sweep(from.node, command.key);
  }
  if (command.job == nullptr) {  // Its item has ended, or it never had one.
    if (command.verb == Verb::set) unsettled_.settle(command.key);
    return;
  }
  if (reply.type == Reply::Type::error) return answered_error(from, command, reply);
  heard(false, {});
  const bool integer = reply.type == Reply::Type::integer;
  switch (command.verb) {
    case Verb::get:
      if (value != TierOutcome::pending) return end_item(command, value);
      if (reply.type == Reply::Type::null) return end_item(command, TierOutcome::absent);
      break;
    case Verb::contains:
      if (!integer) break;
      return end_item(command,
                      reply.integer > kHeaderBytes ? TierOutcome::done : TierOutcome::absent);
    case Verb::remove:
    case Verb::touch:
      if (!integer) break;
      return end_item(command, reply.integer > 0 ? TierOutcome::done : TierOutcome::absent);
    case Verb::set:
      if (!reply.is_text("OK")) break;
      return end_item(command, TierOutcome::done);
    case Verb::probe: {
      if (reply.type != Reply::Type::text) break;
      const bool there = describes(reply.text, command.of_item());
      if (there && options_.place.ttl_s == 0) return end_item(command, TierOutcome::done);
      return next_step(command, there ? Verb::renew : Verb::set);
    }
    case Verb::renew:
      if (!integer) break;
      if (reply.integer == 1) return end_item(command, TierOutcome::done);
      if (command.job->batch->op() == TierOp::touch) return end_item(command, TierOutcome::absent);
      return next_step(command, Verb::set);
    default: return;
  }
  insane(from, command);
}

void Loop::next_step(Command command, Verb verb) {
  if (stopping_) return end_item(command, TierOutcome::cancelled);
  command.verb = verb;
  command.asking = false;
  route(command);
}

void Loop::answered_error(Connection& from, Command& command, const Reply& reply) {
  const std::string_view text = reply.text;
  const std::string_view word = first_word(text);
  command.asking = false;
  if (word == "MOVED" || word == "ASK") {
    // "MOVED 3999 host:port"
    const size_t second = text.find(' ', word.size() + 1);
    if (second == std::string_view::npos) return insane(from, command);
    return redirect(from, command, text.substr(second + 1), word == "ASK");
  }
  if (word == "TRYAGAIN") return again_later(command, kTryAgainNs);
  if (word == "READONLY") {
    // It was a primary when the map was read.
    map_wanted_ = true;
    if (command.tries == kMostTries) remark(word, text);
    return again_later(command, kReadOnlyNs);
  }
  if (word == "WRONGTYPE") {
    switch (command.verb) {
      case Verb::probe: return next_step(command, Verb::set);
      case Verb::contains: return end_item(command, TierOutcome::absent);
      case Verb::get: sweep(from.node, command.key); return end_item(command, TierOutcome::corrupt);
      default: return end_item(command, TierOutcome::failed);
    }
  }
  if (word == "OOM") {
    remark(word, text);
    return end_item(command,
                    command.verb == Verb::set ? TierOutcome::refused : TierOutcome::failed);
  }
  if (word == "CLUSTERDOWN" || word == "MASTERDOWN") {
    map_wanted_ = true;
    return end_item(command, TierOutcome::failed);
  }
  // A user without the right to TOUCH can still use the tier; remark() logs it once.
  if (command.job->batch->op() != TierOp::touch) heard(true, text);
  end_item(command, TierOutcome::failed);
  if (word == "LOADING") {
    return from.close(Ending::broken, "the server is still loading its data");
  }
  if (word == "NOAUTH" || word == "WRONGPASS") {
    return from.close(Ending::broken, "the server wants a password");
  }
  remark(word, text);
}

// Logs each reason for which a server refuses commands once.
void Loop::remark(std::string_view word, std::string_view text) {
  if (remarks_.size() >= kMostRemarks || remarks_.contains(word)) return;
  remarks_.emplace(word);
  log(LogLevel::warning, "redis: the server refuses a command: " + shown(text));
}

void Loop::redirect(Connection& from, Command command, std::string_view to, bool ask) {
  const auto address = parse_endpoint(to, nodes_[from.node]->address.host);
  if (!address) return insane(from, command);
  if (command.hops == kMostHops) return end_item(command, TierOutcome::failed);
  const uint32_t node = node_for(*address);
  if (node == kNowhere) return end_item(command, TierOutcome::failed);
  ++command.hops;
  count(counters_.redirects);
  cluster_ = true;
  if (!ask) {
    const KeyName name(command.key);
    slots_[hash_slot(name.text())] = static_cast<uint16_t>(node);
    nodes_[node]->in_map = true;
    map_wanted_ = true;
  }
  command.asking = ask;
  if (stopping_) return end_item(command, TierOutcome::cancelled);
  enqueue(node, command);
}

void Loop::again_later(Command command, uint64_t delay_ns) {
  if (command.tries == kMostTries || stopping_) return end_item(command, TierOutcome::failed);
  ++command.tries;
  later_.push_back({monotonic_ns() + delay_ns, command});
}

void Loop::sweep(uint32_t node, const EntryKey& key) {
  Command command;
  command.verb = Verb::sweep;
  command.key = key;
  nodes_[node]->queues[quick].push_back(command);
}

void Loop::answered_slots(Connection& from, const Reply& reply) {
  map_asked_ = nullptr;
  if (reply.type == Reply::Type::error) {
    const std::string_view word = first_word(reply.text);
    if (word != "ERR" && word != "NOPERM") return;  // LOADING and similar errors: asked again.
    // A single server, or one that does not tell: redirections are enough.
    map_wanted_ = false;
    if (!cluster_) {
      const bool news = !map_known_;
      slots_.fill(static_cast<uint16_t>(from.node));
      for (const auto& node : nodes_) node->in_map = false;
      nodes_[from.node]->in_map = true;
      map_known_ = true;
      if (news && nodes_.size() > 1) {
        log(LogLevel::warning, "redis: several hosts were given, but they are no cluster; only " +
                                   nodes_[from.node]->address.text() + " is used");
      }
    }
    return publish();
  }
  const auto ranges = read_slots(reply, nodes_[from.node]->address.host);
  if (!ranges) return from.close(Ending::insane, "the server's slot map makes no sense");
  cluster_ = true;
  count(counters_.map_reads);
  // A cluster that is still forming has holes; redirections and the next reading fill them.
  map_wanted_ = ranges->empty();
  set_map(*ranges);
}

}  // namespace stemma::tier::redis
