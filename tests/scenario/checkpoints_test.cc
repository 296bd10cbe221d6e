// Recurrent groups and logits: both are valid at exactly one depth.
#include <algorithm>
#include <vector>

#include "support/cache_fixture.h"
#include "support/engine.h"

namespace stemma::test {
namespace {

class Checkpoints : public PagedFixture {
 protected:
  // Computes the text, saving a checkpoint of group 1 at each of the depths.
  void fill_with(PagedCache& cache, const Text& text, const std::vector<uint32_t>& depths) {
    Lease lease = take(cache, text);
    if (!lease.copies().empty()) ok(lease.copies_done());
    for (uint32_t depth : depths) {
      ok(lease.commit(depth));
      save_checkpoint(lease, 1);
    }
    ok(lease.commit(text.size()));
    ok(lease.release());
  }
};

TEST_F(Checkpoints, StateServesItsExactDepthOnly) {
  PagedCache& cache = cache_with(grouped({full(20), recurrent(4)}));
  const Text text = tokens(55);
  fill_with(cache, text, {48});
  EXPECT_EQ(hit(cache, text + tokens(7, 2)), 48U);
  const Report shorter = look(cache, text.first(32) + tokens(7, 2));
  EXPECT_EQ(shorter.reused_tokens, 0U);
  EXPECT_EQ(shorter.matched_tokens, 32U);
  EXPECT_EQ(shorter.checkpoint_would_help_at, 32U);
  EXPECT_EQ(shorter.reason, MissReason::no_checkpoint);
  EXPECT_EQ(shorter.limiting_group, 1U);
}

TEST_F(Checkpoints, EarlierStateServesEarlierDivergence) {
  PagedCache& cache = cache_with(grouped({full(20), recurrent(4)}));
  const Text text = tokens(55);
  fill_with(cache, text, {32, 48});
  EXPECT_EQ(hit(cache, text.first(32) + tokens(7, 2)), 32U);
  EXPECT_EQ(hit(cache, text.first(47) + tokens(7, 2)), 32U);
  EXPECT_EQ(hit(cache, text.first(48) + tokens(7, 2)), 48U);
  EXPECT_EQ(hit(cache, text.first(31) + tokens(7, 2)), 0U);
}

TEST_F(Checkpoints, DivergingQueryFallsBackToAShallowerState) {
  PagedCache& cache = cache_with(grouped({full(20, 1), recurrent(4)}));
  const Text text = counting(1, 9);
  fill_with(cache, text, {8});
  EXPECT_EQ(hit(cache, text + of({50})), 8U);
  EXPECT_EQ(hit(cache, counting(1, 5) + counting(60, 65)), 0U);
  fill_with(cache, counting(1, 4) + of({70}), {3});
  EXPECT_EQ(hit(cache, counting(1, 5) + counting(60, 65)), 3U);
  EXPECT_EQ(hit(cache, text + of({50})), 8U);
}

TEST_F(Checkpoints, AnyDepthMayHaveAState) {
  const Options options = grouped({full(40), recurrent(16)});
  PagedCache& cache = cache_with(options);
  Engine engine(options.groups);
  const Text text = tokens(50);
  const Story story = story_of(text + of({5}));
  Lease writer = take(cache, text);
  for (uint32_t depth : {1U, 7U, 16U, 23U, 31U, 32U, 50U}) {
    engine.run(writer, story, depth);
    engine.save(writer, story, 1);
  }
  ok(writer.release());
  for (uint32_t depth : {1U, 7U, 16U, 23U, 31U, 32U, 50U}) {
    const Text query = text.first(depth) + of({5});
    Lease lease = take(cache, query);
    ASSERT_EQ(lease.reused(), depth);
    engine.run(lease, story_of(query), depth + 1);
    ok(lease.abandon());
  }
}

TEST_F(Checkpoints, StateIsLoadedIntoTheRunningRequest) {
  PagedCache& cache = cache_with(grouped({full(20), recurrent(4), recurrent(4)}));
  const Text text = tokens(40);
  Lease writer = take(cache, text);
  ok(writer.commit(32));
  const BlockId slots[] = {save_checkpoint(writer, 1), save_checkpoint(writer, 2)};
  compute(writer);
  ok(writer.release());
  Lease lease = take(cache, text.first(32) + tokens(8, 2));
  ASSERT_EQ(lease.reused(), 32U);
  ASSERT_EQ(lease.copies().size(), 2U) << "one state per recurrent group";
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lease.copies()[i].group, i + 1);
    EXPECT_EQ(lease.copies()[i].source, slots[i]);
    EXPECT_EQ(lease.copies()[i].target, kNoBlock);
  }
  EXPECT_EQ(code(lease.commit(40)), Errc::wrong_state) << "the states are not loaded yet";
}

