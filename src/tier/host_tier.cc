#include "stemma/host_tier.h"

#include <algorithm>
#include <cstring>
#include <new>

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
    for (TierItem& item : items) {
      item.outcome = batch->verdict(monotonic_ns());
      if (item.outcome == TierOutcome::pending) item.outcome = run(op, item);
    }
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

  // What was submitted has ended when submit() returned.
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
    // Somebody else may have been as fast.
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

  // Deepest first, so that the deepest is the first to go. Until here nothing that the batch put could
  // go, and what did not fit beside it was refused.
  void settle(TierOp op, std::span<const TierItem> items) {
    const MutexLock lock(mutex_);
    if (op == TierOp::get) reading_.end(monotonic_ns());
    if (op == TierOp::put) writing_.end(monotonic_ns());
    if (op == TierOp::contains || op == TierOp::remove) return;
    for (size_t i = items.size(); i > 0; --i) {
      // Also what was not done: it may have been skipped by an eviction while it was read.
      const uint32_t cell = store_->find(items[i - 1].key);
      if (cell != HostStore::kNone) store_->touch(cell);
    }
  }

  TierTraits traits_;
  tier::Counters counters_;
  mutable base::Mutex mutex_;
  // Its books are guarded by the mutex; the chunks of one cell belong to who fills or reads it.
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
