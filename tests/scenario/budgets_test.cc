// Budgets: pins with deadlines, quotas of tenants, bytes for everything.
#include <vector>

#include "support/cache_fixture.h"
#include "support/numbers.h"

namespace stemma::test {
namespace {

class Pins : public PagedFixture {};

TEST_F(Pins, PinnedPrefixOutlivesPressureUntilItsDeadline) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 10});
  const Text text = tokens(55);
  fill(cache, text);
  const PinResult pin = ok(cache.pin(scope, text, kSecond));
  EXPECT_EQ(pin.pinned_tokens, 48U);
  EXPECT_EQ(cache.stats().pinned_blocks, 3U);
  for (uint32_t i = 0; i < 5; ++i) fill(cache, tokens(112, 10 + i));
  EXPECT_EQ(kept(cache, text), 48U);
  EXPECT_EQ(code(cache.lease(scope, tokens(128, 3))), Errc::out_of_blocks);

  clock.advance_ns(kSecond + 1);
  EXPECT_EQ(take(cache, tokens(160, 3)).block_count(0), 10U);
  EXPECT_EQ(cache.stats().pin_expiries, 1U);
  EXPECT_EQ(cache.stats().pinned_blocks, 0U);
  EXPECT_EQ(code(cache.unpin(pin.id)), Errc::stale);
}

TEST_F(Pins, ForgettingEndsThePinsOnWhatIsForgotten) {
  Options options = grouped({full(8)});
  options.pin_share = 1;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(64));
  const PinResult cut = ok(cache.pin(scope, tokens(64), kNever));
  const PinResult kept_pin = ok(cache.pin(scope, tokens(16), kNever));
  EXPECT_EQ(ok(cache.truncate(scope, tokens(64), 16)), 3U);
  EXPECT_EQ(code(cache.unpin(cut.id)), Errc::stale);
  EXPECT_EQ(free_blocks(cache), 7U) << "nothing holds what was forgotten";
  Lease lease = take(cache, tokens(24));
  EXPECT_EQ(lease.reused(), 16U);
  compute(lease);
  ok(lease.release());
  cache.drop_scope(scope);
  EXPECT_EQ(code(cache.unpin(kept_pin.id)), Errc::stale);
  EXPECT_EQ(free_blocks(cache), 8U);
  EXPECT_EQ(cache.stats().pinned_blocks, 0U);
}

TEST_F(Pins, WindowsAndCheckpointsOfAPinnedPrefixStay) {
  Options options = grouped({full(64), window(32, 10, 16, 16), recurrent(2)});
  options.pin_share = 0.5;
  PagedCache& cache = cache_with(options);
  Lease lease = take(cache, tokens(80));
  ok(lease.commit(64));
  save_checkpoint(lease, 2);
  ok(lease.commit(80));
  ok(lease.release());
  const PinResult pin = ok(cache.pin(scope, tokens(80), kSecond));
  EXPECT_EQ(pin.pinned_tokens, 64U) << "where there is a checkpoint";
  for (uint32_t i = 0; i < 8; ++i) {
    Lease other = take(cache, tokens(80, 10 + i));
    ok(other.commit(80));
    save_checkpoint(other, 2);
    ok(other.release());
  }
  EXPECT_EQ(kept(cache, tokens(64)), 64U);
  clock.advance_ns(2 * kSecond);
  for (uint32_t i = 0; i < 8; ++i) fill(cache, tokens(80, 30 + i));
  EXPECT_EQ(kept(cache, tokens(64)), 0U);
}

TEST_F(Pins, PinnedPromptIsItselfFoundInAWindow) {
  PagedCache& cache = cache_with(grouped({full(32), window(16, 8)}));
  fill(cache, tokens(64));
  EXPECT_EQ(hit(cache, tokens(64)), 63U);
  EXPECT_EQ(ok(cache.pin(scope, tokens(64), kNever)).pinned_tokens, 64U);
  for (uint32_t i = 0; i < 6; ++i) fill(cache, tokens(80, 30 + i));
  EXPECT_EQ(hit(cache, tokens(64)), 63U);
}

