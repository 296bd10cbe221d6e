#include "stemma/tier/host_tier.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "tier/counters.h"
#include "tier/entry.h"
#include "tier/host_store.h"
#include "tier/purge_choice.h"
#include "tier/wait_until.h"

namespace stemma {

namespace {

using tier::monotonic_ns;

using base::MutexLock;
using tier::HostStore;

class HostTier final : public Tier {
 public:
  explicit HostTier(const HostTierOptions& options) {
    traits_.name = options.name;
    traits_.capacity_bytes = options.capacity_bytes;
  }

  Result<void> open(const HostTierOptions& options) {
    const MutexLock lock(mutex_);
    STEMMA_TRY(store_, HostStore::create(options, counters_));
    traits_.max_entry_bytes = std::min(store_->most_bytes(), tier::kMostPayloadBytes);
    return {};
  }

  const TierTraits& traits() const noexcept override { return traits_; }

  void submit(std::shared_ptr<TierBatch> batch) override {
    const TierOp op = batch->op();
    const std::span<TierItem> items = batch->items();
    begin(op);
    run_all(op, *batch);
    settle(op, items);
    for (size_t i = 0; i < items.size(); ++i) {
      counters_.count(op, items[i].outcome, items[i].info.bytes);
      batch->end(i, items[i].outcome);
    }
  }

  TierStats stats() const override {
    TierStats stats;
    counters_.read(stats);
    const MutexLock lock(mutex_);
    stats.entries = store_->entries();
    stats.used_bytes = store_->used_bytes();
    stats.read_ns = reading_.total_ns(monotonic_ns());
    stats.write_ns = writing_.total_ns(monotonic_ns());
    return stats;
  }

  // A submitted batch has ended when submit() returns.
  bool flush(uint64_t) override { return true; }

  Purged purge(const Purge& what, uint64_t) override try {
    tier::PurgeChoice choice(what);
    const MutexLock lock(mutex_);
    if (choice.looks_first()) {
      store_->each_listed(
          [&](uint32_t cell) { choice.look(store_->key(cell), store_->info(cell)); });
    }
    store_->each_listed([&](uint32_t cell) {
      if (choice.takes(store_->key(cell), store_->info(cell))) store_->unlist(cell);
    });
    choice.purged.complete = true;
    return choice.purged;
  } catch (const std::bad_alloc&) {
    return {.error = "there is no memory for it"};
  }

 private:
  // One thread copies and checks some GB/s, a fraction of what memory gives.
  static constexpr uint64_t kWorthAThread = uint64_t{4} << 20U;
  static constexpr uint64_t kMostThreads = 4;

  void run_all(TierOp op, TierBatch& batch) {
    const std::span<TierItem> items = batch.items();
    std::atomic<size_t> next{0};
    const auto take = [&] {
      for (size_t i = next++; i < items.size(); i = next++) {
        TierItem& item = items[i];
        item.outcome = batch.verdict(monotonic_ns());
        if (item.outcome == TierOutcome::pending) item.outcome = run(op, item);
      }
    };
    uint64_t bytes = 0;
    for (const TierItem& item : items) bytes += item.into.size();
    const uint64_t cores = std::max(std::thread::hardware_concurrency(), 1U);
    // Puts keep their order: what finds no room is the deepest.
    const uint64_t wanted =
        op == TierOp::get
            ? std::min<uint64_t>({bytes / kWorthAThread, kMostThreads, cores, items.size()})
            : 1;
    std::vector<std::thread> others;
    try {
      while (others.size() + 1 < wanted) others.emplace_back(take);
    } catch (const std::exception&) {  // Then fewer do it.
    }
    take();
    for (std::thread& other : others) other.join();
  }

  TierOutcome run(TierOp op, TierItem& item) {
    switch (op) {
      case TierOp::put: return put(item);
      case TierOp::get: return get(item);
      case TierOp::contains:
      case TierOp::touch: return contains(item);
      case TierOp::remove: return remove(item);
    }
    return TierOutcome::failed;
  }

