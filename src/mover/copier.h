// What carries out transfers: the CPU's threads or a CUDA device.
//
// Threading:  thread-safe.
// Ownership:  a copier holds a transfer until it is over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mover/transfer.h"
#include "stemma/pinned_memory.h"

namespace stemma::tier {
class TransferArena;
}  // namespace stemma::tier

namespace stemma::mover {

struct CopierOptions {
  int32_t device = -1;  // A CUDA device; -1: the CPU.
  uint32_t threads = 0;
  uint32_t thread_blocks = 8;
  uint64_t arena_bytes = 0;
  uint64_t batch_from_bytes = 0;
  uint64_t ring_bytes = uint64_t{4} << 20U;
  std::span<const Layout> layouts;
  std::span<const Shape> shapes;  // Which pieces name by number.
  std::shared_ptr<Counters> counters;
};

class Copier {
 public:
  virtual ~Copier() = default;

  // Pieces are at most this large: a multiple of 16.
  virtual uint32_t largest_piece() const noexcept = 0;
  // Queues the transfer; the copier calls finish(). Error: copy_failed, unsupported (memory that
  // the device does not reach, and no room for it in the arena); then nothing runs and finish() is
  // not called.
  virtual Result<void> start(const std::shared_ptr<Transfer>& transfer) = 0;
  // Makes the stream wait for the step, or waits.
  virtual Result<void> gate(Transfer& transfer, uint32_t step, uint64_t stream) = 0;
  virtual Result<uint64_t> event(Transfer& transfer, uint32_t step) = 0;

  virtual tier::TransferArena* arena() noexcept = 0;
  virtual uint64_t batch_from_bytes() const noexcept = 0;
  // Whether this is memory of the kind that pages are in.
  virtual bool owns(uint64_t address, uint64_t bytes) const noexcept = 0;
  virtual std::string device() const = 0;
};

}  // namespace stemma::mover
