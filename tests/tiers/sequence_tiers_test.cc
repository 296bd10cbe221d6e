// Opaque engines over tiers: a process continues from what another one saved, without computing it.
#include "stemma/tier/sequence_tiers.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <vector>

#include "key/key_chain.h"
#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "support/sequence_rig.h"
#include "tiers/sequence_process.h"

namespace stemma::test {
namespace {

using tier::Fetch;
using tier::FetchOptions;
using tier::SequenceTiers;
using tier::StackOptions;
using tier::TierStack;

TEST(SequenceTiers, AnotherProcessReusesWhatThisOneSaved) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    uint32_t again = 0;
    const uint32_t ends[] = {100, 200};
    {
      Process here(kind.options, *shared);
      here.rig.chat(kTalk, {.message_ends = ends});
      here.settle();
      here.rig.take_all_sequences();
      again = here.rig.hit(kNext, {.message_ends = ends});
    }
    Process there(kind.options, *shared);
    // The rig judges the contents.
    EXPECT_EQ(there.chat(kNext, {.message_ends = ends}).reused_tokens, again);
    EXPECT_EQ(there.last->loaded_tokens(), there.last->stored_tokens());
    EXPECT_EQ(there.last->bytes() != 0, again != 0);
  }
}

TEST(SequenceTiers, APromptThatIsAskedAgainIsFoundWithoutMessages) {
  for (const EngineKind& kind : every_engine()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    uint32_t again = 0;
    {
      Process here(kind.options, *shared);
      here.rig.chat(kTalk);
      here.settle();
      here.rig.take_all_sequences();
      again = here.rig.hit(kTalk);
    }
    Process there(kind.options, *shared);
    EXPECT_EQ(there.chat(kTalk).reused_tokens, again);
  }
}

TEST(SequenceTiers, WhatIsHereIsNotFetched) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  here.chat(kTalk);
  here.settle();
  EXPECT_EQ(here.chat(kNext).reused_tokens, 200U);
  EXPECT_TRUE(here.last->parts().empty());
  // Loads only the missing part of a longer talk that another process saved.
  {
    Process other(full_engine(), *shared);
    other.rig.chat(kTalk + tokens(300, 3));
    other.settle();
  }
  const SequenceReport report = here.chat(kTalk + tokens(300, 3));
  EXPECT_EQ(report.reused_tokens, 499U);
  ASSERT_FALSE(here.last->parts().empty());
  EXPECT_GE(here.last->parts().front().range.begin, 192U);
}

TEST(SequenceTiers, PresenceHasHoles) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  here.rig.chat(kTalk);
  here.settle();
  // One segment in the middle goes.
  std::shared_ptr<Fetch> all = Process(full_engine(), *shared).look(kNext);
  ASSERT_EQ(all->stored_tokens(), 200U) << "with the tail of 8, wherever it ends";
  std::vector<key::MediaSpan> none;
  key::KeyChain chain(here.rig.scope, kTalk.tokens, none, 64);
  const auto batch = ok(TierBatch::make(TierOp::remove, 1));
  const uint64_t layout = SequenceTiers::layout({.traits = FakeSequences(full_engine()).traits()});
  batch->items()[0].key = entry_key(chain.at(128), EntryKind::segment, 0, layout);
  shared->submit(batch);
  ASSERT_TRUE(batch->wait());
  ASSERT_EQ(batch->items()[0].outcome, TierOutcome::done);
  Process there(full_engine(), *shared);
  EXPECT_EQ(there.chat(kNext).reused_tokens, 64U);
}

TEST(SequenceTiers, OtherSaltsFindNothing) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  here.rig.chat(kTalk);
  here.settle();
  const Scope other = ok(Scope::make({.model = "m", .tenant_salt = "another"}));
  const std::shared_ptr<Fetch> fetch = here.tiers.fetch(other, kTalk, {});
  ASSERT_TRUE(fetch->wait(kNever));
  EXPECT_EQ(fetch->stored_tokens(), 0U);
  EXPECT_TRUE(fetch->parts().empty());
}

