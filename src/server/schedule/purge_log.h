// PurgeLog remembers when salts were purged, so that requests that arrived before save nothing.
//
// A request takes count() when it arrives, and asks purged_since() before it saves something. To
// purge a salt, call add() first and empty the stores afterwards: a store that asks under its own
// lock then either saves before it is emptied, or not at all.
//
// Invariant:  once a salt was purged, purged_since() is true for every earlier count. It may also
//             be true for another salt with the same slot: then a request saves nothing that could
//             have.
// Threading:  thread-safe.
// Cost:       8 KiB; every call is O(1).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/lock.h"

namespace stemma::server {

class PurgeLog {
 public:
  // How many purges there were.
  uint64_t count() const {
    const base::Lock lock(mutex_);
    return count_;
  }
  void add(std::string_view salt) {
    const base::Lock lock(mutex_);
    last_[slot(salt)] = ++count_;
  }
  void add_all() {
    const base::Lock lock(mutex_);
    last_of_all_ = ++count_;
  }
  // Whether the salt was purged after count() was `count`.
  bool purged_since(uint64_t count, std::string_view salt) const {
    const base::Lock lock(mutex_);
    return std::max(last_of_all_, last_[slot(salt)]) > count;
  }

 private:
  static constexpr size_t kSlots = 1024;
  static size_t slot(std::string_view salt) { return std::hash<std::string_view>()(salt) % kSlots; }

  mutable base::WaitMutex mutex_;
  uint64_t count_ STEMMA_GUARDED_BY(mutex_) = 0;
  uint64_t last_of_all_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::array<uint64_t, kSlots> last_ STEMMA_GUARDED_BY(mutex_){};
};

}  // namespace stemma::server
