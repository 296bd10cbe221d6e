// Memory pinned by a CUDA driver that is looked up at run time.
//
// Threading: pin() and unpin() may be called from any thread; each makes the context current for
// itself only.
#pragma once

#include <cstdint>
#include <memory>

#include "stemma/tier/host_tier.h"

namespace stemma::tier {

class CudaMemory final : public HostMemoryHook {
 public:
  // The driver in the shared library of this name; null if it is no driver, or finds no device.
  static std::unique_ptr<CudaMemory> open(const char* library) noexcept;
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  bool pin(void* memory, uint64_t bytes) noexcept override;
  void unpin(void* memory, uint64_t bytes) noexcept override;

 private:
  // The driver's functions in its ABI: a status (0 is good), a device's number, a context.
  using Status = int;
  using Device = int;
  using Context = void*;
  struct Driver {
    Status (*init)(unsigned int flags);
    Status (*device_count)(int* out);
    Status (*device_get)(Device* out, int ordinal);
    Status (*context_state)(Device device, unsigned int* flags, int* active);
    Status (*context_retain)(Context* out, Device device);
    Status (*context_release)(Device device);
    Status (*context_push)(Context context);
    Status (*context_pop)(Context* out);
    Status (*host_register)(void* memory, size_t bytes, unsigned int flags);
    Status (*host_unregister)(void* memory);
  };

  explicit CudaMemory(const Driver& driver) : driver_(driver) {}
  bool take_context() noexcept;

  Driver driver_;
  Device device_ = 0;
  Context context_ = nullptr;
};

}  // namespace stemma::tier
