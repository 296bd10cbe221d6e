// Loop: the thread of a RedisTier and everything that only this thread touches: jobs, nodes,
// connections, the slot map.
//
// Invariant:  each item not ended has exactly one Command: in a queue, in flight, set aside for
//             later, or waiting for the slot map.
// Threading:  submit(), flush(), settle(), wait_ready(), problem(), stats(), counters() are
//             thread-safe; the rest runs on the loop's own thread. The mutex is held only briefly,
//             never during other work.
// Cost:       no thread but this one; one wakeup per submit().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "stemma/tier/redis_tier.h"
#include "tier/breaker.h"
#include "tier/counters.h"
#include "tier/redis/command.h"
#include "tier/redis/connection.h"
#include "tier/redis/slots.h"
#include "tier/redis/unsettled_puts.h"

namespace stemma::tier::redis {

class Loop final : public ConnectionOwner {
 public:
  Loop(const RedisOptions& options, const TierTraits& traits, std::shared_ptr<TlsContext> tls,
       std::shared_ptr<Wakeup> wakeup, int epoll_fd);
  ~Loop();  // Gives what is in flight a moment, then cancels all the rest.
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start();  // Throws std::system_error if there is no thread.

  void submit(const std::shared_ptr<TierBatch>& batch);
  bool flush(uint64_t until_ns);
  // Waits until the server can no longer carry out any abandoned put that the purge could take.
  // Returns why the purge cannot be complete, or an empty string.
  std::string settle(const Purge& what, uint64_t until_ns);
  bool wait_ready(uint64_t until_ns);
  std::string problem() const;
  TierStats stats() const;
  RedisCounters counters() const;

 private:
  enum Lane : uint8_t { quick = 0, bulk = 1 };
  static constexpr uint16_t kNowhere = 0xFFFF;

  struct Node {
    Node(const Address& at, const Breaker::Options& patience) : address(at), breaker(patience) {}

    Address address;
    Breaker breaker;
    std::string problem;  // Why the breaker is not closed.
    bool in_map = false;  // It has slots.
    bool seed = false;    // Named in the URL.
    bool has_failed = false;
    bool memory_known = false;  // It told its limit, or that it does not tell.
    uint64_t limit_bytes = 0;   // Of its memory; 0: none, or unknown.
    std::deque<Command> queues[2];
    std::vector<std::unique_ptr<Connection>> connections;
  };
  struct Later {
    uint64_t when_ns;
    Command command;
  };

  // ---- The thread (loop.cc) ----
  void run();
  void turn();
  int patience_ms(uint64_t now_ns) const;
  void take_inbox();
  void admit(std::shared_ptr<TierBatch> batch, uint64_t number, uint64_t now_ns);
  void check_jobs(uint64_t now_ns);
  template <class Wanted>
  void end_waiting(Wanted wanted, TierOutcome outcome);
  void end_all(TierOutcome outcome);
  void end_item(const Command& command, TierOutcome outcome);
  void finish_job(Job* job);
  bool in_flight_for_items() const;
  // Its connection is gone.
  void lose_if_put(const Command& command, bool sent) noexcept;

  // ---- Replies (replies.cc) ----
  void answered(Connection& from, Command& command, const Reply& reply, TierOutcome value) override;
  void entered(Connection& connection) override;
  void answered_error(Connection& from, Command& command, const Reply& reply);
  void next_step(Command command, Verb verb);
  void answered_slots(Connection& from, const Reply& reply);
  void answered_memory(const Connection& from, const Reply& reply);
  // Limits what the node's connections ask for at once to a small part of the server's memory.
  void limit_gets(Node& node) noexcept;
  // Counts answers to items' commands: a server that only refuses does not count as open.
  void heard(bool refused, std::string_view why);
  void redirect(Connection& from, Command command, std::string_view to, bool ask);
  void again_later(Command command, uint64_t delay_ns);
  void sweep(uint32_t node, const EntryKey& key);
  void insane(Connection& from, const Command& command);
  void remark(std::string_view word, std::string_view text);

  // ---- Nodes and the slot map (nodes.cc) ----
  uint32_t node_for(const Address& address);  // kNowhere if there are too many.
  void route(Command command);
  void enqueue(uint32_t node, const Command& command);
  void pump(uint32_t node, uint64_t now_ns);
  Connection* open(uint32_t node, Lane lane, uint64_t now_ns);
  void watch(Connection& connection);
  void reap(uint64_t now_ns);
  void settle_closed(uint32_t node, Connection& connection, uint64_t now_ns);
  void break_node(uint32_t node, const std::string& problem, uint64_t now_ns);
  void check_nodes(uint64_t now_ns);
  void read_map(uint64_t now_ns);
  void set_map(const std::vector<SlotRange>& ranges);
  void publish();
  bool all_ways_failed() const;

  const RedisOptions options_;
  const TierTraits traits_;
  const std::shared_ptr<TlsContext> tls_;
  const std::shared_ptr<Wakeup> wakeup_;
  const int epoll_fd_;

  // ---- Shared ----
  mutable base::WaitMutex mutex_;
  base::Condition changed_;
  std::deque<std::pair<uint64_t, std::shared_ptr<TierBatch>>> inbox_ STEMMA_GUARDED_BY(mutex_);
  std::set<uint64_t> open_jobs_
      STEMMA_GUARDED_BY(mutex_);  // Numbers of submitted batches not ended.
  uint64_t next_number_ STEMMA_GUARDED_BY(mutex_) = 1;
  size_t items_ STEMMA_GUARDED_BY(mutex_) = 0;  // Not ended.
  bool stop_ STEMMA_GUARDED_BY(mutex_) = false;
  bool ready_ STEMMA_GUARDED_BY(mutex_) = false, gave_up_ STEMMA_GUARDED_BY(mutex_) = false;
  std::string problem_ STEMMA_GUARDED_BY(mutex_);
  uint64_t room_bytes_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::string refusal_
      STEMMA_GUARDED_BY(mutex_);  // Why the server refuses all commands; empty: it does not.

  BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
  Counters ended_;           // Needs no lock.
  UnsettledPuts unsettled_;  // Has a lock of its own.

  // ---- The thread's own; others read its counters, word by word ----
  RedisCounters counters_;
  std::map<uint64_t, std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::array<uint16_t, kSlots> slots_;
  bool map_known_ = false;
  bool cluster_ = false;
  bool map_wanted_ = true;
  const Connection* map_asked_ = nullptr;
  uint64_t map_next_ns_ = 0;
  uint32_t map_turn_ = 0;
  std::deque<Command> unrouted_;
  uint64_t unrouted_since_ns_ = 0;
  std::vector<Later> later_;
  std::vector<std::unique_ptr<Connection>>
      gone_;  // Closed in this turn; events may still refer to them.
  std::set<std::string, std::less<>> remarks_;
  uint32_t refusals_ = 0;  // In a row.
  bool stopping_ = false;
  uint64_t seed_;
  std::thread thread_;
};

}  // namespace stemma::tier::redis
