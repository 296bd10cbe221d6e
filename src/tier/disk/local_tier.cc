#include "tier/disk/local_tier.h"

#include <algorithm>
#include <array>
#include <new>
#include <system_error>

#include "stemma/log.h"
#include "tier/disk/thread_queue.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

namespace {

// For opening the directory again. Nobody waits for that, and the object behind the progress
// callback may be gone.
DiskOptions for_reopening(DiskOptions options, Files& files) {
  options.files = &files;
  options.progress = {};
  return options;
}

}  // namespace

LocalTier::LocalTier(const DiskOptions& options, std::unique_ptr<Store> store)
    : own_files_(std::move(store->own_files)),
      options_(for_reopening(options, *store->files)),
      opening_(store->opening),
      store_(std::move(store)),
      breaker_({.errors = options.errors_to_break, .first_ns = options.retry_ns}) {
  traits_.name = "disk";
  traits_.capacity_bytes = options.capacity_bytes / kPage * kPage;
  traits_.max_entry_bytes = options.max_entry_bytes;
  traits_.outlives_process = true;
  serial_ = store_->next_serial;
  const base::MutexLock lock(mutex_);
  books_ = std::move(store_->books);
}

Result<void> LocalTier::start() {
  const Error no_memory(Errc::out_of_memory, "no memory for a disk tier");
  try {
    op_pages_ = PageMemory(size_t{options_.depth} * kPage);
    if (!op_pages_) return no_memory;
    ops_ = std::vector<Op>(options_.depth);
    free_ops_.reserve(options_.depth);
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (Piece& piece : ops_[i].pieces) piece.op = &ops_[i];
      ops_[i].page = op_pages_.data() + i * kPage;
      free_ops_.push_back(&ops_[i]);
    }
    for (Piece& sync : syncs_) sync.kind = Io::Kind::sync;
    queue_ = options_.files->queue(options_.depth * kMostExtents + 2);
    if (!queue_) return no_memory;
    opening_.io = queue_->name();
    const auto look = [](void* tier, const Io& io) {
      static_cast<LocalTier*>(tier)->check(*static_cast<const Piece&>(io).op);
      return io.result;
    };
    // One thread checks the sums of large entries no faster than a fast disk reads them.
    const uint32_t threads = std::clamp(std::thread::hardware_concurrency() / 4, 1U, 4U);
    checker_ = std::make_unique<ThreadQueue>(options_.depth, threads, look, this,
                                             [this] { queue_->wake(); });
    thread_ = std::thread([this] { run(); });
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory;
  } catch (const std::system_error&) {
    return Error(Errc::out_of_memory, "the system gave no thread for a disk tier");
  }
}

LocalTier::~LocalTier() {
  if (!thread_.joinable()) return;
  {
    const base::MutexLock lock(mutex_);
    closing_ = true;
  }
  queue_->wake();
  thread_.join();
}

// ---- From outside -------------------------------------------------------------------------------

