// Retention: what is evicted first when room is short.
#include <algorithm>
#include <string_view>
#include <vector>

#include "retain/policies.h"
#include "support/cache_fixture.h"
#include "support/cpu_time.h"
#include "support/numbers.h"

namespace stemma::test {
namespace {

class Retention : public PagedFixture {
 protected:
  // Evicts block by block. Returns which text each block belonged to, as an index into `texts`.
  std::vector<uint32_t> eviction_order(PagedCache& cache, const std::vector<Text>& texts) {
    std::vector<uint32_t> order;
    std::vector<uint32_t> left;
    for (const Text& text : texts) left.push_back(kept(cache, text));
    while (cache.evict(1) == 1) {
      for (uint32_t i = 0; i < texts.size(); ++i) {
        const uint32_t now = kept(cache, texts[i]);
        if (now < left[i]) order.push_back(i);
        left[i] = now;
      }
    }
    return order;
  }
  static Retain priority(Priority value) { return {.priority = value}; }
  static Retain session(uint64_t name, uint64_t ttl_ns = kNever) {
    return {.session = SessionId{name}, .phase = SessionPhase::active, .session_ttl_ns = ttl_ns};
  }
};

TEST_F(Retention, PartialUseRefreshesWhatItUsedAndNoMore) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 21});
  const Text a = tokens(160, 1);
  const Text b = tokens(160, 2);
  fill(cache, a);
  fill(cache, b);
  take(cache, a.first(16) + tokens(1, 3));
  EXPECT_EQ(cache.evict(12), 12U);
  EXPECT_EQ(kept(cache, a), 16U);
  EXPECT_EQ(kept(cache, b), 112U);
  EXPECT_EQ(cache.evict(7), 7U);
  EXPECT_EQ(kept(cache, a), 16U);
  EXPECT_EQ(kept(cache, b), 0U);
  EXPECT_EQ(cache.evict(1), 1U);
  EXPECT_EQ(kept(cache, a), 0U);
}

TEST_F(Retention, ComputingOrHittingAgainRefreshes) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  for (uint32_t seed = 1; seed <= 3; ++seed) fill(cache, tokens(16, seed));
  fill(cache, tokens(16, 1));
  take(cache, tokens(16, 2) + tokens(1, 9));
  EXPECT_EQ(eviction_order(cache, {tokens(16, 1), tokens(16, 2), tokens(16, 3)}),
            (std::vector<uint32_t>{2, 0, 1}));
}

TEST_F(Retention, LookupRefreshesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, tokens(16, 1));
  fill(cache, tokens(16, 2));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(kept(cache, tokens(16, 1)), 16U);
  cache.evict(1);
  EXPECT_EQ(kept(cache, tokens(16, 1)), 0U);
}

TEST_F(Retention, PressureSparesWhatTheRequestItselfReuses) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  const Text a = tokens(48, 1);
  const Text b = tokens(48, 2);
  fill(cache, a);
  fill(cache, b);
  // a is older, but this request continues it; the request needs 4 blocks and 2 are free.
  Lease lease = take(cache, a + tokens(64, 3));
  EXPECT_EQ(lease.reused(), 48U);
  EXPECT_EQ(kept(cache, a), 48U);
  EXPECT_EQ(kept(cache, b), 16U);
}

TEST_F(Retention, PressureSparesTheSourceOfTheRequestsCopy) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(20, 1));  // One block and a tail of 4.
  fill(cache, tokens(32, 2));
  Lease lease = take(cache, tokens(19, 1) + tokens(20, 3));
  EXPECT_EQ(lease.reused(), 19U);
  ASSERT_EQ(lease.copies().size(), 1U);
  for (BlockId block : blocks_of(lease)) EXPECT_NE(block, lease.copies()[0].source);
}

// ---- Priorities --------------------------------------------------------------------------------

TEST_F(Retention, LowerPriorityGoesFirst) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const Priority priorities[] = {100, 36, 35, 0, 34, 99};
  std::vector<Text> texts;
  for (uint32_t i = 0; i < 6; ++i) {
    texts.push_back(tokens(16, i + 1));
    fill(cache, texts[i], priority(priorities[i]));
  }
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{3, 4, 2, 1, 5, 0}));
}