TEST_F(Pins, NeverHoldMoreThanTheirShareOfAWindowGroup) {
  Options options = grouped({full(64), window(64, 8)});
  options.pin_share = 0.5;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(64, 1));
  fill(cache, tokens(64, 2));
  ok(cache.pin(scope, tokens(64, 1), kNever));
  EXPECT_EQ(ok(cache.pin(scope, tokens(64, 1), kNever)).pinned_tokens, 64U) << "the same blocks";
  EXPECT_EQ(code(cache.pin(scope, tokens(64, 2), kNever)), Errc::over_pin_share);
}

TEST_F(Pins, EndedPinsLeaveNothingBehind) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(32));
  const uint64_t before = cache.stats().index_bytes;
  for (uint32_t i = 0; i < 10'000; ++i) {
    ok(cache.unpin(ok(cache.pin(scope, tokens(32), 3600 * kSecond)).id));
  }
  EXPECT_LE(cache.stats().index_bytes, before + 4096);
}

TEST_F(Pins, UnpinLetsGoAtOnce) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  fill(cache, tokens(32));
  const PinResult pin = ok(cache.pin(scope, tokens(32), kNever));
  EXPECT_EQ(cache.evict(4), 0U);
  ok(cache.unpin(pin.id));
  EXPECT_EQ(cache.evict(4), 2U);
}

TEST_F(Pins, ForgettingEndsThePinsBelowTheCutAndNoOthers) {
  Options options = grouped({full(64)});
  options.pin_share = 1;
  PagedCache& cache = cache_with(options);
  const Text stem = tokens(32);
  for (uint32_t seed = 2; seed < 6; ++seed) fill(cache, stem + tokens(32, seed));
  std::vector<PinId> below;
  std::vector<PinId> beside;
  const auto pin = [&](const Text& text) { return ok(cache.pin(scope, text, kNever)).id; };
  for (uint32_t i = 0; i < 3; ++i) {  // Several of the same cell, too.
    below.push_back(pin(stem + tokens(32, 2)));
    below.push_back(pin(stem + tokens(16, 2)));
    beside.push_back(pin(stem + tokens(32, 3)));
    beside.push_back(pin(stem));
  }
  ok(cache.unpin(below[2]));
  EXPECT_EQ(ok(cache.truncate(scope, stem + tokens(32, 2), 32)), 2U);
  cache.check_invariants();
  for (size_t i = 0; i < below.size(); ++i) {
    EXPECT_EQ(code(cache.unpin(below[i])), Errc::stale) << i;
  }
  EXPECT_EQ(cache.evict(64), 4U) << "what was beside and not pinned";
  for (const PinId id : beside) ok(cache.unpin(id));
  EXPECT_EQ(cache.evict(64), 4U);
  EXPECT_EQ(cache.stats().pinned_blocks, 0U);
}

TEST_F(Pins, NeverHoldMoreThanTheirShare) {
  Options options = grouped({full(10)});
  options.pin_share = 0.5;
  PagedCache& cache = cache_with(options);
  fill(cache, tokens(64, 1));
  fill(cache, tokens(64, 2));
  const PinResult first = ok(cache.pin(scope, tokens(64, 1), kNever));
  const std::string before = books(cache);
  EXPECT_EQ(code(cache.pin(scope, tokens(64, 2), kNever)), Errc::over_pin_share);
  EXPECT_EQ(books(cache), before);
  const PinResult shared = ok(cache.pin(scope, tokens(64, 1), kNever));
  EXPECT_EQ(shared.pinned_tokens, 64U) << "a shared prefix is counted once";
  ok(cache.pin(scope, tokens(16, 2), kNever));
  ok(cache.unpin(first.id));
  EXPECT_EQ(code(cache.pin(scope, tokens(64, 2), kNever)), Errc::over_pin_share)
      << "the other pin still holds it";
  ok(cache.unpin(shared.id));
  ok(cache.pin(scope, tokens(64, 2), kNever));
  EXPECT_EQ(take(cache, tokens(80, 5)).block_count(0), 5U) << "half the pool is always left";
}

TEST_F(Pins, ExpiredPinsMakeRoomForNewOnes) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(64, 1));
  fill(cache, tokens(64, 2));
  ok(cache.pin(scope, tokens(64, 1), kSecond));
  EXPECT_EQ(code(cache.pin(scope, tokens(64, 2), kSecond)), Errc::over_pin_share);
  clock.advance_ns(kSecond + 1);
  EXPECT_EQ(ok(cache.pin(scope, tokens(64, 2), kSecond)).pinned_tokens, 64U);
}

