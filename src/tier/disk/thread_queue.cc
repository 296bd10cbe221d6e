#include "tier/disk/thread_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "tier/wait_until.h"

namespace stemma::tier::disk {

ThreadQueue::ThreadQueue(uint32_t depth, uint32_t threads, Perform perform, void* user,
                         std::function<void()> ended)
    : perform_(perform), user_(user), has_some_(std::move(ended)), waiting_(depth) {
  ended_.reserve(depth);
  threads_.reserve(threads);
  try {
    for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  } catch (...) {
    end();
    throw;
  }
}

ThreadQueue::~ThreadQueue() { end(); }

void ThreadQueue::end() noexcept {
  {
    const base::Lock lock(mutex_);
    closing_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadQueue::start(Io& io) {
  {
    const base::Lock lock(mutex_);
    STEMMA_CHECK(count_ < waiting_.size());
    waiting_[(first_ + count_++) % waiting_.size()] = &io;
  }
  has_work_.notify_one();
}

size_t ThreadQueue::wait(std::span<Io*> ended, uint64_t timeout_ns) {
  base::Lock lock(mutex_);
  wait_until(has_ended_, lock, deadline_after(monotonic_ns(), timeout_ns),
             [this]() STEMMA_REQUIRES(mutex_) { return woken_ || !ended_.empty(); });
  woken_ = false;
  const size_t count = std::min(ended.size(), ended_.size());
  std::copy_n(ended_.begin(), count, ended.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void ThreadQueue::wake() noexcept {
  const base::Lock lock(mutex_);
  woken_ = true;
  has_ended_.notify_one();
}

void ThreadQueue::work() {
  base::Lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return closing_ || count_ != 0; });
    if (count_ == 0) return;
    Io* io = waiting_[first_];
    first_ = (first_ + 1) % waiting_.size();
    --count_;
    lock.unlock();
    io->result = perform_(user_, *io);
    lock.lock();
    ended_.push_back(io);
    has_ended_.notify_one();
    if (!has_some_ || ended_.size() != 1) continue;
    lock.unlock();
    has_some_();
    lock.lock();
  }
}

int64_t perform_io(const Io& io) noexcept {
  for (;;) {
    const auto offset = static_cast<off_t>(io.offset);
    const auto count = static_cast<int>(io.part_count);
    int64_t result = 0;
    switch (io.kind) {
      case Io::Kind::read: result = preadv(io.file, io.parts.data(), count, offset); break;
      case Io::Kind::write: result = pwritev(io.file, io.parts.data(), count, offset); break;
      case Io::Kind::sync: result = fdatasync(io.file); break;
    }
    if (result >= 0) return result;
    if (errno != EINTR) return -errno;
  }
}

}  // namespace stemma::tier::disk
