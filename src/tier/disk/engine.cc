#include "tier/disk/engine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "stemma/log.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {}  // namespace

Engine::Engine(const DiskOptions& options, std::unique_ptr<Store> store)
    : options_(options), store_(std::move(store)), books_(*store_->books) {
  const uint64_t chunk_bytes = store_->format.chunk_bytes;
  traits_.name = "disk";
  traits_.capacity_bytes = options.capacity_bytes / chunk_bytes * chunk_bytes;
  traits_.max_entry_bytes = std::min(options.max_entry_bytes, most_payload_bytes(chunk_bytes));
  traits_.outlives_process = true;
  serial_ = store_->next_serial;
}

Result<void> Engine::start() {
  const Error no_memory(Errc::out_of_memory, "no memory for a disk tier");
  try {
    op_pages_ = PageMemory(size_t{options_.depth} * 2 * kPage);
    zero_page_ = PageMemory(kPage);
    if (!op_pages_ || !zero_page_) return no_memory;
    std::memset(zero_page_.data(), 0, kPage);
    ops_.resize(options_.depth);
    free_ops_.reserve(options_.depth);
    for (size_t i = 0; i < ops_.size(); ++i) {
      ops_[i].file = store_->slab;
      ops_[i].pages = op_pages_.data() + i * 2 * kPage;
      free_ops_.push_back(&ops_[i]);
    }
    sync_.kind = Io::Kind::sync;
    sync_.file = store_->slab;
    queue_ = store_->files->queue(options_.depth + 1);
    if (!queue_) return no_memory;
    store_->opening.io = queue_->name();
    checker_ = std::make_unique<Checker>(
        ops_.size(), [this](Io& io) { check(static_cast<Op&>(io)); }, [this] { queue_->wake(); });
    thread_ = std::thread([this] { run(); });
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::system_error&) {
    return Error(Errc::out_of_memory, "the system gave no thread for a disk tier");
  }
}

Engine::~Engine() {
  if (!thread_.joinable()) return;
  {
    const base::MutexLock lock(mutex_);
    closing_ = true;
  }
  queue_->wake();
  thread_.join();
}

// ---- From outside ---------------------------------------------------------------------------------

void Engine::submit(std::shared_ptr<TierBatch> batch) {
  const size_t count = batch->items().size();
  if (count == 0) return;
  if (batch->op() == TierOp::contains || batch->op() == TierOp::touch) return answer_at_once(batch);
  std::list<Job> one;
  bool has_room = false;
  try {
    one.emplace_back();
    one.front().batch = batch;
    one.front().place = one.begin();
    const base::MutexLock lock(mutex_);
    has_room = queued_items_ + count <= options_.queue_items;
    if (has_room) {
      queued_items_ += count;
      one.front().sequence = ++sequence_;
      incoming_.splice(incoming_.end(), one);
    }
  } catch (const std::bad_alloc&) {
    has_room = false;
  }
  if (has_room) return queue_->wake();
  const auto outcome = batch->op() == TierOp::put ? TierOutcome::refused : TierOutcome::failed;
  for (size_t i = 0; i < count; ++i) {
    counters_.count(batch->op(), outcome, 0);
    batch->end(i, outcome);
  }
}

// contains and touch: the books know.
void Engine::answer_at_once(const std::shared_ptr<TierBatch>& batch) {
  const TierOutcome verdict = batch->verdict(monotonic_ns());
  const TierOp op = batch->op();
  // The deepest goes first, so it is the first to be touched.
  for (size_t i = batch->items().size(); i-- > 0;) {
    TierItem& item = batch->items()[i];
    TierOutcome outcome = verdict;
    if (outcome == TierOutcome::pending) {
      const base::MutexLock lock(mutex_);
      const bool open = is_open();
      const RecordId id = open ? books_.find(item.key) : kNoRecord;
      outcome = !open             ? TierOutcome::failed
                : id == kNoRecord ? TierOutcome::absent
                                  : TierOutcome::done;
      if (id != kNoRecord) item.info = books_[id].info();
      if (id != kNoRecord && op == TierOp::touch) books_.touch(id, monotonic_ns());
    }
    counters_.count(op, outcome, 0);
    batch->end(i, outcome);
  }
}

TierStats Engine::stats() const {
  TierStats stats;
  counters_.read(stats);
  stats.open = is_open();
  const base::MutexLock lock(mutex_);
  stats.entries = books_.entries();
  stats.used_bytes = books_.used_bytes();
  stats.evictions = books_.evictions();
  stats.evicted_bytes = books_.evicted_bytes();
  stats.read_ns = reading_.total_ns(monotonic_ns());
  stats.write_ns = writing_.total_ns(monotonic_ns());
  return stats;
}

