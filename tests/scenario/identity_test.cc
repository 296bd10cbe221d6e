// Identity: which prompts may share, which never do, and the keys that tell them apart outside the
//           process.
#include <limits>
#include <string>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Identity : public PagedFixture {
 protected:
  // Whether what is cached under `a` is found under `b`.
  bool meet(const ScopeSpec& a, const ScopeSpec& b) {
    PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
    fill(cache, scope_of(a), tokens(40));
    const uint32_t found = hit(cache, scope_of(b), tokens(40));
    EXPECT_TRUE(found == 0 || found == 39);
    return found != 0;
  }
};

TEST_F(Identity, SaltedAndUnsaltedNeverMeet) {
  const ScopeSpec none{.model = "m"};
  const ScopeSpec red{.model = "m", .tenant_salt = "red red red red "};
  const ScopeSpec blue{.model = "m", .tenant_salt = "blue blue blue b"};
  EXPECT_TRUE(meet(red, red));
  EXPECT_TRUE(meet(none, none));
  EXPECT_FALSE(meet(red, blue));
  EXPECT_FALSE(meet(red, none));
  EXPECT_FALSE(meet(none, red));
}

TEST_F(Identity, AdapterAndSaltOfTheSameNameNeverMeet) {
  const ScopeSpec adapter{.model = "m", .adapters = {{.name = "X"}}};
  const ScopeSpec salt{.model = "m", .tenant_salt = "X"};
  const ScopeSpec space{.model = "m", .caller_namespace = "X"};
  EXPECT_FALSE(meet(adapter, salt));
  EXPECT_FALSE(meet(salt, adapter));
  EXPECT_FALSE(meet(salt, space));
  EXPECT_FALSE(meet(adapter, space));
}

TEST_F(Identity, AnythingThatChangesTheKvSeparates) {
  const ScopeSpec base{.model = "m",
                       .adapters = {{.name = "poet", .generation = 1, .scale = 0.5}},
                       .kv_types = "f16/f16",
                       .layout = "a",
                       .rope_and_window = "1e6",
                       .state_format = 1,
                       .tenant_salt = "s",
                       .caller_namespace = "n"};
  EXPECT_TRUE(meet(base, base));
  std::vector<ScopeSpec> others(8, base);
  others[0].model = "m2";
  others[1].kv_types = "q8_0/f16";
  others[2].layout = "b";
  others[3].rope_and_window = "1e4";
  others[4].state_format = 2;
  others[5].tenant_salt = "t";
  others[6].caller_namespace = "eval";
  others[7].adapters[0].scale = 0.25;
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_FALSE(meet(base, others[i])) << "difference " << i;
    EXPECT_FALSE(meet(others[i], base)) << "difference " << i;
  }
}

TEST_F(Identity, AdapterGenerationsNeverMeet) {
  const ScopeSpec none{.model = "m"};
  const ScopeSpec old{.model = "m", .adapters = {{.name = "poet", .generation = 1}}};
  const ScopeSpec reloaded{.model = "m", .adapters = {{.name = "poet", .generation = 2}}};
  EXPECT_TRUE(meet(old, old));
  EXPECT_FALSE(meet(old, reloaded));
  EXPECT_FALSE(meet(reloaded, old));
  EXPECT_FALSE(meet(old, none));
  EXPECT_FALSE(meet(none, old));
}

TEST_F(Identity, OrderOfAdaptersCounts) {
  const ScopeSpec ab{.model = "m", .adapters = {{.name = "a"}, {.name = "b"}}};
  const ScopeSpec ba{.model = "m", .adapters = {{.name = "b"}, {.name = "a"}}};
  EXPECT_FALSE(meet(ab, ba));
}

TEST_F(Identity, ScopeWithoutAModelOrWithANonsenseScaleIsRefused) {
  EXPECT_EQ(code(Scope::make({})), Errc::invalid_argument);
  for (double scale :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const ScopeSpec spec{.model = "m", .adapters = {{.name = "a"}, {.name = "b", .scale = scale}}};
    const Result<Scope> made = Scope::make(spec);
    ASSERT_EQ(code(made), Errc::invalid_argument);
    EXPECT_EQ(made.error().value(), 1U);
  }
}

TEST_F(Identity, SessionsShareWhatTheirPromptsShare) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(40), {.session = SessionId{1}, .phase = SessionPhase::active});
  LeaseOptions other;
  other.retain.session = SessionId{2};
  EXPECT_EQ(take(cache, tokens(40), other).reused(), 39U);
}

TEST_F(Identity, SameBlockAfterAnotherParentIsNotShared) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text block = tokens(16, 9);
  fill(cache, tokens(16, 1) + block);
  EXPECT_EQ(hit(cache, block + tokens(1, 5)), 0U);
  EXPECT_EQ(hit(cache, tokens(16, 2) + block), 0U);
  fill(cache, tokens(16, 2) + block);
  EXPECT_EQ(cached_blocks(cache), 4U);
  EXPECT_EQ(kept(cache, tokens(16, 1) + block), 32U);
}

