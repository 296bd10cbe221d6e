// Calls that make no sense: each fails with a clear error and changes nothing, in every build.
#include <string>
#include <utility>
#include <vector>

#include "support/cache_fixture.h"
#include "support/numbers.h"

namespace stemma::test {
namespace {

class Misuse : public PagedFixture {
 protected:
  // Every call on an empty or ended lease fails, and the lease reads as empty.
  void expect_dead(Lease& lease) {
    EXPECT_FALSE(lease.active());
    EXPECT_FALSE(lease);
    EXPECT_EQ(lease.reused() + lease.committed() + lease.length() + lease.capacity(), 0U);
    EXPECT_TRUE(lease.copies().empty());
    EXPECT_TRUE(lease.media_to_process().empty());
    EXPECT_TRUE(lease.logits().empty());
    EXPECT_EQ(lease.block_count(0), 0U);
    EXPECT_EQ(lease.report().reused_tokens, 0U);
    EXPECT_EQ(lease.adopt_canonical(), 0U);
    const Token token = 5;
    const float logit = 1;
    EXPECT_EQ(code(lease.release()), Errc::wrong_state);
    EXPECT_EQ(code(lease.abandon()), Errc::wrong_state);
    EXPECT_EQ(code(lease.commit(0)), Errc::wrong_state);
    EXPECT_EQ(code(lease.extend({&token, 1})), Errc::wrong_state);
    EXPECT_EQ(code(lease.reserve(1)), Errc::wrong_state);
    EXPECT_EQ(code(lease.rewind(0)), Errc::wrong_state);
    EXPECT_EQ(code(lease.fork()), Errc::wrong_state);
    EXPECT_EQ(code(lease.shrink_to(0)), Errc::wrong_state);
    EXPECT_EQ(code(lease.copies_done()), Errc::wrong_state);
    EXPECT_EQ(code(lease.copies_failed()), Errc::wrong_state);
    EXPECT_NE(code(lease.run_copies()), kOk);
    EXPECT_NE(code(lease.draft_checkpoint(0)), kOk);
    EXPECT_NE(code(lease.commit_checkpoint(0, 0)), kOk);
    EXPECT_NE(code(lease.attach_logits(0, {&logit, 1})), kOk);
    std::vector<BlockId> table(4);
    EXPECT_NE(code(lease.block_table(0, table)), kOk);
    std::vector<int64_t> slots(4);
    EXPECT_NE(code(lease.slot_mapping(0, 0, slots)), kOk);
  }
};

TEST_F(Misuse, DoubleReleaseIsAnErrorAndChangesNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease lease = take(cache, tokens(40));
  compute(lease);
  ok(lease.release());
  const std::string before = books(cache);
  EXPECT_EQ(code(lease.release()), Errc::wrong_state);
  EXPECT_EQ(code(lease.abandon()), Errc::wrong_state);
  EXPECT_EQ(books(cache), before);
  EXPECT_EQ(kept(cache, tokens(40)), 40U);
}

TEST_F(Misuse, DeadLeasesAnswerEveryCallWithAnError) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease never;
  Lease released = take(cache, tokens(40));
  ok(released.release());
  Lease moved_from = take(cache, tokens(40, 2));
  Lease target = std::move(moved_from);
  const std::string before = books(cache) + position(target);
  expect_dead(never);
  expect_dead(released);
  expect_dead(moved_from);  // NOLINT: that is the point.
  EXPECT_EQ(books(cache) + position(target), before);
}

TEST_F(Misuse, MovedFromCacheAnswersEveryCallWithAnErrorOrNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  PagedCache taken = std::move(cache);
  const Text prompt = tokens(40);
  EXPECT_EQ(code(cache.lookup(scope, prompt)), Errc::wrong_state);
  EXPECT_EQ(code(cache.lease(scope, prompt)), Errc::wrong_state);
  EXPECT_EQ(code(cache.pin(scope, prompt, 1)), Errc::wrong_state);
  EXPECT_EQ(code(cache.unpin(PinId{1})), Errc::wrong_state);
  EXPECT_EQ(code(cache.set_quota(TenantId{1}, 1)), Errc::wrong_state);
  EXPECT_EQ(code(cache.truncate(scope, prompt, 0)), Errc::wrong_state);
  EXPECT_EQ(code(cache.reset()), Errc::wrong_state);
  EXPECT_EQ(code(cache.branch_points(scope, prompt)), Errc::wrong_state);
  EXPECT_EQ(code(cache.load({})), Errc::wrong_state);
  cache.end_session(SessionId{1});
  cache.check_invariants();
  std::vector<Event> events;
  EXPECT_EQ(cache.tenant_bytes(TenantId{1}) + cache.drop_scope(scope) + cache.evict(1) +
                cache.poll() + cache.stats().group_count + cache.events(0, 9, events),
            0U);
  EXPECT_TRUE(cache.dump().empty());
  EXPECT_TRUE(cache.event_dump().events.empty());
  EXPECT_EQ(kept(taken, prompt), 0U) << "the cache itself goes on";
  cache = std::move(taken);
  EXPECT_EQ(cache.stats().group_count, 1U);
}

TEST_F(Misuse, StaleLeaseDoesNotTouchItsSuccessor) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease old = take(cache, tokens(64));
  ok(old.abandon());
  Lease fresh = take(cache, tokens(64, 2));  // The same blocks, and probably the same record.
  const std::string before = books(cache) + position(fresh);
  expect_dead(old);
  EXPECT_EQ(books(cache) + position(fresh), before);
}