uint64_t Engine::index_bytes() const {
  const base::MutexLock lock(mutex_);
  return books_.bytes();
}

void Engine::check_invariants() const {
  const base::MutexLock lock(mutex_);
  books_.check_invariants();
}

bool Engine::flush(uint64_t until_ns) {
  const auto ticket = std::make_shared<Flush>();
  {
    const base::MutexLock lock(mutex_);
    ticket->sequence = sequence_;
    incoming_flushes_.push_back(ticket);
  }
  queue_->wake();
  std::unique_lock lock(flush_mutex_);
  const auto done = [&] { return ticket->done; };
  return tier::wait_until(flushed_, lock, until_ns, done) && ticket->good;
}

// ---- The loop -------------------------------------------------------------------------------------

void Engine::run() {
  // A few at a time: while these are checked, the disk already works on the next.
  std::array<Io*, 8> ended = {};
  for (;;) {
    const bool closing = take_incoming();
    const uint64_t now_ns = monotonic_ns();
    sweep(now_ns, closing);
    look_for_files(now_ns);
    start_zeros();  // Before others take the ops,
    begin_some();
    start_zeros();  // and what removals just asked for.
    start_sync();
    if (closing && idle()) return;
    const size_t count = queue_->wait(ended, patience_ns());
    for (size_t i = 0; i < count; ++i) {
      if (ended[i] == &sync_) {
        settle_sync();
      } else {
        settle(*static_cast<Op*>(ended[i]));
      }
    }
    settle_checked();
  }
}

bool Engine::take_incoming() {
  std::list<Job> arrived;
  bool closing = false;
  {
    const base::MutexLock lock(mutex_);
    arrived.swap(incoming_);
    for (auto& flush : incoming_flushes_) flushes_.push_back(std::move(flush));
    incoming_flushes_.clear();
    closing = closing_;
  }
  for (Job& job : arrived) (job.batch->op() == TierOp::get ? reads_ : writes_).push_back(&job);
  live_.splice(live_.end(), arrived);
  return closing;
}

// Ends what has not begun and may not begin any more, wherever in the queue it stands.
void Engine::sweep(uint64_t now_ns, bool closing) {
  sweep(reads_, now_ns, closing);
  sweep(writes_, now_ns, closing);
}

void Engine::sweep(std::deque<Job*>& queue, uint64_t now_ns, bool closing) {
  const auto verdict = [&](const Job& job) {
    return closing ? TierOutcome::cancelled : job.batch->verdict(now_ns);
  };
  const auto over = [&](const Job* job) { return verdict(*job) != TierOutcome::pending; };
  for (auto at = std::find_if(queue.begin(), queue.end(), over); at != queue.end();
       at = std::find_if(queue.begin(), queue.end(), over)) {
    Job& job = **at;
    queue.erase(at);
    const TierOutcome outcome = verdict(job);
    // The job is gone with its last item.
    const size_t last = job.batch->items().size();
    {
      const base::MutexLock lock(mutex_);
      queued_items_ -= last - job.next;
    }
    for (size_t item = job.next; item < last; ++item) end({&job, item}, outcome);
  }
}

// Reads go first, because somebody waits for them; but one in four turns is a write's.
void Engine::begin_some() {
  while (!free_ops_.empty() && zeros_.size() < ops_.size()) {
    const bool write_first = ++turn_ % 4 == 0;
    if (!begin_from(write_first ? writes_ : reads_) &&
        !begin_from(write_first ? reads_ : writes_)) {
      return;
    }
  }
}

bool Engine::begin_from(std::deque<Job*>& queue) {
  if (queue.empty()) return false;
  Job& job = *queue.front();
  if (!job.begun) begin_job(job);
  const size_t item = job.next++;
  if (job.next == job.batch->items().size()) queue.pop_front();
  {
    const base::MutexLock lock(mutex_);
    --queued_items_;
  }
  begin_item(job, item);
  return true;
}

bool Engine::idle() const noexcept {
  return live_.empty() && free_ops_.size() == ops_.size() && zeros_.empty() && !sync_under_way_ &&
         flushes_.empty();
}

