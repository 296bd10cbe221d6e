// Tiers under a SequenceCache: what it saves also goes to disk, and a restarted process finds it
// there. The engine is the one of opaque_sequences.cc; the new part is in live().
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "stemma/tier/disk_tier.h"
#include "stemma/tier/sequence_tiers.h"

using namespace stemma;

struct ToyEngine final : SequenceEngine {  // The "KV" is the tokens themselves.
  std::vector<Token> kv;
  EngineTraits traits() const override {
    return {.sequences = 1, .context_tokens = 4096, .segments = true, .bytes_per_token = 4};
  }
  Held held(SequenceId) override { return {0, static_cast<uint32_t>(kv.size()), true}; }
  Result<void> clear(SequenceId) override { return kv.clear(), Result<void>(); }
  Result<void> trim(SequenceId, uint32_t n) override { return kv.resize(n), Result<void>(); }
  Result<void> copy(SequenceId, SequenceId, Range) override { return {}; }
  Result<uint64_t> size(SequenceId, Part, Range r) override { return 4ULL * (r.end - r.begin); }
  Result<uint64_t> save(SequenceId, Part, Range r, std::span<uint8_t> out) override {
    std::memcpy(out.data(), kv.data() + r.begin, 4ULL * (r.end - r.begin));
    return 4ULL * (r.end - r.begin);
  }
  Result<void> load(SequenceId, Part, Range saved, Range r, std::span<const uint8_t> b) override {
    kv.resize(r.end);
    std::memcpy(&kv[r.begin], b.data() + (r.begin - saved.begin) * 4, 4ULL * (r.end - r.begin));
    return {};
  }
  Result<void> shift(SequenceId, uint32_t, uint32_t) override { return {}; }
};

static void live(const std::string& directory, const std::vector<Token>& words) {
  tier::StackOptions levels;
  levels.levels.push_back({.tier = *tier::disk::DiskTier::open(
                               {.path = directory, .capacity_bytes = uint64_t{64} << 20U})});
  levels.query_ns = 1'000'000'000;  // A tier that has not answered by then is skipped.
  auto stack = *tier::TierStack::create(std::move(levels));
  ToyEngine engine;
  tier::SequenceTiers tiers(*stack, {.traits = engine.traits(), .segment_tokens = 64});
  SequenceCache cache = *SequenceCache::create(engine, {.segment_tokens = 64, .listener = &tiers});

  const Scope scope = *Scope::make({.model = "toy"});
  // When the request arrives, while it waits for its turn. What is here need not be fetched.
  auto fetch = tiers.fetch(scope, {words},
                           {.have = cache.lookup(scope, {words})->reused_tokens,
                            .saved_here = cache.saved_tokens(scope, {words})});
  // Or on_over says so. What is not there in time is computed.
  if (fetch->wait(Clock::monotonic().now_ns() + 2'000'000'000)) {
    cache.admit(scope, {words}, fetch->parts()).value();  // On the engine's thread.
  }
  Turn turn = *cache.begin(scope, {words});
  std::printf("%u of %zu tokens were there\n", *turn.execute(), words.size());
  engine.kv = words;  // The engine computes the rest.
  turn.computed(turn.length()).value();
  turn.finish().value();
  cache.drain();  // Saves, and tells the tiers.
  // Before the process ends. A write-back level, if there were one, would get what memory still
  // has.
  for (HandedOn done{.over = false}; !done.over;) {
    done = cache.hand_on(done.next, 32U << 20U);
    stack->flush(Clock::monotonic().now_ns() + 10'000'000'000);
  }
}

int main() {
  char directory[] = "/tmp/stemma-tiers-XXXXXX";
  if (mkdtemp(directory) == nullptr) return 1;
  for (int life = 0; life < 2; ++life) live(directory, std::vector<Token>(500, 7));
  std::filesystem::remove_all(directory);
}
