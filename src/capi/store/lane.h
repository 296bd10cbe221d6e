// Lane: pieces of batches that wait for a thread, first come, first served.
//
// Threading: thread-safe. Ownership: keeps the batches of pieces that wait.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "base/lock.h"
#include "capi/store/batch.h"

namespace stemma::capi::store {

// Some items of a batch, one after the other.
struct Piece {
  std::shared_ptr<Batch> batch;
  size_t first = 0, count = 0;
};

class Lane {
 public:
  // Throws std::bad_alloc; then none of the pieces is in the lane.
  void add(std::deque<Piece>&& pieces) {
    const base::Lock lock(mutex_);
    const size_t before = pieces_.size();
    try {
      for (Piece& piece : pieces) pieces_.push_back(std::move(piece));
    } catch (...) {
      pieces_.resize(before);
      throw;
    }
    changed_.notify_all();
  }
  // Waits for a piece. None: the lane was closed.
  std::optional<Piece> take() {
    base::Lock lock(mutex_);
    changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return closed_ || !pieces_.empty(); });
    if (closed_) return std::nullopt;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }
  void close() {
    const base::Lock lock(mutex_);
    closed_ = true;
    pieces_.clear();
    changed_.notify_all();
  }

 private:
  base::WaitMutex mutex_;
  base::Condition changed_;
  std::deque<Piece> pieces_ STEMMA_GUARDED_BY(mutex_);
  bool closed_ STEMMA_GUARDED_BY(mutex_) = false;
};

}  // namespace stemma::capi::store
