#include "mover/machine.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mover/cuda/cuda_copier.h"
#include "mover/cuda/driver.h"
#include "mover/cuda/kernel_image.h"
#include "mover/fake_device.h"

namespace stemma::test {
namespace {

using namespace mover;

uint8_t* aligned(uint64_t bytes) {
  return static_cast<uint8_t*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
}

class CpuMachine final : public Machine {
 public:
  const char* name() const override { return "cpu"; }
  bool is_device() const override { return false; }
  int device() const override { return -1; }
  Result<std::unique_ptr<Mover>> make(const MoverOptions& options, EventQuery) override {
    return Mover::create(options);
  }
  uint64_t take_pages(uint64_t bytes) override {
    return reinterpret_cast<uint64_t>(aligned(bytes));
  }
  void give_back_pages(uint64_t pages) override { std::free(reinterpret_cast<void*>(pages)); }
  void write(uint64_t to, const void* from, uint64_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void read(void* to, uint64_t from, uint64_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  uint8_t* take_host(uint64_t bytes) override { return aligned(bytes); }
  void give_back_host(uint8_t* memory) override { std::free(memory); }
  uint64_t make_stream() override { return 0; }
  void finish(uint64_t) override {}
};

class FakeMachine final : public Machine {
 public:
  explicit FakeMachine(uint64_t seed) : device_(seed) {}
  const char* name() const override { return "fake"; }
  bool is_device() const override { return true; }
  int device() const override { return 0; }
  Result<std::unique_ptr<Mover>> make(const MoverOptions& options,
                                      EventQuery event_query) override {
    if (event_query != nullptr) device_.driver().event_query = event_query;
    return Mover::create(
        options,
        [](const CopierOptions& copier, void* self) {
          return make_cuda_copier(copier, static_cast<FakeMachine*>(self)->device_.driver(),
                                  "a kernel");
        },
        this);
  }
  uint64_t take_pages(uint64_t bytes) override {
    return reinterpret_cast<uint64_t>(device_.take_device_memory(bytes));
  }
  void give_back_pages(uint64_t pages) override {
    device_.give_back_device_memory(reinterpret_cast<uint8_t*>(pages));
  }
  void write(uint64_t to, const void* from, uint64_t bytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void read(void* to, uint64_t from, uint64_t bytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  uint8_t* take_host(uint64_t bytes) override {
    uint8_t* const memory = aligned(bytes);
    device_.pin(memory, bytes);
    return memory;
  }
  void give_back_host(uint8_t* memory) override {
    device_.unpin(memory);
    std::free(memory);
  }
  uint64_t make_stream() override { return reinterpret_cast<uint64_t>(device_.make_stream()); }
  void finish(uint64_t stream) override {
    device_.finish(reinterpret_cast<mover::cuda::Stream>(stream));
  }

 private:
  FakeDevice device_;
};

// The first CUDA device of this machine.
class CudaMachine final : public Machine {
 public:
  static std::unique_ptr<Machine> open() {
    if (cuda_device_count() == 0) return nullptr;
    // One context for the whole process: it is slow to make, and sanitizers watch it.
    static const auto* const kDevice = new auto(cuda::Device::open(*cuda::machine_driver(), 0));
    if (!*kDevice) return nullptr;
    return std::unique_ptr<Machine>(new CudaMachine(**kDevice));
  }
  ~CudaMachine() override {
    for (cuda::Stream stream : streams_) {
      driver_.stream_synchronize(stream);
      driver_.stream_destroy(stream);
    }
    if (busy_ != 0) driver_.memory_free(busy_);
  }
  const char* name() const override { return "cuda"; }
  bool is_device() const override { return true; }
  int device() const override { return 0; }
  Result<std::unique_ptr<Mover>> make(const MoverOptions& options,
                                      EventQuery event_query) override {
    cuda::Driver driver = driver_;
    if (event_query != nullptr) driver.event_query = event_query;
    return Mover::create(
        options,
        [](const CopierOptions& copier, void* context) {
          return make_cuda_copier(copier, *static_cast<const cuda::Driver*>(context),
                                  cuda::kernel_image());
        },
        &driver);
  }
  uint64_t take_pages(uint64_t bytes) override {
    cuda::Address memory = 0;
    need(driver_.memory_take(&memory, bytes));
    // A sanitizer reports reads of what nobody wrote.
    need(fill_(memory, 0, bytes));
    need(driver_.stream_synchronize(nullptr));
    return memory;
  }
  void give_back_pages(uint64_t pages) override { need(driver_.memory_free(pages)); }
  void write(uint64_t to, const void* from, uint64_t bytes) override {
    need(device_->put(to, from, bytes));
  }
  void read(void* to, uint64_t from, uint64_t bytes) override {
    need(copy_to_host_(to, from, bytes));
  }
  uint8_t* take_host(uint64_t bytes) override {
    uint8_t* const memory = aligned(bytes);
    need(device_->pin(memory, bytes) ? 0 : 1);
    return memory;
  }
  void give_back_host(uint8_t* memory) override {
    device_->unpin(memory, 0);
    std::free(memory);
  }
  uint64_t make_stream() override {
    cuda::Stream stream = nullptr;
    need(driver_.stream_create(&stream, 1));
    streams_.push_back(stream);
    return reinterpret_cast<uint64_t>(stream);
  }
  void delay(uint64_t stream) override {
    if (busy_ == 0) need(driver_.memory_take(&busy_, 2 * kBusyBytes));
    for (int i = 0; i < 8; ++i) {
      need(copy_on_device_(busy_, busy_ + kBusyBytes, kBusyBytes,
                           reinterpret_cast<cuda::Stream>(stream)));
    }
  }
  void finish(uint64_t stream) override {
    need(driver_.stream_synchronize(reinterpret_cast<cuda::Stream>(stream)));
  }

 private:
  explicit CudaMachine(std::shared_ptr<cuda::Device> device)
      : device_(std::move(device)), driver_(device_->driver()), use_(*device_) {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    copy_to_host_ =
        reinterpret_cast<int (*)(void*, cuda::Address, size_t)>(dlsym(library, "cuMemcpyDtoH_v2"));
    fill_ = reinterpret_cast<int (*)(cuda::Address, unsigned char, size_t)>(
        dlsym(library, "cuMemsetD8_v2"));
    copy_on_device_ = reinterpret_cast<int (*)(cuda::Address, cuda::Address, size_t, cuda::Stream)>(
        dlsym(library, "cuMemcpyDtoDAsync_v2"));
    need(copy_to_host_ == nullptr || fill_ == nullptr || copy_on_device_ == nullptr ? 1 : 0);
  }
  static void need(int status) {
    if (status == 0) return;
    std::fprintf(stderr, "the driver answered %d\n", status);
    std::abort();
  }

  std::shared_ptr<cuda::Device> device_;
  const cuda::Driver& driver_;
  cuda::Device::Use use_;
  int (*copy_to_host_)(void*, cuda::Address, size_t) = nullptr;
  int (*fill_)(cuda::Address, unsigned char, size_t) = nullptr;
  int (*copy_on_device_)(cuda::Address, cuda::Address, size_t, cuda::Stream) = nullptr;
  static constexpr uint64_t kBusyBytes = uint64_t{256} << 20U;
  cuda::Address busy_ = 0;
  std::vector<cuda::Stream> streams_;
};

}  // namespace

std::unique_ptr<Machine> make_machine(MachineKind kind, uint64_t seed) {
  switch (kind) {
    case MachineKind::cpu: return std::make_unique<CpuMachine>();
    case MachineKind::fake: return std::make_unique<FakeMachine>(seed);
    case MachineKind::cuda: return CudaMachine::open();
  }
  return nullptr;
}

}  // namespace stemma::test