TEST_F(Misuse, LeaseMovedOntoItselfSurvives) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 4});
  Lease lease = take(cache, tokens(20));
  Lease& same = lease;
  lease = std::move(same);
  EXPECT_TRUE(lease.active());
  EXPECT_EQ(lease.length(), 20U);
}

TEST_F(Misuse, CommitOutsideTheLeaseIsOutOfRange) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease lease = take(cache, tokens(40));
  ok(lease.commit(20));
  ok(lease.reserve(60));
  const std::string before = books(cache) + position(lease);
  for (uint32_t n : {0U, 19U, 41U, 60U, 128U, kHuge - 15, kHuge}) {
    EXPECT_EQ(code(lease.commit(n)), Errc::out_of_range) << n;
  }
  EXPECT_EQ(books(cache) + position(lease), before);
  EXPECT_EQ(kept(cache, tokens(40)), 16U);
}

TEST_F(Misuse, CommitBelowWhatWasReusedIsOutOfRange) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(48));
  Lease lease = take(cache, tokens(60));
  ASSERT_EQ(lease.reused(), 48U);
  EXPECT_EQ(code(lease.commit(47)), Errc::out_of_range);
  EXPECT_EQ(lease.committed(), 48U);
}

TEST_F(Misuse, RewindBeyondTheLengthIsOutOfRange) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease lease = take(cache, tokens(40));
  ok(lease.commit(40));
  ok(lease.reserve(64));
  const std::string before = books(cache) + position(lease);
  for (uint32_t n : {41U, 48U, 64U, kHuge}) {
    EXPECT_EQ(code(lease.rewind(n)), Errc::out_of_range)
        << "capacity is no length: those rows were never written";
  }
  EXPECT_EQ(books(cache) + position(lease), before);
}

TEST_F(Misuse, ShrinkBeyondWhatWasReusedIsOutOfRange) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(48));
  Lease lease = take(cache, tokens(60));
  for (uint32_t n : {49U, 60U, kHuge}) EXPECT_EQ(code(lease.shrink_to(n)), Errc::out_of_range);
  EXPECT_EQ(lease.reused(), 48U);
}

TEST_F(Misuse, AbsurdReservationsAreRefused) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(16, 2));
  Lease lease = take(cache, tokens(20));
  const std::string before = books(cache) + position(lease);
  for (uint32_t n : {129U, 1U << 31, kHuge - 15, kHuge - 14, kHuge}) {
    EXPECT_NE(code(lease.reserve(n)), kOk) << n;
  }
  EXPECT_EQ(books(cache) + position(lease), before);
  ok(lease.reserve(0));
  EXPECT_EQ(books(cache) + position(lease), before) << "less than there is: nothing to do";
}

