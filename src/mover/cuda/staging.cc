#include "mover/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace stemma::mover::cuda {
namespace {

std::span<const HostPiece> host_of(const TransferOptions& options, uint32_t item) noexcept {
  const size_t begin = item == 0 ? 0 : options.host_end[item - 1];
  return std::span(options.host).subspan(begin, options.host_end[item] - begin);
}

uint64_t bytes_of(std::span<const HostPiece> pieces) noexcept {
  uint64_t bytes = 0;
  for (const HostPiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Between the caller's pieces and a block in the area.
void copy_block(std::span<const HostPiece> pieces, uint8_t* block, bool to_area) noexcept {
  for (const HostPiece& piece : pieces) {
    if (to_area) {
      std::memcpy(block, piece.data, piece.bytes);
    } else {
      std::memcpy(piece.data, block, piece.bytes);
    }
    block += piece.bytes;
  }
}

}  // namespace

Staging::Staging(std::shared_ptr<Device> device, Flights& flights, Counters& counters,
                 uint8_t* area, uint64_t area_bytes)
    : device_(std::move(device)),
      flights_(flights),
      counters_(counters),
      area_(area),
      area_bytes_(area_bytes),
      thread_([this] { run(); }) {}

Staging::~Staging() {
  {
    const base::Lock lock(mutex_);
    ending_ = true;
  }
  accepted_.notify_all();
  thread_.join();
}

void Staging::accept(std::shared_ptr<Transfer> transfer) {
  {
    const base::Lock lock(mutex_);
    queue_.push_back(std::move(transfer));
  }
  accepted_.notify_one();
}

void Staging::run() {
  const Device::Use use(*device_);
  stay_out_of_captures(device_->driver());
  for (;;) {
    std::shared_ptr<Transfer> transfer;
    {
      base::Lock lock(mutex_);
      accepted_.wait(lock, [this]() STEMMA_REQUIRES(mutex_) { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      transfer = std::move(queue_.front());
      queue_.pop_front();
    }
    bool failed = true;
    try {
      failed = !carry_out(transfer);
    } catch (const std::bad_alloc&) {  // The transfer fails.
    }
    flights_.all_launched(transfer, failed);
  }
}

Result<void> Staging::carry_out(const std::shared_ptr<Transfer>& transfer) {
  const TransferOptions& options = transfer->options();
  const bool to_pages = options.way == Way::to_pages;
  const uint64_t block_bytes = bytes_of(host_of(options, 0));
  const auto items = static_cast<uint32_t>(transfer->items());
  const auto together = static_cast<uint32_t>(std::min<uint64_t>(area_bytes_ / block_bytes, items));
  for (uint32_t begin = 0; begin < items; begin += together) {
    const uint32_t end = std::min(items, begin + together);
    if (to_pages) {
      for (uint32_t i = begin; i < end; ++i) {
        copy_block(host_of(options, i), area_ + (i - begin) * block_bytes, true);
      }
    }
    Result<void> launched;
    try {
      launched = launch(transfer, begin, end, block_bytes);
    } catch (const std::bad_alloc&) {
      launched = Error(Errc::out_of_memory, "the system gave no memory for a plan");
    }
    // What was launched uses the area, whatever came after it.
    const Status status = device_->driver().stream_synchronize(flight_of(*transfer).stream);
    if (!launched) return launched.error();
    if (status != 0) return flights_.failure(status);
    if (!to_pages) {
      for (uint32_t i = begin; i < end; ++i) {
        copy_block(host_of(options, i), area_ + (i - begin) * block_bytes, false);
      }
    }
    counters_.staged_bytes.fetch_add((end - begin) * block_bytes, std::memory_order_relaxed);
  }
  return {};
}

Result<void> Staging::launch(const std::shared_ptr<Transfer>& transfer, uint32_t begin,
                             uint32_t end, uint64_t block_bytes) {
  transfer->plan_all();
  Plan& plan = transfer->plan();
  const bool last = end == transfer->items();
  size_t first = 0;
  const auto by_item = [](const Piece& piece, uint32_t item) { return piece.item < item; };
  for (size_t step = 0; step < plan.steps.size(); ++step) {
    // In a step, pieces are in the order of items.
    const auto from = plan.pieces.begin() + static_cast<ptrdiff_t>(first);
    const auto to = plan.pieces.begin() + static_cast<ptrdiff_t>(plan.steps[step].end_piece);
    const auto low = std::lower_bound(from, to, begin, by_item);
    const auto high = std::lower_bound(low, to, end, by_item);
    for (auto piece = low; piece != high; ++piece) {
      piece->packed = reinterpret_cast<uint64_t>(area_) + (piece->item - begin) * block_bytes +
                      uint64_t{piece->word} * 8;
    }
    STEMMA_TRY_VOID(flights_.launch(transfer, {low, high},
                                    last ? static_cast<uint32_t>(step) : Flights::kNoStep));
    first = plan.steps[step].end_piece;
  }
  return {};
}

}  // namespace stemma::mover::cuda
