#include "mover/cuda/cuda_copier.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/lock.h"
#include "mover/cuda/driver.h"
#include "mover/cuda/flights.h"
#include "mover/cuda/kernel_image.h"
#include "mover/cuda/measure.h"
#include "mover/cuda/staging.h"
#include "tier/transfer_arena.h"

namespace stemma::mover {
namespace {

using namespace cuda;

constexpr uint64_t kMostStaging = uint64_t{64} << 20U;
constexpr uint32_t kLargestPiece = uint32_t{32} << 10U;

Stream stream_of(uint64_t number) noexcept { return reinterpret_cast<Stream>(number); }

class CudaCopier final : public Copier {
 public:
  CudaCopier(std::shared_ptr<Device> device, const CopierOptions& options)
      : device_(std::move(device)), counters_(options.counters) {}
  ~CudaCopier() override;

  Result<void> open(const CopierOptions& options, const void* image);

  uint32_t largest_piece() const noexcept override { return kLargestPiece; }
  Result<void> start(const std::shared_ptr<Transfer>& transfer) override;
  Result<void> gate(Transfer& transfer, uint32_t step, uint64_t stream) override;
  Result<uint64_t> event(Transfer& transfer, uint32_t step) override;
  tier::TransferArena* arena() noexcept override { return arena_.get(); }
  uint64_t batch_from_bytes() const noexcept override { return flights_->batch_from(); }
  bool owns(uint64_t address, uint64_t bytes) const noexcept override;
  std::string device() const override { return device_->name(); }

