// Entries for benchmarks of tiers on disk: made from numbers, moved many at a time, checked when
// they come back.
#pragma once

#include <cstdint>
#include <span>

#include "bench/harness.h"
#include "stemma/tier/tier.h"

namespace stemma::bench::disk {

struct Speed {
  double gb_per_s = 0;
  double cpu_s_per_gb = 0;
};

// For this process, all threads together.
double cpu_seconds();

template <class Work>
Speed measure(uint64_t bytes, Work&& work) {
  const double cpu = cpu_seconds();
  const double ns = time_ns(work);
  const double gb = static_cast<double>(bytes) * 1e-9;
  return {gb / (ns * 1e-9), (cpu_seconds() - cpu) / gb};
}

// The number under way at a time, the same for tier and baseline.
inline constexpr uint32_t kDepth = 64;
uint32_t under_way(uint64_t size);

// How far apart entries lie in the memory that they are moved from: at page borders.
uint64_t stride_of(uint64_t size);

// All of one scope.
EntryKey key_of(uint64_t number);

// Puts or gets numbered entries, in batches: as many wait in the tier as are under way, because a
// caller with entries to move submits them all at once. `memory` has room for twice under_way(size)
// entries, stride_of(size) apart.
void move_entries(Tier& tier, TierOp op, uint64_t size, std::span<const uint64_t> numbers,
                  uint8_t* memory);
// The same with bytes that have just been written, like those that an engine has just saved.
void move_fresh_entries(Tier& tier, TierOp op, uint64_t size, std::span<const uint64_t> numbers,
                        uint8_t* memory);
// The same in one batch at a time, as the server writes.
void move_one_batch_at_a_time(Tier& tier, TierOp op, uint64_t size,
                              std::span<const uint64_t> numbers, uint8_t* memory);

}  // namespace stemma::bench::disk
