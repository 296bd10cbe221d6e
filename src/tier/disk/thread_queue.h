// ThreadQueue: an IoQueue of a few threads that each do one Io at a time. The maker decides what an
// Io does: preadv, pwritev or fdatasync, for kernels and containers that refuse io_uring; or
// checking what was read while the disk reads the next.
// Threading: as IoQueue. Cost: a lock and a wake-up per Io; no allocation after creation.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "tier/files.h"

namespace stemma::tier::disk {

class ThreadQueue final : public IoQueue {
 public:
  // Does one Io, on the queue's threads.
  using Perform = int64_t (*)(void* user, const Io& io);
  // Throws std::bad_alloc and std::system_error. `ended` is called, without a lock, when wait() has
  // something new.
  ThreadQueue(uint32_t depth, uint32_t threads, Perform perform, void* user,
              std::function<void()> ended = {});
  ~ThreadQueue() override;

  void start(Io& io) override;
  size_t wait(std::span<Io*> ended, uint64_t timeout_ns) override;
  void wake() noexcept override;
  std::string_view name() const noexcept override { return "threads"; }

 private:
  void work();
  void end() noexcept;  // Finishes what was started.

  const Perform perform_;
  void* const user_;
  const std::function<void()> has_some_;
  base::WaitMutex mutex_;
  base::Condition has_work_;
  base::Condition has_ended_;
  std::vector<Io*> waiting_ STEMMA_GUARDED_BY(mutex_);  // A ring of `depth`.
  size_t first_ STEMMA_GUARDED_BY(mutex_) = 0, count_ STEMMA_GUARDED_BY(mutex_) = 0;
  std::vector<Io*> ended_ STEMMA_GUARDED_BY(mutex_);
  bool woken_ STEMMA_GUARDED_BY(mutex_) = false;
  bool closing_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Does one Io with system calls.
int64_t perform_io(const Io& io) noexcept;

}  // namespace stemma::tier::disk
