// The tier's own thread and its data; disk_tier.h says what the tier promises.
//
//   submit() --> incoming --> job (reads_ or writes_) --> op, in pieces --> settle --> item ends
//                               |-- get: the checker examines what was read
//                               |-- put: the body, then its record in the table
//                               |-- durable: waits for the next sync
//                               '-- an outdated record of the table: slots_
//
// An op has a piece for each extent; all its pieces run at once. `mutex_` guards books and counters
// and is held only briefly; everything else belongs to the thread.
//
// Epochs: the start of a sync ends an epoch. Entries published in an epoch are trusted once a later
// sync succeeds; if one fails, everything since the last successful one is removed.
// Threading: one thread of its own, and the checker's; submit(), stats() and flush() from any.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "base/mutex.h"
#include "stemma/tier/disk_tier.h"
#include "tier/breaker.h"
#include "tier/counters.h"
#include "tier/disk/pages_to_erase.h"
#include "tier/disk/store.h"

namespace stemma::tier::disk {

class LocalTier final : public DiskTier {
 public:
  LocalTier(const DiskOptions& options, std::unique_ptr<Store> store);
  ~LocalTier() override;
  // Error: out_of_memory.
  Result<void> start();

  const TierTraits& traits() const noexcept override { return traits_; }
  void submit(std::shared_ptr<TierBatch> batch) override;
  TierStats stats() const override;
  bool flush(uint64_t until_ns) override;
  Purged purge(const Purge& what, uint64_t until_ns) override;
  const DiskOpening& opening() const noexcept override { return opening_; }
  uint64_t index_bytes() const override;
  void check_invariants() const override;

 private:
  static constexpr size_t kNoItem = ~size_t{0};

  struct Job {
    std::shared_ptr<TierBatch> batch;
    uint64_t sequence = 0;
    size_t next = 0;  // The first item not begun.
    size_t ended = 0;
    uint64_t begun_at = 0;  // The books' stamp when it began.
    uint64_t used = 0;      // put: the use stamp in its entries' records.
    bool begun = false;
    std::list<Job>::iterator place;
  };
  struct Waiter {  // A waiting item, or none.
    Job* job = nullptr;
    size_t item = kNoItem;
  };
  struct Op;
  struct Piece : Io {
    Op* op = nullptr;
    uint64_t left = 0;  // Bytes still to be moved.
  };
  struct Op {
    enum class What : uint8_t { put, get, scrub };
    What what = What::get;
    Waiter who;
    RecordId record = kNoRecord;
    EntryInfo info;
    uint64_t sum = 0;
    uint64_t serial = 0;                         // put.
    uint32_t epoch = 0;                          // put: the epoch at its beginning.
    uint32_t attempt = 0;                        // put: how many bad places were tried.
    TierOutcome verdict = TierOutcome::pending;  // get: after the check.
    bool direct = false;                         // get: into the caller's memory.
    uint8_t* page = nullptr;                     // For the end of a body, or for all of it.
    PageMemory bounce;
    std::array<Extent, kMostExtents> extents;
    uint32_t extent_count = 0;
    std::array<Piece, kMostExtents> pieces;
    uint32_t pieces_left = 0;
    int64_t error = 0;    // Of the last piece that failed.
    uint32_t failed = 0;  // Bits of those pieces.
    bool is_short = false;

    bool good() const noexcept { return error == 0 && !is_short; }
    uint8_t* body() const noexcept { return bounce ? bounce.data() : page; }
  };
  struct SlotWrite {  // An outdated record of the table.
    RecordId record = kNoRecord;
    Waiter who;
    TierOutcome outcome = TierOutcome::done;
  };
  struct Follower {  // A put of an entry that is being written.
    RecordId record = kNoRecord;
    Waiter who;
  };
  struct Synced {
    Waiter who;
    bool already_there = false;
  };
  struct Flush {
    uint64_t sequence = 0;
    bool done = false;
    bool good = false;
  };

  // A purge waits until all earlier work has ended and nothing is being read or written. Then it
  // hides what it takes. Those pages, and the ones that were free before, become zeros a few at a
  // time; a sync ends it.
  struct Purging {
    enum class Stage : uint8_t { waiting, erasing, syncing };
    Purge what;
    uint64_t until_ns = 0;
    uint64_t sequence = 0;
    Stage stage = Stage::waiting;
    PagesToErase free;              // Pages that were free.
    std::vector<RecordId> records;  // Still to be erased.
    uint64_t failures = 0;
    int64_t error = 0;  // The last.
    std::shared_ptr<Flush> flush;
    bool answered = false;  // This and the answer are under flush_mutex_.
    Purged answer;
  };

  // local_tier.cc: the outside, and the loop.
  void run();
  bool take_incoming();
  void sweep(uint64_t now_ns, bool closing);
  void sweep(std::deque<Job*>& queue, uint64_t now_ns, bool closing);
  void begin_some();
  bool begin_from(std::deque<Job*>& queue);
  void begin_job(Job& job);
  void begin_item(Job& job, size_t item);
  void answer_at_once(const std::shared_ptr<TierBatch>& batch);
  bool idle() const noexcept;
  uint64_t patience_ns() const noexcept;
  void end(Waiter who, TierOutcome outcome, bool already_there = false);
  bool is_open() const noexcept;
  bool broken(uint64_t now_ns);
  void note(int64_t result);  // Reports an I/O's result to the breaker.

