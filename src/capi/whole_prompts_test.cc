// Whole prompts through C: the same answers as C++, a status for every mistake, and leases that
// outlive their cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "stemma/whole_prompt.h"
#include "support/c_cache.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

constexpr stemma_status kInvalid = STEMMA_INVALID_ARGUMENT;

class WholePromptsInC : public ::testing::Test {
 protected:
  void SetUp() override {
    options.budget_mib = 1;
    options.max_entries = 8;
    ASSERT_OK(stemma_whole_prompts_create(&options, &cache));
  }
  void TearDown() override {
    if (cache != nullptr) {
      EXPECT_OK(stemma_whole_prompts_destroy(cache, STEMMA_ON_BUSY_REFUSE));
    }
  }
  stemma_status store(const std::vector<uint32_t>& prompt, const std::vector<uint8_t>& state) {
    return stemma_whole_prompts_store(cache, &scope, prompt.data(), prompt.size(), state.data(),
                                      state.size(), nullptr, 0);
  }
  stemma_prompt_lease find(const std::vector<uint32_t>& prompt) {
    stemma_prompt_lease lease = 7;
    EXPECT_OK(
        stemma_whole_prompts_find(cache, &scope, prompt.data(), prompt.size(), &lease, &found));
    return lease;
  }
  stemma_whole_prompt_stats stats() {
    stemma_whole_prompt_stats s{};
    s.struct_size = sizeof s;
    EXPECT_OK(stemma_whole_prompts_stats(cache, &s));
    return s;
  }

  stemma_whole_prompt_options options = STEMMA_WHOLE_PROMPT_OPTIONS_INIT;
  stemma_scope scope = c_scope();
  stemma_whole_prompts* cache = nullptr;
  stemma_stored_prompt found{};
  std::vector<uint32_t> words = tokens(20).tokens;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(100, 5);
};

TEST_F(WholePromptsInC, LeaseKeepsWhatItFoundWhateverHappens) {
  ASSERT_OK(store(words, bytes));
  const stemma_prompt_lease lease = find(tokens(30).tokens);
  ASSERT_NE(lease, 0U);
  EXPECT_EQ(found.token_count, 20U);
  EXPECT_EQ(found.exact, 0U);
  EXPECT_EQ(found.logits, nullptr);
  ASSERT_OK(store(words, std::vector<uint8_t>(50, 6)));
  uint32_t evicted = 0;
  ASSERT_OK(stemma_whole_prompts_evict(cache, 10, &evicted));
  EXPECT_EQ(evicted, 1U);
  ASSERT_OK(stemma_whole_prompts_clear(cache));
  EXPECT_REFUSED(STEMMA_BUSY, "(1)", stemma_whole_prompts_destroy, cache, STEMMA_ON_BUSY_REFUSE);
  ASSERT_OK(stemma_whole_prompts_destroy(cache, STEMMA_ON_BUSY_DEFER));
  EXPECT_REFUSED(STEMMA_STALE, "destroyed", stemma_whole_prompts_clear, cache);
  cache = nullptr;
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), found.bytes, found.bytes + found.size));
  EXPECT_TRUE(std::equal(words.begin(), words.end(), found.tokens));
  EXPECT_OK(stemma_prompt_lease_release(lease));
  EXPECT_REFUSED(STEMMA_STALE, "released", stemma_prompt_lease_release, lease);
}

TEST_F(WholePromptsInC, NothingFoundIsAnAnswer) {
  found.size = 9;
  EXPECT_EQ(find(words), 0U);
  EXPECT_EQ(found.size, 0U);
  ASSERT_OK(store(words, bytes));
  ASSERT_OK(stemma_whole_prompts_enable(cache, 0));
  EXPECT_EQ(find(words), 0U);
  ASSERT_OK(stemma_whole_prompts_enable(cache, 1));
  const stemma_prompt_lease lease = find(words);
  EXPECT_NE(lease, 0U);
  EXPECT_EQ(found.exact, 1U);
  EXPECT_OK(stemma_prompt_lease_release(lease));
  EXPECT_EQ(stats().bypassed, 1U);
}

