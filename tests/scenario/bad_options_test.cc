// Impossible configurations are refused by name, before anything is allocated for them.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "support/cache_fixture.h"

namespace stemma::test {
namespace {

class Configuration : public PagedFixture {
 protected:
  // Refused with an error that names the option.
  static void expect_refused(const Options& options, const std::string& name) {
    const Result<PagedCache> cache = PagedCache::create(options);
    ASSERT_FALSE(cache) << "accepted an impossible " << name;
    EXPECT_EQ(cache.error().code(), Errc::invalid_argument) << cache.error().to_string();
    EXPECT_NE(std::string(cache.error().message()).find(name), std::string::npos)
        << "'" << cache.error().message() << "' does not name " << name;
  }
  static void expect_refused(const GroupOptions& group, const std::string& name) {
    expect_refused(grouped({group}), name);
    expect_refused(grouped({full(10), group}), name);
  }
  static Options changed(const std::function<void(Options&)>& change) {
    Options options = grouped({full(10)});
    change(options);
    return options;
  }
};

TEST_F(Configuration, NumberOfGroupsIsOneToEight) {
  expect_refused(Options{}, "group");
  expect_refused(grouped(std::vector<GroupOptions>(9, full(10))), "group");
  cache_with(grouped(std::vector<GroupOptions>(8, full(10))));
}

TEST_F(Configuration, BlockSizesArePowersOfTwoUpTo1024) {
  for (uint32_t size : {0U, 3U, 12U, 17U, 1023U, 1025U, 2048U, 1U << 31, ~0U}) {
    expect_refused(full(10, size), "block_tokens");
    expect_refused(window(32, 10, size), "block_tokens");
  }
  GroupOptions odd = recurrent(2);
  odd.block_tokens = 3;  // Not used, so it does not matter.
  cache_with(grouped({full(10), odd}));
}

TEST_F(Configuration, CapacityIsNeitherNothingNorAbsurd) {
  expect_refused(full(0), "capacity_blocks");
  expect_refused(recurrent(0), "capacity_blocks");
  for (uint32_t blocks : {1U << 31, ~0U}) expect_refused(full(blocks), "capacity_blocks");
}

TEST_F(Configuration, WindowsHaveAWidth) { expect_refused(window(0, 10), "window_tokens"); }

TEST_F(Configuration, PinShareIsAShare) {
  for (double share : {std::nan(""), -0.1, 1.1, 2.0, std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity()}) {
    expect_refused(changed([&](Options& o) { o.pin_share = share; }), "pin_share");
  }
  for (double share : {0.0, 1.0}) cache_with(changed([&](Options& o) { o.pin_share = share; }));
}

TEST_F(Configuration, NoPinsWithoutAShare) {
  PagedCache& cache = cache_with(changed([](Options& o) { o.pin_share = 0; }));
  fill(cache, tokens(32));
  EXPECT_EQ(code(cache.pin(scope, tokens(32), 1000)), Errc::over_pin_share);
}

TEST_F(Configuration, BudgetMustHoldWhatIsAskedFor) {
  expect_refused(changed([](Options& o) { o.budget_bytes = 1; }), "budget_bytes");
  expect_refused(changed([](Options& o) { o.budget_bytes = 10 * 1024; }), "budget_bytes");
  expect_refused(changed([](Options& o) {
                   o.groups = {full(0)};
                   o.budget_bytes = 500;
                 }),
                 "budget_bytes");
  expect_refused(changed([](Options& o) {
                   o.budget_bytes = 100'000;
                   o.logits_bytes = 100'000;
                 }),
                 "budget_bytes");
}

TEST_F(Configuration, OnlyOneGroupMayTakeWhatTheBudgetLeaves) {
  expect_refused(changed([](Options& o) {
                   o.groups = {full(0), window(32, 0)};
                   o.budget_bytes = 1 << 20;
                 }),
                 "capacity_blocks");
  PagedCache& cache = cache_with(changed([](Options& o) {
    o.groups = {full(100), window(32, 0)};
    o.budget_bytes = 1 << 20;
  }));
  EXPECT_GT(cache.stats().groups[1].capacity_blocks, 100U);
  EXPECT_EQ(cache.stats().groups[0].capacity_blocks, 100U);
}

TEST_F(Configuration, CapacityFromABudgetNeedsTheBytesOfABlock) {
  expect_refused(changed([](Options& o) {
                   o.groups = {full(0)};
                   o.groups[0].block_bytes = 0;
                   o.budget_bytes = 1 << 20;
                 }),
                 "block_bytes");
}

TEST_F(Configuration, PolicyIsAKnownOne) {
  for (const char* name : {"", "LRU", "fifo", "lru "}) {
    expect_refused(changed([&](Options& o) { o.policy = name; }), "policy");
  }
}

TEST_F(Configuration, QuotasNameEachTenantOnceAndNotNobody) {
  expect_refused(changed([](Options& o) { o.quotas = {{.tenant = kNoTenant, .bytes = 1000}}; }),
                 "quota");
  expect_refused(changed([](Options& o) {
                   o.quotas = {{.tenant = TenantId{3}, .bytes = 1000},
                               {.tenant = TenantId{4}, .bytes = 1000},
                               {.tenant = TenantId{3}, .bytes = 2000}};
                 }),
                 "quota");
}

TEST_F(Configuration, EventsBringTheirContentKeys) {
  PagedCache& cache = cache_with(changed([](Options& o) { o.event_capacity = 16; }));
  fill(cache, tokens(32));
  std::vector<Event> events;
  cache.events(0, 16, events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].keys.size(), 2U);
  EXPECT_NE(events[0].keys[0], ContentKey{});
}

TEST_F(Configuration, AbsurdBlockBytesDoNotOverflow) {
  Options options = grouped({full(1000)});
  options.groups[0].block_bytes = ~uint64_t{0} / 10;
  const Result<PagedCache> cache = PagedCache::create(options);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().code(), Errc::invalid_argument);
}

TEST_F(Configuration, OneBlockIsEnough) {
  PagedCache& cache = cache_of({.block_tokens = 1, .capacity = 1});
  fill(cache, of({1}));
  EXPECT_EQ(hit(cache, of({1, 2})), 1U);
  EXPECT_EQ(code(cache.lease(scope, of({3, 4}))), Errc::out_of_blocks);
  EXPECT_EQ(hit(cache, of({1, 2})), 1U);
}

}  // namespace
}  // namespace stemma::test