TEST_F(Misuse, ExtendingByABadTokenAddsNothing) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease lease = take(cache, tokens(20));
  const std::string before = books(cache) + position(lease);
  for (uint32_t at : {0U, 1U, 2U}) {
    std::vector<Token> list = {1, 2, 3};
    list[at] = kTokenLimit;
    EXPECT_EQ(code(lease.extend(list)), Errc::invalid_argument);
  }
  EXPECT_EQ(books(cache) + position(lease), before);
  ok(lease.extend({}));
  EXPECT_EQ(lease.length(), 20U);
}

TEST_F(Misuse, BlockTableThatIsTooSmallIsOutOfRange) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  Lease lease = take(cache, tokens(40));
  std::vector<BlockId> table(2, BlockId{99});
  EXPECT_EQ(code(lease.block_table(0, table)), Errc::out_of_range);
  EXPECT_EQ(table, std::vector(2, BlockId{99})) << "and untouched";
  table.resize(3);
  EXPECT_EQ(ok(lease.block_table(0, table)), 3U);
}

TEST_F(Misuse, UnknownGroupsAreInvalid) {
  PagedCache& cache = cache_with(grouped({full(8), recurrent(2)}));
  Lease lease = take(cache, tokens(40));
  std::vector<BlockId> table(8);
  std::vector<int64_t> slots(8);
  for (GroupIndex group : {1U, 2U, 8U, kHuge}) {
    EXPECT_EQ(code(lease.block_table(group, table)), Errc::invalid_argument) << group;
    EXPECT_EQ(code(lease.slot_mapping(group, 0, slots)), Errc::invalid_argument) << group;
    EXPECT_EQ(lease.block_count(group), 0U) << group;
  }
  for (GroupIndex group : {0U, 2U, kHuge}) {
    EXPECT_EQ(code(lease.draft_checkpoint(group)), Errc::unsupported) << group;
    EXPECT_NE(code(lease.commit_checkpoint(group, 0)), kOk) << group;
  }
}

TEST_F(Misuse, CheckpointsOutOfOrderOrOutOfPlaceAreRefused) {
  PagedCache& cache = cache_with(grouped({full(8), recurrent(2)}));
  const Text text = tokens(40).with(image(1, 10, 6));
  Lease lease = take(cache, text);
  ok(lease.commit(20));
  EXPECT_EQ(code(lease.commit_checkpoint(1, 20)), Errc::wrong_state) << "nothing drafted";
  ok(lease.draft_checkpoint(1));
  EXPECT_EQ(code(lease.draft_checkpoint(1)), Errc::wrong_state) << "one at a time";
  const std::string before = books(cache) + position(lease);
  EXPECT_EQ(code(lease.commit_checkpoint(1, 21)), Errc::out_of_range) << "not written yet";
  EXPECT_EQ(code(lease.commit_checkpoint(1, kHuge)), Errc::out_of_range);
  EXPECT_EQ(code(lease.commit_checkpoint(1, 12)), Errc::out_of_range) << "inside an item";
  EXPECT_EQ(books(cache) + position(lease), before);
  ok(lease.commit_checkpoint(1, 20));
  EXPECT_EQ(code(lease.commit_checkpoint(1, 20)), Errc::wrong_state);
}

TEST_F(Misuse, LogitsAtTheWrongDepthAreRefused) {
  Options options = grouped({full(8)});
  options.logits_bytes = 1000;
  PagedCache& cache = cache_with(options);
  Lease lease = take(cache, tokens(40).with(image(1, 10, 6)));
  ok(lease.commit(20));
  const std::vector<float> logits(10);
  const std::string before = books(cache) + position(lease);
  for (uint32_t depth : {21U, 40U, 41U, kHuge, 12U}) {
    EXPECT_EQ(code(lease.attach_logits(depth, logits)), Errc::out_of_range) << depth;
  }
  EXPECT_EQ(books(cache) + position(lease), before);
  PagedCache& without = cache_of({.block_tokens = 16, .capacity = 8});
  Lease other = take(without, tokens(20));
  compute(other);
  EXPECT_EQ(code(other.attach_logits(20, logits)), Errc::unsupported);
}