TEST_F(Retention, PriorityRangesApplyToBlocksWhoseFirstTokenTheyContain) {
  PagedCache& cache = cache_of({.block_tokens = 64, .capacity = 20});
  const PriorityRange ranges[] = {{.begin = 0, .end = 64, .priority = 80},
                                  {.begin = 64, .end = 128, .priority = 50}};
  const std::vector<Text> texts = {tokens(256, 1), tokens(64, 2), tokens(64, 3), tokens(64, 4)};
  fill(cache, texts[0], {.ranges = ranges});
  fill(cache, texts[1], priority(60));
  fill(cache, texts[2], priority(40));
  fill(cache, texts[3], priority(90));
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{0, 0, 2, 0, 1, 0, 3}))
      << "default, default, 40, 50, 60, 80, 90";
}

TEST_F(Retention, RangesNeedNotFitTheBlocks) {
  PagedCache& cache = cache_of({.block_tokens = 32, .capacity = 20});
  const PriorityRange ranges[] = {{.begin = 0, .end = 63, .priority = 80},
                                  {.begin = 63, .end = 127, .priority = 30}};
  const std::vector<Text> texts = {tokens(127, 1), tokens(32, 2), tokens(32, 3)};
  fill(cache, texts[0], {.ranges = ranges});
  fill(cache, texts[1]);
  fill(cache, texts[2], priority(79));
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{0, 0, 1, 2, 0, 0}))
      << "30, 30, default, 79, 80, 80";
}

TEST_F(Retention, LatestUseDecidesThePriority) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2), tokens(16, 3)};
  fill(cache, texts[0], priority(90));
  fill(cache, texts[1], priority(10));
  fill(cache, texts[2], priority(50));
  fill(cache, texts[0], priority(20));
  Lease lease = take(cache, texts[1] + tokens(1, 9));
  const Retain raised = priority(70);
  ok(lease.release({.retain = &raised}));
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{0, 2, 1}));
}

TEST_F(Retention, PrefixInUseKeepsItsPriorityWhenNothingCanGo) {
  for (const std::string_view policy : retain::policy_names()) {
    for (const char* const how : {"nothing", "evict", "reclaim"}) {
      Options options = grouped({full(16)});
      options.policy = policy;
      PagedCache& cache = cache_with(options);
      const Text system = tokens(64);
      fill(cache, system, priority(80));
      LeaseOptions low;
      low.retain = priority(10);
      Lease lease = take(cache, system + tokens(32, 2), low);
      compute(lease);
      uint32_t gone = 0;
      if (how == std::string("evict")) gone = cache.evict(4);
      if (how == std::string("reclaim")) gone = ok(cache.reclaim(256, 8)).evicted();
      EXPECT_EQ(gone, 0U);
      ok(lease.release());
      for (uint32_t i = 3; i < 6; ++i) fill(cache, tokens(80, i));
      EXPECT_EQ(kept(cache, system), 64U) << policy << " after " << how;
    }
  }
}

TEST_F(Retention, PriorityWithADeadlineFallsBackWhenItPasses) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2), tokens(16, 3)};
  for (int expired = 0; expired <= 1; ++expired) {
    ok(cache.reset());
    fill(cache, texts[0], {.priority = 80, .ttl_ns = kSecond});
    fill(cache, texts[1]);
    fill(cache, texts[2], priority(34));
    clock.advance_ns(expired != 0 ? kSecond + 1 : kSecond / 2);
    EXPECT_EQ(eviction_order(cache, texts),
              (expired != 0 ? std::vector<uint32_t>{2, 0, 1} : std::vector<uint32_t>{2, 1, 0}));
  }
}

TEST_F(Retention, LowPriorityWithADeadlineRisesWhenItPasses) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2), tokens(16, 3)};
  fill(cache, texts[0], {.priority = 10, .ttl_ns = 2 * kSecond});
  clock.advance_ns(kSecond);
  fill(cache, texts[1], {.priority = 10, .ttl_ns = 2 * kSecond});
  fill(cache, texts[2]);
  clock.advance_ns(kSecond + kSecond / 2);  // The first is at the default by now.
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{1, 0, 2}));
}

TEST_F(Retention, RangesHaveDeadlinesOfTheirOwn) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const PriorityRange ranges[] = {{.begin = 0, .end = 16, .priority = 80},
                                  {.begin = 16, .end = 32, .priority = 70, .ttl_ns = kSecond}};
  const std::vector<Text> texts = {tokens(32, 1), tokens(16, 2)};
  fill(cache, texts[0], {.ranges = ranges});
  fill(cache, texts[1], priority(60));
  clock.advance_ns(2 * kSecond);
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{0, 1, 0}));
}

