// Reports: one truthful class per request, counted in tokens after execution.
#include <numeric>
#include <string>
#include <vector>

#include "stemma/log.h"
#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

class Reports : public PagedFixture {
 protected:
  static uint64_t count(const Counts& counts, Outcome outcome) {
    return counts.outcomes[static_cast<uint32_t>(outcome)];
  }
  static uint64_t count(const Counts& counts, MissReason reason) {
    return counts.reasons[static_cast<uint32_t>(reason)];
  }
};

TEST_F(Reports, EveryLookupFallsInExactlyOneClass) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));                 // miss
  fill(cache, tokens(64));                 // full_hit
  fill(cache, tokens(40) + tokens(8, 2));  // partial_hit
  take(cache, tokens(1));                  // miss: too short
  LeaseOptions read_off;
  read_off.lookup.read = false;
  take(cache, tokens(64), read_off);                  // bypassed
  EXPECT_FALSE(cache.lease(scope, tokens(1600, 3)));  // refused
  const Counts total = cache.stats().total;
  EXPECT_EQ(total.lookups, 6U);
  EXPECT_EQ(count(total, Outcome::miss), 2U);
  EXPECT_EQ(count(total, Outcome::full_hit), 1U);
  EXPECT_EQ(count(total, Outcome::partial_hit), 1U);
  EXPECT_EQ(count(total, Outcome::bypassed), 1U);
  EXPECT_EQ(count(total, Outcome::refused), 1U);
  EXPECT_EQ(std::accumulate(total.outcomes.begin(), total.outcomes.end(), uint64_t{0}), 6U);
  EXPECT_EQ(std::accumulate(total.reasons.begin(), total.reasons.end(), uint64_t{0}), 6U);
  EXPECT_EQ(count(total, MissReason::none), 1U);
  EXPECT_EQ(count(total, MissReason::too_short), 1U);
  EXPECT_EQ(count(total, MissReason::read_off), 1U);
  EXPECT_EQ(count(total, MissReason::no_room), 1U);
}

TEST_F(Reports, HitsAreCountedInTokens) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  fill(cache, tokens(40) + tokens(10, 2));
  const Counts total = cache.stats().total;
  EXPECT_EQ(total.queried_tokens, 114U);
  EXPECT_EQ(total.reused_tokens, 40U);
  EXPECT_EQ(total.copied_tokens, 8U);
  EXPECT_EQ(total.computed_tokens, 74U);
  EXPECT_DOUBLE_EQ(total.hit_ratio(), 40.0 / 114.0);
}

TEST_F(Reports, LookupsAloneAreNotCounted) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  for (int i = 0; i < 5; ++i) look(cache, tokens(64));
  EXPECT_EQ(cache.stats().total.lookups, 1U);
}

TEST_F(Reports, NothingIsCountedBeforeTheRequestHasRun) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  fill(cache, tokens(64));
  Lease lease = take(cache, tokens(64));
  EXPECT_EQ(cache.stats().total.lookups, 1U);
  ok(lease.copies_done());
  ok(lease.commit(64));
  EXPECT_EQ(cache.stats().total.lookups, 2U);
  EXPECT_EQ(cache.stats().total.reused_tokens, 63U);
  ok(lease.release());
  EXPECT_EQ(cache.stats().total.lookups, 2U) << "once per request";
}

TEST_F(Reports, ReuseThatWasGivenUpIsNoHit) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, tokens(64));
  Lease shrunk = take(cache, tokens(64) + tokens(8, 2));
  ASSERT_EQ(shrunk.reused(), 64U);
  ok(shrunk.shrink_to(0));
  compute(shrunk);
  ok(shrunk.release());
  const Counts total = cache.stats().total;
  EXPECT_EQ(count(total, Outcome::miss), 2U);
  EXPECT_EQ(count(total, MissReason::gave_up), 1U);
  EXPECT_EQ(total.reused_tokens, 0U);
  EXPECT_EQ(total.computed_tokens, 64U + 72U);
}

