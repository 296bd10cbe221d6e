// Shared by the program that is killed, the program that checks afterwards, and their test.
//
// Entries have growing numbers; an entry's contents follow from its number. All have the same
// number of pages, so it is known which must be there: the acknowledged ones among the newest that
// fit.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "stemma/tier/disk_tier.h"
#include "tier/disk/layout.h"

namespace stemma::test::crash {

inline constexpr uint64_t kSlots = 448;  // Places of sixteen pages: see size_of().
inline constexpr uint64_t kCapacityBytes = kSlots * 16 * tier::kPage;
inline constexpr uint64_t kBatch = 4;
inline constexpr uint64_t kBatches = 16;  // Under way at a time.
// Places that puts under way may have taken from the oldest, in this run and in the checker's.
inline constexpr uint64_t kMargin = 4 * kBatch * kBatches;

// More than fifteen pages and up to sixteen.
inline constexpr uint64_t kMostBytes = 16 * tier::kPage;
inline uint64_t size_of(uint64_t number) noexcept {
  return number % 3 == 0 ? kMostBytes : kMostBytes - tier::kPage + 1 + number % 4000;
}
inline EntryKey key_of(uint64_t number) noexcept {
  EntryKey key;
  for (size_t i = 0; i < key.chain.bytes.size(); ++i) {
    number = number * 0x9E37'79B9'7F4A'7C15U + 0x1234'5677;
    key.chain.bytes[i] = static_cast<uint8_t>(number >> 56U);
  }
  return key;
}
inline EntryInfo info_of(uint64_t number) noexcept {
  return {.begin = 0, .end = 16, .layout = 5, .bytes = size_of(number), .words = 0};
}
inline void fill(uint64_t number, uint8_t* to) noexcept {
  uint64_t state = number * 0xD134'2543'DE82'EF95U + 1;
  for (uint64_t i = 0; i < size_of(number); i += 8) {
    state ^= state << 13U, state ^= state >> 7U, state ^= state << 17U;
    std::memcpy(to + i, &state, std::min<uint64_t>(8, size_of(number) - i));
  }
}

// The writer's messages through its pipe, in writes that cannot be torn.
struct Told {
  enum What : uint64_t { begins, acknowledged, removes, removed };
  uint64_t what = begins;
  uint64_t number = 0;
};

// The writer's counts in a file that both sides map: writes given to the kernel, and writes done.
struct Counts {
  std::atomic<uint64_t> started{0};
  std::atomic<uint64_t> ended{0};
};

// The checker's input: a file with this header, followed by numbers.
struct Expected {
  uint64_t first = 0;  // Numbers to look at: [first, last).
  uint64_t last = 0;
  uint64_t must = 0;  // This many numbers that must be there follow, then
  uint64_t gone = 0;  // this many that must not.
};

inline tier::disk::DiskOptions options_for(const std::string& path) {
  return {.path = path, .capacity_bytes = kCapacityBytes, .max_entry_bytes = kMostBytes};
}

}  // namespace stemma::test::crash
