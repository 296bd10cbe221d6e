#include "tier/cuda_memory.h"

#include <dlfcn.h>

#include <new>

namespace stemma::tier {

namespace {

constexpr unsigned int kForAllContexts = 1;

template <class Function>
bool find(void* library, const char* name, Function& out) noexcept {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

}  // namespace

std::unique_ptr<CudaMemory> CudaMemory::open(const char* library) noexcept {
  void* const opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return nullptr;
  Driver driver{};
  const bool whole = find(opened, "cuInit", driver.init) &&
                     find(opened, "cuDeviceGetCount", driver.device_count) &&
                     find(opened, "cuDeviceGet", driver.device_get) &&
                     find(opened, "cuDevicePrimaryCtxGetState", driver.context_state) &&
                     find(opened, "cuDevicePrimaryCtxRetain", driver.context_retain) &&
                     find(opened, "cuDevicePrimaryCtxRelease_v2", driver.context_release) &&
                     find(opened, "cuCtxPushCurrent_v2", driver.context_push) &&
                     find(opened, "cuCtxPopCurrent_v2", driver.context_pop) &&
                     find(opened, "cuMemHostRegister_v2", driver.host_register) &&
                     find(opened, "cuMemHostUnregister", driver.host_unregister);
  if (!whole) {
    dlclose(opened);
    return nullptr;
  }
  // Once started, the driver is kept: it may have threads.
  std::unique_ptr<CudaMemory> memory(new (std::nothrow) CudaMemory(driver));
  if (memory == nullptr || driver.init(0) != 0 || !memory->take_context()) return nullptr;
  return memory;
}

// A device that is already in use costs nothing more, and the process is allowed to use it.
bool CudaMemory::take_context() noexcept {
  int count = 0;
  if (driver_.device_count(&count) != 0) return false;
  for (const bool active_only : {true, false}) {
    for (int ordinal = 0; ordinal < count; ++ordinal) {
      unsigned int flags = 0;
      int active = 0;
      if (driver_.device_get(&device_, ordinal) != 0 ||
          driver_.context_state(device_, &flags, &active) != 0 || (active_only && active == 0)) {
        continue;
      }
      if (driver_.context_retain(&context_, device_) == 0) return true;
      context_ = nullptr;
    }
  }
  return false;
}

CudaMemory::~CudaMemory() {
  if (context_ != nullptr) driver_.context_release(device_);
}

bool CudaMemory::pin(void* memory, uint64_t bytes) noexcept {
  if (driver_.context_push(context_) != 0) return false;
  const bool pinned = driver_.host_register(memory, bytes, kForAllContexts) == 0;
  Context popped = nullptr;
  driver_.context_pop(&popped);
  return pinned;
}

void CudaMemory::unpin(void* memory, uint64_t) noexcept {
  if (driver_.context_push(context_) != 0) return;
  driver_.host_unregister(memory);
  Context popped = nullptr;
  driver_.context_pop(&popped);
}

}  // namespace stemma::tier

namespace stemma {

HostMemoryHook* cuda_memory_hook() noexcept {
  // Never closed: a tier may outlive all other static objects.
  static HostMemoryHook* const kHook = tier::CudaMemory::open("libcuda.so.1").release();
  return kHook;
}

}  // namespace stemma
