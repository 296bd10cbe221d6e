#include "base/page_warmer.h"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>

namespace stemma::base {

namespace {

constexpr uint64_t kStepBytes = uint64_t{32} << 20U;

bool take_pages(uint8_t* memory, uint64_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  return madvise(memory, bytes, MADV_POPULATE_WRITE) == 0;
#else
  (void)memory, (void)bytes;
  return false;
#endif
}

}  // namespace

PageWarmer::~PageWarmer() {
  {
    const base::Lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PageWarmer::warm_up_to(uint64_t bytes) noexcept {
  const base::Lock lock(mutex_);
  if (bytes <= wanted_ || gave_up_) return;
  wanted_ = bytes;
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    gave_up_ = true;
  }
  changed_.notify_all();
}

void PageWarmer::wait() noexcept {
  base::Lock lock(mutex_);
  changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return gave_up_ || warm_ == wanted_; });
}

uint64_t PageWarmer::warm_bytes() const noexcept {
  const base::Lock lock(mutex_);
  return warm_;
}

void PageWarmer::run() noexcept {
  base::Lock lock(mutex_);
  while (!gave_up_) {
    changed_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return ends_ || warm_ != wanted_; });
    if (ends_) return;
    const uint64_t begin = warm_;
    const uint64_t bytes = std::min(wanted_ - begin, kStepBytes);
    lock.unlock();
    const bool taken = take_pages(memory_ + begin, bytes);
    lock.lock();
    if (taken) {
      warm_ += bytes;
    } else {
      gave_up_ = true;
    }
    changed_.notify_all();
  }
}

}  // namespace stemma::base
