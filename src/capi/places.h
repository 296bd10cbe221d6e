// Places keep the few, long-lived things that callers hold by pointer, and judge any pointer
// safely.
//
// A handle is a place in a fixed array that is never freed, so a pointer can be judged without
// following it: outside the array, not at the start of a place, or a place not in use. Places are
// used again oldest first, so that a stale pointer is refused for a long time.
//
// Handle is the type whose pointers callers see: a struct with an atomic pointer `home` to a Home,
// and the messages for pointers that are not handles (kNull, kForeign, kDestroyed).
//
// Threading:  thread-safe, but no other call may use a thing while one call forgets it.
// Ownership:  the places belong to the process and stay until its end; homes belong to their
//             holders.
// Cost:       one load to find; places never used cost no memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/lock.h"
#include "stemma/result.h"

namespace stemma::capi {

inline constexpr uint32_t kMaxHandles = 4096;

template <class Handle, class Home>
class Places {
 public:
  // Null when kMaxHandles are in use.
  Handle* make(Home* home) noexcept {
    const base::Lock lock(mutex_);
    if (never_used_ - waiting_count_ >= kMaxHandles) return nullptr;
    uint32_t place;
    if (never_used_ < kPlaces) {
      place = never_used_++;
    } else {
      place = waiting_[first_waiting_];
      first_waiting_ = (first_waiting_ + 1) % kPlaces;
      --waiting_count_;
    }
    places_[place].home.store(home, std::memory_order_release);
    return &places_[place];
  }

  // Error: invalid_argument (null, foreign), stale (destroyed).
  Result<Home*> find(Handle* handle) noexcept {
    const uintptr_t distance =
        reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(places_.data());
    if (distance >= sizeof places_ || distance % sizeof(Handle) != 0) [[unlikely]] {
      return Error(Errc::invalid_argument, handle == nullptr ? Handle::kNull : Handle::kForeign);
    }
    Home* home = handle->home.load(std::memory_order_acquire);
    if (home == nullptr) [[unlikely]] {
      return stale();
    }
    return home;
  }
  static Error stale() noexcept { return {Errc::stale, Handle::kDestroyed}; }

  // False when somebody else has done it. Requires a handle that was found.
  bool forget(Handle* handle, const Home* home) noexcept {
    const base::Lock lock(mutex_);
    if (handle->home.load(std::memory_order_relaxed) != home) return false;
    handle->home.store(nullptr, std::memory_order_release);
    waiting_[(first_waiting_ + waiting_count_++) % kPlaces] =
        static_cast<uint16_t>(handle - places_.data());
    return true;
  }

 private:
  // Many more places than things: one is used again only after some 60,000 others, and until then a
  // pointer to what was there is known to be stale.
  static constexpr uint32_t kPlaces = 65'536;

  std::array<Handle, kPlaces> places_{};
  base::WaitMutex mutex_;
  // The places not in use, the one that waited longest first. Places never used are taken before
  // these.
  std::array<uint16_t, kPlaces> waiting_ STEMMA_GUARDED_BY(mutex_){};
  uint32_t never_used_ STEMMA_GUARDED_BY(mutex_) = 0, first_waiting_ STEMMA_GUARDED_BY(mutex_) = 0,
                       waiting_count_ STEMMA_GUARDED_BY(mutex_) = 0;
};

}  // namespace stemma::capi
