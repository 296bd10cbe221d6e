// Agreement and change: ranks that must decide alike, options per request, scopes that come and go.
#include <map>
#include <random>
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Agreement : public PagedFixture {};

TEST_F(Agreement, LookupAtMostCutsToTheSmallestRank) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  for (uint32_t n : {0U, 1U, 15U, 16U, 17U, 40U, 62U, 63U, 64U, 1000U}) {
    LookupOptions options;
    options.at_most = n;
    EXPECT_EQ(hit(cache, tokens(64), options), std::min(n, 63U));
  }
}

TEST_F(Agreement, ShrunkLeaseGivesTheRestBack) {
  const Options options = grouped({full(10)});
  for (uint32_t n : {63U, 62U, 48U, 47U, 40U, 32U, 5U, 0U}) {
    PagedCache& cache = cache_with(options);
    Engine engine(options.groups);
    const Text text = tokens(64);
    const Story story = story_of(text);
    Lease writer = take(cache, text);
    engine.run(writer, story, 64);
    ok(writer.release());
    Lease lease = take(cache, text);
    ok(lease.shrink_to(n));
    EXPECT_EQ(lease.reused(), n);
    EXPECT_EQ(lease.committed(), n);
    EXPECT_EQ(lease.report().reused_tokens, n);
    EXPECT_EQ(lease.report().to_compute_tokens, 64 - n);
    EXPECT_EQ(cache.evict(10), 3 - n / 16 + (n % 16 == 0 ? 1 : 0)) << "what it no longer uses";
    engine.run(lease, story, 64);
    ok(lease.release());
    EXPECT_EQ(kept(cache, text), 64U);
  }
}

TEST_F(Agreement, ShrinkingAfterComputingIsRefused) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(32));
  Lease lease = take(cache, tokens(60));
  ok(lease.commit(50));
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(lease.shrink_to(16)), Errc::wrong_state);
  EXPECT_EQ(books(cache) + position(lease), before) << "positions never move back by accident";
}

TEST_F(Agreement, EqualInputsGiveEqualDecisions) {
  // Two ranks see the same requests. Everything a caller can see must be equal.
  auto run = [&](uint64_t seed) {
    ManualClock time;
    Options options = grouped({full(24, 4), window(16, 20, 4)});
    options.clock = &time;
    PagedCache cache = ok(PagedCache::create(options));
    std::mt19937_64 random(seed);
    std::string decisions;
    std::vector<Lease> leases;
    for (int step = 0; step < 600; ++step) {
      time.advance_ns(random() % 1000);
      const uint32_t shared = random() % 30;
      const Text text = tokens(shared, random() % 3) + tokens(random() % 20, random() % 4);
      LeaseOptions lease_options;
      lease_options.retain.priority = random() % 2 == 0 ? 35 : 60;
      Result<Lease> lease = cache.lease(scope, text, lease_options);
      if (!lease) {
        decisions += "refused\n";
        if (!leases.empty()) leases.erase(leases.begin() + random() % leases.size());
        continue;
      }
      for (GroupIndex g : {0U, 1U}) {
        for (BlockId block : blocks_of(*lease, g)) {
          decisions += std::to_string(to_index(block)) + ' ';
        }
      }
      compute(*lease);
      if (random() % 3 == 0) leases.push_back(*std::move(lease));
      decisions += books(cache) + '\n';
    }
    return decisions;
  };
  for (uint64_t seed : {1U, 2U, 3U}) {
    const std::string first = run(seed);
    EXPECT_EQ(first, run(seed)) << "seed " << seed;
    EXPECT_NE(first.find("refused"), std::string::npos) << "the pool should have been tight";
  }
}

// ---- Switches per request ----------------------------------------------------------------------

TEST_F(Agreement, ReadOffStillCachesTheResult) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(32));
  LeaseOptions options;
  options.lookup.read = false;
  Lease lease = take(cache, tokens(64), options);
  EXPECT_EQ(lease.reused(), 0U);
  EXPECT_EQ(lease.report().outcome, Outcome::bypassed);
  const Commit commit = compute(lease);
  EXPECT_EQ(commit.duplicates, 2U);
  EXPECT_EQ(commit.published, 2U);
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(64)), 64U);
}

