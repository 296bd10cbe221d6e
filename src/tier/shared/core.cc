#include "tier/shared/core.h"

#include <new>

namespace stemma::tier::shared {

namespace {

uint64_t room_for(const EntryInfo& info) noexcept {
  return room_of(kHeaderBytes + uint64_t{info.words} * 4 + info.bytes);
}

}  // namespace

Core::Core(const SharedOptions& options)
    : options_(options),
      directory_(options.path, options.files != nullptr ? options.files : make_system_files()),
      books_(options.capacity_bytes,
             options.slack_bytes != 0 ? options.slack_bytes : options.capacity_bytes / 16),
      breaker_({.errors = options.errors_to_break, .first_ns = options.retry_ns}) {
  traits_.name = "shared";
  traits_.capacity_bytes = options.capacity_bytes;
  traits_.max_entry_bytes =
      std::min(options.max_entry_bytes, options.capacity_bytes / 4096 * 4096 - kHeaderBytes);
  traits_.outlives_process = true;
  traits_.shared = true;
}

void Core::submit(std::shared_ptr<TierBatch> batch) {
  const size_t size = batch->items().size();
  if (size == 0) return;
  TierOutcome refused = TierOutcome::failed;
  try {
    const Lock lock(mutex_);
    if (queued_ + size > options_.queue_items && batch->op() == TierOp::put) {
      refused = TierOutcome::refused;
    }
    if (!breaker_.open() && !stopping_ && queued_ + size <= options_.queue_items) {
      // A later batch counts as used later, even if the clock steps back.
      last_used_ns_ = std::max(wall_ns(), last_used_ns_ + size);
      auto job = std::make_shared<Job>(batch, ++serials_, last_used_ns_);
      (batch->op() == TierOp::put ? puts_ : reads_).push_back(job);
      live_.emplace(job->serial, job);
      queued_ += size;
      if (batch->op() == TierOp::get) reading_.begin(monotonic_ns());
      if (batch->op() == TierOp::put) writing_.begin(monotonic_ns());
      size == 1 ? has_work_.notify_one() : has_work_.notify_all();
      watch_.notify_one();
      return;
    }
  } catch (const std::bad_alloc&) {
    refused = TierOutcome::failed;
  }
  for (size_t i = 0; i < size; ++i) {
    const TierOutcome verdict = batch->verdict(monotonic_ns());
    const TierOutcome outcome = verdict == TierOutcome::pending ? refused : verdict;
    counters_.count(batch->op(), outcome, 0);
    batch->end(i, outcome);
  }
}

// ---- Workers ----

// Reads go first, except in one thread. Puts get at most half of the threads, so that a get does
// not wait behind megabytes.
bool Core::pick(Lock& lock, bool puts_first, Task& task) {
  for (;;) {
    if (stopping_) return false;
    const bool may_put = putting_ < std::max(1U, options_.threads / 2);
    if (puts_first && may_put && pick_from(puts_, task)) return true;
    if (pick_from(reads_, task)) return true;
    if (!puts_first && may_put && pick_from(puts_, task)) return true;
    has_work_.wait(lock);
  }
}

// Promises room in the order of the batch: if a prompt is too large, its head is kept.
bool Core::pick_from(std::deque<std::shared_ptr<Job>>& lane, Task& task) {
  while (!lane.empty()) {
    const std::shared_ptr<Job> job = lane.front();
    const size_t i = job->next;
    const TierItem& item = job->batch->items()[i];
    const bool is_put = job->batch->op() == TierOp::put;
    TierOutcome outcome = job->batch->verdict(monotonic_ns());
    if (outcome == TierOutcome::pending && breaker_.open()) outcome = TierOutcome::failed;
    if (outcome == TierOutcome::pending && is_put) outcome = check_put(item, traits_);
    const bool waiting = job->states[i].load(std::memory_order_acquire) == ItemState::waiting;
    const uint64_t room = room_for(item.info);
    if (waiting && is_put && outcome == TierOutcome::pending && !books_.may_promise(room)) {
      scan_wanted_ = scan_wanted_ || books_.scan_would_help();
      keep_.notify_one();
      return false;
    }
    if (++job->next == job->size) lane.pop_front();
    --queued_;
    if (!job->change(i, ItemState::waiting, ItemState::working)) continue;
    // A copy of the item: after the item has ended, the batch belongs to its caller again.
    task = {.job = job,
            .index = i,
            .item = item,
            .outcome = outcome,
            .moment = books_.moment(),
            .plan = {}};
    if (!is_put) return true;
    ++putting_;
    if (outcome != TierOutcome::pending) return true;
    // An entry that seems to exist needs no room.
    const Books::Entry* there = books_.find(item.key);
    if (there == nullptr || there->room != room) {
      if (!books_.plan(item.key, room, task.plan)) task.outcome = TierOutcome::refused;
    }
    if (books_.wants_scan()) keep_.notify_one();
    return true;
  }
  return false;
}

void Core::work(Thread& self, bool puts_first) {
  Task task;
  Lock lock(mutex_);
  while (pick(lock, puts_first, task)) {
    lock.unlock();
    const bool is_put = task.job->batch->op() == TierOp::put;
    self.seen_ns.store(monotonic_ns(), std::memory_order_relaxed);
    run(task, self.seen_ns);
    self.seen_ns.store(0, std::memory_order_relaxed);
    task = {};
    lock.lock();
    if (is_put) {
      --putting_;
      has_work_.notify_one();
    }
  }
  self.exited = true;
  ended_.notify_all();
}

void Core::run(Task& task, std::atomic<uint64_t>& seen_ns) {
  Job& job = *task.job;
  const TierItem& item = task.item;
  Answer answer{.outcome = task.outcome};
  if (task.outcome == TierOutcome::pending) {
    ItemLoan loan(job, task.index, seen_ns);
    try {
      switch (job.batch->op()) {
        case TierOp::get: return get(task, loan);
        case TierOp::put: answer = put(task, loan); break;
        case TierOp::contains: answer = directory_.contains(item.key); break;
        case TierOp::remove: answer = directory_.remove(item.key); break;
        case TierOp::touch: answer = touch(task); break;
      }
    } catch (const std::bad_alloc&) {
      answer = {.outcome = TierOutcome::failed};
      const Lock lock(mutex_);
      books_.cancel(task.plan);
    }
    note(answer);
    if (answer.gone) {
      const Lock lock(mutex_);
      books_.forget(item.key, task.moment);
    }
  }
  if (!job.change(task.index, ItemState::working, ItemState::ended)) return;
  if (answer.already_there) counters_.count_already_there();
  end(task.job, task.index, answer.outcome);
}

void Core::get(Task& task, ItemLoan& loan) {
  Job& job = *task.job;
  const TierItem& wanted = task.item;
  const Answer answer = directory_.get(wanted, loan);
  note(answer);
  const uint64_t used_ns = job.used_ns_of(task.index);
  if (answer.gone) {
    const Lock lock(mutex_);
    books_.forget(wanted.key, task.moment);
  }
  const bool touches = answer.outcome == TierOutcome::done && use(wanted.key, used_ns);
  if (answer.outcome == TierOutcome::done) {
    job.batch->items()[task.index].info = answer.info;
    job.states[task.index].store(ItemState::ended, std::memory_order_release);
    end(task.job, task.index, TierOutcome::done);
    if (touches) directory_.touch(wanted.key, used_ns);
  } else if (job.change(task.index, ItemState::working, ItemState::ended)) {
    end(task.job, task.index, answer.outcome);
  }
}

// Whether the file's own time is so old that other machines must be told.
bool Core::use(const EntryKey& key, uint64_t used_ns) {
  const Lock lock(mutex_);
  books_.use(key, used_ns);
  const Books::Entry* entry = books_.find(key);
  const bool touches = entry != nullptr && entry->on_file_ns + options_.touch_ns < used_ns;
  if (touches) books_.note_file_time(key, used_ns);
  return touches;
}

Answer Core::touch(const Task& task) {
  const Answer answer = directory_.contains(task.item.key);
  const uint64_t used_ns = task.job->used_ns_of(task.index);
  if (answer.outcome == TierOutcome::done && use(task.item.key, used_ns)) {
    directory_.touch(task.item.key, used_ns);
  }
  return answer;
}

Answer Core::put(Task& task, ItemLoan& loan) {
  Job& job = *task.job;
  const TierItem& item = task.item;
  const uint64_t used_ns = job.used_ns_of(task.index);
  const bool durable = job.batch->durable || options_.always_durable;
  uint32_t begun_epoch;
  {
    const Lock lock(mutex_);
    begun_epoch = epoch_;
  }
  Answer answer = directory_.look_before_put(item.key, item.info);
  if (answer.outcome == TierOutcome::absent) {
    bool fits = true;
    if (task.plan.room == 0) {
      const Lock lock(mutex_);
      fits = books_.plan(item.key, room_for(item.info), task.plan);
    }
    answer = {.outcome = TierOutcome::refused};
    if (fits && make_room(task.plan, answer.problem)) {
      answer = directory_.put(item, {.durable = durable, .used_ns = used_ns}, loan);
    } else if (answer.problem != 0) {
      answer.outcome = TierOutcome::failed;
    }
  }
  const Lock lock(mutex_);
  if (answer.outcome == TierOutcome::done && !durable && begun_epoch < bad_epoch_) {
    // A sync failed meanwhile, perhaps for this entry. The next one removes it.
    doubtful_.push_back(item.key);
    unsynced_ = true;
    answer = {.outcome = TierOutcome::failed};
  }
  if (answer.outcome != TierOutcome::done || answer.already_there) {
    books_.cancel(task.plan);
    if (answer.already_there) books_.use(item.key, used_ns);
    return answer;
  }
  books_.publish(task.plan, used_ns, std::min(item.priority, kMaxPriority), durable ? 0 : epoch_);
  task.plan.room = 0;
  unsynced_ = unsynced_ || !durable;
  if (job.settled) {
    books_.settle(item.key);
  } else {
    job.published.push_back(item.key);
  }
  return answer;
}

// The entries that the batch put become evictable before its end is announced.
void Core::end(const std::shared_ptr<Job>& job, size_t i, TierOutcome outcome) {
  const TierOp op = job->batch->op();
  counters_.count(op, outcome, job->batch->items()[i].info.bytes);
  if (job->unsettled.fetch_sub(1) == 1) {
    const Lock lock(mutex_);
    job->settled = true;
    for (const EntryKey& key : job->published) books_.settle(key);
    if (op == TierOp::get) reading_.end(monotonic_ns());
    if (op == TierOp::put) writing_.end(monotonic_ns());
  }
  job->batch->end(i, outcome);
  if (job->unended.fetch_sub(1) == 1) {
    const Lock lock(mutex_);
    live_.erase(job->serial);
    ended_.notify_all();
  }
}

TierStats Core::stats() const {
  TierStats stats;
  counters_.read(stats);
  const Lock lock(mutex_);
  stats.entries = books_.entries();
  stats.used_bytes = books_.used_bytes();
  stats.read_ns = reading_.total_ns(monotonic_ns());
  stats.write_ns = writing_.total_ns(monotonic_ns());
  stats.reachable = !breaker_.open();
  return stats;
}

}  // namespace stemma::tier::shared