TEST_F(Pins, PinningAFreedPrefixTwiceTakesItOutOfTheOrderOnce) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(48));
  fill(cache, tokens(16, 2));
  const PinResult a = ok(cache.pin(scope, tokens(48), kNever));
  const PinResult b = ok(cache.pin(scope, tokens(48), kNever));
  EXPECT_NE(a.id, b.id);
  ok(cache.unpin(a.id));
  EXPECT_EQ(cache.evict(8), 1U) << "still pinned";
  ok(cache.unpin(b.id));
  cache.check_invariants();
  EXPECT_EQ(cache.evict(8), 3U);
  EXPECT_EQ(free_blocks(cache), 8U);
}

TEST_F(Pins, PinningAnUncachedPromptHoldsNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  EXPECT_EQ(ok(cache.pin(scope, tokens(48), kNever)).pinned_tokens, 0U);
  fill(cache, tokens(48));
  EXPECT_EQ(cache.evict(8), 3U);
}

TEST_F(Pins, EndOfAPinCountsAsAUse) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(16, 1));
  const PinResult pin = ok(cache.pin(scope, tokens(16, 1), kNever));
  fill(cache, tokens(16, 2));
  ok(cache.unpin(pin.id));
  cache.evict(1);
  EXPECT_EQ(kept(cache, tokens(16, 1)), 16U);
  EXPECT_EQ(kept(cache, tokens(16, 2)), 0U);
}

// ---- Tenants -----------------------------------------------------------------------------------

class Quotas : public PagedFixture {
 protected:
  static constexpr TenantId kRed{1};
  static constexpr TenantId kBlue{2};
  static constexpr uint64_t kBlock = 1024;  // Bytes of full(.., 16).

  Options with_quotas(uint32_t red_blocks, uint32_t blue_blocks) {
    Options options = grouped({full(16)});
    options.quotas = {{.tenant = kRed, .bytes = red_blocks * kBlock},
                      {.tenant = kBlue, .bytes = blue_blocks * kBlock}};
    return options;
  }
  Result<Lease> lease_for(PagedCache& cache, TenantId tenant, const Text& text) {
    LeaseOptions options;
    options.tenant = tenant;
    return cache.lease(tenant == kRed ? red : blue, text, options);
  }
  void fill_for(PagedCache& cache, TenantId tenant, const Text& text) {
    Lease lease = ok(lease_for(cache, tenant, text));
    compute(lease);
    ok(lease.release());
  }

  Scope red = scope_of({.model = "m", .tenant_salt = "red"});
  Scope blue = scope_of({.model = "m", .tenant_salt = "blue"});
};

TEST_F(Quotas, TenantOverItsQuotaGivesUpItsOwnBlocks) {
  PagedCache& cache = cache_with(with_quotas(4, 8));
  fill_for(cache, kBlue, tokens(64));
  fill_for(cache, kRed, tokens(48, 2));
  EXPECT_EQ(cache.tenant_bytes(kRed), 3 * kBlock);
  EXPECT_EQ(cache.tenant_bytes(kBlue), 4 * kBlock);
  fill_for(cache, kRed, tokens(48, 3));
  EXPECT_EQ(cache.tenant_bytes(kRed), 4 * kBlock);
  EXPECT_EQ(hit(cache, red, tokens(48, 2) + tokens(1, 9)), 16U) << "two of its own went";
  EXPECT_EQ(hit(cache, blue, tokens(64) + tokens(1, 9)), 64U) << "none of its neighbour's";
}

TEST_F(Quotas, RequestThatCanNeverFitIsRefusedAndNothingChanges) {
  PagedCache& cache = cache_with(with_quotas(4, 8));
  fill_for(cache, kRed, tokens(48, 2));
  const std::string before = books(cache);
  EXPECT_EQ(code(lease_for(cache, kRed, tokens(80, 3))), Errc::over_quota);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(cache.stats().quota_refusals, 1U);
  EXPECT_EQ(hit(cache, red, tokens(48, 2) + tokens(1, 9)), 48U);

  Lease running = ok(lease_for(cache, kRed, tokens(60, 4)));
  EXPECT_EQ(code(running.extend(tokens(10, 5).tokens)), Errc::over_quota);
  EXPECT_EQ(running.length(), 60U);
}

