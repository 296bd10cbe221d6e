// Checker: looks at what was read on a thread of its own, while the tier's thread keeps the disk busy. A
// checksum costs about as much as starting the next read.
//
// Threading:  give(), take() and the destructor on the tier's thread; `check` and `wake` on the checker's.
// Ownership:  an Io is the checker's from give() until take() returns it.
// Cost:       a lock each way; nothing is allocated after creation.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "tier/disk/files.h"

namespace stemma::tier::disk {

class Checker {
 public:
  // At most `most` at a time. `wake` says that take() has something. Throws std::bad_alloc and
  // std::system_error.
  Checker(size_t most, std::function<void(Io&)> check, std::function<void()> wake)
      : check_(std::move(check)), wake_(std::move(wake)) {
    given_.reserve(most);
    at_hand_.reserve(most);
    checked_.reserve(most);
    thread_ = std::thread([this] { run(); });
  }
  ~Checker() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  void give(Io& io) {
    {
      const std::lock_guard lock(mutex_);
      given_.push_back(&io);
    }
    changed_.notify_one();
  }
  // Those that were looked at; how many.
  size_t take(std::span<Io*> out) {
    const std::lock_guard lock(mutex_);
    const size_t count = std::min(out.size(), checked_.size());
    std::copy_n(checked_.begin(), count, out.begin());
    checked_.erase(checked_.begin(), checked_.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || !given_.empty(); });
      if (given_.empty()) return;
      at_hand_.swap(given_);
      for (Io* const io : at_hand_) {
        lock.unlock();
        check_(*io);
        lock.lock();
        checked_.push_back(io);
        if (checked_.size() > 1) continue;  // It was told of those before.
        lock.unlock();
        wake_();
        lock.lock();
      }
      at_hand_.clear();
    }
  }

  const std::function<void(Io&)> check_;
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Io*> given_, checked_;  // Guarded by mutex_, as closing_. First come, first served.
  bool closing_ = false;
  std::vector<Io*> at_hand_;  // The checker's own.
  std::thread thread_;
};

}  // namespace stemma::tier::disk
