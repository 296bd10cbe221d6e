// A MaxSet is a set of numbers below a limit that knows its largest one.
//
// It is a tree of bits: a bit says whether a word of the level below is non-zero, up to a single
// word.
// Threading: one thread at a time. Cost: limit / 63 words; every call is O(log64 limit).
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace stemma::replay {

class MaxSet {
 public:
  explicit MaxSet(uint64_t limit) {
    do {
      limit = limit / 64 + 1;
      levels_.emplace_back(limit, 0);
    } while (limit > 1);
  }
  bool contains(uint64_t n) const noexcept { return (levels_[0][n / 64] >> (n % 64) & 1U) != 0; }
  void insert(uint64_t n) noexcept {
    for (auto& level : levels_) {
      level[n / 64] |= uint64_t{1} << (n % 64);
      n /= 64;
    }
  }
  void erase(uint64_t n) noexcept {
    for (auto& level : levels_) {
      uint64_t& word = level[n / 64];
      word &= ~(uint64_t{1} << (n % 64));
      if (word != 0) return;
      n /= 64;
    }
  }
  // Requires: not empty.
  uint64_t max() const noexcept {
    uint64_t n = 0;
    for (size_t level = levels_.size(); level > 0; --level) {
      n = n * 64 + 63 - static_cast<uint64_t>(std::countl_zero(levels_[level - 1][n]));
    }
    return n;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;  // Level 0: the numbers themselves.
};

}  // namespace stemma::replay
