// What does it cost to make room for 1,024 tokens (64 blocks) when 100,000 prompts of one block are
// cached below one root, all of them leaves?
#include <deque>

#include "bench/baseline/leaf_heap.h"
#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

constexpr uint32_t kLeaves = 100'000;
constexpr uint32_t kEvict = 64;

// A cache of one-block prompts, and these prompts in the order of their last use. Each has one
// token more than is cached, so that lookup() can find the whole block.
struct Leaves {
  explicit Leaves(Ids ids) : cache(make_cache(kLeaves)) {
    if (ids == Ids::scattered) permute_free_blocks(cache, kLeaves, rng);
    for (uint32_t i = 0; i < kLeaves; ++i) add();
  }
  void add() {
    Tokens tokens = random_tokens(kBlockTokens + 1, rng);
    insert(cache, std::span(tokens).first(kBlockTokens));
    by_use.push_back(std::move(tokens));
  }
  void refill() {
    for (uint32_t i = 0; i < kEvict; ++i) {
      by_use.pop_front();
      add();
    }
  }
  bool cached(const Tokens& tokens) const {
    return must(cache.lookup(bench_scope(), {.tokens = tokens}), "lookup").reused_tokens ==
           kBlockTokens;
  }

  Rng rng{64};
  PagedCache cache;
  std::deque<Tokens> by_use;
};

void check(Leaves& leaves) {
  // Uses an old prompt, which must now be among the last to go.
  Tokens used = leaves.by_use[3];
  std::vector<BlockId> table(1);
  full_hit(leaves.cache, used, table);
  leaves.by_use.erase(leaves.by_use.begin() + 3);
  leaves.by_use.push_back(std::move(used));
  require(leaves.cache.evict(kEvict) == kEvict, "evict() did not evict what it was asked to");
  for (uint32_t i = 0; i < kEvict; ++i) {
    require(!leaves.cached(leaves.by_use[i]), "a leaf used long ago outlived a younger one");
  }
  for (uint32_t i = kEvict; i < kLeaves; i += 997) {
    require(leaves.cached(leaves.by_use[i]), "a leaf went before an older one");
  }
  require(leaves.cached(leaves.by_use.back()), "the leaf used last went first");
  leaves.refill();
}

struct EvictFigures {
  Samples ours, memcmp_ns;
};

EvictFigures measure(Leaves& leaves, const Settings& settings) {
  EvictFigures figures;
  Memcmp yardstick;
  for (uint32_t i = 0; i < settings.rounds(2000); ++i) {
    uint32_t gone = 0;
    figures.ours.add(time_ns([&] { gone = leaves.cache.evict(kEvict); }));
    require(gone == kEvict, "evict() did not evict what it was asked to");
    figures.memcmp_ns.add(yardstick.warm_ns());
    leaves.refill();
  }
  return figures;
}

double leaf_heap_us(const Settings& settings) {
  LeafHeap heap(kLeaves);
  for (uint32_t i = 0; i < kLeaves; ++i) heap.add(LeafHeap::kRoot);
  Samples samples;
  for (uint32_t i = 0; i < settings.rounds(25); ++i) {
    uint32_t gone = 0;
    samples.add(time_ns([&] { gone = heap.evict(kEvict); }));
    require(gone == kEvict, "the baseline did not evict what it was asked to");
    for (uint32_t j = 0; j < kEvict; ++j) heap.add(LeafHeap::kRoot);
  }
  return samples.median() * 1e-3;
}

void run_evict(Sheet& sheet) {
  const double baseline_us = leaf_heap_us(sheet.settings());
  for (const Ids ids : {Ids::fresh, Ids::scattered}) {
    Leaves leaves(ids);
    check(leaves);
    const EvictFigures figures = measure(leaves, sheet.settings());
    const double us = figures.ours.median() * 1e-3;
    const double memcmp_us = figures.memcmp_ns.median() * 1e-3;
    Row& row = ids == Ids::fresh ? sheet.at_most_us("evict_1024_of_100k_us", us, 20, 9, memcmp_us)
                                 : sheet.info_us("evict_1024_of_100k_scattered_us", us, memcmp_us);
    row.against("heap of leaves", baseline_us)
        .with_note(format("90 of 100 within %.1f us", figures.ours.quantile(0.9) * 1e-3));
  }
}

}  // namespace

void add_evict(std::vector<Benchmark>& out) {
  out.push_back({{"evict_1024_of_100k_us", "evict_1024_of_100k_scattered_us"},
                 "What does it cost to evict 64 blocks of 100,000 leaves?",
                 run_evict});
}

}  // namespace stemma::bench