TEST_F(Checkpoints, EveryRecurrentGroupMustHaveItsState) {
  PagedCache& cache = cache_with(grouped({full(20), recurrent(4), recurrent(4)}));
  const Text text = tokens(48);
  Lease writer = take(cache, text);
  ok(writer.commit(16));
  save_checkpoint(writer, 1);
  save_checkpoint(writer, 2);
  ok(writer.commit(32));
  save_checkpoint(writer, 2);
  compute(writer);
  ok(writer.release());
  EXPECT_EQ(hit(cache, text), 16U);
}

TEST_F(Checkpoints, FailedLoadStartsFromNothing) {
  PagedCache& cache = cache_with(grouped({full(20), recurrent(4)}));
  const Text text = tokens(40);
  fill_with(cache, text, {32});
  Lease lease = take(cache, text);
  ASSERT_EQ(lease.reused(), 32U);
  ok(lease.copies_failed());
  EXPECT_EQ(lease.reused(), 0U);
  EXPECT_TRUE(lease.copies().empty());
  EXPECT_EQ(lease.report().to_compute_tokens, 40U);
  EXPECT_EQ(lease.report().reason, MissReason::gave_up);
  compute(lease);
}

TEST_F(Checkpoints, LeastRecentlyUsedStateGivesUpItsSlot) {
  PagedCache& cache = cache_with(grouped({full(40), recurrent(3)}));
  for (uint32_t seed = 1; seed <= 3; ++seed) fill_with(cache, tokens(20, seed), {16});
  take(cache, tokens(20, 1));
  fill_with(cache, tokens(20, 4), {16});
  EXPECT_EQ(hit(cache, tokens(20, 1)), 16U);
  EXPECT_EQ(hit(cache, tokens(20, 2)), 0U) << "used longest ago";
  EXPECT_EQ(hit(cache, tokens(20, 3)), 16U);
  EXPECT_EQ(hit(cache, tokens(20, 4)), 16U);
  EXPECT_EQ(cache.stats().checkpoints, 3U);
  EXPECT_EQ(look(cache, tokens(20, 2)).matched_tokens, 20U) << "its blocks are still there";
}

TEST_F(Checkpoints, NewerStateOfTheSameDepthReplacesTheOlder) {
  PagedCache& cache = cache_with(grouped({full(40), recurrent(3)}));
  Lease lease = take(cache, tokens(20));
  ok(lease.commit(16));
  save_checkpoint(lease, 1);
  const BlockId second = save_checkpoint(lease, 1);
  compute(lease);
  ok(lease.release());
  EXPECT_EQ(cache.stats().checkpoints, 1U);
  Lease reader = take(cache, tokens(20));
  ASSERT_EQ(reader.copies().size(), 1U);
  EXPECT_EQ(reader.copies()[0].source, second);
}

TEST_F(Checkpoints, DraftedStateIsNotFoundAndGoesBack) {
  PagedCache& cache = cache_with(grouped({full(40), recurrent(1)}));
  Lease lease = take(cache, tokens(20));
  ok(lease.commit(16));
  ok(lease.draft_checkpoint(1));
  EXPECT_EQ(hit(cache, tokens(20)), 0U);
  Lease other = take(cache, tokens(20, 2));
  EXPECT_EQ(code(other.draft_checkpoint(1)), Errc::out_of_blocks);
  ok(lease.release());
  EXPECT_EQ(free_blocks(cache, 1), 1U);
  ok(other.draft_checkpoint(1));
}

TEST_F(Checkpoints, StateInUseIsNotTaken) {
  PagedCache& cache = cache_with(grouped({full(40), recurrent(1)}));
  fill_with(cache, tokens(20), {16});
  Lease reader = take(cache, tokens(20));
  ASSERT_EQ(reader.copies().size(), 1U);
  Lease other = take(cache, tokens(20, 2));
  ok(other.commit(16));
  EXPECT_EQ(code(other.draft_checkpoint(1)), Errc::out_of_blocks) << "it is being loaded";
  ok(reader.copies_done());
  ok(other.draft_checkpoint(1));
}

