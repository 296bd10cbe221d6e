#include "bench/hit_pool.h"

#include <numeric>
#include <utility>

namespace stemma::bench {

HitPool::HitPool(Ids ids, const char* policy) : cache_(make_cache(kCapacityBlocks, false, policy)) {
  Rng rng(0x48);
  if (ids == Ids::scattered) permute_free_blocks(cache_, kCapacityBlocks, rng);
  for (uint32_t i = 0; i < kPrompts; ++i) add_prompt(rng);
  check();
  require(ids == Ids::scattered ? adjacent_ < 0.1 : adjacent_ > 0.9,
          "the block ids are not arranged as the benchmark says");
}

Tokens HitPool::branch(uint32_t index, uint32_t which) const {
  const Cached& prompt = prompts_[index];
  const auto shared = std::span(prompt.tokens).first(branch_depth(which) * kBlockTokens);
  Tokens tokens(shared.begin(), shared.end());
  const Tokens& own = prompt.branch_blocks[which];
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

void HitPool::add_prompt(Rng& rng) {
  const auto index = static_cast<uint32_t>(prompts_.size());
  Cached& prompt = prompts_.emplace_back();
  prompt.tokens = random_tokens(kPathTokens + 1, rng);
  prompt.copy.assign(prompt.tokens.begin(), prompt.tokens.end() - 1);
  for (uint32_t i = 0; i < kBranches; ++i) {
    prompt.branch_blocks.push_back(random_tokens(kBlockTokens, rng));
  }
  // 64 branches and the prompt itself, in any order.
  std::vector<uint32_t> order(kBranches + 1);
  std::iota(order.begin(), order.end(), 0);
  shuffle(std::span(order), rng);
  for (const uint32_t which : order) {
    if (which < kBranches) {
      insert(cache_, branch(index, which));
    } else {
      prompt.blocks = insert(cache_, prompt.copy);
    }
  }
}

void HitPool::check() {
  const Stats stats = cache_.stats();
  require(stats.groups[0].cached_blocks == kPrompts * (kPathBlocks + kBranches),
          "the cache holds another number of blocks than were committed");
  double sum = 0;
  for (const Cached& prompt : prompts_) {
    check_full_hit(cache_, prompt.tokens, prompt.blocks);
    sum += adjacent_share(prompt.blocks);
    // The root, where the 48 prompts part, may count as one.
    const auto points =
        must(cache_.branch_points(bench_scope(), {.tokens = prompt.tokens}), "branch points");
    require(points.size() == kBranches || points.size() == kBranches + 1,
            "the path has another number of branch points than were made");
  }
  adjacent_ = sum / kPrompts;
}

}  // namespace stemma::bench