 private:
  Result<void> check_planes(std::span<const Layout> layouts) const;
  Result<void> load_kernel(const void* image, Function& kernel);
  Result<void> make_arena(const CopierOptions& options);
  Result<void> put_shapes(std::span<const Shape> shapes);
  Result<void> check(Status status, const char* what) const;
  Result<void> check_capture(Stream stream) const;
  // Whether the device reaches all of an item's memory. Error: it is the device's own.
  Result<bool> reaches(const TransferOptions& options) const noexcept;
  Stream own_stream(const TransferOptions& options) const noexcept;
  Result<void> launch_all(const std::shared_ptr<Transfer>& transfer) STEMMA_REQUIRES(order_);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Counters> counters_;
  std::shared_ptr<EventPool> events_;
  Module module_ = nullptr;
  Address shapes_ = 0;
  Stream load_ = nullptr, store_ = nullptr, local_ = nullptr;
  std::shared_ptr<tier::TransferArena> ring_, arena_;
  uint8_t* staging_area_ = nullptr;
  base::WaitMutex order_;  // One transfer is put on its way at a time.
  std::unique_ptr<Flights> flights_;
  std::unique_ptr<Staging> staging_;  // Goes first.
};

CudaCopier::~CudaCopier() {
  const Device::Use use(*device_);
  staging_.reset();
  flights_.reset();
  const Driver& driver = device_->driver();
  for (Stream stream : {load_, store_, local_}) {
    if (stream == nullptr) continue;
    // A stream that is destroyed goes on with its work, and that uses the ring and the arena.
    driver.stream_synchronize(stream);
    driver.stream_destroy(stream);
  }
  if (shapes_ != 0) driver.memory_free(shapes_);
  if (module_ != nullptr) driver.module_unload(module_);
}

Result<void> CudaCopier::check(Status status, const char* what) const {
  if (status == 0) return {};
  return Error(status == kOutOfMemory ? Errc::out_of_memory : Errc::copy_failed, what,
               static_cast<uint32_t>(status));
}

// A graph would repeat the copy with descriptors that belong to others by then.
Result<void> CudaCopier::check_capture(Stream stream) const {
  if (!device_->captures(stream)) return {};
  return Error(Errc::wrong_state,
               "the stream captures a graph, which the mover cannot be part of: begin and gate "
               "transfers outside of the capture");
}

Result<void> CudaCopier::check_planes(std::span<const Layout> layouts) const {
  uint32_t number = 0;
  for (const Layout& layout : layouts) {
    for (const LaidPlane& plane : layout.planes()) {
      uint64_t page_bytes = plane.shape.run_bytes;
      for (uint32_t d = 0; d < plane.shape.dims; ++d) {
        page_bytes += (plane.shape.size[d] - 1) * plane.shape.stride[d];
      }
      if (!device_->owns(plane.base, (layout.pages() - 1) * plane.page_stride + page_bytes)) {
        return Error(Errc::invalid_argument, "the pages of a plane are not in the device's memory",
                     number);
      }
      ++number;
    }
  }
  return {};
}

Result<void> CudaCopier::load_kernel(const void* image, Function& kernel) {
  const Driver& driver = device_->driver();
  STEMMA_TRY_VOID(check(driver.module_load(&module_, image),
                        "the driver cannot run the kernel on this device"));
  return check(driver.module_function(&kernel, module_, kKernelName), "the kernel is not there");
}

Result<void> CudaCopier::put_shapes(std::span<const Shape> shapes) {
  const Driver& driver = device_->driver();
  STEMMA_TRY_VOID(check(driver.memory_take(&shapes_, shapes.size_bytes()),
                        "the device has no memory for the shapes of the planes"));
  return check(device_->put(shapes_, shapes.data(), shapes.size_bytes()),
               "the shapes of the planes could not be copied");
}

Result<void> CudaCopier::make_arena(const CopierOptions& options) {
  const auto pinned = [&](uint64_t bytes) -> std::shared_ptr<tier::TransferArena> {
    auto made = tier::TransferArena::create(bytes, device_.get());
    if (made == nullptr) return nullptr;
    uint8_t* const first = made->take(made->bytes());
    const bool reached = device_->reaches(first, made->bytes());
    made->give_back(first);
    return reached ? made : nullptr;
  };
  ring_ = pinned(options.ring_bytes);
  if (ring_ == nullptr) return Error(Errc::out_of_memory, "ring_bytes could not be pinned");
  if (options.arena_bytes == 0) return {};
  arena_ = pinned(options.arena_bytes);
  if (arena_ == nullptr) return Error(Errc::out_of_memory, "arena_bytes could not be pinned");
  return {};
}

Result<void> CudaCopier::open(const CopierOptions& options, const void* image) {
  const Device::Use use(*device_);
  const Driver& driver = device_->driver();
  STEMMA_TRY_VOID(check(use.status(), "the device's context could not be made current"));
  STEMMA_TRY_VOID(check_planes(options.layouts));
  Function kernel = nullptr;
  STEMMA_TRY_VOID(load_kernel(image, kernel));
  STEMMA_TRY_VOID(put_shapes(options.shapes));
  STEMMA_TRY_VOID(make_arena(options));
  constexpr unsigned int kNotBesideTheDefaultStream = 1;
  for (Stream* stream : {&load_, &store_, &local_}) {
    STEMMA_TRY_VOID(check(driver.stream_create(stream, kNotBesideTheDefaultStream),
                          "the driver gave no stream"));
  }
  events_ = std::make_shared<EventPool>(device_);
  flights_ = std::make_unique<Flights>(FlightOptions{
      device_, events_, ring_, counters_, kernel, shapes_, options.shapes, options.thread_blocks});
  uint64_t largest_block = 0;
  for (const Layout& layout : options.layouts) {
    largest_block = std::max(largest_block, layout.block_bytes());
  }
  if (arena_ != nullptr && arena_->bytes() >= largest_block) {
    const uint64_t area = std::max(largest_block, std::min(kMostStaging, arena_->bytes() / 2));
    staging_area_ = arena_->take(area);
    staging_ = std::make_unique<Staging>(device_, *flights_, *counters_, staging_area_, area);
  }
  uint64_t batch_from = options.batch_from_bytes;
  if (!driver.has_batches()) batch_from = UINT64_MAX;
  if (batch_from == 0) {
    STEMMA_TRY(batch_from, measure_batches(*device_, options, kernel));
  }
  flights_->set_batch_from(batch_from);
  return {};
}

Result<bool> CudaCopier::reaches(const TransferOptions& options) const noexcept {
  bool all = true;
  uint32_t item = 0;
  for (size_t i = 0; i < options.host.size(); ++i) {
    const HostPiece& piece = options.host[i];
    while (i >= options.host_end[item]) ++item;
    const auto place = device_->place_of(reinterpret_cast<Address>(piece.data), piece.bytes);
    if (place == Device::Place::device) {
      return Error(Errc::invalid_argument, "a piece of an item is not in host memory", item);
    }
    all = all && place == Device::Place::reached &&
          reinterpret_cast<uintptr_t>(piece.data) % kAlignment == 0;
  }
  return all;
}

bool CudaCopier::owns(uint64_t address, uint64_t bytes) const noexcept {
  // Of a broken device nobody knows it, and start() says so.
  if (flights_->broken()) return true;
  const Device::Use use(*device_);
  return device_->owns(address, bytes);
}

Stream CudaCopier::own_stream(const TransferOptions& options) const noexcept {
  if (options.on_device) return local_;
  return options.way == Way::to_pages ? load_ : store_;
}

Result<void> CudaCopier::start(const std::shared_ptr<Transfer>& transfer) {
  const TransferOptions& options = transfer->options();
  const Device::Use use(*device_);
  STEMMA_TRY_VOID(check(use.status(), "the device's context could not be made current"));
  if (flights_->broken()) {
    return Error(Errc::copy_failed, "the device reported an error that it cannot get over");
  }
  bool staged = false;
  if (!options.on_device) {
    STEMMA_TRY(const bool reached, reaches(options));
    staged = !reached;
  }
  if (staged && (staging_ == nullptr || options.items == 0)) {
    return Error(Errc::unsupported,
                 "the device does not reach this memory, and arena_bytes has no room for a block");
  }
  if (staged && options.stream != kOwnStream) {
    return Error(Errc::unsupported,
                 "memory that the device does not reach is not copied on a stream of the caller's, "
                 "whose later work would not wait for it: give STEMMA_MOVER_OWN_STREAM");
  }
  auto flight = std::make_unique<Flight>();
  flight->pool = events_;
  flight->step_events.resize(transfer->plan().steps.size());
  const bool own = options.stream == kOwnStream;
  flight->stream = own ? own_stream(options) : stream_of(options.stream);
  const Stream stream = flight->stream;
  for (const uint64_t number : {options.stream, options.after_stream}) {
    if (number < kOwnStream) STEMMA_TRY_VOID(check_capture(stream_of(number)));
  }
  transfer->extra = std::move(flight);

  const base::Lock order(order_);
  if (options.after_stream != kNoStream) {
    const Stream after =
        options.after_stream == kOwnStream ? own_stream(options) : stream_of(options.after_stream);
    STEMMA_TRY_VOID(flights_->order(stream, after));
  }
  if (staged) {
    staging_->accept(transfer);
    return {};
  }
  return launch_all(transfer);
}

Result<void> CudaCopier::launch_all(const std::shared_ptr<Transfer>& transfer) {
  Plan& plan = transfer->plan();
  size_t begin = 0;
  Result<void> launched;
  try {
    for (size_t step = 0; step < plan.steps.size() && launched; ++step) {
      // While the steps before it are under way.
      transfer->plan_next();
      const size_t end = plan.steps[step].end_piece;
      launched = flights_->launch(transfer, std::span(plan.pieces).subspan(begin, end - begin),
                                  static_cast<uint32_t>(step));
      begin = end;
    }
  } catch (const std::bad_alloc&) {
    launched = Error(Errc::out_of_memory, "the system gave no memory for a plan");
  }
  if (!launched && flight_of(*transfer).events.empty()) return launched;
  // Some of it is under way: the transfer ends, as failed, when that is over.
  flights_->all_launched(transfer, !launched);
  return {};
}

Result<void> CudaCopier::gate(Transfer& transfer, uint32_t step, uint64_t stream) {
  STEMMA_TRY(const Event event, flights_->step_event(transfer, step));
  if (event == nullptr) return {};
  const Device::Use use(*device_);
  STEMMA_TRY_VOID(check_capture(stream_of(stream)));
  const Status status = device_->driver().stream_wait(stream_of(stream), event, 0);
  if (status != 0) return flights_->failure(status);
  return {};
}

Result<uint64_t> CudaCopier::event(Transfer& transfer, uint32_t step) {
  STEMMA_TRY(const Event event, flights_->step_event(transfer, step));
  return reinterpret_cast<uint64_t>(event);
}

}  // namespace

bool has_cuda() noexcept { return kernel_image() != nullptr; }

uint32_t cuda_device_count() noexcept {
  const Driver* const driver = has_cuda() ? machine_driver() : nullptr;
  int count = 0;
  if (driver == nullptr || driver->device_count(&count) != 0) return 0;
  return static_cast<uint32_t>(std::max(count, 0));
}

Result<std::unique_ptr<Copier>> make_cuda_copier(const CopierOptions& options, const Driver& driver,
                                                 const void* image) {
  STEMMA_TRY(std::shared_ptr<Device> device, Device::open(driver, options.device));
  auto made = std::make_unique<CudaCopier>(std::move(device), options);
  STEMMA_TRY_VOID(made->open(options, image));
  return std::unique_ptr<Copier>(std::move(made));
}

Result<std::unique_ptr<Copier>> make_cuda_copier(const CopierOptions& options) {
  if (!has_cuda()) return Error(Errc::unsupported, "this library was built without CUDA");
  const Driver* const driver = machine_driver();
  if (driver == nullptr) return Error(Errc::unsupported, "there is no CUDA driver: libcuda.so.1");
  return make_cuda_copier(options, *driver, kernel_image());
}

}  // namespace stemma::mover
