// Transfers by threads of the CPU: each takes the next pieces of the oldest transfer.
//
// Invariant:  pieces are taken in the order of their steps, so the first layers arrive first.
// Threading:  thread-safe. The destructor waits for what runs.
// Cost:       one pass over the bytes; a lock for each 256 KiB.
#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "mover/copier.h"

namespace stemma::mover {

class CpuCopier final : public Copier {
 public:
  // Error: out_of_memory. `shapes` are copied.
  static Result<std::unique_ptr<Copier>> create(const CopierOptions& options);
  ~CpuCopier() override;
  CpuCopier(const CpuCopier&) = delete;
  CpuCopier& operator=(const CpuCopier&) = delete;

  uint32_t largest_piece() const noexcept override { return uint32_t{256} << 10U; }
  Result<void> start(const std::shared_ptr<Transfer>& transfer) override;
  Result<void> gate(Transfer& transfer, uint32_t step, uint64_t stream) override;
  Result<uint64_t> event(Transfer&, uint32_t) override { return uint64_t{0}; }
  tier::TransferArena* arena() noexcept override { return arena_.get(); }
  uint64_t batch_from_bytes() const noexcept override { return UINT64_MAX; }
  bool owns(uint64_t, uint64_t) const noexcept override { return true; }
  std::string device() const override;

 private:
  // What runs of a transfer. progress() gives it, under mutex_.
  struct Progress : Transfer::Extra {
    size_t next = 0;  // The first piece that nobody has taken.
    size_t left = 0;  // Pieces that have not arrived.
    std::vector<size_t> left_of_step;
  };
  struct Taken {
    std::shared_ptr<Transfer> transfer;
    size_t begin, end;
  };

  explicit CpuCopier(const CopierOptions& options);
  Progress& progress(Transfer& transfer) noexcept STEMMA_REQUIRES(mutex_) {
    return static_cast<Progress&>(*transfer.extra);
  }
  void run();
  Taken take();
  void copy(const Taken& taken) const;
  // Returns whether that was the last of the transfer.
  bool arrived(const Taken& taken);

  std::vector<Shape> shapes_;
  std::shared_ptr<tier::TransferArena> arena_;
  base::WaitMutex mutex_;
  base::Condition work_;   // There is something to take, or the end.
  base::Condition steps_;  // A step has arrived.
  // With pieces that nobody has taken.
  std::deque<std::shared_ptr<Transfer>> queue_ STEMMA_GUARDED_BY(mutex_);
  bool ending_ STEMMA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace stemma::mover
