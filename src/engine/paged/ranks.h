// RankPipeline: one model over several ranks, each with a range of the layers, a memory and a cache
// of its own, as in pipeline parallelism.
//
// Ranks forget at different times, so their caches may offer different amounts of reuse for the
// same prompt. But all must start at one depth. They lease first, so that what was found stays
// while the others answer, and then shrink to the smallest depth until all agree.
//
// Invariant:  every position is computed by all ranks or by none.
// Threading:  one thread at a time. (Real ranks are processes; the minimum is an all-reduce.)
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/paged/forward.h"
#include "stemma/cache.h"

namespace stemma::paged {

class RankPipeline {
 public:
  struct Rank {
    std::unique_ptr<KvArena> arena;
    PagedCache cache;
  };

  // Rank r has the layers [borders[r], borders[r + 1]).
  RankPipeline(const Model& model, const Scope& scope, std::span<const GroupMemory> memory,
               std::span<const uint32_t> borders);

  using OnLogits = std::function<void(const Text& text, std::span<const float> logits)>;
  // Evaluates a prompt in chunks and samples an answer. Calls `on_logits` for every sampled
  // position. Returns the whole text. Error: out_of_blocks on some rank; nothing is held then.
  Result<Text> generate(const Text& prompt, uint32_t new_tokens, uint64_t sample_seed,
                        uint32_t chunk_tokens, const OnLogits& on_logits);

  std::span<Rank> ranks() noexcept { return ranks_; }
  uint64_t reused_tokens() const noexcept { return reused_tokens_; }
  uint64_t given_back_tokens() const noexcept { return given_back_tokens_; }

 private:
  // A request's part on one rank.
  struct Part {
    Lease lease;
    RunningState state;
    BlockTables tables;
  };
  Result<uint32_t> agree(std::span<Part> parts);
  Result<std::vector<float>> evaluate(std::span<Part> parts, const Text& text, uint32_t begin,
                                      uint32_t end);

  const Model& model_;
  Scope scope_;
  std::vector<Rank> ranks_;
  uint64_t reused_tokens_ = 0;
  uint64_t given_back_tokens_ = 0;
};

}  // namespace stemma::paged
