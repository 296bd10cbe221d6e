#include "tier/writer.h"

#include <algorithm>
#include <new>

#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

constexpr size_t kMostItems = 64;
constexpr uint64_t kMostBytes = 16U << 20U;
// Entries of one batch cannot be evicted for each other: a batch larger than this part of the tier
// would be refused.
constexpr uint64_t kBatchPart = 16;
constexpr uint64_t kGraceNs = 1'000'000'000;
constexpr size_t kMostUses = 4096;
constexpr size_t kUsesAtOnce = 256;

}  // namespace

Writer::Writer(Tier& tier, const Options& options, Settled settled, Touched touched)
    : tier_(tier),
      options_(options),
      settled_(std::move(settled)),
      touched_(std::move(touched)),
      thread_([this] { work(); }) {}

Writer::~Writer() {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool Writer::add(const StoreItem& item) {
  const base::Lock lock(mutex_);
  if (!queue_.empty() && queued_bytes_ + item.info.bytes > options_.queue_bytes) {
    ++dropped_;
    return false;
  }
  queue_.push_back(item);
  on_their_way_.insert(item.key);
  queued_bytes_ += item.info.bytes;
  changed_.notify_all();
  return true;
}

void Writer::touch(const EntryKey& key) try {
  const base::Lock lock(mutex_);
  if (uses_.size() >= kMostUses || on_their_way_.contains(key)) return;
  uses_.push_back(key);
  changed_.notify_all();
} catch (const std::bad_alloc&) {
  // The tier does not hear of this use. The entry only loses its place in the order of use.
}

bool Writer::drain(uint64_t until_ns) {
  base::Lock lock(mutex_);
  const auto idle = [this]() STEMMA_REQUIRES(mutex_) {
    return queue_.empty() && uses_.empty() && under_way_ == 0 && uses_under_way_ == 0;
  };
  return wait_until(changed_, lock, until_ns, idle);
}

bool Writer::forget(const Purge& what, uint64_t until_ns) {
  const Goes goes = [&](const EntryKey& key, const EntryInfo* info) {
    return info != nullptr ? what.takes(key, *info) : what.names(key);
  };
  return forget(goes, until_ns);
}

bool Writer::forget(const std::unordered_set<EntryKey>& keys, uint64_t until_ns) {
  const Goes goes = [&](const EntryKey& key, const EntryInfo*) { return keys.contains(key); };
  return forget(goes, until_ns);
}

bool Writer::forget(const Goes& goes_away, uint64_t until_ns) {
  std::deque<StoreItem> gone;
  base::Lock lock(mutex_);
  const auto goes = [&](const StoreItem& item) { return goes_away(item.key, &item.info); };
  for (StoreItem& item : queue_) {
    if (!goes(item)) continue;
    queued_bytes_ -= item.info.bytes;
    forget_on_its_way(item.key);
    gone.push_back(item);
  }
  std::erase_if(queue_, goes);
  std::erase_if(uses_, [&](const EntryKey& key) { return goes_away(key, nullptr); });
  changed_.notify_all();
  const uint64_t batch = batches_;
  const auto is_put = [&]()
                          STEMMA_REQUIRES(mutex_) { return under_way_ == 0 || batches_ != batch; };
  const bool in_time = wait_until(changed_, lock, until_ns, is_put);
  lock.unlock();
  for (const StoreItem& item : gone) settled_(item, TierOutcome::cancelled);
  return in_time;
}

uint64_t Writer::dropped() const {
  const base::Lock lock(mutex_);
  return dropped_;
}

uint64_t Writer::waiting() const {
  const base::Lock lock(mutex_);
  return queue_.size() + under_way_;
}

uint64_t Writer::most_bytes() const noexcept {
  const uint64_t capacity = tier_.traits().capacity_bytes;
  return capacity == 0 ? kMostBytes : std::min(kMostBytes, capacity / kBatchPart);
}

// The next entries to put together, all put for the same reason, which decides their order. Null if
// there is no memory for a single one.
std::shared_ptr<std::deque<StoreItem>> Writer::take() {
  std::shared_ptr<std::deque<StoreItem>> items;
  uint64_t bytes = 0;
  const uint64_t most = most_bytes();
  try {
    items = std::make_shared<std::deque<StoreItem>>();
    const bool leaving = !queue_.empty() && queue_.front().sighting == Sighting::evicted;
    while (!queue_.empty() && items->size() < kMostItems &&
           (queue_.front().sighting == Sighting::evicted) == leaving) {
      const uint64_t next = queue_.front().info.bytes;
      if (!items->empty() && bytes + next > most) break;
      if (leaving) {
        items->push_front(std::move(queue_.front()));
      } else {
        items->push_back(std::move(queue_.front()));
      }
      queue_.pop_front();
      bytes += next;
    }
  } catch (const std::bad_alloc&) {
    if (items != nullptr && items->empty()) items.reset();
  }
  queued_bytes_ -= bytes;
  return items;
}

std::vector<EntryKey> Writer::take_uses() try {
  const auto end = uses_.begin() + static_cast<std::ptrdiff_t>(std::min(uses_.size(), kUsesAtOnce));
  std::vector<EntryKey> some(uses_.begin(), end);
  uses_.erase(uses_.begin(), end);
  return some;
} catch (const std::bad_alloc&) {
  uses_.clear();
  return {};
}

// Uses and puts alternate, so that neither waits for all of the others.
void Writer::work() {
  base::Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) {
      return closing_ || !queue_.empty() || !uses_.empty();
    });
    if (closing_) return;
    if (!uses_.empty()) {
      const std::vector<EntryKey> uses = take_uses();
      uses_under_way_ = uses.size();
      lock.unlock();
      tell_uses(uses);
      lock.lock();
      uses_under_way_ = 0;
    }
    if (!queue_.empty() && !closing_) {
      if (const std::shared_ptr<const std::deque<StoreItem>> items = take()) {
        under_way_ = items->size();
        lock.unlock();
        put(items);
        lock.lock();
        under_way_ = 0;
        ++batches_;
        for (const StoreItem& item : *items) forget_on_its_way(item.key);
      } else {
        lose_all();
      }
    }
    changed_.notify_all();
  }
}

