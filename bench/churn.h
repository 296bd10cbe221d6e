// Wears a cache as traffic does: 64 requests at a time whose prefill chunks and one-block decode
// steps interleave; three in ten continue an earlier conversation, the others start a new one below
// one of 50 system prompts.
//
// The same stream drives anything with these members, tokens always in whole blocks:
//   uint32_t begin(slot, prompt)        tokens found; room for the whole prompt
//   void     commit(slot, tokens)       the KV of `tokens` (all so far) is written
//   void     extend(slot, tokens)       one more block, the last of `tokens` (all so far)
//   void     finish(slot)
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "bench/baseline/hash_chain.h"
#include "bench/support.h"

namespace stemma::bench {

inline constexpr uint32_t kChurnSlots = 64;

// Runs until `blocks` blocks have been computed, then finishes every request.
template <class Target>
void churn(Target& target, uint64_t blocks, Rng& rng) {
  constexpr uint32_t kSystemPrompts = 50;
  constexpr uint32_t kSystemBlocks = 64;
  constexpr uint32_t kChunkBlocks = 32;
  constexpr uint32_t kLongestBlocks = 400;
  constexpr size_t kRemembered = 512;
  struct Request {
    Tokens tokens;
    size_t written = 0;
    uint32_t decode_left = 0;
  };

  std::vector<Tokens> systems(kSystemPrompts);
  for (Tokens& system : systems) system = random_tokens(kSystemBlocks * kBlockTokens, rng);
  std::vector<Tokens> finished;
  std::vector<Request> requests(kChurnSlots);
  uint64_t computed = 0;

  const auto start = [&](uint32_t slot) {
    Request& request = requests[slot];
    if (!finished.empty() && rng.below(10) < 3) {
      const size_t which = rng.below(static_cast<uint32_t>(finished.size()));
      request.tokens = std::move(finished[which]);
      finished[which] = std::move(finished.back());
      finished.pop_back();
    } else {
      request.tokens = systems[rng.below(kSystemPrompts)];
    }
    append_random(request.tokens, (8 + rng.below(56)) * kBlockTokens, rng);
    request.decode_left = 8 + rng.below(48);
    request.written = target.begin(slot, request.tokens);
    computed += (request.tokens.size() - request.written) / kBlockTokens;
  };
  const auto finish = [&](uint32_t slot) {
    Request& request = requests[slot];
    target.finish(slot);
    if (request.tokens.size() > kLongestBlocks * kBlockTokens) return;
    if (finished.size() == kRemembered) finished[rng.below(kRemembered)].swap(finished.back());
    if (finished.size() == kRemembered) finished.pop_back();
    finished.push_back(std::move(request.tokens));
  };

  for (uint32_t slot = 0; slot < kChurnSlots; ++slot) start(slot);
  while (computed < blocks) {
    const uint32_t slot = rng.below(kChurnSlots);
    Request& request = requests[slot];
    if (request.written < request.tokens.size()) {
      request.written =
          std::min(request.written + kChunkBlocks * kBlockTokens, request.tokens.size());
      target.commit(slot, std::span(request.tokens).first(request.written));
    } else if (request.decode_left > 0) {
      --request.decode_left;
      append_random(request.tokens, kBlockTokens, rng);
      target.extend(slot, request.tokens);
      target.commit(slot, request.tokens);
      request.written = request.tokens.size();
      ++computed;
    } else {
      finish(slot);
      start(slot);
    }
  }
  for (uint32_t slot = 0; slot < kChurnSlots; ++slot) target.finish(slot);
}

class CacheTarget {
 public:
  explicit CacheTarget(PagedCache& cache) : cache_(cache), leases_(kChurnSlots) {}

  uint32_t begin(uint32_t slot, std::span<const Token> prompt) {
    leases_[slot] =
        must(cache_.lease(bench_scope(), {.tokens = prompt}, insert_options()), "lease");
    return leases_[slot].reused();
  }
  void commit(uint32_t slot, std::span<const Token> tokens) {
    must(leases_[slot].commit(static_cast<uint32_t>(tokens.size())), "commit");
  }
  void extend(uint32_t slot, std::span<const Token> tokens) {
    must(leases_[slot].extend(tokens.last(kBlockTokens)), "extend");
  }
  void finish(uint32_t slot) { must(leases_[slot].release(), "release"); }

 private:
  PagedCache& cache_;
  std::vector<Lease> leases_;
};

class HashChainTarget {
 public:
  explicit HashChainTarget(HashChain& chain) : chain_(chain), requests_(kChurnSlots) {}

  uint32_t begin(uint32_t slot, std::span<const Token> prompt) {
    HashChain::Request& request = requests_[slot];
    const size_t blocks = prompt.size() / kBlockTokens;
    const size_t found = chain_.match(prompt, blocks - 1, request);
    require(chain_.draft(blocks - found, request), "the baseline ran out of blocks");
    return static_cast<uint32_t>(found * kBlockTokens);
  }
  void commit(uint32_t slot, std::span<const Token> tokens) {
    chain_.commit(tokens, requests_[slot]);
  }
  void extend(uint32_t slot, std::span<const Token>) {
    require(chain_.draft(1, requests_[slot]), "the baseline ran out of blocks");
  }
  void finish(uint32_t slot) { chain_.release(requests_[slot]); }

 private:
  HashChain& chain_;
  std::vector<HashChain::Request> requests_;
};

}  // namespace stemma::bench
