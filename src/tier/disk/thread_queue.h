// ThreadQueue: an IoQueue of a few threads that each do one preadv, pwritev or fdatasync at a time; for
// kernels and containers that refuse io_uring.
// Threading: as IoQueue. Cost: a lock and a wake-up per Io; no allocation after it was made.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tier/disk/files.h"

namespace stemma::tier::disk {

class ThreadQueue final : public IoQueue {
 public:
  // What one Io means; runs on the queue's threads.
  using Perform = int64_t (*)(void* user, const Io& io);
  ThreadQueue(uint32_t depth, uint32_t threads, Perform perform, void* user);
  ~ThreadQueue() override;

  void start(Io& io) override;
  size_t wait(std::span<Io*> ended, uint64_t timeout_ns) override;
  void wake() noexcept override;
  std::string_view name() const noexcept override { return "threads"; }

 private:
  void work();

  const Perform perform_;
  void* const user_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_ended_;
  std::vector<Io*> waiting_;  // A ring of `depth`.
  size_t first_ = 0, count_ = 0;
  std::vector<Io*> ended_;
  bool woken_ = false;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

// Does one with the system's calls.
int64_t perform_io(const Io& io) noexcept;

}  // namespace stemma::tier::disk