void LocalTier::submit(std::shared_ptr<TierBatch> batch) {
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

// Answers contains and touch from the books.
void LocalTier::answer_at_once(const std::shared_ptr<TierBatch>& batch) {
  const TierOutcome verdict = batch->verdict(monotonic_ns());
  const TierOp op = batch->op();
  // Touches the deepest first, so it is evicted first.
  for (size_t i = batch->items().size(); i-- > 0;) {
    TierItem& item = batch->items()[i];
    TierOutcome outcome = verdict;
    if (outcome == TierOutcome::pending) {
      const base::MutexLock lock(mutex_);
      const bool open = is_open();
      const RecordId id = open ? books_->find(item.key) : kNoRecord;
      outcome = !open             ? TierOutcome::failed
                : id == kNoRecord ? TierOutcome::absent
                                  : TierOutcome::done;
      if (id != kNoRecord) item.info = (*books_)[id].info();
      if (id != kNoRecord && op == TierOp::touch) books_->touch(id, monotonic_ns());
    }
    counters_.count(op, outcome, 0);
    batch->end(i, outcome);
  }
}

TierStats LocalTier::stats() const {
  TierStats stats;
  counters_.read(stats);
  stats.reachable = is_open();
  const base::MutexLock lock(mutex_);
  stats.entries = books_->entries();
  stats.used_bytes = books_->used_bytes();
  stats.retired_bytes = books_->retired_bytes();
  stats.evictions = books_->evictions();
  stats.evicted_bytes = books_->evicted_bytes();
  stats.read_ns = reading_.total_ns(monotonic_ns());
  stats.write_ns = writing_.total_ns(monotonic_ns());
  return stats;
}

uint64_t LocalTier::index_bytes() const {
  const base::MutexLock lock(mutex_);
  return books_->bytes();
}

void LocalTier::check_invariants() const {
  const base::MutexLock lock(mutex_);
  books_->check_invariants();
}

bool LocalTier::flush(uint64_t until_ns) {
  const auto ticket = std::make_shared<Flush>();
  {
    const base::MutexLock lock(mutex_);
    ticket->sequence = sequence_;
    incoming_flushes_.push_back(ticket);
  }
  queue_->wake();
  base::Lock lock(flush_mutex_);
  const auto done = [&] { return ticket->done; };
  return tier::wait_until(flushed_, lock, until_ns, done) && ticket->good;
}

// ---- The loop -----------------------------------------------------------------------------------

void LocalTier::run() {
  // A few at a time: the disk works on the next ones while these are checked.
  std::array<Io*, 8> ended = {};
  for (;;) {
    const bool closing = take_incoming();
    const uint64_t now_ns = monotonic_ns();
    sweep(now_ns, closing);
    look_for_files(now_ns);
    begin_some();
    write_slots();
    work_on_purges(now_ns, closing);
    start_sync();
    write_uses(now_ns);
    if (!closing && purges_.empty()) scrub(now_ns);
    if (closing && idle()) return close_down();
    const size_t count = queue_->wait(ended, patience_ns());
    for (size_t i = 0; i < count; ++i) {
      Piece& piece = *static_cast<Piece*>(ended[i]);
      piece.kind == Io::Kind::sync ? settle_sync(piece.result) : settle(piece);
    }
    settle_checked();
  }
}

bool LocalTier::take_incoming() {
  std::list<Job> arrived;
  bool closing = false;
  {
    const base::MutexLock lock(mutex_);
    arrived.swap(incoming_);
    for (auto& flush : incoming_flushes_) flushes_.push_back(std::move(flush));
    incoming_flushes_.clear();
    for (auto& purge : incoming_purges_) purges_.push_back(std::move(purge));
    incoming_purges_.clear();
    closing = closing_;
  }
  for (Job& job : arrived) (job.batch->op() == TierOp::get ? reads_ : writes_).push_back(&job);
  live_.splice(live_.end(), arrived);
  return closing;
}

// Ends queued items that have not begun and may no longer begin, wherever they stand in the queue.
void LocalTier::sweep(uint64_t now_ns, bool closing) {
  sweep(reads_, now_ns, closing);
  sweep(writes_, now_ns, closing);
}

void LocalTier::sweep(std::deque<Job*>& queue, uint64_t now_ns, bool closing) {
  const auto verdict = [&](const Job& job) {
    return closing ? TierOutcome::cancelled : job.batch->verdict(now_ns);
  };
  const auto over = [&](const Job* job) { return verdict(*job) != TierOutcome::pending; };
  for (auto at = std::find_if(queue.begin(), queue.end(), over); at != queue.end();
       at = std::find_if(queue.begin(), queue.end(), over)) {
    Job& job = **at;
    queue.erase(at);
    const TierOutcome outcome = verdict(job);
    // Ending its last item frees the job.
    const size_t last = job.batch->items().size();
    {
      const base::MutexLock lock(mutex_);
      queued_items_ -= last - job.next;
    }
    for (size_t item = job.next; item < last; ++item) end({&job, item}, outcome);
  }
}

// Reads go first, because a request waits for them; but one turn in four goes to a write.
void LocalTier::begin_some() {
  while (!free_ops_.empty()) {
    const bool write_first = ++turn_ % 4 == 0;
    if (!begin_from(write_first ? writes_ : reads_) &&
        !begin_from(write_first ? reads_ : writes_)) {
      return;
    }
  }
}

bool LocalTier::begin_from(std::deque<Job*>& queue) {
  if (queue.empty()) return false;
  Job& job = *queue.front();
  if (holds_back(job)) return false;
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

void LocalTier::begin_job(Job& job) {
  job.begun = true;
  const base::MutexLock lock(mutex_);
  job.begun_at = books_->stamp();
  if (job.batch->op() == TierOp::put) job.used = books_->next_stamp();
  if (job.batch->op() != TierOp::get) return;
  // Touches the deepest first, so it is evicted first.
  for (size_t i = job.batch->items().size(); i-- > 0;) {
    const RecordId id = books_->find(job.batch->items()[i].key);
    if (id != kNoRecord) books_->touch(id, monotonic_ns());
  }
}

void LocalTier::begin_item(Job& job, size_t item) {
  const uint64_t now_ns = monotonic_ns();
  const TierOutcome verdict = job.batch->verdict(now_ns);
  if (verdict != TierOutcome::pending) return end({&job, item}, verdict);
  if (broken(now_ns)) return end({&job, item}, TierOutcome::failed);
  switch (job.batch->op()) {
    case TierOp::put: return begin_put(job, item);
    case TierOp::get: return begin_get(job, item);
    case TierOp::remove: return begin_remove(job, item);
    case TierOp::contains:
    case TierOp::touch: break;
  }
}

bool LocalTier::idle() const noexcept {
  return live_.empty() && free_ops_.size() == ops_.size() && slots_.empty() && syncs_left_ == 0 &&
         flushes_.empty() && purges_.empty();
}

uint64_t LocalTier::patience_ns() const noexcept {
  if (!purges_.empty() && purges_.front()->stage == Purging::Stage::erasing) return 1;
  if (!purges_.empty()) return 5'000'000;
  // Items queued behind a slow disk must still end at their deadlines.
  if (!reads_.empty() || !writes_.empty()) return 5'000'000;
  uint64_t patience = 1'000'000'000;
  if (files_lost_) patience = std::min(patience, options_.retry_ns);
  if (options_.scrub_bytes_per_second != 0 && free_ops_.size() == ops_.size()) {
    const uint64_t now_ns = monotonic_ns();
    patience = std::min(patience, scrub_ns_ > now_ns ? scrub_ns_ - now_ns : 1);
  }
  return patience;
}

// ---- Ends ---------------------------------------------------------------------------------------

void LocalTier::end(Waiter who, TierOutcome outcome, bool already_there) {
  if (who.job == nullptr) return;
  Job& job = *who.job;
  const std::shared_ptr<TierBatch> batch = job.batch;
  counters_.count(batch->op(), outcome, batch->items()[who.item].info.bytes);
  if (already_there) counters_.count_already_there();
  const bool last = ++job.ended == batch->items().size();
  if (last) {
    if (batch->op() == TierOp::put) {
      // The start of a prompt is worth more than its end.
      const base::MutexLock lock(mutex_);
      for (size_t i = batch->items().size(); i-- > 0;) {
        const RecordId id = books_->find(batch->items()[i].key);
        if (id != kNoRecord) books_->touch(id, monotonic_ns());
      }
    }
    live_.erase(job.place);
  }
  batch->end(who.item, outcome);
}

bool LocalTier::is_open() const noexcept { return breaker_.lets_through(monotonic_ns()); }

bool LocalTier::broken(uint64_t now_ns) {
  if (!breaker_.open()) return false;
  if (!breaker_.due(now_ns)) return true;
  breaker_.probe();
  return false;
}

void LocalTier::note(int64_t result) {
  if (files_lost_) return;
  if (result >= 0) {
    breaker_.succeed();
    just_retired_.clear();
    return;
  }
  if (is_full(result)) return;  // A full disk is not a broken one.
  const bool news = breaker_.fail(monotonic_ns());
  if (!breaker_.open()) return;
  restore_retired();
  if (!news) return;
  log(LogLevel::warning,
      "disk tier '" + options_.path + "': " + std::to_string(breaker_.errors()) +
          " errors in a row, the last is '" +
          std::error_code(static_cast<int>(-result), std::generic_category()).message() +
          "'; it is asked again in " + std::to_string(options_.retry_ns / 1'000'000) + " ms");
}

}  // namespace stemma::tier::disk
