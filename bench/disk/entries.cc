#include "bench/disk/entries.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "bench/support.h"

namespace stemma::bench::disk {

double cpu_seconds() {
  rusage used = {};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

uint32_t under_way(uint64_t size) {
  return static_cast<uint32_t>(std::clamp<uint64_t>((uint64_t{64} << 20U) / size, 8, kDepth));
}

uint64_t stride_of(uint64_t size) { return (size + 4095) / 4096 * 4096; }

EntryKey key_of(uint64_t number) {
  EntryKey key;
  Rng rng(number);
  for (size_t i = 0; i < key.chain.bytes.size(); i += 8) {
    const uint64_t word = rng.next();
    std::memcpy(key.chain.bytes.data() + i, &word, 8);
  }
  std::memset(key.chain.bytes.data() + 24, 7, 8);
  return key;
}

namespace {

void move(Tier& tier, TierOp op, uint64_t size, std::span<const uint64_t> numbers, uint8_t* memory,
          uint32_t most_batches, uint32_t in_batch, std::span<const uint8_t> fresh = {}) {
  std::vector<std::shared_ptr<TierBatch>> batches(most_batches);
  const auto finish = [&](uint32_t which) {
    if (!batches[which]) return;
    batches[which]->wait();
    for (const TierItem& item : batches[which]->items()) {
      require(item.outcome == TierOutcome::done, "an entry was not put or not got");
      if (op != TierOp::get) continue;
      // Entries begin and end with their number.
      uint64_t first = 0;
      uint64_t last = 0;
      std::memcpy(&first, item.into.data(), 8);
      std::memcpy(&last, item.into.data() + size - 8, 8);
      require(key_of(first) == item.key && first == last, "an entry came back with other bytes");
    }
  };
  uint32_t turn = 0;
  for (size_t next = 0; next < numbers.size(); turn = (turn + 1) % most_batches) {
    finish(turn);
    const size_t count = std::min<size_t>(in_batch, numbers.size() - next);
    batches[turn] = must(TierBatch::make(op, count), "no memory for a batch");
    for (size_t i = 0; i < count; ++i, ++next) {
      uint8_t* at = memory + (turn * in_batch + i) * stride_of(size);
      TierItem& item = batches[turn]->items()[i];
      item.key = key_of(numbers[next]);
      item.info = {.begin = 0, .end = 16, .layout = 1, .bytes = size, .words = 0};
      if (op == TierOp::put) {
        if (!fresh.empty()) std::memcpy(at, fresh.data(), size);
        std::memcpy(at, &numbers[next], 8);
        std::memcpy(at + size - 8, &numbers[next], 8);
        item.source = {at, size};
      } else {
        item.into = {at, size};
      }
    }
    tier.submit(batches[turn]);
  }
  for (uint32_t i = 0; i < most_batches; ++i) finish(i);
}

}  // namespace

void move_entries(Tier& tier, TierOp op, uint64_t size, std::span<const uint64_t> numbers,
                  uint8_t* memory) {
  constexpr uint32_t kBatches = 8;
  move(tier, op, size, numbers, memory, kBatches, std::max(1U, 2 * under_way(size) / kBatches));
}

void move_fresh_entries(Tier& tier, TierOp op, uint64_t size, std::span<const uint64_t> numbers,
                        uint8_t* memory) {
  static const std::vector<uint8_t> made = [] {
    std::vector<uint8_t> bytes(uint64_t{4} << 20U);
    Rng rng(3);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.next());
    return bytes;
  }();
  constexpr uint32_t kBatches = 8;
  move(tier, op, size, numbers, memory, kBatches, std::max(1U, 2 * under_way(size) / kBatches),
       made);
}

void move_one_batch_at_a_time(Tier& tier, TierOp op, uint64_t size,
                              std::span<const uint64_t> numbers, uint8_t* memory) {
  // As much as tier::Writer puts at once.
  const uint64_t in_batch = std::clamp<uint64_t>((uint64_t{16} << 20U) / size, 1, 64);
  move(tier, op, size, numbers, memory, 1, static_cast<uint32_t>(in_batch));
}

}  // namespace stemma::bench::disk