TEST_F(Agreement, WriteOffReusesAndLeavesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(32));
  const std::string before = books(cache);
  {
    LeaseOptions options;
    options.lookup.write = false;
    Lease lease = take(cache, tokens(60), options);
    EXPECT_EQ(lease.reused(), 32U);
    EXPECT_EQ(compute(lease).published, 0U);
    ok(lease.extend(tokens(20, 2).tokens));
    ok(lease.commit(80));
    ok(lease.release());
  }
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(60)), 32U);
}

// ---- Scopes ------------------------------------------------------------------------------------

TEST_F(Agreement, DroppedScopeIsNeverFoundAgain) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Scope adapter = scope_of({.model = "m", .adapters = {{.name = "poet"}}});
  fill(cache, tokens(48));
  fill(cache, adapter, tokens(48));
  EXPECT_EQ(cache.stats().scopes, 2U);
  EXPECT_EQ(cache.drop_scope(adapter), 3U);
  EXPECT_EQ(hit(cache, adapter, tokens(48)), 0U);
  EXPECT_EQ(kept(cache, tokens(48)), 48U);
  EXPECT_EQ(cache.stats().scopes, 1U);
  EXPECT_EQ(free_blocks(cache), 17U);
  EXPECT_EQ(cache.drop_scope(adapter), 0U);
}

TEST_F(Agreement, LeasedBlocksOfADroppedScopeGoAtRelease) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, tokens(48));
  Lease lease = take(cache, tokens(60));
  EXPECT_EQ(lease.reused(), 48U);
  const std::vector<BlockId> blocks = blocks_of(lease);
  EXPECT_EQ(cache.drop_scope(scope), 3U);
  EXPECT_EQ(blocks_of(lease), blocks) << "the request may finish";
  EXPECT_GE(cache.stats().orphaned_blocks, 3U);
  compute(lease);
  EXPECT_EQ(hit(cache, tokens(60)), 0U) << "what it computes is not found either";
  Lease fresh = take(cache, tokens(60));
  EXPECT_EQ(fresh.reused(), 0U) << "the weights may be new ones";
  compute(fresh);
  ok(lease.release());
  ok(fresh.release());
  EXPECT_EQ(kept(cache, tokens(60)), 60U);
  EXPECT_EQ(cached_blocks(cache), 4U);
}

