#include "tier/writer.h"

#include <new>

#include "tier/wait_until.h"

namespace stemma::tier {

namespace {

constexpr size_t kMostItems = 64;
constexpr uint64_t kMostBytes = 16U << 20U;
constexpr uint64_t kGraceNs = 1'000'000'000;

}  // namespace

Writer::Writer(Tier& tier, const Options& options, Settled settled)
    : tier_(tier), options_(options), settled_(std::move(settled)), thread_([this] { work(); }) {}

Writer::~Writer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

bool Writer::add(const StoreItem& item) {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty() && queued_bytes_ + item.info.bytes > options_.queue_bytes) {
    ++dropped_;
    return false;
  }
  queue_.push_back(item);
  queued_bytes_ += item.info.bytes;
  changed_.notify_all();
  return true;
}

bool Writer::drain(uint64_t until_ns) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return queue_.empty() && under_way_ == 0; };
  return wait_until(changed_, lock, until_ns, idle);
}

uint64_t Writer::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

uint64_t Writer::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size() + under_way_;
}

// The next entries to be put together. Null: there is no memory for a single one.
std::shared_ptr<std::deque<StoreItem>> Writer::take() {
  std::shared_ptr<std::deque<StoreItem>> items;
  uint64_t bytes = 0;
  try {
    items = std::make_shared<std::deque<StoreItem>>();
    while (!queue_.empty() && items->size() < kMostItems && bytes < kMostBytes) {
      items->push_back(std::move(queue_.front()));
      queue_.pop_front();
      bytes += items->back().info.bytes;
    }
  } catch (const std::bad_alloc&) {
    if (items != nullptr && items->empty()) items.reset();
  }
  queued_bytes_ -= bytes;
  return items;
}

void Writer::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (closing_) return;
    if (const std::shared_ptr<const std::deque<StoreItem>> items = take()) {
      under_way_ = items->size();
      lock.unlock();
      put(items);
      lock.lock();
      under_way_ = 0;
    } else {
      lose_all(lock);
    }
    changed_.notify_all();
  }
}

// Without memory nothing of what waits can be put.
void Writer::lose_all(std::unique_lock<std::mutex>& lock) {
  while (!queue_.empty()) {
    const EntryKey key = queue_.front().key;
    queued_bytes_ -= queue_.front().info.bytes;
    queue_.pop_front();
    lock.unlock();
    settled_(key, TierOutcome::failed);
    lock.lock();
  }
}

void Writer::put(const std::shared_ptr<const std::deque<StoreItem>>& items) {
  const auto all = [&](TierOutcome outcome) {
    for (const StoreItem& item : *items) settled_(item.key, outcome);
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
  batch->deadline_ns = deadline_after(monotonic_ns(), options_.deadline_ns);
  batch->keep = items;
  tier_.submit(batch);
  // A tier that does not even say so in time is left to itself; the batch keeps what it needs.
  if (!batch->wait(deadline_after(batch->deadline_ns, kGraceNs))) return all(TierOutcome::late);
  for (const TierItem& item : batch->items()) settled_(item.key, item.outcome);
}

}  // namespace stemma::tier
