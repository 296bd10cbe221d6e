// The tier's own thread and what it works on; see disk_tier.h for what all of it promises.
//
//   submit() --> incoming --> job (reads_ or writes_) --> op: read or write --> settle --> item ends
//                                                          |-- read: looked at by the checker
//                                                          '-- durable: waits for the next sync
//                                                          '-- header to be zeroed: zeros_
//
// Books and counters are under `mutex_`, for short looks only; everything else belongs to the thread.
// Threading: one thread of its own, and the checker's; submit(), stats() and flush() from any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "stemma/disk_tier.h"
#include "tier/counters.h"
#include "tier/disk/checker.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

class Engine final : public DiskTier {
 public:
  Engine(const DiskOptions& options, std::unique_ptr<Store> store);
  ~Engine() override;
  // Error: out_of_memory.
  Result<void> start();

  const TierTraits& traits() const noexcept override { return traits_; }
  void submit(std::shared_ptr<TierBatch> batch) override;
  TierStats stats() const override;
  bool flush(uint64_t until_ns) override;
  const DiskOpening& opening() const noexcept override { return store_->opening; }
  uint64_t index_bytes() const override;
  void check_invariants() const override;

 private:
  static constexpr size_t kNoItem = ~size_t{0};

  struct Job {
    std::shared_ptr<TierBatch> batch;
    uint64_t sequence = 0;
    size_t next = 0;  // The first item that has not begun.
    size_t ended = 0;
    uint64_t serial = 0;    // put: of its entries.
    uint64_t begun_at = 0;  // The books' stamp when it began.
    bool begun = false;
    std::list<Job>::iterator place;
  };
  struct Waiter {  // An item that waits, or nobody.
    Job* job = nullptr;
    size_t item = kNoItem;
  };
  struct Op : Io {
    enum class What : uint8_t { put, get, zero };
    What what = What::get;
    Waiter who;
    RecordId record = kNoRecord;
    EntryInfo info;            // get: what the books say of it.
    uint8_t* pages = nullptr;  // Two: for the header, and for the end of the payload.
    PageMemory bounce;
    uint64_t left = 0;                           // Bytes still to be moved.
    bool direct = false;                         // get: into the caller's memory.
    TierOutcome verdict = TierOutcome::pending;  // get: once it was looked at.
  };
  struct Zero {
    RecordId record = kNoRecord;
    Waiter who;
  };
  struct Follower {  // A put of what is just being written.
    RecordId record = kNoRecord;
    Waiter who;
  };
  struct Flush {
    uint64_t sequence = 0;
    bool done = false;
    bool good = false;
  };

  // engine.cc: the outside, and the loop.
  void run();
  bool take_incoming();
  void sweep(uint64_t now_ns, bool closing);
  void sweep(std::deque<Job*>& queue, uint64_t now_ns, bool closing);
  void begin_some();
  bool begin_from(std::deque<Job*>& queue);
  void answer_at_once(const std::shared_ptr<TierBatch>& batch);
  void start_sync();
  void settle_sync();
  void look_for_files(uint64_t now_ns);
  bool idle() const noexcept;
  uint64_t patience_ns() const noexcept;
  void end(Waiter who, TierOutcome outcome, bool already_there = false);
  bool is_open() const noexcept;
  bool broken(uint64_t now_ns);
  void note(int64_t result);  // An I/O went so: for the breaker.

  // engine_ops.cc: what becomes of an item.
  void begin_job(Job& job);
  void begin_item(Job& job, size_t item);
  void begin_put(Job& job, size_t item);
  void begin_get(Job& job, size_t item);
  void begin_remove(Job& job, size_t item);
  TierOutcome find_room(const Job& job, const TierItem& item, RecordId& record);
  void tell_of_full();
  bool fill_put(Op& op, const TierItem& item, uint64_t serial);
  void abandon(RecordId record);
  void unpin(RecordId record, bool corrupt);
  void start_zeros();
  void launch(Op& op, Io::Kind kind, uint64_t offset);
  void settle(Op& op);
  void settle_put(Op& op);
  void settle_get(Op& op);
  void check(Op& op);  // On whichever thread.
  void settle_checked();
  static TierOutcome verify(const Op& op, TierItem& item);
  void settle_zero(Op& op);
  void free_op(Op& op);
  void when_written(Waiter who, bool already_there);

  const DiskOptions options_;
  TierTraits traits_;
  std::unique_ptr<Store> store_;
  PageMemory op_pages_;
  PageMemory zero_page_;
  std::vector<Op> ops_;
  std::unique_ptr<IoQueue> queue_;    // Ends before the memory that it reads and writes,
  std::unique_ptr<Checker> checker_;  // and this before the queue.

  // ---- The thread's own ----
  std::list<Job> live_;
  std::deque<Job*> reads_, writes_;  // With items that have not begun.
  uint32_t turn_ = 0;
  std::vector<Op*> free_ops_;
  std::vector<Zero> zeros_;
  std::vector<Follower> followers_;
  struct Synced {
    Waiter who;
    bool already_there = false;
  };
  std::vector<Synced> to_sync_, syncing_;
  std::vector<std::shared_ptr<Flush>> flushes_, flushing_;
  Io sync_;
  bool sync_under_way_ = false;
  uint64_t serial_ = 1;
  uint32_t errors_in_a_row_ = 0;
  bool told_of_errors_ = false;
  bool told_of_full_ = false;
  uint64_t no_growth_until_ns_ = 0;
  uint64_t no_lost_until_ns_ = 0;
  uint64_t looked_ns_ = 0;
  bool told_of_removal_ = false;
  BouncePool bounces_;

  // ---- Everybody's ----
  std::atomic<uint64_t> broken_until_ns_{0};  // 0: it is not.
  Counters counters_;
  mutable base::Mutex mutex_;
  std::list<Job> incoming_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Flush>> incoming_flushes_ STEMMA_GUARDED_BY(mutex_);
  uint64_t sequence_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t queued_items_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
  SlotBooks& books_ STEMMA_GUARDED_BY(mutex_);
  std::mutex flush_mutex_;
  std::condition_variable flushed_;
  std::thread thread_;
};

}  // namespace stemma::tier::disk
