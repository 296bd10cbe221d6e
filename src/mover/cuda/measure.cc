#include "mover/cuda/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "tier/transfer_arena.h"

namespace stemma::mover::cuda {
namespace {

constexpr uint64_t kBytes = uint64_t{32} << 20U;
constexpr uint32_t kPieceBytes = uint32_t{32} << 10U;
constexpr std::array<uint32_t, 5> kRuns = {64U << 10U, 256U << 10U, 1U << 20U, 4U << 20U,
                                           16U << 20U};
constexpr int kRounds = 3;
constexpr uint64_t kNever = UINT64_MAX;

// Memory of both sides, a stream, and runs of one size that lie scattered in them.
class Bench {
 public:
  Bench(const Device& device, Function kernel, uint32_t blocks)
      : device_(device), driver_(device.driver()), kernel_(kernel), blocks_(blocks) {}
  ~Bench() {
    if (stream_ != nullptr) driver_.stream_destroy(stream_);
    if (pages_ != 0) driver_.memory_free(pages_);
    if (shape_ != 0) driver_.memory_free(shape_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool open(Device& device) {
    memory_ = tier::TransferArena::create(kBytes + kPieces * sizeof(Piece), &device);
    if (memory_ == nullptr) return false;
    host_ = memory_->take(kBytes);
    pieces_ = reinterpret_cast<Piece*>(memory_->take(kPieces * sizeof(Piece)));
    return host_ != nullptr && pieces_ != nullptr && device.reaches(host_, kBytes) &&
           device.reaches(pieces_, kPieces * sizeof(Piece)) &&
           driver_.memory_take(&pages_, kBytes) == 0 &&
           driver_.memory_take(&shape_, sizeof(Shape)) == 0 &&
           driver_.stream_create(&stream_, 1) == 0;
  }

  bool set_run(uint32_t run) {
    Shape shape{};
    shape.run_bytes = shape.bytes = run;
    shape.wide = 1;
    shape.token_dim = kNoTokens;
    if (device_.put(shape_, &shape, sizeof shape) != 0) return false;
    const auto runs = static_cast<uint32_t>(kBytes / run);
    pages_of_.clear();
    hosts_of_.clear();
    sizes_.assign(runs, run);
    uint32_t piece = 0;
    for (uint32_t i = 0; i < runs; ++i) {
      // An odd factor makes another order of a power of two.
      const uint64_t page = pages_ + uint64_t{(i * 5 + 1) % runs} * run;
      const auto host = reinterpret_cast<uint64_t>(host_) + uint64_t{(i * 3 + 2) % runs} * run;
      pages_of_.push_back(page);
      hosts_of_.push_back(host);
      for (uint32_t first = 0; first < run; first += kPieceBytes) {
        pieces_[piece++] = {
            page, host + first, 0, first, std::min(kPieceBytes, run - first), first / 8, 0,
            0,    kAllTokens};
      }
    }
    return true;
  }

  // The time of one copy of all runs with their sums; negative if the driver refuses.
  double seconds(bool to_pages, bool batch) {
    double best = -1;
    for (int round = 0; round <= kRounds; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const Way way = batch ? Way::sum_pages : to_pages ? Way::to_pages : Way::from_pages;
      if ((batch && !copy(to_pages)) || !launch(way) || driver_.stream_synchronize(stream_) != 0) {
        return -1;
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      // The first round warms up.
      if (round == 1 || (round > 1 && took.count() < best)) best = took.count();
    }
    return best;
  }

 private:
  static constexpr uint32_t kPieces = kBytes / kPieceBytes;

  bool copy(bool to_pages) {
    CopyAttributes attributes;
    size_t attribute_of = 0, failed = 0;
    std::vector<Address>& to = to_pages ? pages_of_ : hosts_of_;
    std::vector<Address>& from = to_pages ? hosts_of_ : pages_of_;
    return (driver_.copy_batch != nullptr
                ? driver_.copy_batch(to.data(), from.data(), sizes_.data(), sizes_.size(),
                                     &attributes, &attribute_of, 1, stream_)
                : driver_.copy_batch_12(to.data(), from.data(), sizes_.data(), sizes_.size(),
                                        &attributes, &attribute_of, 1, &failed, stream_)) == 0;
  }

  bool launch(Way way) {
    Piece* first = pieces_;
    uint32_t count = kPieces, sum = 1;
    auto way_number = static_cast<uint32_t>(way);
    void* parameters[] = {&first, &count, &shape_, &way_number, &sum};
    return driver_.launch(kernel_, blocks_, 1, 1, 1024, 1, 1, 0, stream_, parameters, nullptr) == 0;
  }

  const Device& device_;
  const Driver& driver_;
  const Function kernel_;
  const uint32_t blocks_;
  std::shared_ptr<tier::TransferArena> memory_;
  uint8_t* host_ = nullptr;
  Piece* pieces_ = nullptr;
  Address pages_ = 0, shape_ = 0;
  Stream stream_ = nullptr;
  std::vector<Address> pages_of_, hosts_of_;
  std::vector<size_t> sizes_;
};

}  // namespace

Result<uint64_t> measure_batches(Device& device, const CopierOptions& options, Function kernel) {
  uint32_t longest = 0;
  for (const Layout& layout : options.layouts) longest = std::max(longest, layout.longest_run());
  if (longest < kRuns.front()) return kNever;
  Bench bench(device, kernel, options.thread_blocks);
  if (!bench.open(device)) return kNever;
  uint64_t from = kNever;
  // From the longest down to the first at which the kernel is as fast.
  for (auto run = kRuns.rbegin(); run != kRuns.rend(); ++run) {
    if (!bench.set_run(*run)) return Error(Errc::copy_failed, "a copy to the device failed");
    const double by_kernel = bench.seconds(true, false) + bench.seconds(false, false);
    const double in_to = bench.seconds(true, true), in_from = bench.seconds(false, true);
    if (by_kernel < 0) return Error(Errc::copy_failed, "the kernel does not run on this device");
    if (in_to < 0 || in_from < 0 || in_to + in_from >= by_kernel) break;
    from = *run;
  }
  return from;
}

}  // namespace stemma::mover::cuda
