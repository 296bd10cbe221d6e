// NVIDIA's driver, looked up at run time: the functions that the mover calls, in the driver's ABI.
//
// The library links nothing of CUDA, so it loads on machines without a driver. Tests put a driver
// of their own in place of the machine's.
//
// Threading:  as the driver: thread-safe; the current context belongs to a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "stemma/pinned_memory.h"
#include "stemma/result.h"

namespace stemma::mover::cuda {

using Status = int;  // 0 is good.
using Ordinal = int;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;
using Event = void*;
using Address = uint64_t;

inline constexpr Status kInvalidValue = 1, kOutOfMemory = 2, kNotReady = 600;
// The legacy default stream has two names.
inline bool is_legacy(Stream stream) noexcept { return reinterpret_cast<uintptr_t>(stream) <= 1; }
// Whether the context can do nothing more after this.
bool is_final(Status status) noexcept;

// Of cuMemcpyBatchAsync.
struct CopyAttributes {
  int source_order = 1;  // In stream order.
  int source_hint[2] = {0, 0};
  int target_hint[2] = {0, 0};
  unsigned int flags = 0;
};

struct Driver {
  Status (*init)(unsigned int flags);
  Status (*device_count)(int* out);
  Status (*device_get)(Ordinal* out, int number);
  Status (*device_name)(char* out, int size, Ordinal device);
  Status (*device_attribute)(int* out, int attribute, Ordinal device);
  Status (*context_retain)(Context* out, Ordinal device);
  Status (*context_release)(Ordinal device);
  Status (*context_push)(Context context);
  Status (*context_pop)(Context* out);
  Status (*module_load)(Module* out, const void* image);
  Status (*module_unload)(Module module);
  Status (*module_function)(Function* out, Module module, const char* name);
  Status (*launch)(Function function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                   unsigned int block_x, unsigned int block_y, unsigned int block_z,
                   unsigned int shared_bytes, Stream stream, void** parameters, void** extra);
  Status (*stream_create)(Stream* out, unsigned int flags);
  Status (*stream_destroy)(Stream stream);
  Status (*stream_synchronize)(Stream stream);
  Status (*stream_wait)(Stream stream, Event event, unsigned int flags);
  Status (*event_create)(Event* out, unsigned int flags);
  Status (*event_destroy)(Event event);
  Status (*event_record)(Event event, Stream stream);
  Status (*event_query)(Event event);
  Status (*event_wait)(Event event);
  Status (*memory_take)(Address* out, size_t bytes);
  Status (*memory_free)(Address memory);
  Status (*copy_to_device)(Address to, const void* from, size_t bytes);
  Status (*host_register)(void* memory, size_t bytes, unsigned int flags);
  Status (*host_unregister)(void* memory);
  // Of memory that the driver does not know, every attribute is 0, and that is no error.
  Status (*pointer_attributes)(unsigned int count, int* attributes, void** out, Address pointer);
  // One of them, or neither: cuMemcpyBatchAsync of CUDA 13, and of 12.8.
  Status (*copy_batch)(Address* targets, Address* sources, size_t* sizes, size_t count,
                       CopyAttributes* attributes, size_t* attribute_of, size_t attribute_count,
                       Stream stream);
  Status (*copy_batch_12)(Address* targets, Address* sources, size_t* sizes, size_t count,
                          CopyAttributes* attributes, size_t* attribute_of, size_t attribute_count,
                          size_t* failed, Stream stream);

  // Null in drivers before CUDA 10.
  Status (*stream_is_capturing)(Stream stream, int* out);
  // Null in drivers before CUDA 10.1.
  Status (*exchange_capture_mode)(int* mode);

  bool has_batches() const noexcept { return copy_batch != nullptr || copy_batch_12 != nullptr; }
};

// For threads of ours: lets them ask for events while another thread captures a graph, which would
// otherwise end the capture with an error.
void stay_out_of_captures(const Driver& driver) noexcept;

// The machine's driver, started; null if there is none. It stays loaded.
const Driver* machine_driver() noexcept;

// A device whose primary context is retained: the one that every CUDA runtime in the process uses.
class Device final : public HostMemoryHook {
 public:
  // Errors: invalid_argument (no such device), out_of_memory, copy_failed.
  static Result<std::shared_ptr<Device>> open(const Driver& driver, int number);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  Ordinal ordinal() const noexcept { return ordinal_; }
  const char* name() const noexcept { return name_; }
  uint32_t multiprocessors() const noexcept { return multiprocessors_; }

  // Copies ordinary host memory to the device and waits until it is there: the driver's copy
  // returns earlier, and streams that do not wait for the default stream would not notice.
  Status put(Address to, const void* from, uint64_t bytes) const noexcept;

  // Where memory is: on this device, on the host where the device reads and writes it by its own
  // address, or elsewhere. Both ends are looked at, and a byte of every 2 MiB between them: memory
  // is mapped in pages of that size.
  enum class Place { device, reached, elsewhere };
  Place place_of(Address address, uint64_t bytes) const noexcept;
  bool reaches(const void* memory, uint64_t bytes) const noexcept {
    return place_of(reinterpret_cast<Address>(memory), bytes) == Place::reached;
  }
  bool owns(Address address, uint64_t bytes) const noexcept {
    return place_of(address, bytes) == Place::device;
  }

  // Whether the stream's work goes into a graph instead of the device.
  bool captures(Stream stream) const noexcept;

  bool pin(void* memory, uint64_t bytes) noexcept override;
  void unpin(void* memory, uint64_t bytes) noexcept override;

  // Makes the context current on this thread as long as it lives.
  class Use {
   public:
    explicit Use(const Device& device) noexcept : device_(device) {
      status_ = device.driver_.context_push(device.context_);
    }
    ~Use() {
      Context popped = nullptr;
      if (status_ == 0) device_.driver_.context_pop(&popped);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Status status() const noexcept { return status_; }

   private:
    const Device& device_;
    Status status_;
  };

 private:
  explicit Device(const Driver& driver) noexcept : driver_(driver) {}
  Place place_of(Address address) const noexcept;

  const Driver driver_;
  Ordinal ordinal_ = 0;
  int number_ = 0;
  Context context_ = nullptr;
  uint32_t multiprocessors_ = 1;
  char name_[64] = {};
};

}  // namespace stemma::mover::cuda
