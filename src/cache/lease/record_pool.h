// A RecordPool lends out lease records and keeps those of ended leases, so that in steady state a
// lease allocates nothing.
//
// Most threads take no lock: each finds its last record in a slot chosen by its thread number, and
// takes it and gives it back with one atomic exchange. With a budget, records beyond their
// allowance are freed.
//
// Threading:  thread-safe. Its lock is taken last: a thread that holds it takes nothing else.
// Ownership:  owns all records, also while they are lent.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "cache/lease/lease_record.h"
#include "stemma/options.h"

namespace stemma::cache {

class RecordPool {
 public:
  // Requires checked options.
  explicit RecordPool(const Options& options);
  // A clean record. May throw std::bad_alloc. (take() does the cleaning, so that give_back() is
  // short enough to run under the cache's lock.)
  LeaseRecord* take();
  void give_back(LeaseRecord* record) noexcept;
  // Memory of all records, as of the last time each was given back.
  uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  // A record borrowed for one call.
  class Borrowed {
   public:
    explicit Borrowed(RecordPool& pool) : pool_(pool), record_(pool.take()) {}
    ~Borrowed() {
      if (record_ != nullptr) pool_.give_back(record_);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    LeaseRecord& operator*() const noexcept { return *record_; }
    LeaseRecord* operator->() const noexcept { return record_; }
    // The caller keeps the record.
    LeaseRecord* keep() noexcept { return std::exchange(record_, nullptr); }

   private:
    RecordPool& pool_;
    LeaseRecord* record_;
  };

 private:
  LeaseRecord* take_any();
  void free(LeaseRecord* record, uint64_t bytes) noexcept;

  static constexpr uint32_t kSlots = 16;
  struct alignas(64) Slot {
    std::atomic<LeaseRecord*> record{nullptr};
  };
  Slot& slot() noexcept;

  const uint64_t allowance_;
  const uint32_t group_count_;
  std::array<Slot, kSlots> slots_;
  std::atomic<uint64_t> bytes_{0};
  base::Mutex mutex_;
  std::vector<LeaseRecord*> free_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<LeaseRecord>> records_ STEMMA_GUARDED_BY(mutex_);
};

// How much memory records of ended leases may keep. With a budget, a share of it.
uint64_t record_allowance(const Options& options);

}  // namespace stemma::cache
