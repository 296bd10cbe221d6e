// A prompt that was answered before is answered at once: its logits are kept where it ends, and
// nothing that happens to the cache in between can make the answer wrong.
#include <gtest/gtest.h>

#include "oracle/rig.h"

namespace stemma::oracle {
namespace {

TEST(WholePrompts, RepeatedPromptStartsSamplingWithoutAForwardPass) {
  Rig rig({});
  const paged::Text first = rig.serve(words(21), 1);
  EXPECT_EQ(rig.counts().logits_hits, 0U) << "a cold start has no hits";
  const uint64_t computed = rig.counts().computed_tokens;
  const paged::Text again = rig.serve(words(21), 1);
  EXPECT_EQ(again.tokens, first.tokens);
  EXPECT_EQ(rig.counts().computed_tokens, computed) << "not one position went through the layers";
  EXPECT_EQ(rig.counts().logits_hits, 1U);
}

TEST(WholePrompts, LongerPromptIsNotServedTheShorterOnesLogits) {
  Rig rig({});
  rig.serve(words(21), 1);
  rig.serve(words(22), 1);
  EXPECT_EQ(rig.counts().logits_hits, 0U);
  EXPECT_EQ(rig.counts().reused_tokens, 21U) << "its blocks serve all the same";
  rig.serve(words(20), 1);
  EXPECT_EQ(rig.counts().logits_hits, 0U);
}

TEST(WholePrompts, ExtensionReusesTheWholeKnownPrompt) {
  Rig rig({});
  rig.serve(words(3), 0);
  EXPECT_EQ(rig.cache.lookup(rig.scope, words(3).prompt(), {.want_logits = true})->reused_tokens,
            3U);
  EXPECT_EQ(rig.cache.lookup(rig.scope, words(4).prompt(), {.want_logits = true})->reused_tokens,
            3U);
}

TEST(WholePrompts, RecurrentModelsStartFromLogitsToo) {
  Rig::Setup setup;
  setup.model.groups = {{}, {.attention = Attention::recurrent}};
  setup.model.layers = {0, 1, 0};
  setup.memory = {{.block_tokens = 4, .capacity_blocks = 64}, {.capacity_blocks = 8}};
  Rig rig(setup);
  rig.serve(words(21), 5);
  const uint64_t computed = rig.counts().computed_tokens;
  rig.serve(words(21), 1);
  EXPECT_EQ(rig.counts().logits_hits, 1U);
  EXPECT_EQ(rig.counts().computed_tokens, computed);
  rig.serve(words(21), 5, 9);  // The state comes back too: other tokens, right logits.
  EXPECT_EQ(rig.counts().logits_hits, 2U);
}

TEST(WholePrompts, EntryInUseOutlivesEviction) {
  Rig rig({.memory = {{.block_tokens = 4, .capacity_blocks = 24}}});
  rig.serve(words(21), 1);
  // This one starts from the entry and goes on for a while.
  const uint64_t id = rig.submit(words(21), 12, 5);
  rig.engine().step();
  EXPECT_EQ(rig.counts().logits_hits, 1U);
  rig.cache.evict(1000);
  rig.cache.reset(OnBusy::defer).value();
  // Others want all the room there is while it runs.
  for (uint32_t i = 2; i < 6; ++i) rig.submit(words(36, i), 2);
  rig.run();
  EXPECT_EQ(rig.finished.at(id).size(), 33U);  // The Rig's judge compares the logits.
}

TEST(WholePrompts, EveryEntryCanGoOnceItIsReleased) {
  Rig rig({});
  for (uint32_t i = 0; i < 5; ++i) rig.serve(words(21), 3, i);  // A popular one.
  EXPECT_GT(rig.cache.stats().logits_bytes, 0U);
  rig.cache.evict(1000);
  const Stats stats = rig.cache.stats();
  EXPECT_EQ(stats.groups[0].free_blocks, stats.groups[0].capacity_blocks);
  EXPECT_EQ(stats.logits_bytes, 0U);
  EXPECT_EQ(stats.leases, 0U);
}

TEST(WholePrompts, DecodingAfterAHitHarmsNobody) {
  Rig rig({});
  const paged::Text prompt = words(22);  // Ends inside a block, where a hit's first token goes.
  const paged::Text first = rig.serve(prompt, 9);
  rig.serve(prompt, 9, 3);  // Writes other tokens behind the same prompt.
  EXPECT_EQ(rig.serve(prompt, 9).tokens, first.tokens);
  // Three at once, all from the same entry.
  const uint64_t a = rig.submit(prompt, 9);
  const uint64_t b = rig.submit(prompt, 9, 4);
  const uint64_t c = rig.submit(prompt, 9);
  rig.run();
  EXPECT_EQ(rig.finished.at(a).tokens, first.tokens);
  EXPECT_EQ(rig.finished.at(c).tokens, first.tokens);
  EXPECT_NE(rig.finished.at(b).tokens, first.tokens);
  EXPECT_EQ(rig.counts().logits_hits, 5U);
}

TEST(WholePrompts, OneHitAndOneMissAreCountedAsSuch) {
  Rig rig({});
  rig.serve(words(21), 0);
  rig.serve(words(21), 0);
  const Counts counts = rig.cache.stats().total;
  EXPECT_EQ(counts.lookups, 2U);
  EXPECT_EQ(counts.outcomes[static_cast<uint32_t>(Outcome::full_hit)], 1U);
  EXPECT_EQ(counts.outcomes[static_cast<uint32_t>(Outcome::miss)], 1U);
  EXPECT_DOUBLE_EQ(counts.hit_ratio(), 0.5);
}

TEST(WholePrompts, EvictingByNumberStopsWhenNothingIsLeft) {
  Rig rig({});
  rig.serve(words(16), 0);
  EXPECT_EQ(rig.cache.evict(1), 1U);
  EXPECT_EQ(rig.cache.evict(1000), 3U);
  EXPECT_EQ(rig.cache.evict(1000), 0U);
}

TEST(WholePrompts, ResetForgetsThemAndGoesOnCounting) {
  Rig rig({});
  rig.serve(words(21), 0);
  rig.cache.reset().value();
  EXPECT_EQ(rig.cache.stats().logits_bytes, 0U);
  rig.serve(words(21), 0);
  EXPECT_EQ(rig.counts().logits_hits, 0U);
  EXPECT_EQ(rig.cache.stats().total.lookups, 2U);
}

TEST(WholePrompts, NoBytesForLogitsMeansNone) {
  Rig rig({.logits_bytes = 0});
  rig.serve(words(21), 1);
  rig.serve(words(21), 1);
  EXPECT_EQ(rig.counts().logits_hits, 0U);
  EXPECT_EQ(rig.counts().reused_tokens, 20U);
}

}  // namespace
}  // namespace stemma::oracle