TEST_F(Quotas, DraftsAreCharged) {
  PagedCache& cache = cache_with(with_quotas(4, 8));
  {
    Lease running = ok(lease_for(cache, kRed, tokens(40)));
    EXPECT_EQ(cache.tenant_bytes(kRed), 3 * kBlock);
    EXPECT_EQ(code(lease_for(cache, kRed, tokens(32, 2))), Errc::over_quota);
    EXPECT_EQ(code(lease_for(cache, kBlue, tokens(128, 2))), kOk);
  }
  EXPECT_EQ(cache.tenant_bytes(kRed), 0U);
}

TEST_F(Quotas, QuotaMayChange) {
  PagedCache& cache = cache_with(with_quotas(4, 8));
  fill_for(cache, kRed, tokens(64));
  ok(cache.set_quota(kRed, 6 * kBlock));
  fill_for(cache, kRed, tokens(32, 2));
  EXPECT_EQ(cache.tenant_bytes(kRed), 6 * kBlock);
  ok(cache.set_quota(kRed, 2 * kBlock));
  fill_for(cache, kRed, tokens(16, 3));
  EXPECT_LE(cache.tenant_bytes(kRed), 2 * kBlock);
  EXPECT_EQ(code(cache.set_quota(TenantId{77}, kBlock)), Errc::invalid_argument);
  EXPECT_EQ(cache.tenant_bytes(TenantId{77}), 0U);
}

TEST_F(Quotas, CheckpointBeforeTheFirstBlockIsNoLongerChargedWhenItsScopeGoes) {
  Options options = grouped({full(16), recurrent(8)});
  options.quotas = {{.tenant = kRed, .bytes = 4 * kBlock}};
  PagedCache& cache = cache_with(options);
  Lease lease = ok(lease_for(cache, kRed, tokens(10)));
  ok(lease.commit(10));
  save_checkpoint(lease, 1);
  ok(lease.release());
  EXPECT_NE(cache.tenant_bytes(kRed), 0U);
  cache.drop_scope(red);
  EXPECT_EQ(cache.tenant_bytes(kRed), 0U);
}

TEST_F(Quotas, TenantAtItsQuotaReplacesItsOwnCheckpoints) {
  Options options = grouped({full(16), recurrent(16)});
  options.quotas = {{.tenant = kRed, .bytes = 4 * kBlock + 3 * 256}};
  PagedCache& cache = cache_with(options);
  Lease lease = ok(lease_for(cache, kRed, tokens(64)));
  for (uint32_t n = 8; n <= 64; n += 8) {
    ok(lease.commit(n));
    save_checkpoint(lease, 1);
    EXPECT_LE(cache.tenant_bytes(kRed), 4 * kBlock + 3 * 256);
  }
  EXPECT_EQ(cache.stats().checkpoints, 3U);
  ok(lease.release());
  EXPECT_EQ(hit(cache, red, tokens(64) + tokens(1, 9)), 64U);
}

TEST_F(Quotas, EvictedBlocksAreNoLongerCharged) {
  PagedCache& cache = cache_with(with_quotas(8, 8));
  fill_for(cache, kRed, tokens(64));
  fill_for(cache, kBlue, tokens(64));
  cache.evict(8);
  EXPECT_EQ(cache.tenant_bytes(kRed), 0U);
  fill_for(cache, kRed, tokens(64));
  cache.drop_scope(red);
  EXPECT_EQ(cache.tenant_bytes(kRed), 0U);
}

// ---- Bytes -------------------------------------------------------------------------------------

class Budget : public PagedFixture {};