  // local_tier_ops.cc: pieces, and what becomes of a get.
  Op& take_op(Op::What what, Waiter who, RecordId record);
  void free_op(Op& op);
  void start_body(Op& op, Io::Kind kind, iovec front, iovec rest);
  void settle(Piece& piece);
  void settle(Op& op);
  void begin_get(Job& job, size_t item);
  void start_read(Op& op, std::span<uint8_t> into);
  void check(Op& op);  // On whichever thread.
  static TierOutcome verify(const Op& op, TierItem* item);
  void settle_checked();
  void settle_get(Op& op);

  // local_tier_put.cc: what becomes of a put and of a removal.
  void begin_put(Job& job, size_t item, uint32_t attempt = 0);
  TierOutcome find_room(const Job& job, const TierItem& item, RecordId& record);
  void tell_of_full();
  bool start_write(Op& op, const TierItem& item);
  void settle_put(Op& op);
  void give_up_put(Op& op, bool in_table = false);
  void end_put(RecordId record, Waiter who, TierOutcome outcome);
  void begin_remove(Job& job, size_t item);
  void when_written(Waiter who, bool already_there);

  // local_tier_purge.cc
  void work_on_purges(uint64_t now_ns, bool closing);
  void condemn(Purging& purge);
  void erase_some(Purging& purge);
  // Call before a put writes there.
  void erase_before_use(RecordId record);
  void erase(Purging& purge, const Extent& pages);
  void answer(Purging& purge, std::string error);
  bool holds_back(const Job& job) const noexcept;

  // local_tier_upkeep.cc: outdated records, syncs, stamps, missing files, scrubbing.
  void discard(RecordId record, uint32_t bad_runs) STEMMA_REQUIRES(mutex_);
  void write_slots();
  int write_slot(const SlotWrite& slot);  // 0 or -errno.
  void restore_retired();
  void start_sync();
  void settle_sync(int64_t result);
  void end_syncing(bool good);
  void distrust();
  void write_uses(uint64_t now_ns);
  void close_down();
  void look_for_files(uint64_t now_ns);
  void lose_files();
  void try_reopening(uint64_t now_ns);
  void scrub(uint64_t now_ns);

  std::unique_ptr<Files> own_files_;  // Unless the caller gave some.
  const DiskOptions options_;         // With files.
  TierTraits traits_;
  DiskOpening opening_;
  std::unique_ptr<Store> store_;
  PageMemory op_pages_;
  std::vector<Op> ops_;
  std::unique_ptr<IoQueue> queue_;  // Ends before the memory it reads and writes.
  // Checks what was read, on its own threads; ends before the queue. A checksum costs about as much
  // as starting the next read.
  std::unique_ptr<IoQueue> checker_;

  // ---- The thread's own ----
  std::list<Job> live_;
  std::deque<Job*> reads_, writes_;  // With items not begun.
  uint32_t turn_ = 0;
  std::vector<Op*> free_ops_;
  std::vector<SlotWrite> slots_;
  std::vector<Follower> followers_;
  std::vector<RecordId> just_retired_;  // Since the last successful I/O.
  std::vector<Synced> to_sync_, syncing_;
  std::vector<std::shared_ptr<Flush>> flushes_, flushing_;
  std::deque<std::shared_ptr<Purging>> purges_;  // One after the other.
  std::array<Piece, 2> syncs_;                   // Of the slab and of the table.
  uint32_t syncs_left_ = 0;
  int64_t sync_result_ = 0;
  uint32_t epoch_ = 1;       // The present one.
  uint32_t good_epoch_ = 0;  // Entries up to this one are on disk.
  uint32_t bad_epoch_ = 0;   // Work begun up to this one and not published must fail.
  uint64_t serial_ = 1;
  bool told_of_full_ = false;
  uint64_t no_growth_until_ns_ = 0;
  uint64_t looked_ns_ = 0;
  uint64_t uses_written_ns_ = 0;
  bool files_lost_ = false;
  uint64_t reopen_ns_ = 0;
  RecordId scrub_next_ = 0;
  uint64_t scrub_ns_ = 0;
  BouncePool bounces_;

  // ---- Everybody's ----
  Breaker breaker_;  // The thread's own, except what any thread may ask.
  Counters counters_;
  mutable base::Mutex mutex_;
  std::list<Job> incoming_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Flush>> incoming_flushes_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Purging>> incoming_purges_ STEMMA_GUARDED_BY(mutex_);
  uint64_t sequence_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t queued_items_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  BusyTime reading_ STEMMA_GUARDED_BY(mutex_), writing_ STEMMA_GUARDED_BY(mutex_);
  std::unique_ptr<Books> books_ STEMMA_GUARDED_BY(mutex_);
  base::WaitMutex flush_mutex_;
  base::Condition flushed_;
  std::thread thread_;
};

}  // namespace stemma::tier::disk
