// Ledger: which batches of a store are under way, which have ended and were not named yet, and when
// each must end; with the eventfd that says that some have ended.
//
//   open() --> under way --ended()--> ended --drain(), wait() or cancel()--> forgotten
//                  '-- its deadline: expire() ends it
//
// Invariant:  a batch is named once. The eventfd is readable exactly while an ended batch waits to
//             be named.
// Threading:  thread-safe. Under a lock no batch is ended, and only wait() waits.
// Ownership:  keeps batches until they are named. Batches keep the ledger.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "capi/store/batch.h"
#include "stemma/result.h"

namespace stemma::capi::store {

// Limits how many bytes of copies are on their way to the levels.
class Budget {
 public:
  explicit Budget(uint64_t bytes) : bytes_(bytes) {}
  // Waits for room until until_ns, or until `stop` returns true at a poke(). A request larger than
  // the budget gets its bytes when nobody else has any. Returns false if there was no room.
  bool take(uint64_t bytes, uint64_t until_ns, const std::function<bool()>& stop);
  void give_back(uint64_t bytes);
  void poke();

 private:
  const uint64_t bytes_;
  base::WaitMutex mutex_;
  base::Condition changed_;
  uint64_t taken_ STEMMA_GUARDED_BY(mutex_) = 0;
};

// Since the ledger was made.
struct Counts {
  std::array<std::array<uint64_t, kStatuses>, kOps> items{};
  std::array<uint64_t, kOps> bytes{};
  uint64_t batches = 0;
  uint64_t batches_waiting = 0, items_waiting = 0, batches_ended = 0;  // Now.
};

class Ledger : public std::enable_shared_from_this<Ledger> {
 public:
  struct Limits {
    uint32_t batches = 0;
    uint32_t items = 0;
    uint64_t put_bytes = 0;
  };
  // Error: copy_failed (the system gives no eventfd; the value is its errno), out_of_memory.
  static Result<std::shared_ptr<Ledger>> make(const Limits& limits);
  explicit Ledger(const Limits& limits, int event_fd);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // Makes a batch of the request. `admitted`: there is room for this many of its items, from the
  // first on.
  // Error: busy (too many batches), stale (closed). Throws std::bad_alloc.
  struct Opened {
    std::shared_ptr<Batch> batch;
    size_t admitted = 0;
  };
  Result<Opened> open(Request&& request, uint64_t deadline_ns);
  void ended(uint64_t number);

  int event_fd() const noexcept { return event_fd_; }
  size_t drain(std::span<stemma_store_finished> out);
  // Whether it has ended by until_ns; if so, fills in *out (may be null). Error: stale.
  Result<bool> wait(uint64_t number, uint64_t until_ns, stemma_store_finished* out);
  Result<void> cancel(uint64_t number, stemma_store_finished* out);

  // Ends what is late by now. Returns the next deadline.
  uint64_t expire(uint64_t now_ns);
  // Waits until until_ns, until an earlier deadline is added, or until close().
  void wait_for_deadlines(uint64_t until_ns);
  // Ends and forgets everything; open() fails from then on.
  void close();
  bool is_closed() const;

  Budget& budget() noexcept { return budget_; }
  void count(Op op, Status status, uint64_t bytes) noexcept;
  Counts counts() const;

 private:
  struct Entry {
    std::shared_ptr<Batch> batch;
    size_t admitted = 0;
    bool ended = false;
    // Its number. The element moves to `order_` when the batch ends, so ending needs no memory.
    std::list<uint64_t> place;
    std::list<uint64_t>::iterator in_order = {};
  };
  Result<bool> name(uint64_t number, stemma_store_finished* out) STEMMA_REQUIRES(mutex_);
  void signal() noexcept STEMMA_REQUIRES(mutex_);

  const Limits limits_;
  const int event_fd_;
  Budget budget_;
  std::array<std::array<std::atomic<uint64_t>, kStatuses>, kOps> items_{};
  std::array<std::atomic<uint64_t>, kOps> bytes_{};

  mutable base::WaitMutex mutex_;
  base::Condition ended_;  // A batch has, or the ledger was closed.
  base::Condition deadlines_changed_;
  std::unordered_map<uint64_t, Entry> batches_ STEMMA_GUARDED_BY(mutex_);
  std::list<uint64_t> order_ STEMMA_GUARDED_BY(mutex_);  // Batches that ended, in that order.
  std::set<std::pair<uint64_t, uint64_t>> deadlines_
      STEMMA_GUARDED_BY(mutex_);  // With their batches' numbers.
  uint64_t last_number_ STEMMA_GUARDED_BY(mutex_) = 0;
  size_t ended_count_ STEMMA_GUARDED_BY(mutex_) = 0, items_waiting_ STEMMA_GUARDED_BY(mutex_) = 0;
  bool signalled_ STEMMA_GUARDED_BY(mutex_) = false;
  bool closed_ STEMMA_GUARDED_BY(mutex_) = false;
};

}  // namespace stemma::capi::store
