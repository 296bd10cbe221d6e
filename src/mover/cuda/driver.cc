#include "mover/cuda/driver.h"

#include <dlfcn.h>

#include <algorithm>

namespace stemma::mover::cuda {
namespace {

constexpr unsigned int kForAllContexts = 1;
constexpr Status kWouldEndCapture = 906;
constexpr int kMultiprocessorCount = 16;
constexpr int kMemoryType = 2, kDevicePointer = 3, kDeviceNumber = 9;
constexpr unsigned int kHostMemory = 1, kDeviceMemory = 2;

template <class Function>
bool find(void* library, const char* name, Function& out) noexcept {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

bool find_all(void* library, Driver& out) noexcept {
  // These came later; without them the kernel copies everything.
  if (!find(library, "cuMemcpyBatchAsync_v2", out.copy_batch)) {
    find(library, "cuMemcpyBatchAsync", out.copy_batch_12);
  }
  find(library, "cuStreamIsCapturing", out.stream_is_capturing);
  find(library, "cuThreadExchangeStreamCaptureMode", out.exchange_capture_mode);
  return find(library, "cuInit", out.init) && find(library, "cuDeviceGetCount", out.device_count) &&
         find(library, "cuDeviceGet", out.device_get) &&
         find(library, "cuDeviceGetName", out.device_name) &&
         find(library, "cuDeviceGetAttribute", out.device_attribute) &&
         find(library, "cuDevicePrimaryCtxRetain", out.context_retain) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", out.context_release) &&
         find(library, "cuCtxPushCurrent_v2", out.context_push) &&
         find(library, "cuCtxPopCurrent_v2", out.context_pop) &&
         find(library, "cuModuleLoadData", out.module_load) &&
         find(library, "cuModuleUnload", out.module_unload) &&
         find(library, "cuModuleGetFunction", out.module_function) &&
         find(library, "cuLaunchKernel", out.launch) &&
         find(library, "cuStreamCreate", out.stream_create) &&
         find(library, "cuStreamDestroy_v2", out.stream_destroy) &&
         find(library, "cuStreamSynchronize", out.stream_synchronize) &&
         find(library, "cuStreamWaitEvent", out.stream_wait) &&
         find(library, "cuEventCreate", out.event_create) &&
         find(library, "cuEventDestroy_v2", out.event_destroy) &&
         find(library, "cuEventRecord", out.event_record) &&
         find(library, "cuEventQuery", out.event_query) &&
         find(library, "cuEventSynchronize", out.event_wait) &&
         find(library, "cuMemAlloc_v2", out.memory_take) &&
         find(library, "cuMemFree_v2", out.memory_free) &&
         find(library, "cuMemcpyHtoD_v2", out.copy_to_device) &&
         find(library, "cuMemHostRegister_v2", out.host_register) &&
         find(library, "cuMemHostUnregister", out.host_unregister) &&
         find(library, "cuPointerGetAttributes", out.pointer_attributes);
}

}  // namespace

bool is_final(Status status) noexcept {
  constexpr Status kFinal[] = {4,   46,  201, 214, 220, 226, 700, 702, 709,
                               710, 714, 715, 716, 717, 718, 719, 721, 999};
  return std::find(std::begin(kFinal), std::end(kFinal), status) != std::end(kFinal);
}

void stay_out_of_captures(const Driver& driver) noexcept {
  int relaxed = 2;
  if (driver.exchange_capture_mode != nullptr) driver.exchange_capture_mode(&relaxed);
}

const Driver* machine_driver() noexcept {
  static const Driver* const kDriver = []() noexcept -> const Driver* {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    static Driver driver{};
    if (library == nullptr || !find_all(library, driver)) return nullptr;
    // Never closed: a driver has threads.
    return driver.init(0) == 0 ? &driver : nullptr;
  }();
  return kDriver;
}

Result<std::shared_ptr<Device>> Device::open(const Driver& driver, int number) {
  int count = 0;
  if (driver.device_count(&count) != 0 || number >= count) {
    return Error(Errc::invalid_argument, "there is no such CUDA device",
                 static_cast<uint32_t>(number));
  }
  std::shared_ptr<Device> device(new Device(driver));
  device->number_ = number;
  int multiprocessors = 1;
  if (driver.device_get(&device->ordinal_, number) != 0 ||
      driver.device_name(device->name_, sizeof device->name_ - 1, device->ordinal_) != 0 ||
      driver.device_attribute(&multiprocessors, kMultiprocessorCount, device->ordinal_) != 0) {
    return Error(Errc::copy_failed, "the driver says nothing about this device");
  }
  device->multiprocessors_ = static_cast<uint32_t>(std::max(multiprocessors, 1));
  const Status status = driver.context_retain(&device->context_, device->ordinal_);
  if (status != 0) {
    device->context_ = nullptr;
    return status == kOutOfMemory
               ? Error(Errc::out_of_memory, "the device has no memory for a context")
               : Error(Errc::copy_failed, "the driver gave no context for this device",
                       static_cast<uint32_t>(status));
  }
  return device;
}

Device::~Device() {
  if (context_ != nullptr) driver_.context_release(ordinal_);
}

Status Device::put(Address to, const void* from, uint64_t bytes) const noexcept {
  const Status status = driver_.copy_to_device(to, from, bytes);
  return status != 0 ? status : driver_.stream_synchronize(nullptr);
}

Device::Place Device::place_of(Address address) const noexcept {
  unsigned int type = 0;
  Address seen = 0;
  int number = -1;
  int attributes[] = {kMemoryType, kDevicePointer, kDeviceNumber};
  void* out[] = {&type, &seen, &number};
  if (driver_.pointer_attributes(3, attributes, out, address) != 0) return Place::elsewhere;
  if (type == kDeviceMemory && number == number_) return Place::device;
  return type == kHostMemory && seen == address ? Place::reached : Place::elsewhere;
}

Device::Place Device::place_of(Address address, uint64_t bytes) const noexcept {
  constexpr uint64_t kPage = uint64_t{2} << 20U;
  if (bytes == 0 || address > UINT64_MAX - bytes) return Place::elsewhere;
  const Place place = place_of(address);
  for (uint64_t at = kPage; place != Place::elsewhere && at < bytes; at += kPage) {
    if (place_of(address + at) != place) return Place::elsewhere;
  }
  return place_of(address + bytes - 1) == place ? place : Place::elsewhere;
}

bool Device::captures(Stream stream) const noexcept {
  int capturing = 0;
  if (driver_.stream_is_capturing == nullptr) return false;
  // Of the legacy default stream the driver refuses to tell while it would end another's capture.
  const Status status = driver_.stream_is_capturing(stream, &capturing);
  return status == kWouldEndCapture || (status == 0 && capturing != 0);
}

bool Device::pin(void* memory, uint64_t bytes) noexcept {
  const Use use(*this);
  return driver_.host_register(memory, bytes, kForAllContexts) == 0;
}

void Device::unpin(void* memory, uint64_t) noexcept {
  const Use use(*this);
  driver_.host_unregister(memory);
}

}  // namespace stemma::mover::cuda
