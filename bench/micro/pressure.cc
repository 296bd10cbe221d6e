// What does it cost to make room when most of the pool is in use? Live leases hold nine tenths of
// the blocks. They share system prompts, so the sum of what they hold exceeds the pool, and the
// cache has to look closer before it may promise anything.
#include <string>

#include "bench/micro/areas.h"
#include "bench/support.h"

namespace stemma::bench {
namespace {

constexpr uint32_t kPressedBlocks = 100'000;
constexpr uint32_t kSystems = 50;
constexpr uint32_t kSystemBlocks = 64;
constexpr uint32_t kOwnBlocks = 64;
constexpr uint32_t kNewBlocks = 64;

constexpr const char* kPressureRows[] = {
    "draft_when_90_percent_leased_us",
    "lease_64_blocks_when_90_percent_leased_us",
    "turn_over_when_90_percent_leased_us",
};

struct Crowded {
  Crowded() : cache(make_cache(kPressedBlocks)), systems(kSystems) {
    for (Tokens& system : systems) system = random_tokens(kSystemBlocks * kBlockTokens, rng);
    constexpr uint32_t kLeased = kPressedBlocks / 10 * 9;
    constexpr uint32_t kLeases = (kLeased - kSystems * kSystemBlocks) / kOwnBlocks;
    for (uint32_t i = 0; i < kLeases; ++i) leases.push_back(begin(conversation(i % kSystems)));
    while (cache.stats().groups[0].free_blocks >= kNewBlocks) insert_new(kNewBlocks);
    while (cache.stats().groups[0].free_blocks > 0) insert_new(1);
  }
  Tokens conversation(uint32_t system) {
    Tokens tokens = systems[system];
    append_random(tokens, kOwnBlocks * kBlockTokens, rng);
    return tokens;
  }
  // A lease with everything committed. `lease_ns` gets what lease() took.
  Lease begin(const Tokens& tokens, double* lease_ns = nullptr) {
    Lease lease;
    const double spent = time_ns([&] {
      lease = must(cache.lease(bench_scope(), {.tokens = tokens}, insert_options()), "lease");
    });
    if (lease_ns != nullptr) *lease_ns = spent;
    must(lease.commit(static_cast<uint32_t>(tokens.size())), "commit");
    return lease;
  }
  void insert_new(uint32_t blocks) { insert(cache, random_tokens(blocks * kBlockTokens, rng)); }
  uint32_t any_lease() { return rng.below(static_cast<uint32_t>(leases.size())); }

  Rng rng{90};
  PagedCache cache;
  std::vector<Tokens> systems;
  std::vector<Lease> leases;
};

// The calls of one round; each needs room that only eviction gives.
double extend_by_one(Crowded& crowded) {
  Lease& lease = crowded.leases[crowded.any_lease()];
  const uint32_t length = lease.length();
  const Tokens tokens = random_tokens(kBlockTokens, crowded.rng);
  bool extended = false;
  const double spent = time_ns([&] { extended = lease.extend(tokens).has_value(); });
  require(extended && lease.capacity() >= length + kBlockTokens, "extend() got no block");
  // Give the block back and fill it, so that the next one has to evict again.
  must(lease.rewind(length), "rewind");
  crowded.insert_new(1);
  return spent;
}

double lease_new(Crowded& crowded) {
  double spent = 0;
  Lease lease = crowded.begin(random_tokens(kNewBlocks * kBlockTokens, crowded.rng), &spent);
  require(lease.reused() == 0, "a new prompt was found");
  must(lease.release(), "release");
  return spent;
}

// A conversation ends and another one begins below some system prompt.
double turn_over(Crowded& crowded) {
  Lease& lease = crowded.leases[crowded.any_lease()];
  must(lease.release(), "release");
  double spent = 0;
  lease = crowded.begin(crowded.conversation(crowded.rng.below(kSystems)), &spent);
  require(lease.reused() == kSystemBlocks * kBlockTokens, "a leased system prompt was not found");
  return spent;
}

void run_pressure(Sheet& sheet) {
  Crowded crowded;
  const Stats before = crowded.cache.stats();
  require(before.groups[0].cached_blocks == kPressedBlocks, "the pool is not full");
  require(before.leases == crowded.leases.size(), "a lease is missing");

  struct Task {
    const char* name;
    double (*run)(Crowded&);
    const char* what;
    uint32_t evicts;
    Samples times;
    uint64_t exact_counts;
  };
  Task tasks[] = {
      {kPressureRows[0], extend_by_one, "extend() by one block", 1, {}, 0},
      {kPressureRows[1], lease_new, "lease() of 64 new blocks", kNewBlocks, {}, 0},
      {kPressureRows[2], turn_over, "lease() of 64 leased and 64 new blocks", kOwnBlocks, {}, 0},
  };
  Samples memcmp_ns;
  Memcmp yardstick;
  const uint32_t rounds = sheet.settings().rounds(400);
  uint64_t evictions = 0;
  for (uint32_t i = 0; i < rounds; ++i) {
    for (Task& task : tasks) {
      const uint64_t counts = crowded.cache.stats().exact_counts;
      task.times.add(task.run(crowded));
      task.exact_counts += crowded.cache.stats().exact_counts - counts;
      evictions += task.evicts;
    }
    memcmp_ns.add(yardstick.warm_ns());
  }
  require(crowded.cache.stats().evicted_blocks - before.evicted_blocks == evictions,
          "something was evicted that nobody needed the room of");
  for (const Task& task : tasks) {
    sheet.info_us(task.name, task.times.median() * 1e-3, memcmp_ns.median() * 1e-3)
        .with_note(format("%s; %zu leases; slowest %.1f us; counted exactly %llu times in %u",
                          task.what, crowded.leases.size(), task.times.quantile(1) * 1e-3,
                          static_cast<unsigned long long>(task.exact_counts), rounds));
  }
}

}  // namespace

void add_pressure(std::vector<Benchmark>& out) {
  out.push_back({{kPressureRows[0], kPressureRows[1], kPressureRows[2]},
                 "What does room cost while live leases hold nine tenths of the pool?",
                 run_pressure});
}

}  // namespace stemma::bench
