// ByteBudget: how many bytes a server holds at once for its clients, of requests' bodies or of answers.
//
// A share grows with what it stands for. Large shares may not take everything: a part is kept for small ones, so
// that clients that send little are served however many others send much. A share counts as large, with all that
// it has, once it has more than `small_bytes`.
//
// Invariant:  all shares together have at most capacity_bytes; large ones together at most
//             capacity_bytes - reserve_bytes.
// Threading:  the budget is thread-safe; a share is used by one thread at a time.
// Ownership:  shares keep their budget alive, and give back what they have when they end.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace stemma::server {

class ByteBudget {
 public:
  struct Options {
    size_t capacity_bytes = 0;
    size_t small_bytes = 0;
    size_t reserve_bytes = 0;  // Of capacity_bytes, for small shares alone.
  };
  explicit ByteBudget(const Options& options) : options_(options) {}

 private:
  friend class ByteShare;
  bool take(size_t before, size_t more) {
    const size_t after = before + more;
    const bool was_large = before > options_.small_bytes;
    const size_t large = after <= options_.small_bytes ? 0 : was_large ? more : after;
    const base::MutexLock lock(mutex_);
    if (all_bytes_ + more > options_.capacity_bytes) return false;
    if (large > 0 && large_bytes_ + large > options_.capacity_bytes - options_.reserve_bytes) {
      return false;
    }
    all_bytes_ += more;
    large_bytes_ += large;
    return true;
  }
  void give_back(size_t bytes) {
    const base::MutexLock lock(mutex_);
    all_bytes_ -= bytes;
    if (bytes > options_.small_bytes) large_bytes_ -= bytes;
  }

  const Options options_;
  base::Mutex mutex_;
  size_t all_bytes_ STEMMA_GUARDED_BY(mutex_) = 0;
  size_t large_bytes_ STEMMA_GUARDED_BY(mutex_) = 0;  // Of shares that count as large.
};

// What one body, or one answer, takes of a budget.
class ByteShare {
 public:
  explicit ByteShare(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ~ByteShare() { budget_->give_back(bytes_); }
  ByteShare(const ByteShare&) = delete;
  ByteShare& operator=(const ByteShare&) = delete;

  // It has so many bytes now, never fewer than before. False: there is no room, and nothing changed.
  [[nodiscard]] bool grow_to(size_t bytes) {
    if (!budget_->take(bytes_, bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<ByteBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace stemma::server
