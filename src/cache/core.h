// Core is what a PagedCache and its leases share: the Store, its one lock, the pool of lease
// records, and the ended leases that wait for a fence. Only it takes the lock; the calls of
// PagedCache and Lease (lease/) reach the Store through locked() and until_room().
//
// Decide, do, settle: walks, hashing, copies, fences and callbacks run without the lock; each
// section under the lock is short (docs/concurrency.md).
//
// Prepare, then change: a section allocates before its first change. So a call that returns a
// Result may throw std::bad_alloc with nothing changed; guarded() turns it into out_of_memory.
// Calls that end a use (release, poll, unpin, drop_scope, reset, evict, ...) need no memory.
//
// Threading:  thread-safe; a LeaseRecord is used by one thread at a time.
// Ownership:  lives as long as its PagedCache, any Lease or any Reclaimed: the last of them deletes
//             it, as determined under the lock. (A reference count would be one more cache line
//             that all threads write.)
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <utility>

#include "base/mutex.h"
#include "cache/lease/lease_queue.h"
#include "cache/lease/record_pool.h"
#include "cache/store/store.h"
#include "stemma/cache.h"

namespace stemma::cache {

class Core {
 public:
  explicit Core(const Options& options);
  [[nodiscard]] bool create();
  // The PagedCache is gone: only leases will call from now on. Deletes this now or with the last
  // lease.
  void disown();

  const Options& options() const noexcept { return view_.options(); }
  // For what any thread may ask without the lock: the shape, walks, guesses, keys of held cells.
  const Books& view() const noexcept { return view_; }
  RecordPool& records() noexcept { return records_; }

  // Calls `use` with the Store, under the lock. The time is read once, before the lock, and serves
  // the whole section.
  template <class Use>
  decltype(auto) locked(Use&& use) STEMMA_EXCLUDES(mutex_) {
    const Section lock(*this);
    return use(store_);
  }
  // Calls `attempt(store, last_try)` under the lock until it succeeds or no fence can give blocks
  // back, and finishes releases in between. Returns the last outcome; counts a refusal.
  template <class Attempt>
  auto until_room(Attempt&& attempt) STEMMA_EXCLUDES(mutex_);

  // Ends a lease, now or when the fence signals.
  void end(LeaseRecord* lease, Fence* fence) STEMMA_EXCLUDES(mutex_);
  // Ends the leases whose fences have signalled. Returns how many.
  uint32_t poll() STEMMA_EXCLUDES(mutex_);
  Reclaimed reclaim(uint32_t positions, uint32_t most) STEMMA_EXCLUDES(mutex_);
  void end_reclaim(std::span<const Reclaimed::Block> blocks) noexcept STEMMA_EXCLUDES(mutex_);

 private:
  class STEMMA_SCOPED_CAPABILITY Section {
   public:
    explicit Section(Core& core) noexcept STEMMA_ACQUIRE(core.mutex_) : core_(core) {
      const uint64_t now_ns = core.clock_->now_ns();
      core_.mutex_.lock();
      core_.store_.begin_section(now_ns);
    }
    ~Section() STEMMA_RELEASE() { core_.mutex_.unlock(); }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Core& core_;
  };

  // Whether to stop after `tries` refusals, because no fence can give blocks back. Another thread
  // may be polling the fences at this moment, so more than one try is worthwhile.
  bool give_up(uint32_t tries) const noexcept {
    return tries == 3 || fenced_count_.load(std::memory_order_relaxed) == 0;
  }
  // Whether the PagedCache, all leases and all Reclaimed are gone. Leases that wait for a fence do
  // not count.
  bool unused() const noexcept STEMMA_REQUIRES(mutex_) {
    return !owned_ && reclaims_ == 0 &&
           store_.holds.live().size() == fenced_count_.load(std::memory_order_relaxed);
  }

  const Clock* const clock_;
  alignas(64) base::Mutex mutex_;
  bool owned_ STEMMA_GUARDED_BY(mutex_) = true;
  uint32_t reclaims_ STEMMA_GUARDED_BY(mutex_) = 0;  // Reclaimed objects alive.
  Store store_ STEMMA_GUARDED_BY(mutex_);
  const Books& view_;
  LeaseQueue fenced_ STEMMA_GUARDED_BY(mutex_);
  std::atomic<uint32_t> fenced_count_{0};  // Includes those another thread is polling.
  RecordPool records_;
};

template <class Attempt>
auto Core::until_room(Attempt&& attempt) {
  for (uint32_t tries = 0;; ++tries) {
    {
      const Section lock(*this);
      const bool last_try = give_up(tries);
      auto outcome = attempt(store_, last_try);
      if (!outcome && last_try) (void)store_.books.refused(outcome.error());
      if (outcome || last_try) return outcome;
    }
    poll();
  }
}

}  // namespace stemma::cache
