// Core: the queue, books and threads of a shared tier. The threads share it with the tier, so a
// thread that is stuck in a file system can be left behind.
//
// Threading: thread-safe. One lock; while it is held, no file system is called, nothing is
//            logged, and no batch is ended.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "stemma/tier/shared_tier.h"
#include "tier/breaker.h"
#include "tier/counters.h"
#include "tier/files.h"
#include "tier/shared/books.h"
#include "tier/shared/directory.h"
#include "tier/shared/job.h"

namespace stemma::tier::shared {

class Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(const SharedOptions& options);

  // Opens the directory, scans, and enforces the capacity. Then call start().
  Result<void> open();
  void start();
  // Ends everything; waits for threads, with a limit.
  void stop();

  void submit(std::shared_ptr<TierBatch> batch);
  TierStats stats() const;
  bool flush(uint64_t until_ns);
  bool scan_now();
  Purged purge(const Purge& what, uint64_t until_ns);

  const TierTraits& traits() const noexcept { return traits_; }
  const SharedOpening& opening() const noexcept { return opening_; }

 private:
  using Lock = base::Lock;
  using JobItem = std::pair<std::shared_ptr<Job>, size_t>;
  struct Thread {
    std::thread thread;
    std::atomic<uint64_t> seen_ns{0};  // 0: idle.
    bool exited = false;               // Guarded.
  };
  struct Task {
    std::shared_ptr<Job> job;
    size_t index = 0;
    TierItem item;
    TierOutcome outcome = TierOutcome::pending;
    uint64_t moment = 0;  // The books' moment() when it began.
    Books::Plan plan;
  };

  struct Purging {
    Purge what;
    uint64_t until_ns = 0;
    bool answered = false;  // Guarded, as all below.
    Purged answer;
  };

  // ---- core.cc: the way of a batch ----
  bool pick(Lock& lock, bool puts_first, Task& task) STEMMA_REQUIRES(mutex_);
  bool pick_from(std::deque<std::shared_ptr<Job>>& lane, Task& task) STEMMA_REQUIRES(mutex_);
  void work(Thread& self, bool puts_first);
  void run(Task& task, std::atomic<uint64_t>& seen_ns);
  void get(Task& task, ItemLoan& loan);
  Answer put(Task& task, ItemLoan& loan);
  Answer touch(const Task& task);
  bool use(const EntryKey& key, uint64_t used_ns);
  void end(const std::shared_ptr<Job>& job, size_t i, TierOutcome outcome);
  void note(const Answer& answer);

  // ---- core_threads.cc: what goes on beside ----
  void launch(const std::function<void(Core&, Thread&)>& body) STEMMA_REQUIRES(mutex_);
  void watch(Thread& self);
  void keep(Thread& self);
  uint64_t collect_overdue(uint64_t now_ns, std::vector<std::pair<JobItem, TierOutcome>>& out)
      STEMMA_REQUIRES(mutex_);
  bool any_busy() const STEMMA_REQUIRES(mutex_);
  bool all_stuck(uint64_t now_ns) const STEMMA_REQUIRES(mutex_);
  void fail(const std::string& why);  // Opens the breaker regardless of earlier errors.
  void tell_of_failure(const std::string& why);
  void recover();
  int scan();
  void scrub();
  void sync_if_wanted();
  // After a failed sync: what was put since the last good one is doubtful.
  void distrust();
  // Returns whether all that was doubtful is gone.
  bool remove_doubtful();
  // ---- core_purge.cc ----
  void work_on_purges(Thread& self);
  void carry_out(Purging& purge);
  void answer(Purging& purge, std::string error);
  // Evicts until the capacity holds; errno if the file system is to blame.
  bool make_room(Books::Plan& plan, int& problem);

  const SharedOptions options_;
  TierTraits traits_;
  Directory directory_;
  Counters counters_;
  SharedOpening opening_;

  mutable base::WaitMutex mutex_;  // Guards everything below.
  base::Condition has_work_, watch_, keep_, purge_, ended_;
  Books books_ STEMMA_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Job>> reads_ STEMMA_GUARDED_BY(mutex_);
  std::deque<std::shared_ptr<Job>> puts_ STEMMA_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<Job>> live_ STEMMA_GUARDED_BY(mutex_);
  uint64_t serials_ STEMMA_GUARDED_BY(mutex_) = 0, last_used_ns_ STEMMA_GUARDED_BY(mutex_) = 0;
  size_t queued_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint32_t putting_ STEMMA_GUARDED_BY(mutex_) = 0;
  BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
  bool stopping_ STEMMA_GUARDED_BY(mutex_) = false, finished_ STEMMA_GUARDED_BY(mutex_) = false;
  Breaker breaker_ STEMMA_GUARDED_BY(mutex_);
  bool scan_wanted_ STEMMA_GUARDED_BY(mutex_) = false;
  uint64_t scans_begun_ STEMMA_GUARDED_BY(mutex_) = 0, scans_ended_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool unsynced_ STEMMA_GUARDED_BY(mutex_) = false, sync_good_ STEMMA_GUARDED_BY(mutex_) = true;
  // Each sync begins an epoch. What was put from unsynced_epoch_ on may not be durable. Puts that
  // began before bad_epoch_ were under way when a sync failed.
  uint32_t epoch_ STEMMA_GUARDED_BY(mutex_) = 1, unsynced_epoch_ STEMMA_GUARDED_BY(mutex_) = 1;
  uint32_t bad_epoch_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::vector<EntryKey> doubtful_ STEMMA_GUARDED_BY(mutex_);  // To be removed, after a failed sync.
  uint64_t syncs_wanted_ STEMMA_GUARDED_BY(mutex_) = 0, syncs_ended_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::deque<std::shared_ptr<Purging>> purges_ STEMMA_GUARDED_BY(mutex_);  // One after the other.
  std::vector<EntryKey> to_scrub_ STEMMA_GUARDED_BY(mutex_);  // Of the folder before scrub_folder_.
  uint32_t scrub_folder_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t scrub_at_ns_ STEMMA_GUARDED_BY(mutex_) = kNever;                 // kNever: not at all.
  std::vector<std::unique_ptr<Thread>> threads_ STEMMA_GUARDED_BY(mutex_);  // Workers first.
};

}  // namespace stemma::tier::shared
