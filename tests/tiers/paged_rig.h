// A PagedCache of a fake engine over one tier that fails when told to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/paged_tiers.h"
#include "support/cache_fixture.h"
#include "support/fake_engine.h"
#include "tier/prompt_keys.h"

namespace stemma::test {

using tier::PagedTiers;
using tier::PagedTiersOptions;
using tier::Restored;
using tier::StackLevel;
using tier::StackOptions;
using tier::TierStack;
using tier::WritePolicy;

inline uint64_t soon() { return Clock::monotonic().now_ns() + 60'000'000'000; }

inline Text text_of(uint32_t count, uint32_t seed) {
  Text text;
  for (uint32_t i = 0; i < count; ++i) text.tokens.push_back(seed * 1000 + i);
  return text;
}

inline constexpr uint64_t kLayout = 7;  // How the tests' blocks are arranged.

class PagedTiersTest : public ::testing::Test {
 protected:
  void make(std::vector<GroupOptions> groups, StackOptions stack = {},
            WritePolicy policy = WritePolicy::write_through) {
    tiers.reset();
    cache.reset();
    groups_ = groups;
    engine = std::make_unique<FakeEngine>(groups);
    Options options = grouped(groups);
    options.block_io = engine.get();
    cache = std::make_unique<PagedCache>(ok(PagedCache::create(options)));
    auto below = make_tier ? make_tier() : ok(make_host_tier({.capacity_bytes = 32U << 20U}));
    auto faulty = std::make_unique<FaultyTier>(std::move(below), FaultPlan{});
    host = faulty.get();
    StackLevel level;
    level.tier = std::move(faulty);
    level.write = policy;
    // A long deadline: unless a test is about deadlines, a busy machine must not make a tier late.
    if (stack.query_ns == StackOptions{}.query_ns) stack.query_ns = 60'000'000'000;
    stack.levels.clear();
    stack.levels.push_back(std::move(level));
    tiers = ok(PagedTiers::create({.cache = cache.get(),
                                   .io = engine.get(),
                                   .groups = groups,
                                   .layout = kLayout,
                                   .keep_words = keep_words},
                                  ok(TierStack::create(std::move(stack)))));
  }
  void TearDown() override {
    if (cache == nullptr) return;
    EXPECT_TRUE(tiers->stack().flush(soon()));
    cache->check_invariants();
    EXPECT_EQ(cache->stats().leases, 0U);
  }

  // A whole request: restored, leased, computed, stored. Returns what it did not have to compute.
  uint32_t serve(const Text& text, const Scope& in, Restored* told = nullptr) {
    Restored restored = ok(tiers->restore(in, text));
    LeaseOptions options;
    if (chunk != 0) options.draft_tokens = 0;
    Lease lease = ok(cache->lease(in, text, options));
    restored.hold = {};
    if (told != nullptr) *told = std::move(restored);
    const Story story(in == scope ? 1 : 2, text);
    const uint32_t reused = lease.reused();
    if (!lease.copies().empty()) {
      EXPECT_EQ(engine->load(lease.copies(), story, reused), "");
      ok(lease.copies_done());
    }
    EXPECT_EQ(engine->verify(lease, story, reused), "");
    for (uint32_t at = reused; at < text.size();) {
      const uint32_t next =
          chunk == 0 ? text.size() : std::min(text.size(), at - at % chunk + chunk);
      if (make_room) ok(tiers->make_room(next - at));
      ok(lease.reserve(next));
      engine->compute(lease, at, next, story);
      ok(lease.commit(next));
      save_states(lease, story);
      if (store_along) ok(tiers->store(in, text, lease, at - at % chunk));
      at = next;
    }
    EXPECT_EQ(engine->verify(lease, story, lease.length()), "");
    if (!store_along) ok(tiers->store(in, text, lease));
    ok(lease.release());
    return reused;
  }
  void save_states(Lease& lease, const Story& story) {
    for (GroupIndex g = 0; g < groups_.size(); ++g) {
      if (groups_[g].attention != Attention::recurrent) continue;
      const Result<BlockId> slot = lease.draft_checkpoint(g);
      if (!slot) continue;  // Other threads hold all of them just now.
      engine->save_state(g, *slot, story, lease.committed());
      ok(lease.commit_checkpoint(g, lease.committed()));
    }
  }
  uint32_t serve(const Text& text, Restored* told = nullptr) { return serve(text, scope, told); }
  // Three threads serve nine prompts in turn, each with many endings. Returns the tokens that came
  // from tiers.
  uint64_t serve_at_once(uint32_t rounds) {
    std::atomic<uint64_t> restored_tokens{0};
    std::vector<std::thread> threads;
    for (uint32_t self = 0; self < 3; ++self) {
      threads.emplace_back([&, self] {
        for (uint32_t round = 0; round < rounds; ++round) {
          const uint32_t which = (self * 31 + round * 7) % 9;
          Restored told;
          serve(text_of(24, which) + text_of(round % 11, 100 + round), &told);
          restored_tokens += told.restored_tokens;
          told.hold = {};
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return restored_tokens;
  }
  void settle() { EXPECT_TRUE(tiers->stack().flush(soon())); }
  // The tier has lost the entry of a group that ends at that depth, on its grid of `block_tokens`.
  void lose(const Text& text, GroupIndex group, uint32_t block_tokens, uint32_t depth) {
    settle();
    tier::PromptKeys keys = ok(tier::PromptKeys::of(scope, text));
    const uint32_t blocks = depth / block_tokens;
    const bool state = groups_[group].attention == Attention::recurrent;
    const auto batch = ok(TierBatch::make(TierOp::remove, 1));
    batch->items()[0].key = entry_key(keys.chain(block_tokens, blocks)[blocks - 1],
                                      state ? EntryKind::checkpoint : EntryKind::block,
                                      static_cast<uint8_t>(group), kLayout);
    host->submit(batch);
    ASSERT_TRUE(batch->wait(soon()));
    ASSERT_EQ(batch->items()[0].outcome, TierOutcome::done);
  }
  // The device loses everything, as a process that starts again does.
  void forget() {
    settle();
    ok(cache->reset());
    for (GroupIndex g = 0; g < cache->stats().group_count; ++g) {
      for (uint32_t b = 0; b < cache->stats().groups[g].capacity_blocks; ++b)
        engine->poison_block(g, BlockId{b});
    }
  }
  uint64_t gets() const { return host->stats().gets; }
  uint64_t stored() const { return host->stats().entries; }

  const Scope scope = scope_of({.model = "a model"});
  const Scope other = scope_of({.model = "a model", .tenant_salt = "0123456789abcdef"});
  std::unique_ptr<FakeEngine> engine;
  std::unique_ptr<PagedCache> cache;
  FaultyTier* host = nullptr;
  std::unique_ptr<PagedTiers> tiers;
  uint32_t chunk = 0;        // Positions computed at a time; 0: all.
  bool store_along = false;  // After every chunk, not only at the end.
  bool make_room = false;    // Before every chunk.
  bool keep_words = false;
  std::function<std::unique_ptr<Tier>()> make_tier;  // None: of host memory, which keeps no words.

 private:
  std::vector<GroupOptions> groups_;
};

}  // namespace stemma::test
