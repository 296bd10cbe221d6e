// Transfers of host memory that the device does not reach: a thread copies each block to a pinned
// area before its load, and from there after its store.
//
// As many blocks as the area has room for go together; the next ones wait for them. A gate of such
// a transfer opens when the last blocks' step is there.
//
// Threading:  thread-safe. The destructor waits for what was accepted.
// Cost:       one more pass over the bytes, by one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "base/lock.h"
#include "mover/cuda/flights.h"

namespace stemma::mover::cuda {

class Staging {
 public:
  // `area` is pinned and stays the caller's.
  Staging(std::shared_ptr<Device> device, Flights& flights, Counters& counters, uint8_t* area,
          uint64_t area_bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  bool has_room_for(uint64_t block_bytes) const noexcept { return block_bytes <= area_bytes_; }
  // Requires room for one of its blocks; its flight's stream already waits for what it must.
  void accept(std::shared_ptr<Transfer> transfer);

 private:
  void run();
  Result<void> carry_out(const std::shared_ptr<Transfer>& transfer);
  // The items [begin, end), whose blocks are in the area one after the other.
  Result<void> launch(const std::shared_ptr<Transfer>& transfer, uint32_t begin, uint32_t end,
                      uint64_t block_bytes);

  const std::shared_ptr<Device> device_;
  Flights& flights_;
  Counters& counters_;
  uint8_t* const area_;
  const uint64_t area_bytes_;
  base::WaitMutex mutex_;
  base::Condition accepted_;
  std::deque<std::shared_ptr<Transfer>> queue_ STEMMA_GUARDED_BY(mutex_);
  bool ending_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace stemma::mover::cuda
