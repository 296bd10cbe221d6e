// Whole prompts, stored and found: the promises to simple callers of a prompt cache.
#include "stemma/whole_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/numbers.h"
#include "support/text.h"

namespace stemma::test {
namespace {

class PromptCache : public ::testing::Test {
 protected:
  using Config = WholePromptCache::Config;
  using Statistics = WholePromptCache::Statistics;
  using Bytes = std::vector<uint8_t>;

  void make(const Config& config) {
    auto made = WholePromptCache::create(config);
    ASSERT_TRUE(made) << made.error().to_string();
    cache.emplace(std::move(*made));
  }
  Result<void> store(const Text& prompt, uint8_t fill = 1, uint64_t bytes = 100,
                     const std::vector<float>& logits = {}) {
    return cache->store(scope, prompt.tokens, Bytes(bytes, fill), logits);
  }
  std::optional<WholePromptCache::Lease> find(const Text& prompt) {
    return cache->find(scope, prompt.tokens);
  }
  // The number of tokens of the stored prompt that was found, or 0.
  size_t found(const Text& prompt) {
    const auto lease = find(prompt);
    return lease ? lease->key().size() : 0;
  }
  Statistics stats() const { return cache->statistics(); }

  Scope scope = *Scope::make({.model = "m"});
  std::optional<WholePromptCache> cache;
};

// ---- System 2 -----------------------------------------------------------------------------------

TEST_F(PromptCache, OneThatWasMovedFromHasNothing) {
  make({});
  ASSERT_TRUE(store(tokens(20)));
  const auto lease = find(tokens(20));
  const WholePromptCache moved = std::move(*cache);
  EXPECT_EQ(store(tokens(20)).error().code(), Errc::wrong_state);
  EXPECT_FALSE(find(tokens(20)));
  EXPECT_FALSE(cache->touch(scope, tokens(20).tokens));
  EXPECT_EQ(cache->evict(1), 0U);
  cache->enable(true);
  cache->clear();
  EXPECT_FALSE(cache->config().enabled);
  EXPECT_EQ(stats().entries + stats().budget_mib, 0U);
  EXPECT_EQ(moved.statistics().entries, 1U);
  EXPECT_EQ(lease->bytes().size(), 100U);
}

TEST_F(PromptCache, ConfigurationCanBeReadBack) {
  make({});
  EXPECT_EQ(cache->config().max_entries, 100U);
  EXPECT_EQ(cache->config().min_tokens, 8U);
  EXPECT_EQ(cache->config().budget_mib, 512U);
  EXPECT_TRUE(cache->config().enabled);
  make({.budget_mib = 3, .enabled = false, .min_tokens = 4, .max_entries = 50});
  EXPECT_EQ(cache->config().max_entries, 50U);
  EXPECT_EQ(cache->config().min_tokens, 4U);
  EXPECT_EQ(cache->config().budget_mib, 3U);
  EXPECT_FALSE(cache->config().enabled);
  cache->enable(true);
  EXPECT_TRUE(cache->config().enabled);
}

TEST_F(PromptCache, StoredPromptIsFoundWithItsBytesAndLogits) {
  make({.min_tokens = 2});
  ASSERT_TRUE(store(tokens(3), 7, 100, {0.5F, -1}));
  const auto lease = find(tokens(3));
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->exact());
  EXPECT_TRUE(std::ranges::equal(lease->key(), tokens(3).tokens));
  EXPECT_TRUE(std::ranges::equal(lease->bytes(), Bytes(100, 7)));
  EXPECT_TRUE(std::ranges::equal(lease->logits(), std::vector<float>{0.5F, -1}));
}

TEST_F(PromptCache, LongerQueryFindsTheStoredPromptAndIsNoExactHit) {
  make({.min_tokens = 2});
  ASSERT_TRUE(store(tokens(3), 7, 100, {1}));
  const auto lease = find(tokens(4));
  ASSERT_TRUE(lease);
  EXPECT_FALSE(lease->exact());
  EXPECT_TRUE(std::ranges::equal(lease->key(), tokens(3).tokens));
  EXPECT_FALSE(find(tokens(2)));
  EXPECT_FALSE(find(tokens(2) + tokens(2, 5)));
}

TEST_F(PromptCache, LongestStoredPromptWins) {
  make({.min_tokens = 1});
  for (uint32_t length : {5U, 16U, 17U, 40U}) ASSERT_TRUE(store(tokens(length)));
  for (uint32_t length = 1; length < 50; ++length) {
    const size_t expected = length >= 40 ? 40 : length >= 17 ? 17 : length >= 16 ? 16 : 5;
    EXPECT_EQ(found(tokens(length)), length < 5 ? 0 : expected) << length;
    if (length < 5) continue;
    EXPECT_EQ(find(tokens(length))->exact(), expected == length);
  }
}

TEST_F(PromptCache, ShortPromptsAreNeitherStoredNorFound) {
  make({.min_tokens = 5});
  ASSERT_TRUE(store(tokens(2)));
  EXPECT_EQ(stats().entries, 0U);
  EXPECT_FALSE(find(tokens(2)));
  EXPECT_EQ(stats().short_queries, 1U);
  EXPECT_EQ(stats().misses, 0U);
}

TEST_F(PromptCache, RoomForTwoKeepsTheTwoUsedLast) {
  make({.min_tokens = 1, .max_entries = 2});
  ASSERT_TRUE(store(tokens(9, 1)));
  ASSERT_TRUE(store(tokens(9, 2)));
  EXPECT_TRUE(find(tokens(9, 1)));
  ASSERT_TRUE(store(tokens(9, 3)));
  EXPECT_TRUE(find(tokens(9, 1)));
  EXPECT_FALSE(find(tokens(9, 2)));
  EXPECT_TRUE(find(tokens(9, 3)));
  EXPECT_EQ(stats().evictions, 1U);
}

TEST_F(PromptCache, OneHitAndOneMissAreCountedAsSuch) {
  make({.min_tokens = 1});
  EXPECT_EQ(stats().hit_rate(), 0.0);
  ASSERT_TRUE(store(tokens(9)));
  EXPECT_TRUE(find(tokens(9)));
  EXPECT_FALSE(find(tokens(9, 2)));
  EXPECT_EQ(stats().hits, 1U);
  EXPECT_EQ(stats().misses, 1U);
  EXPECT_EQ(stats().hit_rate(), 0.5);
  EXPECT_EQ(stats().entries, 1U);
  EXPECT_EQ(stats().reused_tokens, 9U);
}

TEST_F(PromptCache, EveryLookupCountsInExactlyOneClass) {
  make({.min_tokens = 5});
  ASSERT_TRUE(store(tokens(9)));
  find(tokens(9));
  find(tokens(12));
  find(tokens(9, 2));
  find(tokens(3));
  find(of({}));
  find(of({1, 2, 3, 4, kTokenLimit}));
  cache->enable(false);
  find(tokens(9));
  find(tokens(3));
  const Statistics all = stats();
  EXPECT_EQ(all.hits, 2U);
  EXPECT_EQ(all.exact_hits, 1U);
  EXPECT_EQ(all.misses, 2U);
  EXPECT_EQ(all.short_queries, 2U);
  EXPECT_EQ(all.bypassed, 2U);
  EXPECT_DOUBLE_EQ(all.hit_rate(), 2.0 / 6);
}

TEST_F(PromptCache, EvictingByNumberStopsWhenNothingIsLeft) {
  make({});
  for (uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(store(tokens(9, i)));
  EXPECT_EQ(cache->evict(0), 0U);
  EXPECT_EQ(cache->evict(2), 2U);
  EXPECT_TRUE(find(tokens(9, 3)));
  EXPECT_EQ(cache->evict(5), 1U);
  EXPECT_EQ(cache->evict(5), 0U);
  EXPECT_EQ(stats().evictions, 3U);
  EXPECT_EQ(stats().tokens, 0U);
}

TEST_F(PromptCache, ClearForgetsEverythingAndZeroesTheCounters) {
  make({.max_entries = 2});
  for (uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(store(tokens(9, i)));
  EXPECT_FALSE(store(tokens(9, 4), 1, 600 * kMib));
  find(tokens(9, 3));
  find(tokens(9, 7));
  find(tokens(1));
  cache->clear();
  const Statistics all = stats();
  EXPECT_EQ(all.hits + all.misses + all.short_queries + all.exact_hits + all.reused_tokens, 0U);
  EXPECT_EQ(all.entries + all.tokens + all.bytes + all.evictions + all.refused, 0U);
  EXPECT_FALSE(find(tokens(9, 3)));
  ASSERT_TRUE(store(tokens(9, 3)));
  EXPECT_TRUE(find(tokens(9, 3)));
}

TEST_F(PromptCache, LeaseSurvivesEverything) {
  make({.min_tokens = 1, .max_entries = 2});
  ASSERT_TRUE(store(tokens(9), 5));
  auto lease = find(tokens(9));
  ASSERT_TRUE(store(tokens(9), 6));  // Replaced,
  EXPECT_EQ(cache->evict(9), 1U);    // evicted,
  cache->clear();                    // forgotten,
  EXPECT_EQ(stats().bytes, 100U) << "what is leased is still in use";
  cache.reset();  // and even without its cache.
  EXPECT_TRUE(std::ranges::equal(lease->bytes(), Bytes(100, 5)));
  WholePromptCache::Lease moved = std::move(*lease);
  EXPECT_TRUE(std::ranges::equal(moved.bytes(), Bytes(100, 5)));
  moved.release();
  moved.release();
  EXPECT_TRUE(moved.bytes().empty() && moved.key().empty() && !moved.exact());
}

TEST_F(PromptCache, ReleasedEntriesCanGo) {
  make({.min_tokens = 1, .max_entries = 1});
  ASSERT_TRUE(store(tokens(9, 1)));
  auto lease = find(tokens(9, 1));
  const Result<void> refused = store(tokens(9, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Errc::out_of_blocks);
  EXPECT_EQ(cache->evict(1), 0U);
  lease->release();
  ASSERT_TRUE(store(tokens(9, 2)));
  EXPECT_FALSE(find(tokens(9, 1)));
}

TEST_F(PromptCache, NewerReplacesOlderAndCountsOnce) {
  make({.min_tokens = 1});
  ASSERT_TRUE(store(tokens(9), 1, 500, {1, 2}));
  ASSERT_TRUE(store(tokens(9), 2, 300, {3}));
  EXPECT_EQ(stats().entries, 1U);
  EXPECT_EQ(stats().bytes, 304U);
  EXPECT_EQ(stats().tokens, 9U);
  const auto lease = find(tokens(9));
  EXPECT_TRUE(std::ranges::equal(lease->bytes(), Bytes(300, 2)));
  EXPECT_TRUE(std::ranges::equal(lease->logits(), std::vector<float>{3}));
}

TEST_F(PromptCache, DamagedEntryIsForgottenAndTheNextBestServes) {
  make({.min_tokens = 1});
  ASSERT_TRUE(store(tokens(9), 1));
  ASSERT_TRUE(store(tokens(20), 2));
  {
    const auto lease = find(tokens(30));
    ASSERT_EQ(lease->key().size(), 20U);
    const_cast<uint8_t&>(lease->bytes()[50]) ^= 1;  // NOLINT: what no caller may do.
  }
  EXPECT_EQ(found(tokens(30)), 9U);
  EXPECT_EQ(stats().corrupt, 1U);
  EXPECT_EQ(stats().entries, 1U);
  EXPECT_EQ(stats().hits, 2U);
  EXPECT_EQ(stats().misses, 0U);
  ASSERT_TRUE(store(tokens(20), 3));
  EXPECT_EQ(found(tokens(30)), 20U);
}

TEST_F(PromptCache, NothingKeptMeansNothing) {
  make({.min_tokens = 1, .max_entries = 0});
  EXPECT_FALSE(store(tokens(9)));
  EXPECT_FALSE(find(tokens(9)));
  make({.budget_mib = 0, .min_tokens = 1});
  EXPECT_EQ(store(tokens(9)).error().code(), Errc::out_of_range);
  EXPECT_FALSE(find(tokens(9)));
  EXPECT_EQ(stats().entries, 0U);
}

TEST_F(PromptCache, BadPromptsAreRefused) {
  make({.min_tokens = 0});
  EXPECT_EQ(store(of({1, kTokenLimit, 3})).error().code(), Errc::invalid_argument);
  EXPECT_EQ(store(tokens(9), 1, 0).error().code(), Errc::invalid_argument);
  EXPECT_TRUE(store(of({})));
  EXPECT_FALSE(find(of({})));
  EXPECT_FALSE(find(of({1, kTokenLimit, 3})));
  EXPECT_FALSE(cache->touch(scope, of({kTokenLimit}).tokens));
  EXPECT_EQ(stats().entries, 0U);
  EXPECT_FALSE(WholePromptCache::create({.max_entries = ~0U}));
}

TEST_F(PromptCache, LookupDoesNotGrowWithTheNumberOfEntries) {
  const auto best_ns = [&](uint32_t entries) {
    make({.max_entries = 50'001});
    EXPECT_TRUE(store(tokens(512, 1)));
    for (uint32_t i = 0; i < entries; ++i) {
      Text other = tokens(40, 2);
      other.tokens[0] = i * 2;
      EXPECT_TRUE(store(other, 1, 1));
    }
    auto best = std::chrono::nanoseconds::max();
    for (int i = 0; i < 2000; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(found(tokens(512, 1)), 512U);
      best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    }
    return best.count();
  };
  const auto few = best_ns(10);
  const auto many = best_ns(50'000);
  EXPECT_LT(many, 10 * few) << "five thousand times the entries";
}

#ifdef STEMMA_TSAN
constexpr int kRounds = 300;
#else
constexpr int kRounds = 3000;
#endif

// Every thread's bytes identify their prompt, so a wrong answer is noticed.
TEST_F(PromptCache, ManyThreadsFindOnlyWhatIsRight) {
  make({.budget_mib = 1, .min_tokens = 1, .max_entries = 12});
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> looked{0};
  const auto work = [&](uint32_t thread) {
    std::optional<WholePromptCache::Lease> kept;
    for (int i = 0; i < kRounds; ++i) {
      const uint32_t seed = 1 + (thread * 7 + static_cast<uint32_t>(i)) % 20;
      switch (i % 5) {
        case 0: (void)store(tokens(20, seed), static_cast<uint8_t>(seed), 1000 * seed); break;
        case 1:
        case 2: {
          ++looked;
          auto lease = find(tokens(25, seed));
          if (!lease) break;
          const Bytes right(1000 * seed, static_cast<uint8_t>(seed));
          if (lease->exact() || !std::ranges::equal(lease->bytes(), right)) ++wrong;
          kept = std::move(lease);
          break;
        }
        case 3:
          if (kept && kept->bytes().empty()) ++wrong;
          if (thread % 2 == 0) kept.reset();
          break;
        default:
          if (i % 50 == 4) cache->evict(2);
          if (i % 500 == 9) cache->enable(i % 1000 == 9);
          if (stats().bytes > kMib) ++wrong;
      }
    }
    cache->enable(true);
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0U);
  const Statistics all = stats();
  EXPECT_EQ(all.hits + all.misses + all.bypassed, looked);
  cache->evict(100);
  EXPECT_EQ(stats().bytes, 0U) << "every lease has ended";
}

// ---- System 4 -----------------------------------------------------------------------------------

TEST_F(PromptCache, BudgetIsInBytesThatAreReallyThere) {
  make({.budget_mib = 2, .min_tokens = 1});
  for (uint32_t i = 1; i <= 4; ++i) ASSERT_TRUE(store(tokens(9, i), 1, kMib - 400));
  const Statistics all = stats();
  EXPECT_EQ(all.entries, 2U);
  EXPECT_EQ(all.bytes, 2 * (kMib - 400));
  EXPECT_EQ(all.used_mib, 1U);
  EXPECT_EQ(all.budget_mib, 2U);
  EXPECT_EQ(all.evictions, 2U);
  EXPECT_GT(all.index_bytes, 0U);
  // Logits count: four bytes each.
  ASSERT_TRUE(store(tokens(9, 5), 1, kMib - 400, std::vector<float>(100, 1)));
  EXPECT_EQ(stats().bytes, 2 * kMib - 400);
  ASSERT_TRUE(store(tokens(9, 6), 1, kMib - 400, std::vector<float>(101, 1)));
  EXPECT_EQ(stats().entries, 1U);
}

TEST_F(PromptCache, SwitchedOffItFindsAndStoresNothing) {
  make({.enabled = false, .min_tokens = 1});
  ASSERT_TRUE(store(tokens(9)));
  EXPECT_EQ(stats().entries, 0U);
  cache->enable(true);
  ASSERT_TRUE(store(tokens(9)));
  cache->enable(false);
  EXPECT_FALSE(find(tokens(9)));
  cache->enable(true);
  EXPECT_TRUE(find(tokens(9))) << "what was there has stayed";
}

TEST_F(PromptCache, FindingAndTouchingMakeAnEntryTheLastToGo) {
  make({.min_tokens = 1});
  for (uint32_t i = 1; i <= 3; ++i) ASSERT_TRUE(store(tokens(9, i)));
  EXPECT_TRUE(find(tokens(9, 1)));
  EXPECT_TRUE(cache->touch(scope, tokens(9, 2).tokens));
  EXPECT_FALSE(cache->touch(scope, tokens(10, 2).tokens));
  EXPECT_FALSE(cache->touch(scope, tokens(9, 4).tokens));
  EXPECT_EQ(cache->evict(1), 1U);
  EXPECT_FALSE(find(tokens(9, 3)));
  EXPECT_EQ(cache->evict(1), 1U);
  EXPECT_FALSE(find(tokens(9, 1)));
  EXPECT_TRUE(find(tokens(9, 2)));
}

TEST_F(PromptCache, TooLargeIsRefusedAndCostsNobody) {
  make({.budget_mib = 1, .min_tokens = 1});
  ASSERT_TRUE(store(tokens(9, 1), 1, kMib / 2));
  EXPECT_EQ(store(tokens(9, 2), 1, kMib + 1).error().code(), Errc::out_of_range);
  {
    const auto lease = find(tokens(9, 1));
    EXPECT_EQ(store(tokens(9, 2), 1, kMib / 2 + 1).error().code(), Errc::out_of_blocks);
  }
  EXPECT_EQ(stats().refused, 2U);
  EXPECT_EQ(stats().evictions, 0U);
  EXPECT_TRUE(find(tokens(9, 1)));
}

TEST_F(PromptCache, ScopesShareNothing) {
  make({.min_tokens = 1});
  ASSERT_TRUE(store(tokens(9)));
  EXPECT_FALSE(cache->find(*Scope::make({.model = "m", .tenant_salt = "x"}), tokens(9).tokens));
  EXPECT_TRUE(find(tokens(9)));
}

}  // namespace
}  // namespace stemma::test
