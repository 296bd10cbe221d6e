// Mistakes that earlier caches of whole prompts made, checked on ours and on the naive caches. Each
// check is one template. The naive cache must fail it, or the check would notice nothing.
#include <gtest/gtest.h>

#include <string>

#include "stemma/whole_prompt.h"
#include "support/naive_prompt_cache.h"
#include "support/numbers.h"
#include "support/text.h"

namespace stemma::test {
namespace {

PromptTokens prompt_of(uint32_t seed, uint32_t count = 10) { return tokens(count, seed).tokens; }
PromptBytes bytes_of(uint8_t fill, size_t count = 100) { return PromptBytes(count, fill); }

// Our cache, under the interface of the checks.
class OurCache {
 public:
  explicit OurCache(uint32_t most = 100)
      : cache_(*WholePromptCache::create({.budget_mib = 1, .min_tokens = 1, .max_entries = most})) {
  }

  struct Hit {
    WholePromptCache::Lease lease;
    PromptBytes loaded;  // An engine loads a state; it cannot decode into a span of const bytes.

    bool still_there() const {
      return std::ranges::equal(lease.bytes(), PromptBytes(lease.bytes().size(), loaded[0]));
    }
    PromptBytes& sequence() { return loaded; }
  };
  void store(const PromptTokens& prompt, const PromptBytes& bytes) {
    (void)cache_.store(scope_, prompt, bytes);
  }
  std::optional<Hit> find(const PromptTokens& prompt) {
    auto lease = cache_.find(scope_, prompt);
    if (!lease || !lease->exact()) return std::nullopt;
    PromptBytes loaded(lease->bytes().begin(), lease->bytes().end());
    return Hit{std::move(*lease), std::move(loaded)};
  }
  uint32_t evict(uint32_t n) { return cache_.evict(n); }
  uint64_t bytes() const { return cache_.statistics().bytes; }
  uint64_t entries() const { return cache_.statistics().entries; }

 private:
  Scope scope_ = *Scope::make({.model = "m"});
  WholePromptCache cache_;
};

// W2.2: nothing of a hit goes while it is in use.
template <class Cache>
bool hit_outlives_eviction(Cache cache) {
  cache.store(prompt_of(1), bytes_of(1));
  const auto hit = cache.find(prompt_of(1));
  cache.evict(1);
  cache.store(prompt_of(2), bytes_of(2));
  return hit->still_there();
}

TEST(PromptCacheLessons, HitOutlivesEviction) {
  EXPECT_FALSE(hit_outlives_eviction(NaiveCountedCache(1)));
  EXPECT_TRUE(hit_outlives_eviction(OurCache(2)));
}

// W2.3: idle entries go before entries in use, however often they were stored.
template <class Cache>
bool idle_goes_before_used(Cache cache) {
  cache.store(prompt_of(1), bytes_of(1));
  for (int i = 0; i < 5; ++i) cache.store(prompt_of(2), bytes_of(2));
  const auto in_use = cache.find(prompt_of(1));
  cache.find(prompt_of(2));  // Used later, but no longer in use.
  cache.evict(1);
  return in_use->still_there() && !cache.find(prompt_of(2));
}
// And in the end everything can go.
template <class Cache>
bool everything_can_go(Cache cache) {
  for (int i = 0; i < 5; ++i) cache.store(prompt_of(1), bytes_of(1));
  cache.find(prompt_of(1));
  return cache.evict(5) == 1 && cache.evict(1) == 0 && !cache.find(prompt_of(1));
}

TEST(PromptCacheLessons, IdleEntriesGoBeforeThoseInUse) {
  EXPECT_FALSE(idle_goes_before_used(NaiveCountedCache(10)));
  EXPECT_TRUE(idle_goes_before_used(OurCache()));
  EXPECT_TRUE(everything_can_go(OurCache()));
}

// W2.4: the entry stored last is the one found.
template <class Cache>
bool newer_replaces_older(Cache cache) {
  cache.store(prompt_of(1), bytes_of(1));
  cache.store(prompt_of(1), bytes_of(2, 70));
  return cache.find(prompt_of(1))->sequence() == bytes_of(2, 70);
}

TEST(PromptCacheLessons, NewerReplacesOlder) {
  EXPECT_FALSE(newer_replaces_older(NaiveCountedCache(10)));
  EXPECT_TRUE(newer_replaces_older(OurCache()));
}

// W2.5: decoding behind a hit changes no cached prompt: three requests get the same answer.
template <class Cache>
bool three_requests_see_the_same(Cache cache) {
  cache.store(prompt_of(1), bytes_of(1));
  for (int request = 0; request < 3; ++request) {
    auto hit = cache.find(prompt_of(1));
    if (hit->sequence() != bytes_of(1)) return false;
    for (uint8_t& byte : hit->sequence()) byte = 99;
  }
  return true;
}

TEST(PromptCacheLessons, DecodingBehindAHitHarmsNobody) {
  EXPECT_FALSE(three_requests_see_the_same(NaiveCountedCache(10)));
  EXPECT_TRUE(three_requests_see_the_same(OurCache()));
}

// W4.1: a hit returns what was stored.
template <class Cache>
bool hit_has_the_bytes(Cache cache) {
  cache.store(prompt_of(1), bytes_of(7));
  auto hit = cache.find(prompt_of(1));
  return hit && hit->sequence() == bytes_of(7);
}

TEST(PromptCacheLessons, HitHasTheBytes) {
  EXPECT_FALSE(hit_has_the_bytes(NaiveShellCache(kMib)));
  EXPECT_TRUE(hit_has_the_bytes(OurCache()));
}

// W4.4: storing again counts once, and leaves no phantom behind when it goes.
template <class Cache>
bool stored_twice_counts_once(Cache cache) {
  cache.store(prompt_of(1), bytes_of(1));
  const uint64_t once = cache.bytes();
  cache.store(prompt_of(1), bytes_of(1));
  if (cache.bytes() != once || cache.entries() != 1) return false;
  cache.store(prompt_of(2), bytes_of(2));
  return cache.evict(3) == 2 && cache.bytes() == 0 && cache.entries() == 0;
}

TEST(PromptCacheLessons, StoredTwiceCountsOnce) {
  EXPECT_FALSE(stored_twice_counts_once(NaiveShellCache(kMib)));
  EXPECT_TRUE(stored_twice_counts_once(OurCache()));
}

// W4.10: an entry that is too large evicts nothing.
template <class Cache>
bool too_large_costs_nothing(Cache cache) {
  for (uint32_t i = 1; i <= 5; ++i) cache.store(prompt_of(i), bytes_of(1));
  cache.store(prompt_of(9, 300'000), bytes_of(2, 2 * kMib));
  for (uint32_t i = 1; i <= 5; ++i) {
    if (!cache.find(prompt_of(i))) return false;
  }
  return !cache.find(prompt_of(9, 300'000));
}

TEST(PromptCacheLessons, TooLargeCostsNothing) {
  EXPECT_FALSE(too_large_costs_nothing(NaiveShellCache(kMib)));
  EXPECT_TRUE(too_large_costs_nothing(OurCache()));
}

}  // namespace
}  // namespace stemma::test