TEST_F(Checkpoints, StateGoesWithItsPath) {
  PagedCache& cache = cache_with(grouped({full(40), recurrent(4)}));
  fill_with(cache, tokens(48), {16, 48});
  cache.evict(1);
  EXPECT_EQ(cache.stats().checkpoints, 1U);
  ok(cache.truncate(scope, tokens(48), 0));
  EXPECT_EQ(cache.stats().checkpoints, 0U);
  EXPECT_EQ(free_blocks(cache, 1), 4U);
}

TEST_F(Checkpoints, ModelWithoutAttentionIsServedByStatesAlone) {
  const Options options = grouped({recurrent(4)});
  PagedCache& cache = cache_with(options);
  const Text text = tokens(100);
  Lease lease = take(cache, text);
  ok(lease.commit(77));
  save_checkpoint(lease, 0);
  compute(lease);
  ok(lease.release());
  EXPECT_EQ(hit(cache, text), 77U);
  EXPECT_EQ(hit(cache, text.first(77)), 0U);
  EXPECT_EQ(look(cache, text.first(77)).checkpoint_would_help_at, 76U);
}

// ---- Logits ------------------------------------------------------------------------------------

class Logits : public PagedFixture {
 protected:
  static Options keeping(uint64_t bytes) {
    Options options = grouped({full(20)});
    options.logits_bytes = bytes;
    return options;
  }
  void fill_with(PagedCache& cache, const Text& text, const std::vector<float>& logits) {
    Lease lease = take(cache, text);
    compute(lease);
    ok(lease.attach_logits(text.size(), logits));
    ok(lease.release());
  }
  static LeaseOptions wanting() {
    LeaseOptions options;
    options.lookup.want_logits = true;
    return options;
  }
};

TEST_F(Logits, NothingIsEvaluatedWhenTheyAreThereAndWanted) {
  PagedCache& cache = cache_with(keeping(4096));
  const std::vector<float> logits = {0.5F, -1.0F, 3.25F};
  for (const Text& text : {tokens(64), tokens(50, 2), tokens(3, 3)}) {
    fill_with(cache, text, logits);
    Lease lease = take(cache, text, wanting());
    EXPECT_EQ(lease.reused(), text.size());
    EXPECT_EQ(lease.report().to_compute_tokens, 0U);
    EXPECT_EQ(lease.report().outcome, Outcome::full_hit);
    EXPECT_TRUE(std::ranges::equal(lease.logits(), logits));
    EXPECT_EQ(take(cache, text).reused(), text.size() - 1) << "they were not asked for";
    EXPECT_TRUE(take(cache, text).logits().empty());
  }
}

TEST_F(Logits, ServeTheWholePromptOnly) {
  PagedCache& cache = cache_with(keeping(4096));
  fill_with(cache, tokens(40), {1.0F});
  for (const Text& text : {tokens(41), tokens(39), tokens(40).first(39) + tokens(1, 2)}) {
    Lease lease = take(cache, text, wanting());
    EXPECT_TRUE(lease.logits().empty());
    EXPECT_GE(lease.report().to_compute_tokens, 1U);
  }
}

TEST_F(Logits, NewerOnesReplaceOlderOnes) {
  PagedCache& cache = cache_with(keeping(4096));
  fill_with(cache, tokens(40), {1.0F});
  const uint64_t bytes = cache.stats().logits_bytes;
  fill_with(cache, tokens(40), {2.0F});
  EXPECT_EQ(cache.stats().logits_bytes, bytes);
  EXPECT_EQ(take(cache, tokens(40), wanting()).logits()[0], 2.0F);
}

TEST_F(Logits, StayWithinTheirBytesLeastRecentlyUsedFirst) {
  PagedCache& cache = cache_with(keeping(1000));
  const std::vector<float> logits(100, 1.0F);
  fill_with(cache, tokens(16, 1), logits);
  fill_with(cache, tokens(16, 2), logits);
  EXPECT_FALSE(take(cache, tokens(16, 1), wanting()).logits().empty());
  fill_with(cache, tokens(16, 3), logits);
  EXPECT_LE(cache.stats().logits_bytes, 1000U);
  EXPECT_FALSE(take(cache, tokens(16, 1), wanting()).logits().empty());
  EXPECT_TRUE(take(cache, tokens(16, 2), wanting()).logits().empty());
  EXPECT_FALSE(take(cache, tokens(16, 3), wanting()).logits().empty());

  Lease lease = take(cache, tokens(16, 4));
  compute(lease);
  const std::string before = books(cache);
  EXPECT_EQ(code(lease.attach_logits(16, std::vector<float>(251))), Errc::out_of_memory);
  EXPECT_EQ(books(cache), before) << "too large to keep must not empty the cache";
}