TEST(SequenceTiers, PromptsThatCannotBeFindNothing) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  here.rig.chat(kTalk);
  here.settle();
  const std::vector<Token>& talk = kTalk.tokens;
  const auto stored = [&](const Prompt& prompt) {
    const std::shared_ptr<Fetch> fetch = here.tiers.fetch(here.rig.scope, prompt, {});
    EXPECT_TRUE(fetch->wait(kNever));
    return fetch->stored_tokens();
  };
  ASSERT_NE(stored({.tokens = talk}), 0U);
  for (const size_t at : {size_t{0}, size_t{70}, talk.size() - 1}) {
    std::vector<Token> wrong = talk;
    wrong[at] |= 0x8000'0000U;
    EXPECT_EQ(stored({.tokens = wrong}), 0U) << at;
    const MediaItem beyond[] = {{.offset = static_cast<uint32_t>(at), .length = 10'000}};
    EXPECT_EQ(stored({.tokens = talk, .media = beyond}), 0U) << at;
  }
}

TEST(SequenceTiers, SegmentsOfAnImpossibleSizeAreRefused) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  for (const uint32_t tokens : {0U, 48U, 2048U, 0xFFFF'FFFFU}) {
    SCOPED_TRACE(tokens);
    const SequenceTiers::Options options{.traits = here.rig.engine.traits(),
                                         .segment_tokens = tokens};
    const auto made = SequenceTiers::create(*here.stack, options);
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Errc::invalid_argument);
    EXPECT_EQ(made.error().value(), tokens);
    // Whoever builds them anyway gets tiers that store and find nothing.
    SequenceTiers none(*here.stack, options);
    const std::shared_ptr<Fetch> fetch = none.fetch(here.rig.scope, kTalk, {});
    ASSERT_TRUE(fetch->wait(kNever));
    EXPECT_EQ(fetch->stored_tokens(), 0U);
    EXPECT_EQ(none.wants(EntryKind::segment, {}, SeenAgain::used), 0U);
    for (const auto& level : none.forget(here.rig.scope, kTalk, kNever)) {
      EXPECT_TRUE(level.purged.complete) << level.purged.error;
    }
  }
  EXPECT_TRUE(SequenceTiers::create(*here.stack, {.traits = here.rig.engine.traits()}).has_value());
}

TEST(SequenceTiers, OtherGridsFindNothing) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared);
  here.rig.chat(kTalk);
  here.settle();
  SequenceTiers fine(*here.stack, {.traits = here.rig.engine.traits(), .segment_tokens = 32});
  const std::shared_ptr<Fetch> fetch = fine.fetch(here.rig.scope, kTalk, {});
  ASSERT_TRUE(fetch->wait(kNever));
  EXPECT_EQ(fetch->stored_tokens(), 0U);
}

TEST(SequenceTiers, WhatIsFasterComputedIsNotFetched) {
  const std::unique_ptr<Tier> shared = host_tier();
  {
    Process here(full_engine(), *shared);
    here.rig.chat(kTalk);
    here.settle();
  }
  StackOptions options = patient();
  options.levels.push_back({.tier = std::make_unique<Borrowed>(*shared),
                            .latency_ns = 1'000'000'000,
                            .bytes_per_second = 1'000});
  Process there(full_engine(), ok(TierStack::create(std::move(options))));
  there.stack->prefilled(1'000, 1'000);
  EXPECT_EQ(there.chat(kNext).reused_tokens, 0U);
  EXPECT_GT(there.last->stored_tokens(), 0U);
  EXPECT_EQ(there.tiers.stats().not_worth_it, 1U);
}

TEST(SequenceTiers, TiersThatFailCostNothingButWhatTheyHad) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    FaultyTier shared(
        host_tier(),
        {.seed = seed, .fail = 100, .lose_answer = 100, .tear = 100, .flip = 100, .forget = 100});
    {
      Process here(hybrid_engine(), shared);
      const uint32_t ends[] = {100, 200};
      here.rig.chat(kTalk, {.message_ends = ends});
      here.settle();
    }
    Process there(hybrid_engine(), shared);
    const uint32_t ends[] = {100, 200};
    // The rig checks that everything that comes back is right.
    EXPECT_LE(there.chat(kNext, {.message_ends = ends}).reused_tokens, 200U);
  }
}

TEST(SequenceTiers, FetchesThatNobodyWaitsForEndWithTheirOwner) {
  const std::unique_ptr<Tier> shared = host_tier();
  std::vector<std::shared_ptr<Fetch>> fetches;
  uint32_t over = 0;
  std::mutex mutex;
  {
    Process here(full_engine(), *shared);
    FetchOptions how;
    how.on_over = [&] {
      const std::lock_guard lock(mutex);
      ++over;
    };
    for (uint32_t i = 0; i < 100; ++i) {
      fetches.push_back(here.tiers.fetch(here.rig.scope, tokens(500, i), how));
      if (i % 3 == 0) fetches.back()->cancel();
    }
  }
  for (const auto& fetch : fetches) EXPECT_TRUE(fetch->over());
  EXPECT_EQ(over, 100U);
}

}  // namespace
}  // namespace stemma::test