void Writer::forget_on_its_way(const EntryKey& key) noexcept {
  if (const auto found = on_their_way_.find(key); found != on_their_way_.end()) {
    on_their_way_.erase(found);
  }
}

// Without memory, no waiting entry can be put.
void Writer::lose_all() {
  while (!queue_.empty()) {
    const StoreItem item = std::move(queue_.front());
    queued_bytes_ -= item.info.bytes;
    queue_.pop_front();
    forget_on_its_way(item.key);
    const base::Unlocked meanwhile(mutex_);
    settled_(item, TierOutcome::failed);
  }
}

void Writer::put(const std::shared_ptr<const std::deque<StoreItem>>& items) {
  const auto all = [&](TierOutcome outcome) {
    for (const StoreItem& item : *items) settled_(item, outcome);
  };
  auto made = TierBatch::make(TierOp::put, items->size());
  if (!made) return all(TierOutcome::failed);
  const std::shared_ptr<TierBatch> batch = *std::move(made);
  for (size_t i = 0; i < items->size(); ++i) {
    const StoreItem& from = (*items)[i];
    TierItem& item = batch->items()[i];
    item.key = from.key;
    item.info = from.info;
    item.source = from.payload->span();
    item.words = from.words;
    item.priority = from.priority;
  }
  batch->keep = items;
  if (!run(batch)) return all(TierOutcome::late);
  for (size_t i = 0; i < items->size(); ++i) settled_((*items)[i], batch->items()[i].outcome);
}

void Writer::tell_uses(const std::vector<EntryKey>& keys) {
  auto made = TierBatch::make(TierOp::touch, keys.size());
  if (!made) return;
  const std::shared_ptr<TierBatch> batch = *std::move(made);
  for (size_t i = 0; i < keys.size(); ++i) batch->items()[i].key = keys[i];
  if (!run(batch)) return;
  for (const TierItem& item : batch->items()) touched_(item.key, item.outcome);
}

// Returns false if the batch did not end in time. A tier that does not even report that is left
// alone; the batch keeps what it needs.
bool Writer::run(const std::shared_ptr<TierBatch>& batch) {
  batch->deadline_ns = deadline_after(monotonic_ns(), options_.deadline_ns);
  tier_.submit(batch);
  return batch->wait(deadline_after(batch->deadline_ns, kGraceNs));
}

}  // namespace stemma::tier