TEST_F(Logits, StayReadableWhileLeased) {
  PagedCache& cache = cache_with(keeping(600));
  fill_with(cache, tokens(16), std::vector<float>(100, 7.0F));
  Lease lease = take(cache, tokens(16), wanting());
  ASSERT_EQ(lease.logits().size(), 100U);
  {
    Lease other = take(cache, tokens(16, 2));
    compute(other);
    static_cast<void>(other.attach_logits(16, std::vector<float>(100, 8.0F)));
  }
  cache.evict(20);
  ok(cache.reset(OnBusy::defer));
  EXPECT_EQ(std::ranges::count(lease.logits(), 7.0F), 100);
}

TEST_F(Checkpoints, LeaseGoesBackToItsOwnCheckpointInsideItsLastBlock) {
  PagedCache& cache = cache_with(grouped({full(16), recurrent(4)}));
  Lease lease = take(cache, tokens(24));
  ok(lease.commit(20));
  const BlockId slot = save_checkpoint(lease, 1);
  ok(lease.commit(24));
  EXPECT_EQ(code(lease.rewind(21)), Errc::out_of_range) << "no state was saved there";
  ok(lease.rewind(20));
  EXPECT_EQ(lease.committed(), 20U);
  ASSERT_EQ(lease.copies().size(), 1U);
  EXPECT_EQ(lease.copies()[0].group, 1U);
  EXPECT_EQ(lease.copies()[0].source, slot);
  EXPECT_EQ(lease.copies()[0].target, kNoBlock);
  EXPECT_EQ(lease.copies()[0].tokens, 20U);
  EXPECT_EQ(code(lease.extend(tokens(2, 5).tokens)), kOk);
  EXPECT_EQ(code(lease.commit(22)), Errc::wrong_state) << "the state is still to be loaded";
  ok(lease.copies_done());
  ok(lease.commit(22));
  ok(lease.release());
}

