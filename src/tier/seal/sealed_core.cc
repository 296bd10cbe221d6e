// A sealed tier's queues and threads, its start and its end.
#include "tier/seal/sealed_core.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "tier/wait_until.h"

namespace stemma::tier {

namespace seal {

namespace {

// How soon a cancellation or deadline is noticed for batches that wait or are with the inner tier.
constexpr uint64_t kLookEveryNs = 2'000'000;
// A batch that is larger than this part of the capacity is cut as little as possible: its own
// entries could evict each other, and only the inner tier knows which ones may go.
constexpr uint64_t kLargeShare = 8;

}  // namespace

SealedCore::SealedCore(std::unique_ptr<Tier> inner, const SealedTierOptions& options)
    : options_(options), traits_(inner->traits()), inner_(std::move(inner)) {
  const uint64_t most = traits_.max_entry_bytes == 0 ? kMostSealedBytes : traits_.max_entry_bytes;
  traits_.max_entry_bytes =
      std::min(most - std::min<uint64_t>(most - 1, kSealBytes), kMostSealedBytes);
}

Result<void> SealedCore::start() {
  for (Staging& staging : staging_) {
    if (!staging.create(options_.staging_bytes)) {
      return Error(Errc::out_of_memory, "no memory to seal entries in");
    }
  }
  for (uint32_t i = 0; i <= options_.threads; ++i) {
    std::unique_ptr<Cipher> cipher = Cipher::create();
    if (cipher == nullptr) {
      return Error(Errc::unsupported, "this system's OpenSSL has no AES-256-GCM");
    }
    ciphers_.push_back(std::move(cipher));
  }
  {
    const base::Lock lock(mutex_);
    spare_ = std::move(ciphers_.back());
  }
  ciphers_.pop_back();
  for (const std::unique_ptr<Cipher>& cipher : ciphers_) {
    threads_.emplace_back([this, &cipher] { work(*cipher); });
  }
  return {};
}

SealedCore::~SealedCore() {
  std::vector<PartPtr> waiting;
  {
    base::Lock lock(mutex_);
    closing_ = true;
    for (std::deque<PartPtr>& queue : queues_) {
      waiting.insert(waiting.end(), queue.begin(), queue.end());
      queue.clear();
    }
    changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return inside_ == 0; });
  }
  for (const PartPtr& part : waiting) give_up(part, TierOutcome::cancelled);
  inner_.reset();  // Ends its batches. What they have read is still opened.
  {
    const base::Lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

TierStats SealedCore::stats() const {
  TierStats stats = inner_->stats();
  const TierStats inner = stats;
  counters_.read(stats);
  stats.already_there = inner.already_there;
  stats.evictions = inner.evictions;
  stats.evicted_bytes = inner.evicted_bytes;
  const uint64_t now_ns = monotonic_ns();
  const base::Lock lock(mutex_);
  stats.read_ns = reading_.total_ns(now_ns);
  stats.write_ns = writing_.total_ns(now_ns);
  return stats;
}

bool SealedCore::wait_for_earlier(uint64_t until_ns) {
  base::Lock lock(mutex_);
  const uint64_t before = next_number_;
  const auto ended = [&]() STEMMA_REQUIRES(mutex_) {
    return unfinished_.empty() || *unfinished_.begin() >= before;
  };
  return wait_until(changed_, lock, until_ns, ended);
}

bool SealedCore::flush(uint64_t until_ns) {
  return wait_for_earlier(until_ns) && inner_->flush(until_ns);
}

Purged SealedCore::purge(const Purge& what, uint64_t until_ns) {
  // What was submitted before must have reached the inner tier. If it has not in time, whatever can
  // be removed still is.
  const bool in_time = wait_for_earlier(until_ns);
  Purge inner = what;
  if (inner.layout) inner.layout = sealed_layout(*inner.layout);
  // Entries do not name their parents here, so every entry deep enough may follow.
  inner.follows.reset();
  Purged purged = inner_->purge(inner, until_ns);
  if (what.follows) purged.unsure = purged.entries;
  purged.bytes -= std::min(purged.bytes, purged.entries * kSealBytes);
  if (!in_time) {
    purged.complete = false;
    purged.error = "entries that were being sealed were not written in time";
  }
  // Dropping the key forgets the whole scope: copies of the tier become unreadable, too.
  if (!what.owner || !what.is_by_key()) return purged;
  if (const Result<bool> dropped = options_.keys->drop(*what.owner); !dropped) {
    purged.complete = false;
    purged.error = "the key of the scope could not be removed: " + options_.keys->problem();
  }
  return purged;
}

// ---- submit
// ---------------------------------------------------------------------------------------

uint64_t SealedCore::staged_bytes(const TierItem& item, TierOp op) const noexcept {
  if (op == TierOp::put) return Staging::whole_pages(item.source.size() + kSealBytes);
  // The caller's room may be larger than any entry.
  const uint64_t room = std::min<uint64_t>(item.into.size(), traits_.max_entry_bytes);
  return op == TierOp::get ? Staging::whole_pages(room + kSealBytes) : 0;
}

// The deepest part first, so that the deepest entries are evicted first.
std::vector<SealedCore::PartPtr> SealedCore::cut(const std::shared_ptr<Work>& work) const {
  const TierOp op = work->outer->op();
  const std::span<const TierItem> items = work->outer->items();
  uint64_t all = 0;
  for (const TierItem& item : items) all += staged_bytes(item, op);
  const bool large = traits_.capacity_bytes != 0 && all > traits_.capacity_bytes / kLargeShare;
  // A batch that does not fit into staging memory must be cut. Parts are about equal.
  const uint64_t wanted = large ? options_.staging_bytes / 2 : options_.part_bytes;
  const uint64_t count = std::max<uint64_t>((all + wanted / 2) / wanted, 1);
  const uint64_t enough = (all + count - 1) / count;
  std::vector<PartPtr> parts;
  for (size_t i = items.size(); i > 0; --i) {
    const uint64_t bytes = staged_bytes(items[i - 1], op);
    if (parts.empty() || (bytes != 0 && parts.back()->staged_bytes >= enough)) {
      parts.push_back(std::make_shared<Part>());
      parts.back()->work = work;
    }
    Part& part = *parts.back();
    part.slots.push_back({.item = i - 1, .key = {}, .offset = part.staged_bytes});
    part.staged_bytes += bytes;
  }
  for (const PartPtr& part : parts) std::reverse(part->slots.begin(), part->slots.end());
  return parts;
}

// Whether there is room in the queue.
bool SealedCore::admit(const std::shared_ptr<TierBatch>& batch, Work& work, TierOutcome& refusal) {
  const size_t count = batch->items().size();
  const base::Lock lock(mutex_);
  if (closing_ || (items_ != 0 && items_ + count > options_.queue_items)) {
    refusal = closing_                     ? TierOutcome::cancelled
              : batch->op() == TierOp::put ? TierOutcome::refused
                                           : TierOutcome::failed;
    return false;
  }
  work.number = next_number_;
  unfinished_.insert(work.number);
  ++next_number_;
  items_ += count;
  if (batch->op() == TierOp::get) reading_.begin(monotonic_ns());
  if (batch->op() == TierOp::put) writing_.begin(monotonic_ns());
  return true;
}

void SealedCore::submit(std::shared_ptr<TierBatch> batch) {
  if (batch->items().empty()) return;
  const TierOp op = batch->op();
  TierOutcome refusal = TierOutcome::failed;
  std::vector<PartPtr> parts;
  try {
    auto work = std::make_shared<Work>();
    work->outer = batch;
    parts = cut(work);
    work->parts = parts.size();
    if (parts.size() > 1 && traits_.capacity_bytes != 0) work->names.resize(batch->items().size());
    if (!admit(batch, *work, refusal)) parts.clear();
  } catch (const std::bad_alloc&) {
    parts.clear();
  }
  if (parts.empty()) {
    for (size_t i = 0, count = batch->items().size(); i < count; ++i) {
      counters_.count(op, refusal, 0);
      batch->end(i, refusal);
    }
    return;
  }
  const Queue queue = op == TierOp::put   ? Queue::puts
                      : op == TierOp::get ? Queue::gets
                                          : Queue::others;
  size_t begun = 0;
  while (begun < parts.size() && try_at_once(parts[begun])) ++begun;
  if (begun == parts.size()) return;
  parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(begun));
  bool kept = true;
  {
    const base::Lock lock(mutex_);
    std::deque<PartPtr>& to = queues_[static_cast<size_t>(queue)];
    try {
      for (const PartPtr& part : parts) to.push_back(part);
    } catch (const std::bad_alloc&) {
      while (!to.empty() && to.back()->work == parts.front()->work) to.pop_back();
      kept = false;
    }
    if (kept) parts.size() == 1 ? wake_.notify_one() : wake_.notify_all();
  }
  if (kept) return;
  for (const PartPtr& part : parts) give_up(part, TierOutcome::failed);
}

// ---- Threads
// --------------------------------------------------------------------------------------

SealedCore::PartPtr SealedCore::take(Queue which) {
  std::deque<PartPtr>& queue = queues_[static_cast<size_t>(which)];
  if (queue.empty()) return nullptr;
  Part& first = *queue.front();
  if (which != Queue::others) {
    Staging& staging = staging_[static_cast<size_t>(which)];
    first.memory = staging.take(first.staged_bytes);
    // If no staging memory is in use, none will come back, and the part ends as failed. But try
    // again: some may have come back just now.
    if (!first.memory && !staging.is_idle()) return nullptr;
    if (!first.memory) first.memory = staging.take(first.staged_bytes);
  }
  PartPtr part = std::move(queue.front());
  queue.pop_front();
  return part;
}

// The next piece of work, or null. Opening what was read comes first: it frees memory.
SealedCore::PartPtr SealedCore::next(bool& opens) {
  opens = !to_open_.empty();
  if (opens) {
    PartPtr part = std::move(to_open_.front());
    to_open_.pop_front();
    return part;
  }
  if (closing_) return nullptr;
  if (PartPtr part = take(Queue::others)) return part;
  gets_first_ = !gets_first_;
  if (PartPtr part = take(gets_first_ ? Queue::gets : Queue::puts)) return part;
  return take(gets_first_ ? Queue::puts : Queue::gets);
}

void SealedCore::work(Cipher& cipher) {
  base::Lock lock(mutex_);
  for (;;) {
    bool opens = false;
    if (PartPtr part = next(opens)) {
      if (!opens) ++inside_;
      lock.unlock();
      if (opens) {
        open(part, cipher);
        part.reset();
      } else {
        begin(part, cipher);
        part.reset();
        leave();
      }
      lock.lock();
      continue;
    }
    if (stopping_) return;
    const bool waits = !queues_[0].empty() || !queues_[1].empty() || !in_flight_.empty();
    if (waits && !closing_) {
      const uint64_t look_ns = deadline_after(monotonic_ns(), kLookEveryNs);
      ++watching_;
      wait_once(wake_, lock, look_ns);
      --watching_;
      if (monotonic_ns() >= look_ns) sweep();
    } else {
      wake_.wait(lock);
    }
  }
}

// A cancelled or late batch notifies nobody, so this polls.
void SealedCore::sweep() {
  const uint64_t now_ns = monotonic_ns();
  for (const Part* part : in_flight_) {
    if (part->work->outer->is_cancelled()) part->inner->cancel();
  }
  for (std::deque<PartPtr>& queue : queues_) {
    for (;;) {
      const auto over = std::find_if(queue.begin(), queue.end(), [now_ns](const PartPtr& part) {
        return part->work->outer->verdict(now_ns) != TierOutcome::pending;
      });
      if (over == queue.end()) break;
      const PartPtr part = std::move(*over);
      queue.erase(over);
      const base::Unlocked meanwhile(mutex_);
      give_up(part, part->work->outer->verdict(now_ns));
    }
  }
}

bool SealedCore::enter() {
  const base::Lock lock(mutex_);
  if (closing_) return false;
  ++inside_;
  return true;
}

void SealedCore::leave() {
  const base::Lock lock(mutex_);
  --inside_;
  if (closing_) changed_.notify_all();
}

}  // namespace seal

Result<std::unique_ptr<Tier>> make_sealed_tier(std::unique_ptr<Tier> inner,
                                               const SealedTierOptions& options) try {
  if (inner == nullptr) return Error(Errc::invalid_argument, "there is no tier to seal");
  if (options.keys == nullptr)
    return Error(Errc::invalid_argument, "a sealed tier needs a key ring");
  if (options.threads == 0 || options.threads > 64) {
    return Error(Errc::invalid_argument, "a sealed tier has 1 to 64 threads", options.threads);
  }
  if (options.staging_bytes == 0 || options.part_bytes == 0 || options.queue_items == 0) {
    return Error(Errc::invalid_argument, "a sealed tier needs memory and a queue");
  }
  auto made = std::make_unique<seal::SealedCore>(std::move(inner), options);
  STEMMA_TRY_VOID(made->start());
  return std::unique_ptr<Tier>(std::move(made));
} catch (const std::bad_alloc&) {
  return Error(Errc::out_of_memory, "no memory for a sealed tier");
} catch (const std::system_error&) {
  return Error(Errc::out_of_memory, "no thread for a sealed tier");
}

}  // namespace stemma::tier
