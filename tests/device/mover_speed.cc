// How fast the block mover is on this machine's CUDA device, beside what the driver does alone, and
// that it notices damage. Usage: mover_speed [MiB to move, 1024] [cpu | probe]
//
// Prints a table, and whether the bars of speed are met. Exits with 1 if anything is wrong, with 3 if
// a bar was missed with 1 GiB or more. Without a device it exits with 77. With `cpu` it measures the CPU's mover instead; with `probe` it only
// looks for a device.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/word_sum.h"
#include "mover/cuda/cuda_copier.h"
#include "mover/cuda/driver.h"
#include "mover/mover.h"

namespace stemma {
namespace {

using namespace mover;

constexpr uint64_t kForever = UINT64_MAX;
constexpr int kRounds = 5;
constexpr uint32_t kLayers = 32, kPlanes = 2 * kLayers;

void expect(bool right, const char* what) {
  if (right) return;
  std::fprintf(stderr, "WRONG: %s\n", what);
  std::exit(1);
}

// A bar of the issue: `value` must be at least `least`, or the line says so. Only speed: the process
// goes on, and exits with 3 in the end.
int missed = 0;
void bar(const char* what, double value, double least) {
  const bool good = value >= least;
  missed += good ? 0 : 1;
  std::printf("  bar: %-58s %8.2f, wanted %8.2f or more: %s\n", what, value, least,
              good ? "met" : "MISSED");
}

// The median of some rounds, in seconds; one round before them warms up. `slow`: one round is
// enough.
double median(const std::function<void()>& body, bool slow = false) {
  std::vector<double> all;
  for (int round = slow ? 1 : 0; round <= (slow ? 1 : kRounds); ++round) {
    const auto begin = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (round != 0) all.push_back(took.count());
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void fill(uint8_t* bytes, uint64_t size, uint64_t seed) {
  for (uint64_t i = 0; i < size; i += 8) {
    const uint64_t word = base::next_random(seed);
    std::memcpy(bytes + i, &word, 8);
  }
}

// The driver's calls that only this measurement needs.
struct Copies {
  int (*to_device)(uint64_t to, const void* from, size_t bytes, void* stream);
  int (*to_host)(void* to, uint64_t from, size_t bytes, void* stream);

  Copies() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    to_device = reinterpret_cast<decltype(to_device)>(dlsym(library, "cuMemcpyHtoDAsync_v2"));
    to_host = reinterpret_cast<decltype(to_host)>(dlsym(library, "cuMemcpyDtoHAsync_v2"));
    expect(to_device != nullptr && to_host != nullptr, "the driver lacks copies");
  }
};

// Blocks of an engine with 32 layers, keys and values apart, each page `piece` bytes in a plane.
class Bench {
 public:
  Bench(cuda::Device* device, uint64_t total, uint64_t piece, uint64_t batch_from, uint32_t threads)
      : device_(device), piece_(piece), block_(kPlanes * piece), count_(total / block_) {
    GroupPlanes group;
    group.pages = static_cast<uint32_t>(2 * count_);
    plane_bytes_ = group.pages * piece;
    for (uint32_t i = 0; i < kPlanes; ++i) {
      Plane plane;
      plane.base = take_pages();
      plane.page_stride = plane.run_bytes = piece;
      plane.layer = i / 2;
      group.planes.push_back(plane);
    }
    MoverOptions options;
    options.device = device != nullptr ? 0 : -1;
    options.groups.push_back(std::move(group));
    options.batch_from_bytes = batch_from;
    options.threads = threads;
    auto made = Mover::create(options);
    expect(made.has_value(), made ? "" : made.error().message());
    mover_ = *std::move(made);
    host_ = static_cast<uint8_t*>(std::aligned_alloc(4096, count_ * block_));
    fill(host_, count_ * block_, piece);
    if (device != nullptr) expect(device->pin(host_, count_ * block_), "1 GiB was not pinned");
    std::mt19937_64 random(piece);
    std::vector<uint32_t> pages(2 * count_), places(count_);
    std::iota(pages.begin(), pages.end(), 0);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    std::shuffle(places.begin(), places.end(), random);
    pieces_.resize(count_);
    items_.resize(count_);
    for (size_t i = 0; i < count_; ++i) {
      pieces_[i] = {host_ + places[i] * block_, block_};
      items_[i] = {pages[i], {&pieces_[i], 1}, base::word_sum({pieces_[i].data, block_})};
    }
  }
  ~Bench() {
    mover_.reset();
    if (device_ != nullptr) device_->unpin(host_, 0);
    std::free(host_);
    for (const uint64_t plane : planes_) {
      if (device_ != nullptr) {
        device_->driver().memory_free(plane);
      } else {
        std::free(reinterpret_cast<void*>(plane));
      }
    }
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  uint64_t bytes() const { return count_ * block_; }
  Mover& mover() { return *mover_; }

  void move(bool to_pages, bool check) {
    MoveRequest request;
    request.items = items_;
    request.check = check;
    const auto begun = to_pages ? mover_->load(request) : mover_->store(request);
    expect(begun.has_value(), begun ? "" : begun.error().message());
    const Result<void> outcome = (*begun)->wait(kForever);
    expect(outcome.has_value(), outcome ? "" : outcome.error().message());
    if (to_pages || !check) return;
    for (size_t i = 0; i < count_; ++i) {
      expect((*begun)->outcome_of(i).sum == items_[i].sum, "a store has another sum");
    }
  }

  // One driver copy for each piece.
  void loop(const Copies& copies, bool to_pages, cuda::Stream stream) {
    for (const Item& item : items_) {
      for (uint32_t p = 0; p < kPlanes; ++p) {
        const uint64_t page = planes_[p] + item.page * piece_;
        uint8_t* const host = item.host[0].data + p * piece_;
        const int status = to_pages ? copies.to_device(page, host, piece_, stream)
                                    : copies.to_host(host, page, piece_, stream);
        expect(status == 0, "a copy was refused");
      }
    }
    expect(device_->driver().stream_synchronize(stream) == 0, "a copy failed");
  }
  // All pieces in one batch of the driver's; false if it has none.
  bool batch(bool to_pages, cuda::Stream stream) {
    const cuda::Driver& driver = device_->driver();
    if (!driver.has_batches()) return false;
    std::vector<cuda::Address> to, from;
    for (const Item& item : items_) {
      for (uint32_t p = 0; p < kPlanes; ++p) {
        const uint64_t page = planes_[p] + item.page * piece_;
        const auto host = reinterpret_cast<uint64_t>(item.host[0].data + p * piece_);
        to.push_back(to_pages ? page : host);
        from.push_back(to_pages ? host : page);
      }
    }
    std::vector<size_t> sizes(to.size(), piece_);
    cuda::CopyAttributes attributes;
    size_t attribute_of = 0, failed = 0;
    const int status =
        driver.copy_batch != nullptr
            ? driver.copy_batch(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                                &attribute_of, 1, stream)
            : driver.copy_batch_12(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                                   &attribute_of, 1, &failed, stream);
    return status == 0 && driver.stream_synchronize(stream) == 0;
  }
  // Both sides in one piece each.
  void one(const Copies& copies, bool to_pages, cuda::Stream stream, uint64_t memory) {
    const int status = to_pages ? copies.to_device(memory, host_, bytes(), stream)
                                : copies.to_host(host_, memory, bytes(), stream);
    expect(status == 0 && device_->driver().stream_synchronize(stream) == 0, "the copy failed");
  }
  // Every page is gathered and scattered.
  void pack(uint64_t packed) {
    std::vector<uint32_t> pages;
    for (const Item& item : items_) pages.push_back(item.page);
    for (const Way way : {Way::from_pages, Way::to_pages}) {
      const auto begun = mover_->pack(way, 0, pages, packed, kOwnStream);
      expect(begun.has_value() && (*begun)->wait(kForever).has_value(), "a gather failed");
    }
  }
  // Flips bits of host memory one by one; each must be noticed in its item.
  void flip(int flips) {
    std::mt19937_64 random(1);
    for (int i = 0; i < flips; ++i) {
      const size_t item = random() % count_;
      const uint64_t bit = random() % (block_ * 8);
      pieces_[item].data[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
      MoveRequest request;
      request.items = {&items_[item], 1};
      const auto begun = mover_->load(request);
      expect(begun.has_value(), "a load was refused");
      const Result<void> outcome = (*begun)->wait(kForever);
      expect(!outcome && outcome.error().code() == Errc::corrupt, "a flipped bit went unnoticed");
      pieces_[item].data[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    }
  }

 private:
  uint64_t take_pages() {
    uint64_t memory = 0;
    if (device_ == nullptr) {
      memory = reinterpret_cast<uint64_t>(std::aligned_alloc(4096, plane_bytes_));
    } else {
      expect(device_->driver().memory_take(&memory, plane_bytes_) == 0, "no device memory");
    }
    planes_.push_back(memory);
    return memory;
  }

  cuda::Device* const device_;
  const uint64_t piece_, block_;
  const size_t count_;
  uint64_t plane_bytes_ = 0;
  std::vector<uint64_t> planes_;
  std::unique_ptr<Mover> mover_;
  uint8_t* host_ = nullptr;
  std::vector<HostPiece> pieces_;
  std::vector<Item> items_;
};

// A product of two matrices of 8,192 by 8,192 in bf16, where cuBLAS can be loaded.
class Product {
 public:
  static constexpr int kSize = 8192;
  explicit Product(cuda::Device& device) : device_(device) {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
      if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
      if (library == nullptr) why_ = dlerror();
    }
    if (library == nullptr) return;
    why_ = "cuBLAS could not be started";
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
    const auto set_stream =
        reinterpret_cast<int (*)(void*, void*)>(dlsym(library, "cublasSetStream_v2"));
    multiply_ = reinterpret_cast<Multiply>(dlsym(library, "cublasGemmEx"));
    for (uint64_t& matrix : matrices_) {
      const uint64_t bytes = uint64_t{kSize} * kSize * 2;
      expect(device.driver().memory_take(&matrix, bytes) == 0, "no memory for a matrix");
      fill_matrix(matrix);
    }
    expect(device.driver().stream_create(&stream_, 1) == 0, "no stream");
    usable_ = create != nullptr && set_stream != nullptr && multiply_ != nullptr &&
              create(&handle_) == 0 && set_stream(handle_, stream_) == 0;
  }
  ~Product() {
    for (const uint64_t matrix : matrices_) {
      if (matrix != 0) device_.driver().memory_free(matrix);
    }
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  bool usable() const { return usable_; }
  const std::string& why() const { return why_; }
  // Seconds for one, of `count` in a row.
  double seconds(int count) {
    const float one = 1, zero = 0;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      constexpr int kBf16 = 14, kFloat = 68, kDefault = -1;
      expect(
          multiply_(handle_, 0, 0, kSize, kSize, kSize, &one, reinterpret_cast<void*>(matrices_[0]),
                    kBf16, kSize, reinterpret_cast<void*>(matrices_[1]), kBf16, kSize, &zero,
                    reinterpret_cast<void*>(matrices_[2]), kBf16, kSize, kFloat, kDefault) == 0,
          "the product was refused");
    }
    expect(device_.driver().stream_synchronize(stream_) == 0, "the product failed");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    return took.count() / count;
  }

 private:
  using Multiply = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                           const void*, int, int, const void*, void*, int, int, int, int);
  // Random numbers in [-1, 1): zeros would draw less power, and be faster.
  void fill_matrix(uint64_t matrix) {
    constexpr uint64_t kCount = uint64_t{kSize} * kSize;
    std::vector<uint16_t> values(kCount);
    uint64_t random = matrix;
    for (uint64_t i = 0; i < kCount; i += 4) {
      const uint64_t word = base::next_random(random);
      for (uint64_t k = 0; k < 4; ++k) {
        // The upper half of a float.
        const float value = static_cast<float>(word >> 16 * k & 0xFFFFU) / 32768.0F - 1;
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        values[i + k] = static_cast<uint16_t>(bits >> 16U);
      }
    }
    expect(device_.put(matrix, values.data(), values.size() * 2) == 0, "a matrix was not copied");
  }

  cuda::Device& device_;
  std::string why_;
  Multiply multiply_ = nullptr;
  void* handle_ = nullptr;
  cuda::Stream stream_ = nullptr;
  uint64_t matrices_[3] = {};
  bool usable_ = false;
};

void beside_a_product(cuda::Device& device, uint64_t total) {
  Product product(device);
  if (!product.usable()) {
    std::printf("SKIPPED: the product beside was not measured: %s\n", product.why().c_str());
    return;
  }
  for (const uint64_t piece : {uint64_t{16} << 10U, uint64_t{256} << 10U}) {
    Bench bench(&device, total, piece, UINT64_MAX, 0);
    product.seconds(20);
    const double alone = product.seconds(40);
    for (const bool to_pages : {true, false}) {
      std::atomic<bool> stop{false};
      std::atomic<uint64_t> rounds{0};
      std::thread mover([&] {
        const cuda::Device::Use use(device);
        while (!stop) {
          bench.move(to_pages, true);
          ++rounds;
        }
      });
      while (rounds == 0) std::this_thread::yield();
      const uint64_t before = rounds;
      const auto begin = std::chrono::steady_clock::now();
      const double beside = product.seconds(200);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      const double moved = static_cast<double>((rounds - before) * bench.bytes()) / took.count();
      stop = true;
      mover.join();
      std::printf(
          "product of 8192 cubed: alone %.3f ms, beside %s of %llu KiB pieces (%.1f GB/s) "
          "%.3f ms = %+.1f %%\n",
          alone * 1e3, to_pages ? "loads" : "stores", static_cast<unsigned long long>(piece >> 10U),
          moved / 1e9, beside * 1e3, (beside / alone - 1) * 100);
      bar("speed of the product beside, % of alone", alone / beside * 100, 100 / 1.07);
    }
  }
}

int on_device(uint64_t total) {
  if (cuda_device_count() == 0) {
    std::printf("no CUDA device, or built without nvcc: nothing was measured\n");
    return 77;
  }
  const auto device = cuda::Device::open(*cuda::machine_driver(), 0).value();
  const cuda::Device::Use use(*device);
  const Copies copies;
  cuda::Stream stream = nullptr;
  expect(device->driver().stream_create(&stream, 1) == 0, "no stream");
  uint64_t memory = 0;
  expect(device->driver().memory_take(&memory, total) == 0, "no device memory");
  std::printf("%s, %llu MiB in scattered pieces of one size, GB/s; %% of one copy\n",
              device->name(), static_cast<unsigned long long>(total >> 20U));
  std::printf("%8s %-9s %8s %8s %8s %16s %16s %9s\n", "piece", "way", "one copy", "loop", "batch",
              "mover, sums", "mover, no sums", "sums cost");
  for (const uint64_t kib : {4U, 16U, 32U, 64U, 256U, 2048U}) {
    Bench bench(device.get(), total, kib << 10U, 0, 0);
    for (const bool to_pages : {true, false}) {
      const auto speed = [&](double seconds) {
        return static_cast<double>(bench.bytes()) / seconds / 1e9;
      };
      const double one = speed(median([&] { bench.one(copies, to_pages, stream, memory); }));
      const double loop = speed(median([&] { bench.loop(copies, to_pages, stream); }, kib < 32));
      bool batched = true;
      const double batch = speed(median([&] { batched &= bench.batch(to_pages, stream); }));
      const double summed = speed(median([&] { bench.move(to_pages, true); }));
      const double plain = speed(median([&] { bench.move(to_pages, false); }));
      std::printf("%5llu K  %-9s %8.1f %8.1f %8.1f %8.1f = %3.0f %% %8.1f = %3.0f %% %7.1f %%\n",
                  static_cast<unsigned long long>(kib), to_pages ? "to device" : "to host", one,
                  loop, batched ? batch : 0, summed, summed / one * 100, plain, plain / one * 100,
                  (plain / summed - 1) * 100);
      bar(to_pages ? "to device, sums, % of one copy" : "to host, sums, % of one copy",
          summed / one * 100,
          !to_pages  ? 94
          : kib < 32 ? 90
                     : 93);
      bar("with sums, % of without", summed / plain * 100, 98);
      std::fflush(stdout);
    }
    const double packed = median([&] { bench.pack(memory); });
    std::printf("%5llu K  gather and scatter on the device: %.2f TB/s; batches from %llu bytes\n",
                static_cast<unsigned long long>(kib),
                4.0 * static_cast<double>(bench.bytes()) / packed / 1e12,
                static_cast<unsigned long long>(bench.mover().copier().batch_from_bytes()));
    bar("gather and scatter, TB/s", 4.0 * static_cast<double>(bench.bytes()) / packed / 1e12, 3.6);
    bench.flip(500);
  }
  std::printf("3,000 flipped bits, every one noticed\n");
  device->driver().memory_free(memory);
  beside_a_product(*device, total);
  std::printf("right; %d bars of speed were missed\n", missed);
  return missed == 0 || total < uint64_t{1} << 30U ? 0 : 3;
}

int on_cpu(uint64_t total) {
  std::printf("this CPU, %llu MiB in scattered pieces of one size, GB/s\n",
              static_cast<unsigned long long>(total >> 20U));
  std::printf("%8s %7s %12s %12s %12s %12s\n", "piece", "threads", "load, sums", "load",
              "store, sums", "store");
  for (const uint32_t threads : {1U, 2U, 4U}) {
    for (const uint64_t kib : {4U, 32U, 256U}) {
      Bench bench(nullptr, total, kib << 10U, UINT64_MAX, threads);
      double speeds[4];
      for (int i = 0; i < 4; ++i) {
        speeds[i] = static_cast<double>(bench.bytes()) /
                    median([&] { bench.move(i < 2, i % 2 == 0); }) / 1e9;
      }
      std::printf("%5llu K  %7u %12.1f %12.1f %12.1f %12.1f\n",
                  static_cast<unsigned long long>(kib), threads, speeds[0], speeds[1], speeds[2],
                  speeds[3]);
      bench.flip(50);
    }
  }
  std::printf("right\n");
  return 0;
}

}  // namespace
}  // namespace stemma

int main(int argc, char** argv) {
  const uint64_t mib = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1024;
  if (mib < 256 || mib > 65'536) {
    std::fprintf(stderr, "usage: mover_speed [MiB to move, 256 to 65,536] [cpu | probe]\n");
    return 2;
  }
  const char* const what = argc > 2 ? argv[2] : "";
  if (std::strcmp(what, "probe") == 0) return stemma::mover::cuda_device_count() != 0 ? 0 : 77;
  return std::strcmp(what, "cpu") == 0 ? stemma::on_cpu(mib << 20U) : stemma::on_device(mib << 20U);
}
