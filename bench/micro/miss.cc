// What does it cost to lease, commit and release a new prompt of 2,048 blocks when the pool is full
// and every block must first be evicted?
//
// The pool is worn first, until 15 times its capacity has been computed (bench/churn.h).
#include <set>

#include "bench/churn.h"
#include "bench/micro/areas.h"

namespace stemma::bench {
namespace {

constexpr uint32_t kMissPoolBlocks = 65'536;
constexpr uint32_t kMissedBlocks = 2048;
constexpr uint32_t kMissedTokens = kMissedBlocks * kBlockTokens;
constexpr uint64_t kTurnover = 15;

void miss(PagedCache& cache, std::span<const Token> prompt) {
  Result<Lease> lease = cache.lease(bench_scope(), {.tokens = prompt}, insert_options());
  require(lease && lease->reused() == 0, "a new prompt was refused, or found");
  const Result<Commit> commit = lease->commit(kMissedTokens);
  require(commit && commit->published == kMissedBlocks, "not every new block was published");
  keep(lease->release());
}

void miss(HashChain& chain, HashChain::Request& request, std::span<const Token> prompt) {
  require(chain.match(prompt, kMissedBlocks, request) == 0, "the baseline found a new prompt");
  require(chain.draft(kMissedBlocks, request), "the baseline ran out of blocks");
  chain.commit(prompt, request);
  chain.release(request);
}

void check(PagedCache& cache, Rng& rng) {
  // A first prompt fills the blocks that the churn's duplicates left free; then every block evicts
  // one.
  insert(cache, random_tokens(kMissedTokens, rng));
  Tokens prompt = random_tokens(kMissedTokens, rng);
  const uint64_t evicted = cache.stats().evicted_blocks;
  const std::vector<BlockId> ids = insert(cache, prompt);
  require(cache.stats().evicted_blocks - evicted == kMissedBlocks,
          "not every new block evicted one");
  require(std::set<BlockId>(ids.begin(), ids.end()).size() == kMissedBlocks,
          "a block was lent twice");
  append_random(prompt, 1, rng);
  check_full_hit(cache, prompt, ids);
}

void run(Sheet& sheet, bool content_keys) {
  PagedCache cache = make_cache(kMissPoolBlocks, content_keys);
  Rng rng(15);
  {
    CacheTarget target(cache);
    churn(target, kTurnover * kMissPoolBlocks, rng);
  }
  check(cache, rng);

  HashChain chain(kMissPoolBlocks);
  HashChain::Request request;
  if (!content_keys) {
    HashChainTarget target(chain);
    Rng same(15);
    churn(target, kTurnover * kMissPoolBlocks, same);
  }

  // Ours and the baseline take turns in phases. Call by call, each would push the other's index out
  // of the near caches.
  constexpr uint32_t kWarmUps = 3;
  Memcmp yardstick;
  Samples ours, memcmp_ns, theirs;
  Tokens prompt;
  const auto renew_prompt = [&] {
    prompt.clear();
    append_random(prompt, kMissedTokens, rng);
  };
  const uint64_t evicted = cache.stats().evicted_blocks;
  const uint32_t calls = kWarmUps + sheet.settings().rounds(80);
  for (uint32_t phase = 0; phase < kPhases; ++phase) {
    for (uint32_t i = 0; i < calls; ++i) {
      renew_prompt();
      const double spent = time_ns([&] { miss(cache, prompt); });
      const double compare = yardstick.warm_ns();
      if (i < kWarmUps) continue;
      ours.add(spent);
      memcmp_ns.add(compare);
    }
    for (uint32_t i = 0; !content_keys && i < calls; ++i) {
      renew_prompt();
      const double spent = time_ns([&] { miss(chain, request, prompt); });
      if (i >= kWarmUps) theirs.add(spent);
    }
  }
  require(cache.stats().evicted_blocks - evicted == uint64_t{kPhases} * calls * kMissedBlocks,
          "not every new block evicted one");

  const double us = ours.median() * 1e-3;
  const double memcmp_us = memcmp_ns.median() * 1e-3;
  const std::string note = format("90 of 100 within %.1f us", ours.quantile(0.9) * 1e-3);
  if (content_keys) {
    sheet.at_most_us("miss_evict_commit_keyed_us", us, 500, 220, memcmp_us).with_note(note);
  } else {
    sheet.at_most_us("miss_evict_commit_us", us, 100, 45, memcmp_us)
        .with_note(note)
        .against("hash chain", theirs.median() * 1e-3);
  }
}

}  // namespace

void add_miss(std::vector<Benchmark>& out) {
  out.push_back({{"miss_evict_commit_us"},
                 "What do 2,048 new blocks cost that each evict one, in a worn pool?",
                 [](Sheet& sheet) { run(sheet, false); }});
  out.push_back({{"miss_evict_commit_keyed_us"},
                 "And with a SHA-256 content key for every block?",
                 [](Sheet& sheet) { run(sheet, true); }});
}

}  // namespace stemma::bench