TEST_F(Identity, SameBlockFarDownAnotherPathIsNotShared) {
  // Lookups jump ahead along the path that was inserted first; equal words alone must not stop
  // them.
  for (uint32_t block_tokens : {4U, 16U}) {
    PagedCache& cache = cache_of({.block_tokens = block_tokens, .capacity = 200});
    const Text head = tokens(block_tokens, 1);
    const Text a = head + tokens(15 * block_tokens, 2);
    const Text b = head + tokens(15 * block_tokens, 3);
    const Text end = tokens(20 * block_tokens, 4);
    fill(cache, a + end);
    fill(cache, b);
    EXPECT_EQ(kept(cache, b + end), b.size());
    fill(cache, b + end);
    EXPECT_EQ(kept(cache, a + end), 36 * block_tokens);
    EXPECT_EQ(kept(cache, b + end), 36 * block_tokens);
    EXPECT_EQ(cached_blocks(cache), 1 + 2 * 35U);
  }
}

TEST_F(Identity, SharedFirstBlockIsSharedAndTheSecondIsNot) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 10});
  fill(cache, counting(0, 4) + counting(10, 14));
  fill(cache, counting(0, 4) + counting(20, 24));
  EXPECT_EQ(cached_blocks(cache), 3U);
  LookupOptions whole_blocks;
  whole_blocks.allow_copy = false;
  fill(cache, counting(50, 57));
  EXPECT_EQ(hit(cache, counting(50, 57) + counting(1, 5), whole_blocks), 4U)
      << "7 tokens, one block";
}

TEST_F(Identity, OneDifferentTokenAnywhereEndsTheMatchThere) {
  PagedCache& cache = cache_of({.block_tokens = 8, .capacity = 40});
  const Text text = tokens(64);
  fill(cache, text);
  for (uint32_t at = 0; at < 64; ++at) {
    for (uint32_t bit : {0U, 7U, 16U, 30U}) {
      Text changed = text;
      changed.tokens[at] ^= 1U << bit;
      EXPECT_EQ(kept(cache, changed), at) << "bit " << bit;
    }
  }
}

// ---- Content keys ------------------------------------------------------------------------------

TEST_F(Identity, ContentKeysAreTheSameEverywhere) {
  // Golden values: docs/formats/content-key.md.
  Options options = grouped({full(10)});
  options.content_keys = true;
  options.event_capacity = 8;
  PagedCache& cache = cache_with(options);
  fill(cache, scope_of({.model = "model-1"}), counting(0, 32));
  std::vector<Event> events;
  cache.events(0, 8, events);
  ASSERT_EQ(events.size(), 1U);
  ASSERT_EQ(events[0].keys.size(), 2U);
  EXPECT_EQ(events[0].parent.hex(),
            "7a991e3f88f439eb16ff2b2a329080b148c7f17d469bace7903632240e5571e9");
  EXPECT_EQ(events[0].keys[0].hex(),
            "45b670465a283aaf9c2d7d5c269d57c53e4b7b0ef5957351903632240e5571e9");
  EXPECT_EQ(events[0].keys[1].hex(),
            "08b10866456015dca7eb132f73cd78526b5da4cc77f28ab9903632240e5571e9");
}

TEST_F(Identity, ContentKeysOfMediaDoNotDependOnWhatWasSeenBefore) {
  auto keys_after = [&](bool noise) {
    Options options = grouped({full(20)});
    options.content_keys = true;
    options.event_capacity = 64;
    PagedCache& cache = cache_with(options);
    if (noise) {
      for (uint8_t i = 0; i < 5; ++i) fill(cache, tokens(16, 9).with(image(100 + i, 0, 10)));
    }
    std::vector<Event> before;
    const uint64_t next = cache.events(0, 64, before);
    fill(cache, tokens(32).with(image(1, 10, 20)).with(audio(2, 30, 2)));
    std::vector<Event> events;
    cache.events(next, 64, events);
    return events.at(0).keys;
  };
  EXPECT_EQ(keys_after(false), keys_after(true));
  EXPECT_EQ(keys_after(false).size(), 2U);
}

TEST_F(Identity, WhoeverUsesAScopeSharesItAndItHasOnePayer) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  LeaseOptions as_one;
  as_one.tenant = TenantId{1};
  LeaseOptions as_two;
  as_two.tenant = TenantId{2};
  {
    Lease lease = ok(cache.lease(scope, tokens(32), as_one));
    ok(lease.commit(32));
  }
  EXPECT_EQ(look(cache, tokens(33)).reused_tokens, 32U) << "anybody can find out what was sent";
  EXPECT_EQ(code(cache.lease(scope, tokens(33), as_two)), Errc::invalid_argument);
  EXPECT_EQ(code(cache.lease(scope, tokens(33))), Errc::invalid_argument);
  EXPECT_EQ(ok(cache.lease(scope, tokens(33), as_one)).reused(), 32U);
  const Scope salted = scope_of({.model = "m", .tenant_salt = "sixteen random bytes"});
  EXPECT_EQ(ok(cache.lease(salted, tokens(33), as_two)).reused(), 0U);
  cache.drop_scope(scope);
  EXPECT_EQ(ok(cache.lease(scope, tokens(33), as_two)).reused(), 0U) << "nobody's any more";
}

}  // namespace
}  // namespace stemma::test
