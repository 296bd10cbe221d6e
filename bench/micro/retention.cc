// What does the retention policy `default` cost inside the cache, beside `lru` in the same run?
//
// A full hit: the scattered pool of bench/hit_pool.h, 48 prompts in turn. A miss: eight prompts of
// 1,024 blocks come back again and again, and between two uses come more new blocks than fit; LRU
// finds none of the eight. Measured are 2,048 new blocks, each of which evicts one. By then the
// policy finds the eight, so it chooses by its index and not as LRU does. The index: conversations
// of 64 blocks until the pool is full of them and a tenth was evicted, so it keeps as many ghosts
// as it may.
#include <memory>
#include <string>
#include <vector>

#include "bench/hit_pool.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

void run_full_hit(Sheet& sheet) {
  constexpr uint32_t kBytes = HitPool::kPathTokens * sizeof(Token);
  HitPool pool(Ids::scattered, "default");
  HitPool lru(Ids::scattered, "lru");
  std::vector<BlockId> table(HitPool::kPathBlocks);
  PairedSamples default_hits, lru_hits;
  const auto step = [&](HitPool& in, uint32_t turn, PairedSamples* samples) {
    const uint32_t ours = turn % HitPool::kPrompts;
    const uint32_t other = (turn + HitPool::kPrompts / 2) % HitPool::kPrompts;
    const double hit = time_ns([&] { full_hit(in.cache(), in.prompt(ours), table); });
    const double compare =
        time_ns([&] { compare_equal(in.prompt(other).data(), in.copy(other).data(), kBytes); });
    if (samples == nullptr) return;
    samples->add_ours(hit);
    samples->add_other(compare);
  };
  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    for (const bool ours : {true, false}) {
      HitPool& in = ours ? pool : lru;
      PairedSamples& samples = ours ? default_hits : lru_hits;
      for (uint32_t i = 0; i < HitPool::kPrompts; ++i) step(in, i, nullptr);
      for (uint32_t i = 0; i < sheet.settings().rounds(480); ++i) step(in, i, &samples);
      samples.end_phase();
    }
  }
  for (uint32_t i = 0; i < HitPool::kPrompts; ++i) {
    check_full_hit(pool.cache(), pool.prompt(i), pool.blocks(i));
  }
  sheet.at_most("full_hit_vs_memcmp_default", default_hits.ratio(), "x memcmp", 5)
      .against("lru", lru_hits.ratio());
}

// A cache with prompts that come back.
class Regulars {
 public:
  static constexpr uint32_t kCapacityBlocks = 65'536;
  static constexpr uint32_t kBlocks = 2048;

  explicit Regulars(const char* policy) : cache_(make_cache(kCapacityBlocks, false, policy)) {
    for (uint32_t i = 0; i < kPrompts; ++i) {
      prompts_.push_back(random_tokens(kPromptBlocks * kBlockTokens, rng_));
    }
  }
  // All prompts come back; then new ones fill the room. Returns how many tokens of the old ones
  // were found.
  uint64_t round() {
    uint64_t found = 0;
    for (const Tokens& prompt : prompts_) found += use(prompt);
    for (uint32_t i = 0; i < kCapacityBlocks / kBlocks; ++i) {
      renew();
      spent_ns.add(time_ns([&] { require(use(fresh_) == 0, "a new prompt was found"); }));
    }
    return found;
  }
  uint64_t regular_tokens() const { return uint64_t{kPrompts} * kPromptBlocks * kBlockTokens; }
  Samples spent_ns;

 private:
  static constexpr uint32_t kPrompts = 8;
  static constexpr uint32_t kPromptBlocks = 1024;
  uint32_t use(std::span<const Token> tokens) {
    Result<Lease> lease = cache_.lease(bench_scope(), {.tokens = tokens}, insert_options());
    require(lease.has_value(), "a prompt was refused");
    const uint32_t found = lease->reused();
    keep(lease->commit(static_cast<uint32_t>(tokens.size())));
    keep(lease->release());
    return found;
  }
  void renew() {
    fresh_.clear();
    append_random(fresh_, kBlocks * kBlockTokens, rng_);
  }

  Rng rng_{77};
  PagedCache cache_;
  std::vector<Tokens> prompts_;
  Tokens fresh_;
};

void run_miss(Sheet& sheet) {
  constexpr uint32_t kWarmUps = 12;
  Regulars ours("default");
  Regulars lru("lru");
  for (uint32_t i = 0; i < kWarmUps; ++i) {
    ours.round();
    lru.round();
  }
  ours.spent_ns = {};
  lru.spent_ns = {};
  Memcmp yardstick;
  Samples memcmp_ns;
  uint64_t found = 0;
  const uint32_t rounds = sheet.settings().rounds(20);
  for (uint32_t i = 0; i < rounds; ++i) {
    found += ours.round();
    require(lru.round() == 0, "LRU kept what it cannot keep");
    memcmp_ns.add(yardstick.warm_ns());
  }
  require(found > rounds * ours.regular_tokens() / 2, "the policy does not choose by its index");
  sheet
      .at_most_us("miss_evict_commit_default_us", ours.spent_ns.median() * 1e-3, 700, 0,
                  memcmp_ns.median() * 1e-3)
      .with_note(format("90 of 100 within %.1f us", ours.spent_ns.quantile(0.9) * 1e-3))
      .against("lru", lru.spent_ns.median() * 1e-3);
}

double index_bytes_per_token(const char* policy) {
  constexpr uint32_t kCapacityBlocks = 262'144;
  constexpr uint32_t kBlocks = 64;
  PagedCache cache = make_cache(kCapacityBlocks, false, policy);
  Rng rng(51);
  Tokens tokens;
  for (uint32_t i = 0; i < kCapacityBlocks / kBlocks * 11 / 10; ++i) {
    tokens.clear();
    append_random(tokens, kBlocks * kBlockTokens, rng);
    insert(cache, tokens);
  }
  const Stats stats = cache.stats();
  require(stats.groups[0].cached_blocks == kCapacityBlocks, "the pool is not full");
  return static_cast<double>(stats.index_bytes) / (double{kCapacityBlocks} * kBlockTokens);
}

void run_index_bytes_by_policy(Sheet& sheet) {
  sheet.at_most("index_bytes_per_token_default", index_bytes_per_token("default"), "bytes", 9.5)
      .against("lru", index_bytes_per_token("lru"));
}

}  // namespace

void add_retention(std::vector<Benchmark>& out) {
  out.push_back({{"full_hit_vs_memcmp_default"},
                 "What does a full hit cost with the policy `default`, against memcmp?",
                 run_full_hit});
  out.push_back(
      {{"miss_evict_commit_default_us"}, "And 2,048 new blocks that each evict one?", run_miss});
  out.push_back({{"index_bytes_per_token_default"},
                 "And how many bytes does the index take for each cached token?",
                 run_index_bytes_by_policy});
}

}  // namespace stemma::bench