TEST_F(WholePromptsInC, MistakesAreNamedAndChangeNothing) {
  ASSERT_OK(store(words, bytes));
  stemma_whole_prompts* other = nullptr;
  stemma_prompt_lease lease = 7;
  const float logit = 0;
  const uint32_t* w = words.data();
  const uint8_t* b = bytes.data();
  options.struct_size = 5;
  EXPECT_REFUSED(kInvalid, "struct_size of", stemma_whole_prompts_create, &options, &other);
  options = STEMMA_WHOLE_PROMPT_OPTIONS_INIT;
  options.enabled = 2;
  EXPECT_REFUSED(kInvalid, "options.enabled", stemma_whole_prompts_create, &options, &other);
  options = STEMMA_WHOLE_PROMPT_OPTIONS_INIT;
  options.reserved = 1;
  EXPECT_REFUSED(kInvalid, "options.reserved", stemma_whole_prompts_create, &options, &other);
  EXPECT_REFUSED(kInvalid, "out is null", stemma_whole_prompts_create, nullptr, nullptr);
  EXPECT_REFUSED(kInvalid, "on_busy", stemma_whole_prompts_destroy, cache, 2);
  EXPECT_REFUSED(kInvalid, "on is", stemma_whole_prompts_enable, cache, 2);
  EXPECT_REFUSED(kInvalid, "lease is null", stemma_whole_prompts_find, cache, &scope, w, 20,
                 nullptr, &found);
  EXPECT_REFUSED(kInvalid, "found is null", stemma_whole_prompts_find, cache, &scope, w, 20, &lease,
                 nullptr);
  EXPECT_REFUSED(kInvalid, "scope is null", stemma_whole_prompts_find, cache, nullptr, w, 20,
                 &lease, &found);
  EXPECT_REFUSED(kInvalid, "tokens is null", stemma_whole_prompts_find, cache, &scope, nullptr, 20,
                 &lease, &found);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "token_count", stemma_whole_prompts_find, cache, &scope, w,
                 ~size_t{0}, &lease, &found);
  EXPECT_REFUSED(kInvalid, "scope is null", stemma_whole_prompts_store, cache, nullptr, w, 20, b, 1,
                 nullptr, 0);
  EXPECT_REFUSED(kInvalid, "tokens is null", stemma_whole_prompts_store, cache, &scope, nullptr, 20,
                 b, 1, nullptr, 0);
  EXPECT_REFUSED(kInvalid, "bytes is null", stemma_whole_prompts_store, cache, &scope, w, 20,
                 nullptr, 1, nullptr, 0);
  EXPECT_REFUSED(kInvalid, "", stemma_whole_prompts_store, cache, &scope, w, 20, b, 0, nullptr, 0);
  EXPECT_REFUSED(kInvalid, "logits is null", stemma_whole_prompts_store, cache, &scope, w, 20, b, 1,
                 nullptr, 1);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "size", stemma_whole_prompts_store, cache, &scope, w, 20, b,
                 ~size_t{0}, nullptr, 0);
  EXPECT_REFUSED(STEMMA_OUT_OF_RANGE, "logit_count", stemma_whole_prompts_store, cache, &scope, w,
                 20, b, 1, &logit, ~size_t{0});
  EXPECT_EQ(store(words, std::vector<uint8_t>(2 << 20)), STEMMA_OUT_OF_RANGE);
  EXPECT_REFUSED(kInvalid, "scope is null", stemma_whole_prompts_touch, cache, nullptr, w, 20,
                 nullptr);
  EXPECT_REFUSED(kInvalid, "out is null", stemma_whole_prompts_stats, cache, nullptr);
  stemma_whole_prompt_stats s{};
  EXPECT_REFUSED(kInvalid, "struct_size of", stemma_whole_prompts_stats, cache, &s);
  EXPECT_REFUSED(kInvalid, "lease is 0", stemma_prompt_lease_release, 0);
  EXPECT_REFUSED(kInvalid, "no lease", stemma_prompt_lease_release, 12345);
  EXPECT_REFUSED(kInvalid, "no lease", stemma_prompt_lease_release, ~uint64_t{0});
  stemma_whole_prompts* const foreign = reinterpret_cast<stemma_whole_prompts*>(&s);
  for (stemma_whole_prompts* none : {static_cast<stemma_whole_prompts*>(nullptr), foreign}) {
    const char* why = none == nullptr ? "cache is null" : "no stemma_whole_prompts";
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_destroy, none, 0);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_enable, none, 0);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_find, none, &scope, w, 20, &lease, &found);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_store, none, &scope, w, 20, b, 1, nullptr,
                   0);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_touch, none, &scope, w, 20, nullptr);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_evict, none, 1, nullptr);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_clear, none);
    EXPECT_REFUSED(kInvalid, why, stemma_whole_prompts_stats, none, &s);
  }
  EXPECT_EQ(other, nullptr);
  EXPECT_EQ(lease, 7U);
  EXPECT_EQ(stats().entries, 1U);
  EXPECT_EQ(stats().hits + stats().misses, 0U);
}

