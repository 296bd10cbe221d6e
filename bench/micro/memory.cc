// How much memory does the index take for each cached token, and does a hit take any from the heap?
//
// Bytes are found in three ways, and the largest counts:
//   - what the cache reports (Stats::index_bytes);
//   - what it holds from operator new, counted by the replaced operators (bench/allocations.h);
//   - by how much the process's resident anonymous memory grew, which also sees what is mapped
//     directly and malloc's overhead. malloc is asked to give back what it does not need before
//     each reading; the prompts used for filling exist before the first.
// No KV bytes exist here, and no events are kept.
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "bench/allocations.h"
#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

// 0 where the kernel does not tell.
int64_t resident_anonymous_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Anonymous:")) return std::strtoll(line.c_str() + 10, nullptr, 10) * 1024;
  }
  return 0;
}

// Conversations of 128 blocks, the first 64 of which are one of 50 system prompts, until the pool
// is full and a tenth of it has been evicted.
void run_index_bytes(Sheet& sheet) {
  constexpr uint32_t kSystems = 50;
  constexpr uint32_t kSystemBlocks = 64;
  constexpr uint32_t kOwnBlocks = 64;
  constexpr uint32_t kConversations = 4000;
  constexpr uint32_t kCapacityBlocks = kSystems * kSystemBlocks + kConversations * kOwnBlocks;
  Rng rng(50);
  std::vector<Tokens> systems(kSystems);
  for (Tokens& system : systems) system = random_tokens(kSystemBlocks * kBlockTokens, rng);
  Tokens tokens;
  tokens.reserve((kSystemBlocks + kOwnBlocks) * kBlockTokens);
  keep(bench_scope());

  const int64_t resident_before = resident_anonymous_bytes();
  AllocationWindow window;
  PagedCache cache = make_cache(kCapacityBlocks);
  for (uint32_t i = 0; i < kConversations + kConversations / 10; ++i) {
    const Tokens& system = systems[rng.below(kSystems)];
    tokens.assign(system.begin(), system.end());
    append_random(tokens, kOwnBlocks * kBlockTokens, rng);
    insert(cache, tokens);
  }
  const int64_t resident = resident_anonymous_bytes() - resident_before;
  const int64_t heap = window.live_bytes();
  const Stats stats = cache.stats();
  require(stats.groups[0].cached_blocks == kCapacityBlocks, "the pool is not full");

  const double cached_tokens = double{kCapacityBlocks} * kBlockTokens;
  const auto said = static_cast<double>(stats.index_bytes);
  const double largest = std::max({said, static_cast<double>(heap), static_cast<double>(resident)});
  sheet.at_most("index_bytes_per_token", largest / cached_tokens, "bytes", 7)
      .with_note(format("the cache says %.3f, operator new %.3f, resident memory grew by %.3f",
                        said / cached_tokens, static_cast<double>(heap) / cached_tokens,
                        static_cast<double>(resident) / cached_tokens));
}

void run_allocations(Sheet& sheet) {
  constexpr uint32_t kHits = 1000;
  HitPool pool(Ids::fresh);
  std::vector<BlockId> table(HitPool::kPathBlocks);
  const auto hit = [&](uint32_t i) {
    full_hit(pool.cache(), pool.prompt(i % HitPool::kPrompts), table);
  };
  for (uint32_t i = 0; i < 2 * HitPool::kPrompts; ++i) hit(i);
  const AllocationWindow window;
  for (uint32_t i = 0; i < kHits; ++i) hit(i);
  const uint64_t calls = window.calls();
  sheet.at_most("allocations_per_full_hit", static_cast<double>(calls) / kHits, "calls", 0);
}

}  // namespace

void add_memory(std::vector<Benchmark>& out) {
  out.push_back({{"index_bytes_per_token"},
                 "How many bytes does the index of a full pool take for each cached token?",
                 run_index_bytes});
  out.push_back({{"allocations_per_full_hit"},
                 "How often does a full hit call operator new, once warm?",
                 run_allocations});
}

}  // namespace stemma::bench
