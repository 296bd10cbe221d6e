// A CUDA driver and device of our own: nothing happens until somebody asks, and then in the worst
// order that streams and events allow.
//
// Kernels are the real kernel's body (mover/cuda/kernel_body.h), run on this CPU one piece at a
// time; between two pieces any other stream may go on. A piece is read from its slot only when its
// turn comes, so a slot that was used again too early shows in the bytes. A kernel that touches
// memory which is neither the device's nor pinned breaks the device for good, as a real one does.
//
// A copy from ordinary memory arrives late, on the default stream, as a real one may.
//
// There is one device at a time; driver() has plain functions that find it.
// Threading: thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "mover/cuda/driver.h"

namespace stemma::test {

class FakeDevice {
 public:
  explicit FakeDevice(uint64_t seed);
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  const mover::cuda::Driver& driver() const noexcept { return driver_; }
  // Tests change functions of it, before they make a mover.
  mover::cuda::Driver& driver() noexcept { return driver_; }

  mover::cuda::Stream make_stream();
  // Work of the test on a stream, in its turn.
  void enqueue(mover::cuda::Stream stream, std::function<void()> work);
  // Does everything on the stream, and whatever that waits for.
  void finish(mover::cuda::Stream stream);

  uint8_t* take_device_memory(uint64_t bytes);
  void give_back_device_memory(uint8_t* memory);
  void pin(void* memory, uint64_t bytes);
  void unpin(void* memory);

  // The stream captures a graph, or no longer does. Any call that names it ends the capture with an
  // error, except the question whether it captures.
  void capture(mover::cuda::Stream stream, bool on);
  // Captures that ended so.
  uint64_t ended_captures() const;

  // After this many more pieces, the device breaks with this status.
  void break_after(uint64_t pieces, int status);
  // The next calls of this function of the driver fail ("launch", "event_create", ...), after
  // `after` good ones; times 0: none. With the status kThrows they throw std::bad_alloc, as the
  // mover's own memory may do at such a moment.
  static constexpr int kThrows = -1;
  void refuse(const std::string& function, int status, uint32_t times, uint32_t after = 0);

  // What has not been given back: streams, events, modules, contexts, memory, registrations.
  std::string leftovers() const;

  struct State;  // For the functions of the driver.

 private:
  mover::cuda::Driver driver_{};
  std::unique_ptr<State> state_;
};

}  // namespace stemma::test
