#include "tier/redis/loop.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <csignal>
#include <new>

#include "base/relaxed.h"
#include "stemma/log.h"
#include "tier/entry.h"
#include "tier/wait_until.h"

namespace stemma::tier::redis {

namespace {

// How often jobs are checked for deadlines and cancellation.
constexpr int kTickMs = 5;
constexpr int kIdleMs = 1'000;
// Time for answers to commands in flight when the tier is destroyed.
constexpr uint64_t kFarewellNs = 250'000'000;

}  // namespace

Loop::Loop(const RedisOptions& options, const TierTraits& traits, std::shared_ptr<TlsContext> tls,
           std::shared_ptr<Wakeup> wakeup, int epoll_fd)
    : options_(options),
      traits_(traits),
      tls_(std::move(tls)),
      wakeup_(std::move(wakeup)),
      epoll_fd_(epoll_fd),
      unsettled_(options.settle_ns),
      seed_(options.seed != 0 ? options.seed : monotonic_ns() ^ 0x5EED'0000U) {
  slots_.fill(kNowhere);
  for (const Address& address : options_.place.hosts) {
    const uint32_t node = node_for(address);
    if (node != kNowhere) nodes_[node]->seed = true;
  }
}

Loop::~Loop() {
  {
    const base::Lock lock(mutex_);
    stop_ = true;
  }
  wakeup_->wake();
  if (thread_.joinable()) thread_.join();
  close(epoll_fd_);
}

void Loop::start() {
  thread_ = std::thread([this] { run(); });
}

void Loop::submit(const std::shared_ptr<TierBatch>& batch) {
  const size_t items = batch->items().size();
  if (items == 0) return;  // It has no items, so it is already finished.
  bool taken = false;
  try {
    const base::Lock lock(mutex_);
    if (!stop_ && items_ + items <= options_.most_items) {
      open_jobs_.insert(next_number_);
      try {
        inbox_.emplace_back(next_number_, batch);
        taken = true;
        items_ += items;
      } catch (const std::bad_alloc&) {
        open_jobs_.erase(next_number_);
      }
      ++next_number_;
    }
  } catch (const std::bad_alloc&) {
    taken = false;
  }
  if (taken) return wakeup_->wake();
  for (size_t i = 0; i < items; ++i) {
    ended_.count(batch->op(), TierOutcome::failed, 0);
    batch->end(i, TierOutcome::failed);
  }
}

bool Loop::flush(uint64_t until_ns) {
  base::Lock lock(mutex_);
  const uint64_t before = next_number_;
  const auto ended = [&]() STEMMA_REQUIRES(mutex_) {
    return open_jobs_.empty() || *open_jobs_.begin() >= before;
  };
  return tier::wait_until(changed_, lock, until_ns, ended);
}

std::string Loop::settle(const Purge& what, uint64_t until_ns) {
  return unsettled_.wait(what, until_ns);
}

void Loop::lose_if_put(const Command& command, bool sent) noexcept {
  if (command.verb == Verb::set && sent) {
    unsettled_.lose(command.key, command.job == nullptr, monotonic_ns());
  }
}

bool Loop::wait_ready(uint64_t until_ns) {
  base::Lock lock(mutex_);
  tier::wait_until(changed_, lock, until_ns,
                   [&]() STEMMA_REQUIRES(mutex_) { return ready_ || gave_up_; });
  return ready_;
}

std::string Loop::problem() const {
  const base::Lock lock(mutex_);
  if (refusal_.empty()) return problem_;
  return problem_ + (problem_.empty() ? "" : "\n") + refusal_;
}

TierStats Loop::stats() const {
  TierStats out;
  ended_.read(out);
  const uint64_t now_ns = monotonic_ns();
  const base::Lock lock(mutex_);
  out.read_ns = reading_.total_ns(now_ns);
  out.write_ns = writing_.total_ns(now_ns);
  out.reachable = (ready_ || !gave_up_) && refusal_.empty();
  out.room_bytes = room_bytes_;
  return out;
}

RedisCounters Loop::counters() const {
  RedisCounters out;
  for (const auto field :
       {&RedisCounters::connects, &RedisCounters::drops, &RedisCounters::breaks,
        &RedisCounters::redirects, &RedisCounters::map_reads, &RedisCounters::commands,
        &RedisCounters::round_trips, &RedisCounters::sent_bytes, &RedisCounters::received_bytes}) {
    out.*field = base::load_relaxed(counters_.*field);
  }
  return out;
}

void Loop::run() {
  // Blocks all signals: they belong to the program, and SIGPIPE from a TLS socket is of no use.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  pthread_setname_np(pthread_self(), "stemma-redis");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, wakeup_->fd(), &event);

  uint64_t farewell_ns = 0;
  for (;;) {
    try {
      turn();
    } catch (const std::bad_alloc&) {
      log(LogLevel::error, "redis: no memory; everything that was under way has failed");
      end_all(TierOutcome::failed);
    }
    bool stop;
    {
      const base::Lock lock(mutex_);
      stop = stop_;
    }
    if (!stop) continue;
    const uint64_t now_ns = monotonic_ns();
    if (!stopping_) {
      stopping_ = true;
      farewell_ns = now_ns + kFarewellNs;
      end_waiting([](const Command&) { return true; }, TierOutcome::cancelled);
    }
    if (!in_flight_for_items() || now_ns >= farewell_ns) break;
  }
  take_inbox();
  end_all(TierOutcome::cancelled);
}

void Loop::turn() {
  epoll_event events[64];
  const int happened = epoll_wait(epoll_fd_, events, 64, patience_ms(monotonic_ns()));
  uint64_t now_ns = monotonic_ns();
  for (int i = 0; i < happened; ++i) {
    auto* connection = static_cast<Connection*>(events[i].data.ptr);
    if (connection == nullptr) {
      wakeup_->clear();
      // Perhaps a host's address was resolved.
      for (size_t n = 0; n < nodes_.size(); ++n) {
        for (const auto& other : nodes_[n]->connections) {
          if (other->fd() < 0 && !other->closed()) other->work(now_ns);
        }
      }
    } else if (!connection->closed()) {
      connection->work(now_ns);
    }
  }
  // Only after the wakeup was cleared: a batch that arrives in between wakes again.
  take_inbox();
  now_ns = monotonic_ns();
  // By index: replies may add new nodes.
  for (size_t n = 0; n < nodes_.size(); ++n) {
    for (const auto& connection : nodes_[n]->connections) {
      if (connection->has_more()) connection->work(now_ns);
      connection->check_time(now_ns);
    }
  }
  reap(now_ns);
  check_jobs(now_ns);
  check_nodes(now_ns);
  read_map(now_ns);
  for (uint32_t node = 0; node < nodes_.size(); ++node) pump(node, now_ns);
  reap(now_ns);
  for (const auto& node : nodes_) {
    for (const auto& connection : node->connections) watch(*connection);
  }
  gone_.clear();
}

int Loop::patience_ms(uint64_t now_ns) const {
  uint64_t wait_ns = uint64_t{kIdleMs} * 1'000'000;
  bool busy = !jobs_.empty() || stopping_;
  for (const auto& node : nodes_) {
    if (node->breaker.open()) {
      const uint64_t at = node->breaker.probe_ns();
      wait_ns = std::min(wait_ns, at > now_ns ? at - now_ns : 0);
    }
    for (const auto& connection : node->connections) {
      if (connection->has_more()) return 0;
      busy = busy || !connection->ready() || !connection->idle();
    }
  }
  if (map_wanted_ && map_asked_ == nullptr && !all_ways_failed()) busy = true;
  return busy ? kTickMs : static_cast<int>(wait_ns / 1'000'000) + 1;
}

void Loop::take_inbox() {
  decltype(inbox_) taken;
  {
    const base::Lock lock(mutex_);
    taken.swap(inbox_);
  }
  // Read the clock afterwards: a deadline that had passed at submission must count as passed.
  const uint64_t now_ns = monotonic_ns();
  for (auto& [number, batch] : taken) admit(std::move(batch), number, now_ns);
}

void Loop::admit(std::shared_ptr<TierBatch> batch, uint64_t number, uint64_t now_ns) {
  auto owned = std::make_unique<Job>();
  Job* job = owned.get();
  job->batch = std::move(batch);
  job->number = number;
  const std::span<TierItem> items = job->batch->items();
  job->left = items.size();
  jobs_.emplace(number, std::move(owned));
  const TierOp op = job->batch->op();
  if (op == TierOp::get || op == TierOp::put) {
    const base::Lock lock(mutex_);
    (op == TierOp::put ? writing_ : reading_).begin(now_ns);
  }
  TierOutcome verdict = job->batch->verdict(now_ns);
  if (verdict == TierOutcome::pending && stopping_) verdict = TierOutcome::cancelled;
  // Ending the last item may free the job: do not touch it afterwards.
  for (uint32_t i = 0, count = static_cast<uint32_t>(items.size()); i < count; ++i) {
    Command command;
    command.job = job;
    command.item = i;
    command.key = items[i].key;
    items[i].outcome = TierOutcome::pending;
    switch (op) {
      case TierOp::put: command.verb = Verb::probe; break;
      case TierOp::get: command.verb = Verb::get; break;
      case TierOp::contains: command.verb = Verb::contains; break;
      case TierOp::remove: command.verb = Verb::remove; break;
      case TierOp::touch:
        command.verb = options_.place.ttl_s == 0 ? Verb::touch : Verb::renew;
        break;
    }
    TierOutcome outcome = verdict;
    if (outcome == TierOutcome::pending && op == TierOp::put) {
      outcome = check_put(items[i], traits_);
      // Words come on top; an entry with more words than payload is not what this tier is for.
      if (uint64_t{items[i].info.words} * 4 > traits_.max_entry_bytes)
        outcome = TierOutcome::refused;
    }
    if (outcome == TierOutcome::pending) {
      route(command);
    } else {
      end_item(command, outcome);
    }
  }
}

bool Loop::in_flight_for_items() const {
  for (const auto& node : nodes_) {
    for (const auto& connection : node->connections) {
      if (!connection->idle()) return !jobs_.empty();
    }
  }
  return false;
}

template <class Wanted>
void Loop::end_waiting(Wanted wanted, TierOutcome outcome) {
  std::vector<Command> ending;
  const auto sift = [&](std::deque<Command>& queue) {
    std::erase_if(queue, [&](const Command& command) {
      if (command.job == nullptr || !wanted(command)) return false;
      ending.push_back(command);
      return true;
    });
  };
  for (const auto& node : nodes_) {
    sift(node->queues[quick]);
    sift(node->queues[bulk]);
  }
  sift(unrouted_);
  std::erase_if(later_, [&](const Later& later) {
    if (!wanted(later.command)) return false;
    ending.push_back(later.command);
    return true;
  });
  for (const Command& command : ending) end_item(command, outcome);
}

// Checks deadlines and cancellation.
void Loop::check_jobs(uint64_t now_ns) {
  std::vector<Job*> over;
  for (const auto& [number, job] : jobs_) {
    if (job->batch->verdict(now_ns) != TierOutcome::pending) over.push_back(job.get());
  }
  for (Job* job : over) {
    const uint64_t number = job->number;
    const TierOutcome verdict = job->batch->verdict(now_ns);
    end_waiting([&](const Command& command) { return command.job == job; }, verdict);
    if (verdict != TierOutcome::late) continue;  // Commands already sent may still complete.
    for (const auto& node : nodes_) {
      for (const auto& connection : node->connections) {
        if (!jobs_.contains(number)) break;
        if (connection->closed()) continue;
        connection->cut_loose(job, [&](const Command& command, bool sent) {
          if (command.verb == Verb::set && sent) unsettled_.set_adrift(command.key);
          end_item(command, TierOutcome::late);
        });
      }
    }
  }
  // A host that accepts the connection but does not report the slot map is of no use.
  if (!unrouted_.empty() && now_ns >= unrouted_since_ns_ + 2 * options_.stall_ns) {
    std::deque<Command> unrouted;
    unrouted.swap(unrouted_);
    for (const Command& command : unrouted) end_item(command, TierOutcome::failed);
  }
  std::vector<Command> due;
  std::erase_if(later_, [&](const Later& later) {
    if (later.when_ns > now_ns) return false;
    due.push_back(later.command);
    return true;
  });
  for (const Command& command : due) route(command);
}

void Loop::end_item(const Command& command, TierOutcome outcome) {
  Job* job = command.job;
  TierBatch& batch = *job->batch;
  const TierItem& item = batch.items()[command.item];
  // Count it before it ends, so that a waiter sees it counted.
  const bool written = batch.op() != TierOp::put || command.verb == Verb::set;
  ended_.count(batch.op(), outcome, written ? item.info.bytes : 0);
  if (outcome == TierOutcome::done && !written) ended_.count_already_there();
  const bool last = --job->left == 0;
  batch.end(command.item, outcome);
  if (last) finish_job(job);
}

void Loop::finish_job(Job* job) {
  const TierOp op = job->batch->op();
  const uint64_t number = job->number;
  const size_t items = job->batch->items().size();
  jobs_.erase(number);
  {
    const base::Lock lock(mutex_);
    if (op == TierOp::get) reading_.end(monotonic_ns());
    if (op == TierOp::put) writing_.end(monotonic_ns());
    open_jobs_.erase(number);
    items_ -= items;
  }
  changed_.notify_all();
}

// Empties the queues, drops the connections, and ends every remaining item with this outcome.
void Loop::end_all(TierOutcome outcome) {
  for (const auto& node : nodes_) {
    for (auto& connection : node->connections) {
      connection->close(Ending::given_up, "");
      connection->take_flights(
          [this](const Command& command, bool sent) { lose_if_put(command, sent); });
    }
    node->connections.clear();  // Closing a descriptor stops epoll from watching it.
    for (auto& queue : node->queues) queue.clear();
  }
  gone_.clear();
  unrouted_.clear();
  later_.clear();
  map_asked_ = nullptr;
  while (!jobs_.empty()) {
    Job* job = jobs_.begin()->second.get();
    const std::span<TierItem> items = job->batch->items();
    Command command;
    command.job = job;
    for (uint32_t i = 0, count = static_cast<uint32_t>(items.size()), left = job->left;
         i < count && left != 0; ++i) {
      if (items[i].outcome != TierOutcome::pending) continue;
      command.item = i;
      --left;
      end_item(command, outcome);
    }
  }
}

}  // namespace stemma::tier::redis