TEST_F(Checkpoints, AloneTheyServeLongPrompts) {
  PagedCache& cache = cache_with(grouped({recurrent(8)}));
  Lease lease = take(cache, tokens(70'000));
  ok(lease.commit(70'000));
  save_checkpoint(lease, 0);
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(70'000)), 70'000U);
  Options options = grouped({recurrent(8)});
  options.index_cells = 100;
  PagedCache& small = cache_with(options);
  const Result<Lease> refused = small.lease(scope, tokens(70'000));
  ASSERT_EQ(code(refused), Errc::out_of_blocks);
  EXPECT_NE(refused.error().to_string().find("index_cells"), std::string::npos);
}

TEST_F(Checkpoints, PriorityReachesCheckpoints) {
  PagedCache& cache = cache_with(grouped({full(256), recurrent(4)}));
  const Text system = tokens(128);
  const auto serve = [&](const Text& text, Priority priority) {
    LeaseOptions options;
    options.retain.priority = priority;
    Lease lease = take(cache, text, options);
    compute(lease);
    save_checkpoint(lease, 1);
    ok(lease.release());
  };
  serve(system, 100);
  for (uint32_t i = 1; i <= 12; ++i) {
    serve(i <= 6 ? tokens(96, i) : system + tokens(40, i), 0);
    ASSERT_EQ(kept(cache, system), 128U) << i;
  }
  EXPECT_GT(free_blocks(cache), 100U);
}

TEST_F(Checkpoints, NewScopesAndAnchorsGetCellsThatCachedPromptsHold) {
  // An index of 4,097 cells of 16 positions; cached prompts fill it to the last cell.
  Options options = grouped({recurrent(4)});
  options.index_cells = 1;
  options.logits_bytes = 4096;
  PagedCache& cache = cache_with(options);
  for (uint32_t i = 0; i < 70; ++i) fill(cache, tokens(1024, i));
  const Scope other = scope_of({.model = "another"});
  fill(cache, other, tokens(16));
  EXPECT_EQ(cache.stats().scopes, 2U);
  fill(cache, tokens(1024, 70));
  // Inside a block the state needs a cell of its own.
  Lease lease = take(cache, tokens(24, 71));
  ok(lease.commit(20));
  fill(cache, tokens(1024, 72));
  save_checkpoint(lease, 0);
  fill(cache, tokens(1024, 73));
  ok(lease.attach_logits(19, std::vector<float>{1, 2, 3}));
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(20, 71)), 20U);
}

TEST_F(Checkpoints, RefusedLeaseOfANewScopeTakesNothingFromAFullIndex) {
  Options options = grouped({recurrent(4)});
  options.index_cells = 1;
  PagedCache& cache = cache_with(options);
  for (uint32_t i = 0; i < 70; ++i) fill(cache, tokens(1024, i));
  const std::string before = books(cache);
  const Scope other = scope_of({.model = "another"});
  const Result<Lease> refused = cache.lease(other, tokens(70'000));
  EXPECT_EQ(code(refused), Errc::out_of_blocks);
  EXPECT_EQ(books(cache), before);
}

TEST_F(Checkpoints, ScopeIsRefusedForBlocksNotMemoryWhileLeasesHoldEveryCell) {
  Options options = grouped({recurrent(4)});
  options.index_cells = 1;
  PagedCache& cache = cache_with(options);
  Lease lease = take(cache, tokens(4096 * 16));
  ok(lease.commit(4096 * 16 - 8));
  const Scope other = scope_of({.model = "another"});
  const Result<Lease> refused = cache.lease(other, tokens(16));
  ASSERT_EQ(code(refused), Errc::out_of_blocks);
  EXPECT_NE(refused.error().to_string().find("index_cells"), std::string::npos);
  ok(lease.draft_checkpoint(0));
  const Result<void> inside = lease.commit_checkpoint(0, 4096 * 16 - 8);
  ASSERT_EQ(code(inside), Errc::out_of_blocks);
  EXPECT_NE(inside.error().to_string().find("index_cells"), std::string::npos);
  ok(lease.release());
  fill(cache, other, tokens(16));
}

TEST_F(Checkpoints, SmallLogitsInsideBlocksMakeRoomForEachOther) {
  // More of them than the index has spare cells; the cache's blocks number the other cells.
  Options options = grouped({full(8)});
  options.logits_bytes = 1 << 20;
  PagedCache& cache = cache_with(options);
  Lease lease = take(cache, tokens(100));
  ok(lease.commit(100));
  const std::vector<float> one{1};
  for (Token i = 0; i < 4200; ++i) {
    Lease branch = take(cache, tokens(4) + of({i, i}));
    compute(branch);
    ok(branch.attach_logits(6, one));
    ok(branch.abandon());
  }
  const Scope other = scope_of({.model = "another"});
  fill(cache, other, tokens(16));
  ok(lease.release());
}

TEST_F(Checkpoints, LeaseThatDoesNotWriteDraftsNone) {
  PagedCache& cache = cache_with(grouped({full(16), recurrent(4)}));
  LeaseOptions options;
  options.lookup.write = false;
  Lease lease = take(cache, tokens(24), options);
  ok(lease.commit(24));
  EXPECT_EQ(code(lease.draft_checkpoint(1)), Errc::wrong_state);
}

TEST_F(Checkpoints, TruncateForgetsWhatHangsInsideTheBlockItCuts) {
  Options options = grouped({full(16), recurrent(4)});
  options.logits_bytes = 4096;
  PagedCache& cache = cache_with(options);
  const std::vector<float> old{1, 2, 3};
  Lease lease = take(cache, tokens(30));
  ok(lease.commit(20));
  save_checkpoint(lease, 1);
  ok(lease.attach_logits(20, old));
  ok(lease.commit(30));
  ok(lease.release());
  EXPECT_EQ(kept(cache, tokens(20)), 20U);
  ok(cache.truncate(scope, tokens(30), 16));
  EXPECT_EQ(cache.stats().checkpoints, 0U);
  EXPECT_EQ(cache.stats().logits_bytes, 0U);
  fill(cache, tokens(30));  // Computed again, without a checkpoint.
  EXPECT_EQ(kept(cache, tokens(30)), 0U) << "the old state is of what was invalidated";
  LeaseOptions want;
  want.lookup.want_logits = true;
  EXPECT_TRUE(take(cache, tokens(20), want).logits().empty());
}

}  // namespace
}  // namespace stemma::test
