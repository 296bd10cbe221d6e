// A Writer puts entries into one tier from a queue of bounded size, on a thread of its own, so that
// nobody waits for a slow tier and a slow tier does not hold up a fast one. It also tells the tier which
// entries were used elsewhere.
//
// Invariant:  no more than queue_bytes wait, or a single entry that is larger; what comes when the queue
//             is full is not taken, and counted. Entries are put in the order in which they came. (Those that leave
//             memory come in the order of what they are worth. A tier keeps what is first in a batch longest, so
//             such a batch begins with the last of them.) A batch is a small part of what the tier takes. Uses that
//             do not fit are forgotten.
// Threading:  thread-safe; `settled` and `touched` are called on the writer's thread, without locks.
// Ownership:  payloads are shared until they are put.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "stemma/tier_stack.h"

namespace stemma::tier {

class Writer {
 public:
  struct Options {
    uint64_t queue_bytes = 0;
    uint64_t deadline_ns = 0;  // From when a batch is submitted.
  };
  // Hears what became of each put.
  using Settled = std::function<void(const EntryKey& key, TierOutcome outcome)>;
  // Hears what became of each use that the tier was told of.
  using Touched = std::function<void(const EntryKey& key, TierOutcome outcome)>;

  Writer(Tier& tier, const Options& options, Settled settled, Touched touched);
  ~Writer();  // What waits is let go; what is under way is waited for.
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // False: the queue is full.
  bool add(const StoreItem& item);
  // The entry was used; the tier hears of it soon. Not if it is on its way there: its put counts as a use.
  void touch(const EntryKey& key);
  // Lets go of what waits and the purge takes, and waits until what is being put just now has been.
  // False: not by then.
  bool forget(const Purge& what, uint64_t until_ns);
  // Waits until the queue is empty and its last batch has ended. False: not by then.
  bool drain(uint64_t until_ns);
  uint64_t dropped() const;
  // Entries that wait or are on their way.
  uint64_t waiting() const;

 private:
  void work();
  std::shared_ptr<std::deque<StoreItem>> take();
  uint64_t most_bytes() const noexcept;  // Of a batch.
  void forget_on_its_way(const EntryKey& key) noexcept;
  void lose_all(std::unique_lock<std::mutex>& lock);
  void put(const std::shared_ptr<const std::deque<StoreItem>>& items);
  std::vector<EntryKey> take_uses();
  void tell_uses(const std::vector<EntryKey>& keys);
  bool run(const std::shared_ptr<TierBatch>& batch);

  Tier& tier_;
  const Options options_;
  const Settled settled_;
  const Touched touched_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StoreItem> queue_;
  std::unordered_multiset<EntryKey> on_their_way_;  // In the queue, or being put.
  std::deque<EntryKey> uses_;
  size_t uses_under_way_ = 0;
  uint64_t queued_bytes_ = 0;
  uint64_t dropped_ = 0;
  size_t under_way_ = 0;
  uint64_t batches_ = 0;  // That have been put.
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace stemma::tier
