// ByteBudget: limits how many bytes of request bodies, or of answers, a server holds at once.
//
// A share grows with its body or answer. A part of the budget is reserved for small shares, so that
// clients that send little are served however many others send much. Once a share has more than
// `small_bytes`, all of it counts as large.
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
    size_t reserve_bytes = 0;  // The part of capacity_bytes that is for small shares only.
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

// One body's, or one answer's, part of a budget.
class ByteShare {
 public:
  explicit ByteShare(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ~ByteShare() { budget_->give_back(bytes_); }
  ByteShare(const ByteShare&) = delete;
  ByteShare& operator=(const ByteShare&) = delete;

  // Grows to `bytes`, which must not be fewer than before. Returns false, and changes nothing, if
  // there is no room.
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