TEST_F(Retention, EveryUseKeepsItsOwnDeadline) {
  PagedCache& cache = cache_of({.block_tokens = 1, .capacity = 2000});
  for (uint32_t i = 0; i < 1000; ++i) {
    fill(cache, of({i}), {.priority = 80, .ttl_ns = 500 * kSecond});
    fill(cache, of({1000 + i}), priority(36));
    clock.advance_ns(kSecond);
  }
  clock.advance_ns(kSecond / 2);
  // The deadlines of the first 501 uses have passed, the others have not: default, then 36, then
  // 80.
  EXPECT_EQ(cache.evict(511), 511U);
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < 1000; ++i) {
    wrong += kept(cache, of({i})) != (i <= 500 ? 0U : 1U) ? 1 : 0;
    wrong += kept(cache, of({1000 + i})) != (i < 10 ? 0U : 1U) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0U);
}

TEST_F(Retention, DeadlinesCostNoScan) {
  PagedCache& cache = cache_of({.block_tokens = 1, .capacity = 40'000});
  const Retain brief{.priority = 80, .ttl_ns = kSecond};
  auto evict_half_ns = [&](uint32_t count) {
    ok(cache.reset());
    for (uint32_t i = 0; i < count; ++i) fill(cache, of({i}), brief);
    clock.advance_ns(2 * kSecond);
    const uint64_t start = cpu_ns();
    for (uint32_t i = 0; i < count / 2; ++i) EXPECT_EQ(cache.evict(1), 1U);
    return static_cast<double>(cpu_ns() - start) / count;
  };
  const double few = evict_half_ns(1000);
  const double many = std::min(evict_half_ns(32'000), evict_half_ns(32'000));
  EXPECT_LT(many, 16 * few) << "each eviction would cost 32 times as much if it looked at all";
}

// ---- Sessions ----------------------------------------------------------------------------------

TEST_F(Retention, EndedSessionsGoBeforeSilentOnesAndTheseBeforeActiveOnes) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2), tokens(16, 3)};
  fill(cache, texts[0], session(1));
  fill(cache, texts[1]);
  fill(cache, texts[2], {.session = SessionId{3}, .phase = SessionPhase::ended});
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{2, 1, 0}));
}

TEST_F(Retention, IdleSessionGoesBeforeAnActiveOne) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2), tokens(16, 3)};
  fill(cache, texts[0], session(1, 100 * kSecond));
  fill(cache, texts[1], session(2, kSecond));
  clock.advance_ns(10 * kSecond);
  fill(cache, texts[2]);
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{1, 2, 0}));
}

TEST_F(Retention, EndingASessionLetsItsBlocksGoEarly) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(32, 1), tokens(32, 2), tokens(32, 3)};
  fill(cache, texts[0], session(1));
  fill(cache, texts[1], session(2));
  fill(cache, texts[2], session(3));
  cache.end_session(SessionId{2});
  cache.end_session(SessionId{99});
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{1, 1, 0, 0, 2, 2}));
}

TEST_F(Retention, EndingASessionSparesWhatOthersUsedSince) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2)};
  fill(cache, texts[0], session(1));
  fill(cache, texts[1], session(3));
  fill(cache, texts[0], session(2));
  cache.end_session(SessionId{1});
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{1, 0}));
}

TEST_F(Retention, NoHintCanLockThePool) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  for (uint32_t i = 1; i <= 8; ++i) {
    Retain greedy = session(i);
    greedy.priority = 100;
    greedy.will_return = true;
    fill(cache, tokens(16, i), greedy);
  }
  EXPECT_EQ(take(cache, tokens(128, 20)).block_count(0), 8U);
}

TEST_F(Retention, PreemptedRequestsBlocksGoLast) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  const Text text = tokens(60);
  Lease preempted = take(cache, text);
  ok(preempted.commit(50));
  const Retain retain{.will_return = true};
  ok(preempted.release({.retain = &retain}));
  for (uint32_t i = 2; i <= 10; ++i) fill(cache, tokens(16, i));
  Lease back = take(cache, text);
  EXPECT_EQ(back.reused(), 50U) << "all of it survived, though it was the oldest";
  EXPECT_EQ(back.report().to_compute_tokens, 10U);
  ok(back.release({.retain = &retain}));

  fill(cache, tokens(96, 20));
  Lease resumed = take(cache, text);
  EXPECT_EQ(resumed.reused(), 32U) << "it is told exactly what is still there";
}