TEST_F(Budget, CountsBlocksIndexAndLogits) {
  for (uint64_t budget : {uint64_t{1} << 20, uint64_t{3'333'333}}) {
    Options options = grouped({full(0)});
    options.budget_bytes = budget;
    options.logits_bytes = 100'000;
    PagedCache& cache = cache_with(options);
    const Stats empty = cache.stats();
    EXPECT_GT(empty.groups[0].capacity_blocks, budget / 2048) << "most of it goes to blocks";
    for (uint32_t i = 0; i < 300; ++i) {
      Lease lease = take(cache, tokens(160 + i % 16, i));
      compute(lease);
      ok(lease.attach_logits(lease.length(), std::vector<float>(1000)));
      ok(lease.release());
      const Stats stats = cache.stats();
      ASSERT_LE(stats.logits_bytes, 100'000U);
      ASSERT_GE(stats.index_bytes, stats.logits_bytes);  // Everything besides the blocks.
      ASSERT_LE(stats.kv_bytes_capacity + stats.index_bytes, budget) << "request " << i;
    }
    EXPECT_LT(free_blocks(cache), 12U) << "and it is used";
  }
}

TEST_F(Budget, HoldsWhateverSessionsClassesAndLeasesLeaveBehind) {
  Options options = grouped({full(0)});
  options.budget_bytes = 4 << 20;
  PagedCache& cache = cache_with(options);
  const uint32_t blocks = cache.stats().groups[0].capacity_blocks;
  for (uint32_t i = 0; i < 4 * blocks; ++i) {
    LeaseOptions named;
    named.retain.session = SessionId{i + 1};
    named.retain.priority = static_cast<Priority>(i % 90);
    named.retain.ttl_ns = 1000 + i % 50;
    Lease lease = take(cache, tokens(16, i), named);
    compute(lease);
  }
  std::vector<Lease> many;
  for (uint32_t i = 0; i < blocks / 2; ++i) many.push_back(take(cache, tokens(16, blocks * 5 + i)));
  many.clear();
  const Stats stats = cache.stats();
  EXPECT_LE(stats.kv_bytes_capacity + stats.index_bytes, options.budget_bytes);
  EXPECT_GT(stats.kv_bytes_capacity, options.budget_bytes / 2);
}

TEST_F(Budget, HoldsForEveryShapeOfGroups) {
  const std::vector<std::vector<GroupOptions>> shapes = {
      {full(0, 1)},
      {full(0, 64)},
      {window(256, 0)},
      {full(0, 32), window(256, 2000, 16)},
      {full(2000), window(256, 0), recurrent(50)},
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    Options options = grouped(shapes[i]);
    options.budget_bytes = 8 << 20;
    options.content_keys = true;
    PagedCache& cache = cache_with(options);
    for (uint32_t seed = 0; seed < 400; ++seed) fill(cache, tokens(250, seed));
    const Stats stats = cache.stats();
    EXPECT_LE(stats.kv_bytes_capacity + stats.index_bytes, options.budget_bytes) << "shape " << i;
    // Blocks of one token and 64 bytes are smaller than the index entries they may need.
    EXPECT_GT(stats.kv_bytes_capacity, options.budget_bytes / (i == 0 ? 5 : 3)) << "shape " << i;
  }
}

TEST_F(Budget, ReportedBytesAreTheBlocksInUse) {
  PagedCache& cache = cache_with(grouped({full(20), window(32, 20, 8), recurrent(4)}));
  const Stats empty = cache.stats();
  EXPECT_EQ(empty.kv_bytes_capacity, 20 * 1024U + 20 * 512U + 4 * 256U);
  EXPECT_EQ(empty.kv_bytes_used, 0U);
  auto in_use = [&] {
    const Stats stats = cache.stats();
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < stats.group_count; ++g) {
      bytes += (stats.groups[g].capacity_blocks - stats.groups[g].free_blocks) *
               stats.groups[g].block_bytes;
    }
    return bytes;
  };
  Lease lease = take(cache, tokens(60));
  EXPECT_EQ(cache.stats().kv_bytes_used, in_use());
  ok(lease.commit(50));
  save_checkpoint(lease, 2);
  EXPECT_EQ(cache.stats().kv_bytes_used, in_use());
  ok(lease.release());
  EXPECT_EQ(cache.stats().kv_bytes_used, in_use());
  EXPECT_GT(in_use(), 3 * 1024U);
  cache.evict(20);
  EXPECT_EQ(cache.stats().kv_bytes_used, 0U);
}

}  // namespace
}  // namespace stemma::test