// Files that somebody removes can still be written and read; nobody would know until the next start.
void Engine::look_for_files(uint64_t now_ns) {
  constexpr uint64_t kPeriodNs = 1'000'000'000;
  if (told_of_removal_ || now_ns < looked_ns_ + kPeriodNs) return;
  looked_ns_ = now_ns;
  std::vector<std::string> names;
  const int result = store_->files->list(store_->path, names);
  const bool gone =
      result == -ENOENT || (result >= 0 && std::ranges::find(names, kSlabName) == names.end());
  if (!gone) return;
  told_of_removal_ = true;
  log(LogLevel::error,
      "disk tier '" + store_->path +
          "': its files were removed while they are in use; what is stored from now on is lost "
          "when this process ends");
}

uint64_t Engine::patience_ns() const noexcept {
  // What waits behind a slow disk must still hear of its deadline.
  if (!reads_.empty() || !writes_.empty()) return 5'000'000;
  return 1'000'000'000;
}

// ---- Syncs ----------------------------------------------------------------------------------------

void Engine::start_sync() {
  if (sync_under_way_) return;
  // Jobs are in the order in which they came.
  const uint64_t oldest = live_.empty() ? ~uint64_t{0} : live_.front().sequence;
  const auto is_due = [&](const std::shared_ptr<Flush>& flush) {
    return zeros_.empty() && oldest > flush->sequence;
  };
  for (const auto& flush : flushes_) {
    if (is_due(flush)) flushing_.push_back(flush);
  }
  std::erase_if(flushes_, is_due);
  if (to_sync_.empty() && flushing_.empty()) return;
  syncing_.swap(to_sync_);
  sync_under_way_ = true;
  queue_->start(sync_);
}

void Engine::settle_sync() {
  sync_under_way_ = false;
  const bool good = sync_.result >= 0;
  note(sync_.result);
  std::vector<Synced> ended;
  ended.swap(syncing_);
  for (const Synced& one : ended) {
    end(one.who, good ? TierOutcome::done : TierOutcome::failed, one.already_there);
  }
  const std::lock_guard lock(flush_mutex_);
  for (const auto& flush : flushing_) flush->done = true, flush->good = good;
  flushing_.clear();
  flushed_.notify_all();
}

// ---- Ends -----------------------------------------------------------------------------------------

void Engine::end(Waiter who, TierOutcome outcome, bool already_there) {
  if (who.job == nullptr) return;
  Job& job = *who.job;
  const std::shared_ptr<TierBatch> batch = job.batch;
  counters_.count(batch->op(), outcome, batch->items()[who.item].info.bytes);
  if (already_there) counters_.count_already_there();
  const bool last = ++job.ended == batch->items().size();
  if (last) {
    if (batch->op() == TierOp::put) {
      // What a prompt begins with is worth more than what it ends with.
      const base::MutexLock lock(mutex_);
      for (size_t i = batch->items().size(); i-- > 0;) {
        const RecordId id = books_.find(batch->items()[i].key);
        if (id != kNoRecord) books_.touch(id, monotonic_ns());
      }
    }
    live_.erase(job.place);
  }
  batch->end(who.item, outcome);
}

bool Engine::is_open() const noexcept {
  const uint64_t until_ns = broken_until_ns_.load(std::memory_order_relaxed);
  return until_ns == 0 || monotonic_ns() >= until_ns;
}

bool Engine::broken(uint64_t now_ns) {
  if (errors_in_a_row_ < options_.errors_to_break) return false;
  if (now_ns < broken_until_ns_.load(std::memory_order_relaxed)) return true;
  errors_in_a_row_ = options_.errors_to_break - 1;  // One more try.
  return false;
}

void Engine::note(int64_t result) {
  if (result >= 0) {
    errors_in_a_row_ = 0;
    told_of_errors_ = false;
    broken_until_ns_.store(0, std::memory_order_relaxed);
    return;
  }
  if (result == -ENOSPC || result == -EDQUOT) return;  // Nothing is broken.
  if (++errors_in_a_row_ < options_.errors_to_break) return;
  broken_until_ns_.store(deadline_after(monotonic_ns(), options_.retry_ns),
                         std::memory_order_relaxed);
  if (told_of_errors_) return;
  told_of_errors_ = true;
  log(LogLevel::warning,
      "disk tier '" + store_->path + "': " + std::to_string(errors_in_a_row_) +
          " errors in a row, the last is '" +
          std::error_code(static_cast<int>(-result), std::generic_category()).message() +
          "'; it is asked again in " + std::to_string(options_.retry_ns / 1'000'000) + " ms");
}

}  // namespace stemma::tier::disk
