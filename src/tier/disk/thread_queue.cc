#include "tier/disk/thread_queue.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/check.h"

namespace stemma::tier::disk {

ThreadQueue::ThreadQueue(uint32_t depth, uint32_t threads, Perform perform, void* user)
    : perform_(perform), user_(user), waiting_(depth) {
  ended_.reserve(depth);
  threads_.reserve(threads);
  for (uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

ThreadQueue::~ThreadQueue() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadQueue::start(Io& io) {
  {
    const std::lock_guard lock(mutex_);
    STEMMA_CHECK(count_ < waiting_.size());
    waiting_[(first_ + count_++) % waiting_.size()] = &io;
  }
  has_work_.notify_one();
}

size_t ThreadQueue::wait(std::span<Io*> ended, uint64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  has_ended_.wait_for(lock,
                      std::chrono::nanoseconds(std::min<uint64_t>(timeout_ns, 3'600'000'000'000)),
                      [this] { return woken_ || !ended_.empty(); });
  woken_ = false;
  const size_t count = std::min(ended.size(), ended_.size());
  std::copy_n(ended_.begin(), count, ended.begin());
  ended_.erase(ended_.begin(), ended_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void ThreadQueue::wake() noexcept {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  has_ended_.notify_one();
}

void ThreadQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_work_.wait(lock, [this] { return closing_ || count_ != 0; });
    if (count_ == 0) return;
    Io* io = waiting_[first_];
    first_ = (first_ + 1) % waiting_.size();
    --count_;
    lock.unlock();
    io->result = perform_(user_, *io);
    lock.lock();
    ended_.push_back(io);
    has_ended_.notify_one();
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