TEST_F(Misuse, StaleAndForeignPinsAreHarmless) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  PagedCache& other = cache_of({.block_tokens = 16, .capacity = 8});
  fill(cache, tokens(32));
  const PinId id = ok(cache.pin(scope, tokens(32), kNever)).id;
  const std::string before = books(other);
  EXPECT_EQ(code(other.unpin(id)), Errc::stale) << "another cache's";
  EXPECT_EQ(books(other), before);
  for (uint64_t number : {uint64_t{0}, uint64_t{12345}, ~uint64_t{0}}) {
    if (PinId{number} == id) continue;
    EXPECT_EQ(code(cache.unpin(PinId{number})), Errc::stale) << number;
  }
  EXPECT_EQ(cache.stats().pinned_blocks, 2U);
  ok(cache.unpin(id));
  const PinId next = ok(cache.pin(scope, tokens(32), kNever)).id;
  EXPECT_EQ(code(cache.unpin(id)), Errc::stale) << "its place was given to another";
  EXPECT_EQ(cache.stats().pinned_blocks, 2U);
  EXPECT_NE(next, id);
}

TEST_F(Misuse, BadRetentionIsRefusedAndNothingChanges) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  std::vector<PriorityRange> too_many;
  for (uint32_t i = 0; i <= kMaxPriorityRanges; ++i) {
    too_many.push_back({.begin = i, .end = i + 1, .priority = 80});
  }
  const std::vector<std::vector<PriorityRange>> bad = {
      too_many,
      {{.begin = 0, .end = 64, .priority = 80}, {.begin = 63, .end = 128, .priority = 50}},
      {{.begin = 0, .priority = 80}, {.begin = 64, .end = 128, .priority = 50}},
      {{.begin = 64, .end = 128, .priority = 80}, {.begin = 0, .end = 64, .priority = 50}},
      {{.begin = 10, .end = 5, .priority = 80}},
      {{.begin = 0, .end = 64, .priority = 101}},
      {{.begin = 0, .end = 64, .priority = 255}},
  };
  Lease running = take(cache, tokens(40));
  compute(running);
  const std::string before = books(cache) + position(running);
  for (size_t i = 0; i < bad.size(); ++i) {
    LeaseOptions options;
    options.retain.ranges = bad[i];
    EXPECT_EQ(code(cache.lease(scope, tokens(20, 2), options)), Errc::invalid_argument) << i;
    EXPECT_EQ(code(running.release({.retain = &options.retain})), Errc::invalid_argument) << i;
  }
  LeaseOptions options;
  options.retain.priority = 101;
  EXPECT_EQ(code(cache.lease(scope, tokens(20, 2), options)), Errc::invalid_argument);
  EXPECT_EQ(code(running.release({.retain = &options.retain})), Errc::invalid_argument);
  for (const Retain& unknown :
       {Retain{.phase = SessionPhase{3}}, Retain{.phase = SessionPhase{255}},
        Retain{.finish = FinishReason{5}}, Retain{.finish = FinishReason{255}}}) {
    options.retain = unknown;
    EXPECT_EQ(code(cache.lease(scope, tokens(20, 2), options)), Errc::invalid_argument);
    EXPECT_EQ(code(running.release({.retain = &options.retain})), Errc::invalid_argument);
  }
  EXPECT_TRUE(running.active());
  EXPECT_EQ(books(cache) + position(running), before);
}

TEST_F(Misuse, AbsurdTimesAndCountsAreTaken) {
  PagedCache& cache = cache_of({.block_tokens = 16, .capacity = 8});
  clock.set_ns(kNever - 5);
  fill(cache, tokens(32), {.priority = 50, .ttl_ns = kNever - 1, .session_ttl_ns = 100});
  ok(cache.pin(scope, tokens(32), kNever - 1));
  EXPECT_EQ(kept(cache, tokens(32)), 32U) << "a deadline past the end of time does not wrap around";
  EXPECT_EQ(cache.evict(kHuge), 0U);
  EXPECT_NE(code(cache.lease(scope, tokens(128, 2))), kOk);
  cache.end_session(kNoSession);
  EXPECT_EQ(ok(cache.truncate(scope, tokens(32, 9), kHuge)), 0U);
  EXPECT_EQ(ok(cache.truncate(scope, tokens(32), kHuge)), 0U);
  EXPECT_EQ(kept(cache, tokens(32)), 32U);
}

}  // namespace
}  // namespace stemma::test
