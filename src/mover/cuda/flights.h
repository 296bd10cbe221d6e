// Pieces on their way: launches the kernel on them, and collects their sums when it has run.
//
//   launch(): pieces -> slots of a ring in pinned memory -> kernel or driver -> an event
//   the collector's thread: event has happened -> sums -> slots come back
//   the finisher's thread: all events have happened -> Transfer::finish(), which calls the caller
//
// Invariant:  a slot is written only when the event after the kernel that read it has happened and
//             its sum was collected.
//             A transfer is over only when all of its events have happened.
//             After an error that the device cannot get over nothing is launched any more, and every
//             transfer ends as failed.
// Threading:  thread-safe. The caller of launch() has made the context current, and calls for one
//             transfer come one after the other.
// Cost:       while something is on its way, the collector asks the driver every 20 us: an event
//             that fails calls nobody, so waiting for a callback could last for ever.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/lock.h"
#include "mover/copier.h"
#include "mover/cuda/driver.h"
#include "mover/cuda/events.h"
#include "mover/cuda/slot_ring.h"

namespace stemma::tier {
class TransferArena;
}  // namespace stemma::tier

namespace stemma::mover::cuda {

// What a transfer has while it is on its way and until nobody names it. Under the mutex of Flights.
struct Flight : Transfer::Extra {
  ~Flight() override {
    for (Event event : events) pool->give_back(event);
  }
  std::shared_ptr<EventPool> pool;
  Stream stream = nullptr;
  std::vector<Event> events;       // All that were recorded.
  std::vector<Event> step_events;  // The last of each step; null: not launched yet.
  size_t under_way = 0;            // Launches whose event has not happened.
  bool all_launched = false;
  bool failed = false;
};
inline Flight& flight_of(Transfer& transfer) noexcept {
  return static_cast<Flight&>(*transfer.extra);
}

struct FlightOptions {
  std::shared_ptr<Device> device;
  std::shared_ptr<EventPool> events;
  std::shared_ptr<tier::TransferArena> ring;  // Pinned.
  std::shared_ptr<Counters> counters;
  Function kernel = nullptr;
  Address shapes = 0;  // On the device.
  std::span<const Shape> shape_list;
  uint32_t thread_blocks = 8;
};

class Flights {
 public:
  explicit Flights(const FlightOptions& options);
  ~Flights();
  Flights(const Flights&) = delete;
  Flights& operator=(const Flights&) = delete;

  void set_batch_from(uint64_t bytes) noexcept { batch_from_ = bytes; }
  uint64_t batch_from() const noexcept { return batch_from_; }
  bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }

  // Begins with what follows of `stream` after everything that `after` has now.
  Result<void> order(Stream stream, Stream after);
  // Puts pieces on their way. `step`: its gate waits for the last of them; kNoStep: for none.
  static constexpr uint32_t kNoStep = UINT32_MAX;
  Result<void> launch(const std::shared_ptr<Transfer>& transfer, std::span<const Piece> pieces,
                      uint32_t step);
  // Everything was launched, or (failed) the rest will not be. The transfer ends when what is under
  // way has happened.
  void all_launched(const std::shared_ptr<Transfer>& transfer, bool failed);
  // Waits until the step was launched. Its event; null: there was nothing to launch.
  Result<Event> step_event(Transfer& transfer, uint32_t step);
  // Notes a status of the driver that is not 0, and says what it means.
  Error failure(Status status) noexcept;

 private:
  // One launch.
  struct Leg {
    std::shared_ptr<Transfer> transfer;
    uint32_t slot, count;  // count 0: no slots.
    Event event;
    Stream stream;
  };

  Result<uint32_t> take_slots(uint32_t count);
  Result<void> launch_kernel(const std::shared_ptr<Transfer>& transfer,
                             std::span<const Piece> pieces, Way way, uint32_t step);
  Result<void> launch_batch(const std::shared_ptr<Transfer>& transfer,
                            std::span<const Piece> pieces, uint32_t step);
  Result<void> depart(const std::shared_ptr<Transfer>& transfer, uint32_t slot, uint32_t count,
                      uint32_t step);
  // Records the event after what was launched. Throws std::bad_alloc, and has done nothing then.
  Status put_on_its_way(const std::shared_ptr<Transfer>& transfer, uint32_t slot, uint32_t count,
                        uint32_t step);
  void collect();
  void finish();
  bool collect_arrived();
  void arrive(const Leg& leg, Status status) STEMMA_REQUIRES(mutex_);

  const FlightOptions options_;
  const std::vector<Shape> shapes_;
  Piece* slots_begin_ = nullptr;
  uint64_t batch_from_ = UINT64_MAX;
  std::atomic<bool> broken_{false};

  base::WaitMutex mutex_;
  base::Condition departed_;  // A leg is under way, or the end.
  base::Condition ended_;     // A transfer is over, or the end.
  base::Condition arrived_;   // Slots came back.
  base::Condition launched_;  // A step was launched, or never will be.
  SlotRing ring_ STEMMA_GUARDED_BY(mutex_);
  std::list<Leg> legs_ STEMMA_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Transfer>> over_ STEMMA_GUARDED_BY(mutex_);  // But not finished.
  bool ending_ STEMMA_GUARDED_BY(mutex_) = false;
  bool all_collected_ STEMMA_GUARDED_BY(mutex_) = false;
  std::thread collector_;
  std::thread finisher_;  // Callers may begin transfers on it, which may wait for the collector.
};

}  // namespace stemma::mover::cuda
