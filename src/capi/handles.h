// What C callers hold: caches by pointer, leases and transfers by number.
//
// A stemma_cache is one of the places of places.h. Behind it is a Home: the cache and the objects
// that stand for the caller's callbacks. The handle and every lease hold the Home; the last of them
// destroys it and then calls `closed`.
//
// Threading:  thread-safe, but no other call may use a cache while one call destroys it.
// Ownership:  the tables and places belong to the process and stay until its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/lock.h"
#include "capi/decode.h"
#include "capi/places.h"
#include "capi/slot_table.h"
#include "stemma/cache.h"
#include "stemma/stemma.h"

namespace stemma::capi {
class Home;
}  // namespace stemma::capi

// Where a cache is. Only its address leaves the library.
struct stemma_cache {
  static constexpr const char* kNull = "cache is null";
  static constexpr const char* kForeign = "cache points to no cache of this library";
  static constexpr const char* kDestroyed = "this cache was destroyed, or never created";
  std::atomic<stemma::capi::Home*> home{nullptr};
};

namespace stemma::capi {

class CallbackClock final : public Clock {
 public:
  explicit CallbackClock(const stemma_clock& clock) noexcept : clock_(clock) {}
  uint64_t now_ns() const noexcept override { return clock_.now_ns(clock_.user); }

 private:
  stemma_clock clock_;
};

// Each transfer gets a number, by which stemma_io_done() finds the callback to call.
class CallbackIo final : public BlockIo {
 public:
  explicit CallbackIo(const stemma_block_io& io) noexcept : io_(io) {}
  void copy(std::span<const BlockCopy> copies, Done done, void* user) override;
  void read(GroupIndex group, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override;
  void write(GroupIndex group, std::span<const BlockId> blocks, std::span<const uint8_t> bytes,
             Done done, void* user) override;

 private:
  stemma_block_io io_;
};

// Fences of releases that wait. A fence that has signalled goes back to the pool: it is not asked
// again.
class FencePool {
 public:
  FencePool() = default;
  FencePool(const FencePool&) = delete;
  FencePool& operator=(const FencePool&) = delete;

  Fence* make(const stemma_fence& fence);
  // For a fence that the cache did not take after all.
  void give_back(Fence* fence) noexcept;

 private:
  class CallbackFence final : public Fence {
   public:
    explicit CallbackFence(FencePool& pool) noexcept : pool_(pool) {}
    bool signalled() noexcept override {
      if (fence_.signalled(fence_.user) == 0) return false;
      pool_.give_back(this);
      return true;
    }

   private:
    friend class FencePool;
    FencePool& pool_;
    stemma_fence fence_{};
    CallbackFence* next_ = nullptr;
  };

  base::WaitMutex mutex_;
  std::vector<std::unique_ptr<CallbackFence>> all_ STEMMA_GUARDED_BY(mutex_);
  CallbackFence* free_ STEMMA_GUARDED_BY(mutex_) = nullptr;
};

class Home {
 public:
  static Result<Home*> create(const Options& options, const stemma_options& given);

  PagedCache& cache() noexcept { return *cache_; }
  FencePool& fences() noexcept { return fences_; }

  void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept {
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) close();
  }
  // For a Home that was never handed out: its end is not reported.
  void forget_closed() noexcept { closed_ = nullptr; }
  // How many hold it; the handle counts as one.
  uint32_t holders() const noexcept { return holders_.load(std::memory_order_acquire); }

 private:
  Home() = default;
  void close() noexcept;

  std::optional<CallbackClock> clock_;
  std::optional<CallbackIo> io_;
  FencePool fences_;
  std::optional<PagedCache> cache_;  // Goes first.
  void (*closed_)(void* user) = nullptr;
  void* closed_user_ = nullptr;
  alignas(64) std::atomic<uint32_t> holders_{1};
};

// ---- Caches -----------------------------------------------------------------------------------

Places<stemma_cache, Home>& caches() noexcept;

// ---- Leases and transfers ---------------------------------------------------------------------

struct HeldLease {
  Lease lease;
  Home* home = nullptr;
};
struct Transfer {
  BlockIo::Done done = nullptr;
  stemma_io_done_fn told = nullptr;  // Instead of `done`, for another library.
  void* user = nullptr;
};

SlotTable<HeldLease>& leases() noexcept;
SlotTable<Transfer>& transfers() noexcept;

// Gives a lease of `home` its number. Error: that of `lease`, or out_of_memory.
Result<void> hand_out(Result<Lease>& lease, Home& home, stemma_lease& out) noexcept;

// Why a number could not be used. Requires found != yes.
Error why_no_lease(Found found, uint64_t number) noexcept;

}  // namespace stemma::capi
