// A Writer puts entries into one tier, from a bounded queue on its own thread. So callers never
// wait for a slow tier, and a slow tier does not delay a fast one. It also tells the tier which
// entries were used elsewhere.
//
// Invariant:  at most queue_bytes wait, or one larger entry; a full queue refuses entries and
//             counts them. Entries are put in order of arrival. (Entries that leave memory arrive
//             in order of worth, least first. A tier keeps the first of a batch longest, so such a
//             batch begins with the last to arrive.) A batch is a small part of the tier's
//             capacity. Uses that do not fit are forgotten.
// Threading:  thread-safe; `settled` and `touched` are called on the writer's thread, without
// locks.
// Ownership:  payloads are shared until they are put.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/lock.h"
#include "stemma/tier/tier_stack.h"

namespace stemma::tier {

class Writer {
 public:
  struct Options {
    uint64_t queue_bytes = 0;
    uint64_t deadline_ns = 0;  // Counted from the batch's submission.
  };
  // Called with the outcome of each put.
  using Settled = std::function<void(const StoreItem& item, TierOutcome outcome)>;
  // Called with the outcome of each use that the tier was told of.
  using Touched = std::function<void(const EntryKey& key, TierOutcome outcome)>;

  Writer(Tier& tier, const Options& options, Settled settled, Touched touched);
  ~Writer();  // Drops what is queued; waits for what is under way.
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // False: the queue is full.
  bool add(const StoreItem& item);
  // Reports a use of the entry; the tier is told soon. Ignored if the entry is on its way to the
  // tier: its put counts as a use.
  void touch(const EntryKey& key);
  // Drops queued entries that the purge takes, or that have one of these keys, and waits until the
  // put under way has ended. False: not by then.
  bool forget(const Purge& what, uint64_t until_ns);
  bool forget(const std::unordered_set<EntryKey>& keys, uint64_t until_ns);
  // Waits until the queue is empty and its last batch has ended. False: not by then.
  bool drain(uint64_t until_ns);
  uint64_t dropped() const;
  // Entries that wait or are on their way.
  uint64_t waiting() const;

 private:
  // Whether to drop a queued entry, or a use.
  using Goes = std::function<bool(const EntryKey& key, const EntryInfo* info)>;

  bool forget(const Goes& goes, uint64_t until_ns);
  void work();
  std::shared_ptr<std::deque<StoreItem>> take() STEMMA_REQUIRES(mutex_);
  uint64_t most_bytes() const noexcept;  // Of a batch.
  void forget_on_its_way(const EntryKey& key) noexcept STEMMA_REQUIRES(mutex_);
  void lose_all() STEMMA_REQUIRES(mutex_);  // Gives up the lock now and then.
  void put(const std::shared_ptr<const std::deque<StoreItem>>& items);
  std::vector<EntryKey> take_uses() STEMMA_REQUIRES(mutex_);
  void tell_uses(const std::vector<EntryKey>& keys);
  bool run(const std::shared_ptr<TierBatch>& batch);

  Tier& tier_;
  const Options options_;
  const Settled settled_;
  const Touched touched_;
  mutable base::WaitMutex mutex_;
  base::Condition changed_;
  std::deque<StoreItem> queue_ STEMMA_GUARDED_BY(mutex_);
  std::unordered_multiset<EntryKey> on_their_way_
      STEMMA_GUARDED_BY(mutex_);  // In the queue, or being put.
  std::deque<EntryKey> uses_ STEMMA_GUARDED_BY(mutex_);
  size_t uses_under_way_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t queued_bytes_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ STEMMA_GUARDED_BY(mutex_) = 0;
  size_t under_way_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t batches_ STEMMA_GUARDED_BY(mutex_) = 0;  // Batches put so far.
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stemma::tier
