// Memory pinned by a real CUDA driver, for machines that have one: a host tier whose arena the
// device reads and writes itself, and blocks that go from tiers to a device through pinned memory.
// Checks contents, and prints how much faster that is than plain memory.
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

#include "stemma/tier/host_tier.h"
#include "stemma/tier/paged_tiers.h"

namespace stemma {
namespace {

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "pinned_memory: %s\n", what);
  std::exit(1);
}
void expect(bool holds, const char* what) {
  if (!holds) die(what);
}

// The other driver functions that this needs.
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
    allocate_ = allocate;
    free_ = reinterpret_cast<int (*)(uint64_t)>(find("cuMemFree_v2"));
    memory = take(1);
  }
  uint64_t take(uint32_t pieces) const {
    uint64_t taken = 0;
    expect(allocate_(&taken, size_t{pieces} * kBytes) == 0, "no memory on the device");
    return taken;
  }
  void give_back(uint64_t taken) const { expect(free_(taken) == 0, "no such memory"); }
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

 private:
  int (*allocate_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
};

// The driver's hook, which reports what it pinned.
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

// An engine whose blocks are on the device.
class DeviceBlocks final : public BlockIo {
 public:
  static constexpr uint32_t kBlocks = 256;
  explicit DeviceBlocks(const Device& device) : device_(device), memory_(device.take(kBlocks)) {}
  ~DeviceBlocks() override { device_.give_back(memory_); }
  DeviceBlocks(const DeviceBlocks&) = delete;
  DeviceBlocks& operator=(const DeviceBlocks&) = delete;

  uint64_t at(BlockId block) const { return memory_ + uint64_t{to_index(block)} * Device::kBytes; }
  void copy(std::span<const BlockCopy>, Done done, void* user) override {
    done(user, Error(Errc::unsupported, "blocks are leased whole"));
  }
  void read(GroupIndex, std::span<const BlockId> blocks, std::span<uint8_t> bytes, Done done,
            void* user) override {
    for (size_t i = 0; i < blocks.size(); ++i) {
      expect(device_.read(bytes.data() + i * Device::kBytes, at(blocks[i]), Device::kBytes) == 0,
             "a block could not be read");
    }
    done(user, {});
  }
  void write(GroupIndex, std::span<const BlockId> blocks, std::span<const uint8_t> bytes, Done done,
             void* user) override {
    for (size_t i = 0; i < blocks.size(); ++i) {
      expect(device_.write(at(blocks[i]), bytes.data() + i * Device::kBytes, Device::kBytes) == 0,
             "a block could not be written");
    }
    done(user, {});
  }

 private:
  const Device& device_;
  const uint64_t memory_;
};

// How fast blocks come from a host tier to the device, in GB/s: the best of five.
double restore_speed(const Device& device, HostMemoryHook* hook, uint64_t transfer_bytes) {
  constexpr uint32_t kTokens = 16;
  DeviceBlocks engine(device);
  Options options;
  options.groups = {{.block_tokens = kTokens,
                     .capacity_blocks = DeviceBlocks::kBlocks,
                     .block_bytes = Device::kBytes}};
  PagedCache cache = PagedCache::create(options).value();
  tier::StackOptions stack;
  stack.levels.push_back({.tier = make_host_tier({.capacity_bytes = uint64_t{1} << 30U}).value()});
  stack.query_ns = kNever;
  stack.queue_bytes = uint64_t{1} << 30U;
  stack.load_ns = stack.store_ns = kNever;
  stack.transfer_bytes = transfer_bytes;
  stack.hook = hook;
  const auto tiers = tier::PagedTiers::create(
                         {.cache = &cache, .io = &engine, .groups = options.groups, .layout = 1},
                         tier::TierStack::create(std::move(stack)).value())
                         .value();
  const Scope scope = Scope::make({.model = "a model"}).value();
  std::vector<Token> words((DeviceBlocks::kBlocks - 1) * kTokens + 1, 7);
  double best = 0;
  for (int round = 0; round < 6; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    tier::Restored restored = tiers->restore(scope, {.tokens = words}).value();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const uint64_t bytes = uint64_t{restored.restored_tokens} / kTokens * Device::kBytes;
    Lease lease = cache.lease(scope, {.tokens = words}, {.lookup = {.allow_copy = false}}).value();
    restored.hold = {};
    std::vector<BlockId> table(lease.block_count(0));
    lease.block_table(0, table).value();
    const uint32_t whole = DeviceBlocks::kBlocks - 1;
    expect(bytes == (round == 0 ? 0 : uint64_t{whole} * Device::kBytes), "not all was restored");
    for (uint32_t i = 0; i < whole; ++i) {
      std::vector<uint8_t> expected = content(i);
      if (round == 0) {
        expect(device.write(engine.at(table[i]), expected.data(), expected.size()) == 0,
               "no write");
        continue;
      }
      std::vector<uint8_t> found(Device::kBytes);
      expect(device.read(found.data(), engine.at(table[i]), found.size()) == 0, "no read");
      expect(found == expected, "a block came back with other bytes");
    }
    lease.commit(lease.length()).value();
    tiers->store(scope, {.tokens = words}, lease).value();
    lease.release().value();
    expect(tiers->stack().flush(kNever), "not all was stored");
    (void)cache.drop_scope(scope);
    // Overwrites unneeded bytes, so that old ones do not pass for restored ones.
    const std::vector<uint8_t> nothing(Device::kBytes, 0);
    for (uint32_t i = 0; i < DeviceBlocks::kBlocks; ++i) {
      expect(device.write(engine.at(BlockId{i}), nothing.data(), nothing.size()) == 0, "no write");
    }
    if (round != 0) best = std::max(best, static_cast<double>(bytes) / took.count() / 1e9);
  }
  expect(transfer_bytes == 0 || tiers->stack().stats().crowded == 0, "the arena was too small");
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
  const double plain_restore = restore_speed(device, nullptr, 0);
  const double arena_restore = restore_speed(device, nullptr, uint64_t{1} << 30U);
  const double pinned_restore = restore_speed(device, hook, uint64_t{1} << 30U);
  std::printf(
      "255 blocks of 2 MiB from a host tier to the device by PagedTiers::restore():\n"
      "  plain %.1f GB/s, through an arena %.1f, through a pinned arena %.1f GB/s = %.2fx\n",
      plain_restore, arena_restore, pinned_restore, pinned_restore / plain_restore);
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
