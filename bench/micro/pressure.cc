// What does room cost when most of the pool is in use? Live leases hold nine tenths of the blocks;
// they share system prompts, so adding up what each of them holds says more than there is and the
// cache has to look closer before it may promise anything.
#include <string>

#include "bench/micro/areas.h"
#include "bench/support.h"

namespace stemma::bench {
namespace {

constexpr uint32_t kCapacityBlocks = 100'000;
constexpr uint32_t kSystems = 50;
constexpr uint32_t kSystemBlocks = 64;
constexpr uint32_t kOwnBlocks = 64;
constexpr uint32_t kNewBlocks = 64;

struct Crowded {
  Crowded() : cache(make_cache(kCapacityBlocks)) {
    std::vector<Tokens> systems(kSystems);
    for (Tokens& system : systems) system = random_tokens(kSystemBlocks * kBlockTokens, rng);
    // What stays unleased goes in first, so that it is there when the leases have been made.
    constexpr uint32_t kLeased = kCapacityBlocks / 10 * 9;
    constexpr uint32_t kLeases = (kLeased - kSystems * kSystemBlocks) / kOwnBlocks;
    for (uint32_t i = 0; i < kLeases; ++i) {
      Tokens tokens = systems[i % kSystems];
      append_random(tokens, kOwnBlocks * kBlockTokens, rng);
      leases.push_back(
          must(cache.lease(bench_scope(), {.tokens = tokens}, insert_options()), "lease"));
      must(leases.back().commit(static_cast<uint32_t>(tokens.size())), "commit");
    }
    while (cache.stats().groups[0].free_blocks >= kNewBlocks) insert_new(kNewBlocks);
    while (cache.stats().groups[0].free_blocks > 0) insert_new(1);
  }
  void insert_new(uint32_t blocks) { insert(cache, random_tokens(blocks * kBlockTokens, rng)); }

  Rng rng{90};
  PagedCache cache;
  std::vector<Lease> leases;
};

void run(Sheet& sheet) {
  Crowded crowded;
  PagedCache& cache = crowded.cache;
  Rng& rng = crowded.rng;
  const Stats before = cache.stats();
  require(before.groups[0].cached_blocks == kCapacityBlocks, "the pool is not full");
  require(before.leases == crowded.leases.size(), "a lease is missing");

  Samples extend_ns, lease_ns, memcmp_ns;
  Memcmp yardstick;
  Tokens tokens;
  const uint32_t rounds = sheet.settings().rounds(200);
  for (uint32_t i = 0; i < rounds; ++i) {
    Lease& lease = crowded.leases[rng.below(static_cast<uint32_t>(crowded.leases.size()))];
    const uint32_t length = lease.length();
    tokens.clear();
    append_random(tokens, kBlockTokens, rng);
    bool extended = false;
    extend_ns.add(time_ns([&] { extended = lease.extend(tokens).has_value(); }));
    require(extended && lease.capacity() >= length + kBlockTokens, "extend() got no block");
    // Give the block back and fill it, so that the next one has to evict again.
    must(lease.rewind(length), "rewind");
    crowded.insert_new(1);

    tokens.clear();
    append_random(tokens, kNewBlocks * kBlockTokens, rng);
    Lease fresh;
    lease_ns.add(time_ns([&] {
      Result<Lease> result = cache.lease(bench_scope(), {.tokens = tokens}, insert_options());
      require(result.has_value(), "a lease that fits was refused");
      fresh = *std::move(result);
    }));
    must(fresh.commit(static_cast<uint32_t>(tokens.size())), "commit");
    must(fresh.release(), "release");
    memcmp_ns.add(yardstick.warm_ns());
  }
  const Stats after = cache.stats();
  require(after.evicted_blocks - before.evicted_blocks == rounds * (1 + kNewBlocks),
          "something was evicted that nobody needed the room of");
  const std::string note =
      format("%zu leases; counted exactly %.2f times a round", crowded.leases.size(),
             static_cast<double>(after.exact_counts - before.exact_counts) / rounds);
  const double memcmp_us = memcmp_ns.median() * 1e-3;
  sheet.info_us("draft_when_90_percent_leased_us", extend_ns.median() * 1e-3, memcmp_us)
      .with_note("extend() by one block; " + note);
  sheet.info_us("lease_64_blocks_when_90_percent_leased_us", lease_ns.median() * 1e-3, memcmp_us)
      .with_note("lease() of 64 new blocks; " + note);
}

}  // namespace

void add_pressure(std::vector<Benchmark>& out) {
  out.push_back({{"draft_when_90_percent_leased_us", "lease_64_blocks_when_90_percent_leased_us"},
                 "What does room cost while live leases hold nine tenths of the pool?",
                 run});
}

}  // namespace stemma::bench
