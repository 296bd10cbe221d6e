// A host tier whose arena a real CUDA driver has pinned, for machines that have one: what is put comes back, the
// device reads and writes the arena itself, and how much faster that is than with plain memory.
//
//   pinned_memory [GiB of the arena, 2]
//
// Exit codes: 0 right, 1 wrong, 77 no CUDA driver here (nothing was tested).
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "stemma/host_tier.h"

namespace stemma {
namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "pinned_memory: %s\n", what);
  std::exit(1);
}
void expect(bool holds, const char* what) {
  if (!holds) die(what);
}

// What of the driver this needs besides.
struct Device {
  Device() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    expect(driver != nullptr, "no libcuda.so.1");
    const auto find = [driver](const char* name) {
      void* const at = dlsym(driver, name);
      expect(at != nullptr, name);
      return at;
    };
    const auto retain = reinterpret_cast<int (*)(void**, int)>(find("cuDevicePrimaryCtxRetain"));
    const auto make_current = reinterpret_cast<int (*)(void*)>(find("cuCtxSetCurrent"));
    const auto allocate = reinterpret_cast<int (*)(uint64_t*, size_t)>(find("cuMemAlloc_v2"));
    write = reinterpret_cast<int (*)(uint64_t, const void*, size_t)>(find("cuMemcpyHtoD_v2"));
    read = reinterpret_cast<int (*)(void*, uint64_t, size_t)>(find("cuMemcpyDtoH_v2"));
    attribute = reinterpret_cast<int (*)(void*, int, uint64_t)>(find("cuPointerGetAttribute"));
    void* context = nullptr;
    expect(retain(&context, 0) == 0 && make_current(context) == 0, "no context");
    expect(allocate(&memory, kBytes) == 0, "no memory on the device");
  }
  // Whether the driver knows the memory, as that of the host.
  bool knows(const void* host) const {
    constexpr int kMemoryType = 2;
    constexpr unsigned int kHost = 1;
    unsigned int type = 0;
    return attribute(&type, kMemoryType, reinterpret_cast<uint64_t>(host)) == 0 && type == kHost;
  }

  static constexpr size_t kBytes = 2U << 20U;
  uint64_t memory = 0;
  int (*write)(uint64_t, const void*, size_t) = nullptr;
  int (*read)(void*, uint64_t, size_t) = nullptr;
  int (*attribute)(void*, int, uint64_t) = nullptr;
};

// The driver's hook, which says what it pinned.
class Watched final : public HostMemoryHook {
 public:
  explicit Watched(HostMemoryHook& hook) : hook_(hook) {}
  bool pin(void* memory, uint64_t bytes) noexcept override {
    const auto begin = std::chrono::steady_clock::now();
    const bool pinned = hook_.pin(memory, bytes);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    at = pinned ? static_cast<uint8_t*>(memory) : nullptr;
    size = bytes;
    std::printf("pinning %.2f GiB took %.3f s\n", static_cast<double>(bytes) / (1U << 30U),
                took.count());
    return pinned;
  }
  void unpin(void* memory, uint64_t bytes) noexcept override { hook_.unpin(memory, bytes); }

  uint8_t* at = nullptr;
  uint64_t size = 0;

 private:
  HostMemoryHook& hook_;
};

TierOutcome once(Tier& tier, TierOp op, uint64_t number, std::vector<uint8_t>& bytes) {
  const std::shared_ptr<TierBatch> batch = TierBatch::make(op, 1).value();
  TierItem& item = batch->items()[0];
  std::memcpy(item.key.chain.bytes.data(), &number, sizeof number);
  item.info = {.end = 16, .layout = 1, .bytes = bytes.size()};
  item.source = bytes;
  item.into = bytes;
  tier.submit(batch);
  return batch->items()[0].outcome;
}

std::vector<uint8_t> content(uint64_t number) {
  std::vector<uint8_t> bytes(Device::kBytes);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t word = (number * Device::kBytes + i) * 0x9E37'79B9'7F4A'7C15U;
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

// In GB/s, the best of five rounds over all of the memory.
template <class Copy>
double speed(uint8_t* memory, uint64_t bytes, const Copy& copy) {
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (uint64_t at = 0; at + Device::kBytes <= bytes; at += Device::kBytes) {
      expect(copy(memory + at), "a copy failed");
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, static_cast<double>(bytes) / took.count() / 1e9);
  }
  return best;
}

int run(uint64_t capacity) {
  HostMemoryHook* const hook = cuda_memory_hook();
  if (hook == nullptr) {
    std::printf("no CUDA driver, or no device: nothing was tested\n");
    return 77;
  }
  const Device device;
  Watched watched(*hook);
  std::vector<uint8_t> plain;
  double pinned_write = 0, pinned_read = 0;
  {
    const auto tier = make_host_tier({.capacity_bytes = capacity, .hook = &watched}).value();
    expect(watched.at != nullptr, "the arena was not pinned");
    expect(device.knows(watched.at) && device.knows(watched.at + watched.size - 1),
           "the driver does not know the arena");
    const uint64_t entries = capacity / Device::kBytes * 9 / 10;
    for (uint64_t i = 0; i < entries; ++i) {
      std::vector<uint8_t> bytes = content(i);
      expect(once(*tier, TierOp::put, i, bytes) == TierOutcome::done, "a put failed");
    }
    for (uint64_t i = 0; i < entries; i += 7) {
      std::vector<uint8_t> bytes(Device::kBytes);
      expect(once(*tier, TierOp::get, i, bytes) == TierOutcome::done, "a get failed");
      expect(bytes == content(i), "a get gave other bytes");
    }
    // The first entry lies at the front of the arena: to the device and back, straight from there.
    std::vector<uint8_t> back(Device::kBytes);
    expect(device.write(device.memory, watched.at, Device::kBytes) == 0 &&
               device.read(back.data(), device.memory, Device::kBytes) == 0,
           "a copy failed");
    expect(back == content(0), "the device read other bytes from the arena");
    plain.assign(watched.at, watched.at + std::min<uint64_t>(watched.size, 1U << 30U));
    pinned_write = speed(watched.at, plain.size(), [&](uint8_t* at) {
      return device.write(device.memory, at, Device::kBytes) == 0;
    });
    pinned_read = speed(watched.at, plain.size(), [&](uint8_t* at) {
      return device.read(at, device.memory, Device::kBytes) == 0;
    });
  }
  expect(!device.knows(watched.at), "the driver still knows the arena of a tier that is gone");
  expect(!device.knows(plain.data()), "the driver knows memory that nobody pinned");
  const double plain_write = speed(plain.data(), plain.size(), [&](uint8_t* at) {
    return device.write(device.memory, at, Device::kBytes) == 0;
  });
  const double plain_read = speed(plain.data(), plain.size(), [&](uint8_t* at) {
    return device.read(at, device.memory, Device::kBytes) == 0;
  });
  std::printf("to the device, pieces of 2 MiB: pinned %.1f GB/s, plain %.1f GB/s = %.2fx\n",
              pinned_write, plain_write, pinned_write / plain_write);
  std::printf("from the device:                pinned %.1f GB/s, plain %.1f GB/s = %.2fx\n",
              pinned_read, plain_read, pinned_read / plain_read);
  std::printf("right\n");
  return 0;
}

}  // namespace
}  // namespace stemma

int main(int argc, char** argv) {
  const uint64_t gib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
  if (gib == 0 || gib > 1024) {
    std::fprintf(stderr, "usage: pinned_memory [GiB of the arena, 1 to 1024]\n");
    return 2;
  }
  return stemma::run(gib << 30U);
}