TEST_F(Reports, CountsAreConsistentWhateverHappens) {
  PagedCache& cache = cache_of({.block_tokens = 4, .capacity = 12});
  for (uint32_t i = 0; i < 300; ++i) {
    LeaseOptions options;
    options.lookup.read = i % 7 != 0;
    options.lookup.allow_copy = i % 5 != 0;
    options.lookup.write = i % 11 != 0;
    Result<Lease> lease = cache.lease(scope, tokens(i % 60, i % 4), options);
    if (!lease) continue;
    if (!lease->copies().empty()) ok(i % 3 == 0 ? lease->copies_failed() : lease->copies_done());
    if (i % 13 != 0) ok(lease->commit(lease->length()));
  }
  const Counts total = cache.stats().total;
  EXPECT_EQ(total.lookups, 300U);
  EXPECT_EQ(std::accumulate(total.outcomes.begin(), total.outcomes.end(), uint64_t{0}), 300U);
  EXPECT_EQ(std::accumulate(total.reasons.begin(), total.reasons.end(), uint64_t{0}), 300U);
  EXPECT_GT(count(total, MissReason::gave_up), 0U);
  const Stats stats = cache.stats();
  EXPECT_EQ(std::accumulate(stats.match_tokens.begin(), stats.match_tokens.end(), uint64_t{0}),
            300U);
}

TEST_F(Reports, ReasonSaysWhatStoodInTheWay) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  EXPECT_EQ(look(cache, tokens(64)).reason, MissReason::unknown_scope);
  fill(cache, tokens(64).with(image(1, 40, 10)));
  EXPECT_EQ(look(cache, tokens(64, 2)).reason, MissReason::first_use);
  EXPECT_EQ(look(cache, tokens(1)).reason, MissReason::too_short);
  EXPECT_EQ(look(cache, tokens(64).with(image(2, 40, 10))).reason, MissReason::media);
  LookupOptions options;
  options.at_most = 20;
  EXPECT_EQ(look(cache, tokens(40), options).reason, MissReason::at_most);
  EXPECT_EQ(look(cache, tokens(40), options).reused_tokens, 20U);
  options = {};
  options.allow_copy = false;
  EXPECT_EQ(look(cache, tokens(30), options).reason, MissReason::no_copy);
  options = {};
  options.read = false;
  EXPECT_EQ(look(cache, tokens(40), options).reason, MissReason::read_off);
  EXPECT_EQ(look(cache, tokens(40), options).outcome, Outcome::bypassed);
  EXPECT_EQ(look(cache, tokens(40)).reason, MissReason::none);
}

TEST_F(Reports, MatchedTokensSayWhatIsEqualServableOrNot) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 20});
  fill(cache, tokens(64));
  LookupOptions options;
  options.at_most = 10;
  const Report report = look(cache, tokens(50) + tokens(14, 2), options);
  EXPECT_EQ(report.matched_tokens, 50U);
  EXPECT_EQ(report.reused_tokens, 10U);
  EXPECT_EQ(report.to_compute_tokens, 54U);
}

TEST_F(Reports, WindowForgetsTotalsDoNot) {
  Options options = grouped({full(20)});
  options.stats_window_ns = 1'000'000'000;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(64));
  fill(cache, tokens(64));
  EXPECT_EQ(cache.stats().window.lookups, 2U);
  EXPECT_EQ(cache.stats().window.reused_tokens, 63U);
  clock.advance_ns(10'000'000'000);
  EXPECT_EQ(cache.stats().window.lookups, 0U);
  fill(cache, tokens(64));
  EXPECT_EQ(cache.stats().window.lookups, 1U);
  EXPECT_EQ(cache.stats().total.lookups, 3U);
  EXPECT_EQ(cache.stats().window_ns, 1'000'000'000U);
}

TEST_F(Reports, BranchPointsAreWhereCachedPromptsPart) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 40});
  const Text text = tokens(96);
  fill(cache, text);
  fill(cache, text.first(32) + tokens(32, 2));
  fill(cache, text.first(64) + tokens(32, 3));
  EXPECT_EQ(ok(cache.branch_points(scope, text)), (std::vector<uint32_t>{32, 64}));
  EXPECT_TRUE(ok(cache.branch_points(scope, tokens(96, 9))).empty());
}

