// Events of one device, created as they are needed and used again.
//
// An event may be recorded anew as soon as nobody waits for its last recording by name: streams
// that were told to wait remember what they wait for.
//
// Threading:  thread-safe. Callers have made the device's context current.
// Ownership:  flights share the pool, so that it outlives its copier if they do.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "mover/cuda/driver.h"

namespace stemma::mover::cuda {

class EventPool {
 public:
  explicit EventPool(std::shared_ptr<Device> device) noexcept : device_(std::move(device)) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool() {
    const Device::Use use(*device_);
    for (Event event : free_) device_->driver().event_destroy(event);
  }

  // Null if the driver gives none. Throws std::bad_alloc.
  Event take() {
    {
      const base::Lock lock(mutex_);
      if (!free_.empty()) {
        Event event = free_.back();
        free_.pop_back();
        return event;
      }
      // give_back() may not fail.
      if (free_.capacity() <= made_) free_.reserve(2 * made_ + 16);
      ++made_;
    }
    constexpr unsigned int kWithoutTiming = 2;
    Event event = nullptr;
    return device_->driver().event_create(&event, kWithoutTiming) == 0 ? event : nullptr;
  }
  void give_back(Event event) noexcept {
    const base::Lock lock(mutex_);
    free_.push_back(event);
  }

 private:
  std::shared_ptr<Device> device_;
  base::WaitMutex mutex_;
  std::vector<Event> free_ STEMMA_GUARDED_BY(mutex_);
  size_t made_ STEMMA_GUARDED_BY(mutex_) = 0;  // At most so many events are out.
};

}  // namespace stemma::mover::cuda