TEST_F(Agreement, HundredThousandScopesAreCheapAndEmptyOnesVanish) {
  constexpr uint32_t kScopes = 100'000;
  PagedCache& cache = cache_of({.block_tokens = 1, .capacity = kScopes});
  const uint64_t before = cache.stats().index_bytes;
  std::vector<Scope> scopes;
  for (uint32_t i = 0; i < kScopes; ++i) {
    scopes.push_back(scope_of({.model = "m", .tenant_salt = std::to_string(i)}));
    fill(cache, scopes.back(), of({7}));
  }
  EXPECT_EQ(cache.stats().scopes, kScopes);
  EXPECT_EQ(hit(cache, scopes[12'345], of({7, 8})), 1U);
  EXPECT_LT(cache.stats().index_bytes - before, kScopes * 512ULL);
  cache.evict(kScopes / 2);
  EXPECT_EQ(cache.stats().scopes, kScopes / 2);
  EXPECT_EQ(hit(cache, scopes[12'345], of({7, 8})), 0U);
  EXPECT_EQ(hit(cache, scopes[kScopes - 1], of({7, 8})), 1U);
  cache.evict(kScopes);
  EXPECT_EQ(cache.stats().scopes, 0U);
  const uint64_t peak = cache.stats().index_bytes;
  for (uint32_t i = 0; i < kScopes; ++i) {
    fill(cache, scope_of({.model = "n", .tenant_salt = std::to_string(i)}), of({7}));
  }
  EXPECT_LE(cache.stats().index_bytes, peak + peak / 4) << "their room is used again";
}

// ---- Dump and load -----------------------------------------------------------------------------

TEST_F(Agreement, LoadedDumpGivesTheSameAnswers) {
  const Options options = grouped({full(40, 4), window(8, 40, 4)});
  PagedCache& cache = cache_with(options);
  const Scope other = scope_of({.model = "other"});
  const std::vector<Text> texts = {tokens(30), tokens(10) + tokens(17, 2),
                                   tokens(22).with(image(1, 3, 9)), tokens(5, 4)};
  for (const Text& text : texts) fill(cache, text);
  fill(cache, other, texts[0]);

  PagedCache& loaded = cache_with(options);
  ok(loaded.load(cache.dump()));
  loaded.check_invariants();
  for (const Scope& in : {scope, other}) {
    for (const Text& text : texts) {
      for (uint32_t n = 0; n <= text.size(); n += 3) {
        const Text query = text.first(n) + tokens(4, 9);
        EXPECT_EQ(hit(loaded, in, query), hit(cache, in, query));
      }
    }
  }
  for (const Text& text : texts) {
    Lease a = take(cache, text);
    Lease b = take(loaded, text);
    EXPECT_EQ(a.reused(), b.reused());
    for (GroupIndex g : {0U, 1U}) {
      std::vector<BlockId> of_a = blocks_of(a, g);
      std::vector<BlockId> of_b = blocks_of(b, g);
      of_a.resize(a.reused() / 4);  // Shared in place; the rest are drafts.
      of_b.resize(a.reused() / 4);
      EXPECT_EQ(of_a, of_b);
    }
  }
}

TEST_F(Agreement, LoadedDumpEvictsInTheSameOrder) {
  const Options options = grouped({full(20)});
  PagedCache& cache = cache_with(options);
  std::vector<Text> texts;
  for (uint32_t i = 0; i < 6; ++i) texts.push_back(tokens(16 + 16 * (i % 3), i + 1));
  for (const Text& text : texts) fill(cache, text);
  take(cache, texts[1].first(16) + tokens(1, 50));
  fill(cache, texts[0]);
  PagedCache& loaded = cache_with(options);
  ok(loaded.load(cache.dump()));
  while (cache.evict(1) == 1) {
    EXPECT_EQ(loaded.evict(1), 1U);
    for (const Text& text : texts) EXPECT_EQ(kept(loaded, text), kept(cache, text));
  }
}

TEST_F(Agreement, DumpLoadsOnlyWhereItFits) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(48));
  const std::vector<uint8_t> dump = cache.dump();
  PagedCache& busy = cache_of({.block_tokens = 16, .capacity = 10});
  fill(busy, tokens(20, 2));
  const std::string before = books(busy);
  EXPECT_EQ(code(busy.load(dump)), Errc::wrong_state);
  EXPECT_EQ(books(busy), before);
  EXPECT_EQ(kept(busy, tokens(20, 2)), 20U);
  for (const Shape& shape : {Shape{8, 10}, Shape{16, 11}}) {
    EXPECT_EQ(code(cache_of(shape).load(dump)), Errc::invalid_argument);
  }
}

TEST_F(Agreement, DamagedDumpIsNotBelieved) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  fill(cache, tokens(18));
  const std::vector<uint8_t> dump = cache.dump();
  PagedCache& empty = cache_of({.block_tokens = 4, .capacity = 10});
  const std::string before = books(empty);
  for (size_t at = 0; at < dump.size(); ++at) {
    std::vector<uint8_t> bad = dump;
    bad[at] ^= static_cast<uint8_t>(1U << (at % 8));
    const Errc error = code(empty.load(bad));
    ASSERT_TRUE(error == Errc::corrupt || error == Errc::invalid_argument) << "byte " << at;
    ASSERT_EQ(code(empty.load(std::span(dump).first(at))), Errc::corrupt) << "cut at " << at;
  }
  std::vector<uint8_t> longer = dump;
  longer.push_back(0);
  EXPECT_EQ(code(empty.load(longer)), Errc::corrupt);
  EXPECT_EQ(books(empty), before);
  ok(empty.load(dump));
  EXPECT_EQ(kept(empty, tokens(18)), 18U);
}

}  // namespace
}  // namespace stemma::test