TEST_F(WholePromptsInC, GiveTheAnswersOfCpp) {
  WholePromptCache cpp = ok(WholePromptCache::create({.budget_mib = 1, .max_entries = 8}));
  const Scope cpp_scope = scope_of({.model = "model"});
  struct Pair {
    WholePromptCache::Lease cpp;
    stemma_prompt_lease c;
  };
  std::vector<Pair> leases;
  std::mt19937 rng(5);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(rng() % limit); };
  for (int step = 0; step < 3000; ++step) {
    SCOPED_TRACE(step);
    std::vector<uint32_t> prompt = tokens(1 + below(40), 1 + below(2)).tokens;
    if (below(3) == 0) prompt[below(static_cast<uint32_t>(prompt.size()))] = below(3);
    if (below(50) == 0) prompt.back() = STEMMA_TOKEN_LIMIT;
    uint32_t c = 0;
    switch (below(8)) {
      case 0:
      case 1:
      case 2: {
        const std::vector<uint8_t> state(below(20) == 0 ? 400'000 : 1 + below(500),
                                         static_cast<uint8_t>(step));
        const std::vector<float> logits(below(4), static_cast<float>(step));
        const Result<void> done = cpp.store(cpp_scope, prompt, state, logits);
        ASSERT_EQ(
            stemma_whole_prompts_store(cache, &scope, prompt.data(), prompt.size(), state.data(),
                                       state.size(), logits.data(), logits.size()),
            done ? STEMMA_OK : static_cast<stemma_status>(done.error().code()));
        break;
      }
      case 3:
        ASSERT_OK(stemma_whole_prompts_touch(cache, &scope, prompt.data(), prompt.size(), &c));
        ASSERT_EQ(c != 0, cpp.touch(cpp_scope, prompt));
        break;
      case 4:
        if (below(5) != 0) break;
        ASSERT_OK(stemma_whole_prompts_evict(cache, 2, &c));
        ASSERT_EQ(c, cpp.evict(2));
        break;
      case 5:
        if (leases.empty()) break;
        ASSERT_OK(stemma_prompt_lease_release(leases.front().c));
        leases.erase(leases.begin());
        break;
      default: {
        std::optional<WholePromptCache::Lease> got = cpp.find(cpp_scope, prompt);
        const stemma_prompt_lease lease = find(prompt);
        ASSERT_EQ(lease != 0, got.has_value());
        if (!got) break;
        ASSERT_TRUE(std::equal(got->key().begin(), got->key().end(), found.tokens,
                               found.tokens + found.token_count));
        ASSERT_TRUE(std::equal(got->bytes().begin(), got->bytes().end(), found.bytes,
                               found.bytes + found.size));
        ASSERT_TRUE(std::equal(got->logits().begin(), got->logits().end(), found.logits,
                               found.logits + found.logit_count));
        ASSERT_EQ(found.exact != 0, got->exact());
        leases.push_back({*std::move(got), lease});
      }
    }
    const stemma_whole_prompt_stats s = stats();
    const WholePromptCache::Statistics t = cpp.statistics();
    ASSERT_EQ(s.hits, t.hits);
    ASSERT_EQ(s.misses, t.misses);
    ASSERT_EQ(s.short_queries, t.short_queries);
    ASSERT_EQ(s.bypassed, t.bypassed);
    ASSERT_EQ(s.exact_hits, t.exact_hits);
    ASSERT_EQ(s.reused_tokens, t.reused_tokens);
    ASSERT_EQ(s.evictions, t.evictions);
    ASSERT_EQ(s.refused, t.refused);
    ASSERT_EQ(s.corrupt, t.corrupt);
    ASSERT_EQ(s.entries, t.entries);
    ASSERT_EQ(s.tokens, t.tokens);
    ASSERT_EQ(s.bytes, t.bytes);
    ASSERT_EQ(s.used_mib, t.used_mib);
    ASSERT_EQ(s.budget_mib, t.budget_mib);
  }
  EXPECT_GT(stats().exact_hits, 10U);
  for (const Pair& pair : leases) EXPECT_OK(stemma_prompt_lease_release(pair.c));
}

TEST_F(WholePromptsInC, ThreadsFindAndStoreAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<uint64_t> hits{0};
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(t);
      for (int i = 0; i < 300; ++i) {
        const std::vector<uint32_t> prompt = tokens(10 + rng() % 3, 1 + rng() % 3).tokens;
        const std::vector<uint8_t> state(50, static_cast<uint8_t>(prompt.size()));
        ASSERT_OK(store(prompt, state));
        stemma_prompt_lease lease = 0;
        stemma_stored_prompt what{};
        ASSERT_OK(
            stemma_whole_prompts_find(cache, &scope, prompt.data(), prompt.size(), &lease, &what));
        if (lease == 0) continue;
        ++hits;
        ASSERT_EQ(what.bytes[0], what.token_count);
        ASSERT_OK(stemma_prompt_lease_release(lease));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits.load(), 100U);
}

}  // namespace
}  // namespace stemma::test