  TierOutcome put(const TierItem& item) {
    if (tier::check_put(item, traits_) != TierOutcome::pending) return TierOutcome::refused;
    EntryInfo info = item.info;
    info.words = 0;
    uint32_t cell;
    {
      const MutexLock lock(mutex_);
      if (there(item.key, info)) return TierOutcome::done;
      cell = store_->reserve(info.bytes);
    }
    if (cell == HostStore::kNone) return TierOutcome::refused;
    const uint8_t* from = item.source.data();
    store_->pieces(cell, info.bytes, [&](uint8_t* to, size_t bytes) {
      std::memcpy(to, from, bytes);
      from += bytes;
    });
    const uint64_t sum = tier::sum(item.source);
    const MutexLock lock(mutex_);
    // Another batch may have put the same entry meanwhile.
    if (there(item.key, info)) {
      store_->drop(cell);
    } else {
      store_->publish(cell, item.key, info, sum, std::min(item.priority, kMaxPriority));
    }
    return TierOutcome::done;
  }

  bool there(const EntryKey& key, const EntryInfo& info) STEMMA_REQUIRES(mutex_) {
    const uint32_t cell = store_->find(key);
    if (cell == HostStore::kNone || !(store_->info(cell) == info)) return false;
    counters_.count_already_there();
    return true;
  }

  TierOutcome get(TierItem& item) {
    uint32_t cell;
    EntryInfo info;
    uint64_t sum;
    {
      const MutexLock lock(mutex_);
      cell = store_->find(item.key);
      if (cell == HostStore::kNone) return TierOutcome::absent;
      info = store_->info(cell);
      sum = store_->sum(cell);
      const TierOutcome believed = tier::believe({.key = item.key, .info = info, .sum = sum}, item);
      if (believed == TierOutcome::corrupt) store_->unlist(cell);
      if (believed != TierOutcome::done) return believed;
      store_->pin(cell);
    }
    uint8_t* to = item.into.data();
    store_->pieces(cell, info.bytes, [&](const uint8_t* from, size_t bytes) {
      std::memcpy(to, from, bytes);
      to += bytes;
    });
    const bool whole = tier::sum(item.into.first(info.bytes)) == sum;
    const MutexLock lock(mutex_);
    if (!whole && store_->listed(cell)) store_->unlist(cell);
    store_->unpin(cell);
    if (!whole) return TierOutcome::corrupt;
    item.info = info;
    return TierOutcome::done;
  }

  TierOutcome contains(TierItem& item) {
    const MutexLock lock(mutex_);
    const uint32_t cell = store_->find(item.key);
    if (cell == HostStore::kNone) return TierOutcome::absent;
    item.info = store_->info(cell);
    return TierOutcome::done;
  }

  TierOutcome remove(const TierItem& item) {
    const MutexLock lock(mutex_);
    const uint32_t cell = store_->find(item.key);
    if (cell == HostStore::kNone) return TierOutcome::absent;
    store_->unlist(cell);
    return TierOutcome::done;
  }

  void begin(TierOp op) {
    const MutexLock lock(mutex_);
    if (op == TierOp::get) reading_.begin(monotonic_ns());
    if (op == TierOp::put) writing_.begin(monotonic_ns());
  }

  // Touches the deepest first, so it is evicted first. Until here, nothing that the batch put could
  // be evicted, and items that did not fit beside it were refused.
  void settle(TierOp op, std::span<const TierItem> items) {
    const MutexLock lock(mutex_);
    if (op == TierOp::get) reading_.end(monotonic_ns());
    if (op == TierOp::put) writing_.end(monotonic_ns());
    if (op == TierOp::contains || op == TierOp::remove) return;
    for (size_t i = items.size(); i > 0; --i) {
      // Includes items that were not done: an eviction may have skipped them while they were read.
      const uint32_t cell = store_->find(items[i - 1].key);
      if (cell != HostStore::kNone) store_->touch(cell);
    }
  }

  TierTraits traits_;
  tier::Counters counters_;
  mutable base::Mutex mutex_;
  // The mutex guards its books; a cell's chunks belong to the thread that fills or reads them.
  std::unique_ptr<HostStore> store_;
  tier::BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<Tier>> make_host_tier(const HostTierOptions& options) {
  try {
    auto made = std::make_unique<HostTier>(options);
    STEMMA_TRY_VOID(made->open(options));
    return std::unique_ptr<Tier>(std::move(made));
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory for a host tier");
  }
}

}  // namespace stemma
