// Core: what runs behind a shared tier: its queue, its books and its threads. Threads share it with the tier,
// so one that a file system never lets go can be left behind.
//
// Threading: thread-safe. One lock, under which nothing is asked of a file system, nothing is logged, and no
//            batch is ended.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "stemma/shared_tier.h"
#include "tier/counters.h"
#include "tier/shared/books.h"
#include "tier/shared/directory.h"
#include "tier/shared/file_system.h"
#include "tier/shared/job.h"

namespace stemma::tier::shared {

class Core : public std::enable_shared_from_this<Core> {
 public:
  explicit Core(const SharedOptions& options);

  // The directory, a scan, and the capacity holds. Then start().
  Result<void> open();
  void start();
  // Ends everything; waits for threads, but not forever.
  void stop();

  void submit(std::shared_ptr<TierBatch> batch);
  TierStats stats() const;
  bool flush(uint64_t until_ns);
  bool scan_now();
  Purged purge(const Purge& what, uint64_t until_ns);

  const TierTraits& traits() const noexcept { return traits_; }
  const SharedOpening& opening() const noexcept { return opening_; }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using JobItem = std::pair<std::shared_ptr<Job>, size_t>;
  struct Thread {
    std::thread thread;
    std::atomic<uint64_t> seen_ns{0};  // 0: it has nothing to do.
    bool exited = false;               // Guarded.
  };
  struct Task {
    std::shared_ptr<Job> job;
    size_t index = 0;
    TierItem item;
    TierOutcome outcome = TierOutcome::pending;
    uint64_t moment = 0;  // Of the books, when it was begun.
    Books::Plan plan;
  };

  struct Purging {
    Purge what;
    uint64_t until_ns = 0;
    bool answered = false;  // Guarded, as all below.
    Purged answer;
  };

  // ---- core.cc: the way of a batch ----
  bool pick(Lock& lock, bool puts_first, Task& task);
  bool pick_from(std::deque<std::shared_ptr<Job>>& lane, Task& task);
  void work(Thread& self, bool puts_first);
  void run(Task& task, std::atomic<uint64_t>& seen_ns);
  void get(Task& task, ItemLoan& loan);
  Answer put(Task& task, ItemLoan& loan);
  Answer touch(const Task& task);
  bool use(const EntryKey& key, uint64_t used_ns);
  void end(const std::shared_ptr<Job>& job, size_t i, TierOutcome outcome);
  void note(const Answer& answer);

  // ---- core_threads.cc: what goes on beside ----
  void launch(const std::function<void(Core&, Thread&)>& body);
  void watch(Thread& self);
  void keep(Thread& self);
  uint64_t collect_overdue(uint64_t now_ns, std::vector<std::pair<JobItem, TierOutcome>>& out);
  bool any_busy() const;
  bool all_stuck(uint64_t now_ns) const;
  void fail(const std::string& why);
  void recover();
  int scan();
  void sync_if_wanted();
  // ---- core_purge.cc ----
  void work_on_purges(Thread& self);
  void carry_out(Purging& purge);
  void answer(Purging& purge, std::string error);
  // Until the capacity holds; errno where a file system is to blame.
  bool make_room(Books::Plan& plan, int& problem);

  const SharedOptions options_;
  TierTraits traits_;
  Directory directory_;
  Counters counters_;
  SharedOpening opening_;

  mutable std::mutex mutex_;  // Guards everything below.
  std::condition_variable has_work_, watch_, keep_, purge_, ended_;
  Books books_;
  std::deque<std::shared_ptr<Job>> reads_, puts_;
  std::map<uint64_t, std::shared_ptr<Job>> live_;
  uint64_t serials_ = 0, last_used_ns_ = 0;
  size_t queued_ = 0;
  uint32_t putting_ = 0;
  BusyTime reading_, writing_;
  bool stopping_ = false, finished_ = false;
  bool broken_ = false;
  uint32_t errors_in_row_ = 0;
  bool scan_wanted_ = false;
  uint64_t scans_begun_ = 0, scans_ended_ = 0;
  bool unsynced_ = false, sync_good_ = true;
  uint64_t syncs_wanted_ = 0, syncs_ended_ = 0;
  std::deque<std::shared_ptr<Purging>> purges_;   // One after the other.
  std::vector<std::unique_ptr<Thread>> threads_;  // Workers first.
};

}  // namespace stemma::tier::shared
