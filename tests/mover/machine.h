// What a mover runs on, for tests that every mover must pass: this CPU, the fake device, or a real
// one where there is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mover/mover.h"

namespace stemma::test {

inline constexpr uint64_t kForever = UINT64_MAX;  // For Transfer::wait().

class Machine {
 public:
  virtual ~Machine() = default;
  virtual const char* name() const = 0;
  virtual bool is_device() const = 0;
  // For MoverOptions::device.
  virtual int device() const = 0;
  // `event_query` takes the place of the driver's, where there is a driver and it is not null.
  using EventQuery = int (*)(void* event);
  virtual Result<std::unique_ptr<mover::Mover>> make(const mover::MoverOptions& options,
                                                     EventQuery event_query = nullptr) = 0;

  // Memory for pages.
  virtual uint64_t take_pages(uint64_t bytes) = 0;
  virtual void give_back_pages(uint64_t pages) = 0;
  virtual void write(uint64_t to, const void* from, uint64_t bytes) = 0;
  virtual void read(void* to, uint64_t from, uint64_t bytes) = 0;

  // Host memory that the device reaches.
  virtual uint8_t* take_host(uint64_t bytes) = 0;
  virtual void give_back_host(uint8_t* memory) = 0;

  virtual uint64_t make_stream() = 0;
  // Keeps the stream busy for about a millisecond, so that work behind it comes late. Machines that
  // choose their own order need not.
  virtual void delay(uint64_t) {}
  // Waits for everything on the stream.
  virtual void finish(uint64_t stream) = 0;
};

enum class MachineKind { cpu, fake, cuda };
// Null: this machine has no CUDA device.
std::unique_ptr<Machine> make_machine(MachineKind kind, uint64_t seed);

}  // namespace stemma::test
