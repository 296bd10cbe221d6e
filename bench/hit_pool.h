// A cache in which full hits are measured: 48 cached prompts of 32,768 tokens, and for each of them
// 64 shorter prompts that part from it at 64 depths. About 101,000 cached blocks in all.
//
// The 65 of each prompt are inserted in random order, so many requests built each path.
// Threading: as its cache; the prompts are immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/support.h"

namespace stemma::bench {

enum class Ids : uint8_t {
  fresh,      // A path's block ids are mostly consecutive: a cache that was just started.
  scattered,  // They are a random permutation: a cache after long use.
};

class HitPool {
 public:
  static constexpr uint32_t kPrompts = 48;
  static constexpr uint32_t kPathBlocks = 2048;
  static constexpr uint32_t kPathTokens = kPathBlocks * kBlockTokens;
  static constexpr uint32_t kBranches = 64;
  static constexpr uint32_t kCapacityBlocks = 102'400;

  // Builds it and checks every prompt's answer.
  explicit HitPool(Ids ids, const char* policy = "lru");

  PagedCache& cache() noexcept { return cache_; }
  // One token more than is cached: the one that must be evaluated.
  std::span<const Token> prompt(uint32_t index) const { return prompts_[index].tokens; }
  // The cached part again, in memory of its own.
  std::span<const Token> copy(uint32_t index) const { return prompts_[index].copy; }
  std::span<const BlockId> blocks(uint32_t index) const { return prompts_[index].blocks; }
  // What is cached beside prompt `index`: its first blocks and one of its own.
  Tokens branch(uint32_t index, uint32_t which) const;
  // The part of neighbouring ids on the paths that are adjacent.
  double adjacent() const noexcept { return adjacent_; }

 private:
  struct Cached {
    Tokens tokens, copy;
    std::vector<Tokens> branch_blocks;
    std::vector<BlockId> blocks;
  };
  static uint32_t branch_depth(uint32_t which) {
    return (which + 1) * kPathBlocks / (kBranches + 1);
  }
  void add_prompt(Rng& rng);
  void check();

  PagedCache cache_;
  std::vector<Cached> prompts_;
  double adjacent_ = 0;
};

}  // namespace stemma::bench
