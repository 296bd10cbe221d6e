// Transfers: several reads or writes of a BlockIo under way at once, waited for together.
//
// Threading:  done() on any thread; the rest on the thread that made it.
// Ownership:  must live until wait() has returned.
#pragma once

#include <cstddef>
#include <vector>

#include "base/lock.h"
#include "stemma/result.h"

namespace stemma::tier {

class Transfers {
 public:
  struct One {
    Transfers* all = nullptr;
    bool good = false;
  };
  explicit Transfers(size_t count) : ones_(count, One{this}), left_(count) {}
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The `done` and `user` for a BlockIo.
  static void done(void* user, Result<void> outcome) {
    One& one = *static_cast<One*>(user);
    one.all->end(one, outcome.has_value());
  }
  One* one(size_t number) noexcept { return &ones_[number]; }
  void wait() {
    base::Lock lock(mutex_);
    ended_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return left_ == 0; });
  }
  // After wait().
  bool good(size_t number) const noexcept { return ones_[number].good; }

 private:
  void end(One& one, bool good) {
    const base::Lock lock(mutex_);
    one.good = good;
    if (--left_ == 0) ended_.notify_all();
  }

  std::vector<One> ones_;
  base::WaitMutex mutex_;
  base::Condition ended_;
  size_t left_ STEMMA_GUARDED_BY(mutex_);
};

}  // namespace stemma::tier