TEST_F(Reports, EvictableBlocksAreThoseNobodyNeeds) {
  PagedCache& cache = cache_with(grouped({full(20), window(32, 20)}));
  const auto evictable = [&](GroupIndex g) { return cache.stats().groups[g].evictable_blocks; };
  fill(cache, tokens(64));
  fill(cache, tokens(48) + tokens(16, 2));
  EXPECT_EQ(evictable(0), 5U);
  EXPECT_EQ(evictable(1), 5U);
  Lease lease = take(cache, tokens(49));
  EXPECT_EQ(evictable(0), 2U) << "three are shared, two hang below them";
  EXPECT_EQ(evictable(1), 3U) << "a window of two is held";
  const PinResult pin = ok(cache.pin(scope, tokens(64), 1'000));
  EXPECT_EQ(evictable(0), 1U);
  EXPECT_EQ(cache.evict(20), 1U) << "and that is all that goes";
  EXPECT_EQ(evictable(0), 0U);
  ok(cache.unpin(pin.id));
  ok(lease.abandon());
  EXPECT_EQ(evictable(0), 4U);
  EXPECT_EQ(cache.evict(20), 4U);
}

TEST_F(Reports, StatisticsOfBlocksAddUp) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  Lease running = take(cache, tokens(40));
  ok(running.commit(20));
  const GroupStats group = cache.stats().groups[0];
  EXPECT_EQ(group.capacity_blocks, 10U);
  EXPECT_EQ(group.cached_blocks, 1U);
  EXPECT_EQ(group.draft_blocks, 2U);
  EXPECT_EQ(group.free_blocks, 7U);
  EXPECT_EQ(group.block_bytes, 1024U);
  const Stats stats = cache.stats();
  EXPECT_EQ(stats.group_count, 1U);
  EXPECT_EQ(stats.leases, 1U);
  EXPECT_EQ(stats.scopes, 1U);
  EXPECT_EQ(stats.kv_bytes_used, 3 * 1024U);
  EXPECT_EQ(stats.kv_bytes_capacity, 10 * 1024U);
  EXPECT_GT(stats.index_bytes, 0U);
}

TEST_F(Reports, ReuseThatIsGivenUpIsNotCounted) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 16});
  fill(cache, tokens(64));
  Lease lease = take(cache, tokens(64) + tokens(10, 2));
  ok(lease.commit(64));  // Nothing was computed yet.
  ok(lease.shrink_to(0));
  compute(lease);
  ok(lease.release());
  EXPECT_EQ(cache.stats().total.reused_tokens, 0U);
  EXPECT_EQ(count(cache.stats().total, Outcome::miss), 2U);
}

TEST_F(Reports, LogSaysWhatWasMadeWhatFailedAndWhatWasRefused) {
  static std::vector<std::string> lines;
  lines.clear();
  set_log_handler(
      [](LogLevel level, std::string_view line, void*) {
        lines.push_back(std::to_string(static_cast<int>(level)) + " " + std::string(line));
      },
      nullptr);
  struct BrokenIo final : BlockIo {
    void copy(std::span<const BlockCopy>, Done done, void* user) override {
      done(user, Error(Errc::copy_failed, "no such device"));
    }
    void read(GroupIndex, std::span<const BlockId>, std::span<uint8_t>, Done, void*) override {}
    void write(GroupIndex, std::span<const BlockId>, std::span<const uint8_t>, Done,
               void*) override {}
  } io;
  Options options = grouped({full(16)});
  options.block_io = &io;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(40));
  EXPECT_EQ(code(take(cache, tokens(39) + tokens(9, 2)).run_copies()), Errc::copy_failed);
  EXPECT_EQ(code(cache.load(std::vector<uint8_t>(100))), Errc::corrupt);
  set_log_handler(nullptr, nullptr);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("16 blocks"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("no such device"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("not an index dump"), std::string::npos) << lines[2];
  EXPECT_TRUE(lines[0][0] < lines[1][0] && lines[1][0] < lines[2][0]) << "info, warning, error";
}

}  // namespace
}  // namespace stemma::test
