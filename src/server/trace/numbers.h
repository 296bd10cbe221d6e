// TraceNumbers: numbers digests, from 1 in the order they were first seen.
//
// It keeps 128 bits of a 256-bit digest, enough that no two of a few million are equal by chance. A
// secret decides where a digest lies in the table, so that clients cannot choose it by their
// prompts.
// Threading:  one thread at a time.
// Cost:       24 to 48 bytes a digest, half as much again while it grows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace stemma::server {

struct TraceDigest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const TraceDigest&) const = default;
  static TraceDigest of(const std::array<uint8_t, 32>& digest) noexcept {
    TraceDigest made;
    std::memcpy(&made.low, digest.data(), sizeof made.low);
    std::memcpy(&made.high, digest.data() + sizeof made.low, sizeof made.high);
    return made;
  }
};

class TraceNumbers {
 public:
  explicit TraceNumbers(uint64_t secret) noexcept : secret_(secret | 1U) {}

  uint32_t size() const noexcept { return static_cast<uint32_t>(digests_.size()); }
  // Returns 0 if the digest was never added.
  uint32_t find(const TraceDigest& digest) const noexcept {
    return slots_.empty() ? 0 : slots_[slot_of(digest)];
  }
  // Requires that the digest is new. If it throws std::bad_alloc, nothing has changed.
  uint32_t add(const TraceDigest& digest) {
    if (slots_.size() < 2 * (digests_.size() + 1)) grow();
    digests_.push_back(digest);
    return slots_[slot_of(digest)] = size();
  }

 private:
  // The slot where the digest is, or would be.
  size_t slot_of(const TraceDigest& digest) const noexcept {
    const uint64_t mixed = (digest.low ^ (digest.high * secret_)) * secret_;
    size_t slot = static_cast<size_t>(mixed >> 32U) & (slots_.size() - 1);
    while (slots_[slot] != 0 && digests_[slots_[slot] - 1] != digest) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  void grow() {
    std::vector<uint32_t> larger(slots_.empty() ? 64 : slots_.size() * 2);
    slots_.swap(larger);
    for (uint32_t i = 0; i < size(); ++i) slots_[slot_of(digests_[i])] = i + 1;
  }

  uint64_t secret_;
  std::vector<TraceDigest> digests_;  // By number minus one.
  std::vector<uint32_t> slots_;       // Numbers; a power of two, at least half of them 0.
};

}  // namespace stemma::server