TEST_F(Retention, PreemptedRequestsBlocksGoLastThoughItsSessionIsIdle) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  const std::vector<Text> texts = {tokens(16, 1), tokens(16, 2)};
  Retain preempted = session(1, kSecond);
  preempted.will_return = true;
  fill(cache, texts[0], preempted);
  fill(cache, texts[1], priority(kMaxPriority));
  clock.advance_ns(2 * kSecond);
  EXPECT_EQ(eviction_order(cache, texts), (std::vector<uint32_t>{1, 0}));
}

TEST_F(Retention, ScopesMayTakeTheNumbersOfForgottenCells) {
  for (const std::string_view policy : retain::policy_names()) {
    SCOPED_TRACE(policy);
    Options options = grouped({window(64, 64, 16)});
    options.policy = policy;
    PagedCache& cache = cache_with(options);
    const Scope one = scope_of({.model = "one"});
    const Scope two = scope_of({.model = "two"});
    const Scope three = scope_of({.model = "three"});
    const auto lease = [&](const Scope& in, uint32_t length,
                           uint32_t draft = LeaseOptions::kWholePrompt) {
      LeaseOptions how;
      how.draft_tokens = draft;
      return ok(cache.lease(in, tokens(length), how));
    };
    Lease first = lease(one, 32);
    compute(first);
    cache.drop_scope(one);  // While a request runs, so no use of its cells is noted.
    ok(first.release());
    const Lease keeps = lease(two, 16, 0);  // Takes the root's number,
    Lease drafts = lease(two, 16);          // and the first cell's;
    Lease last = lease(three, 16, 0);       // this root takes the second cell's.
    ok(drafts.abandon());
    ok(last.reserve(16));  // The first cell again, below what was its child.
    ok(last.commit(16));
    ok(last.release());
    cache.check_invariants();
    EXPECT_EQ(hit(cache, three, tokens(17)), 16U);
  }
}

TEST_F(Retention, EqualPromptsOfTwoTenantsAreChargedToTheirOwn) {
  constexpr TenantId kFirst{1}, kOther{2};
  for (const std::string_view policy : retain::policy_names()) {
    SCOPED_TRACE(policy);
    Options options = grouped({full(64)});
    options.groups[0].block_bytes = 1;
    options.policy = policy;
    options.clock = &clock;
    options.quotas = {{kFirst, 50}, {kOther, 10}};
    PagedCache& cache = cache_with(options);
    const Scope first = scope_of({.model = "m", .tenant_salt = "first"});
    const Scope other = scope_of({.model = "m", .tenant_salt = "other"});
    const auto serve = [&](const Scope& in, TenantId tenant, const Text& text) {
      clock.advance_ns(kSecond);
      LeaseOptions how;
      how.tenant = tenant;
      Lease lease = ok(cache.lease(in, text, how));
      if (!lease.copies().empty()) ok(lease.copies_done());
      compute(lease);
      ok(lease.release());
    };
    const Text prompt = tokens(160);
    serve(first, kFirst, prompt);
    serve(first, kFirst, prompt + tokens(320, 2));  // Another conversation continues from there.
    serve(other, kOther, prompt);                   // The same words in another scope.
    serve(other, kOther, tokens(160, 3));           // Its quota evicts the first ones.
    EXPECT_EQ(cache.tenant_bytes(kFirst), 30U);
    EXPECT_EQ(cache.tenant_bytes(kOther), 10U);
    while (cache.evict(1) != 0) {
      const Stats stats = cache.stats();
      EXPECT_EQ(cache.tenant_bytes(kFirst) + cache.tenant_bytes(kOther),
                stats.groups[0].capacity_blocks - stats.groups[0].free_blocks);
    }
    EXPECT_EQ(cache.tenant_bytes(kFirst), 0U);
    EXPECT_EQ(cache.tenant_bytes(kOther), 0U);
  }
}

TEST_F(Retention, EvictionsAreCountedWithTheirAge) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(32));
  clock.advance_ns(5'000'000);  // 5,000 us: bucket [4096, 8192).
  EXPECT_EQ(cache.evict(2), 2U);
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.evicted_blocks, 2U);
  EXPECT_EQ(stats.eviction_age_us[13], 2U);
}

}  // namespace
}  // namespace stemma::test
