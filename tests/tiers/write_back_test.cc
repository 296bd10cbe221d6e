// Tiers that take what a SequenceCache evicts or uses again, instead of everything it saves.
#include <gtest/gtest.h>

#include <memory>

#include "stemma/tier/sequence_tiers.h"
#include "tiers/sequence_process.h"

namespace stemma::test {
namespace {

using tier::WritePolicy;

constexpr uint32_t kEnds[] = {100, 200};
const TurnOptions kTurn{.message_ends = kEnds};

// Room for a few conversations.
SequenceOptions few() {
  SequenceOptions options = small_cache();
  options.saved_bytes = 48U << 10U;
  return options;
}

// Every engine that saves, with states of a realistic size.
std::vector<EngineKind> engines() {
  std::vector<EngineKind> kinds =
      every_engine([](EngineOptions& options) { options.state_bytes = 1024; });
  std::erase_if(kinds, [](const EngineKind& kind) { return !kind.saves(); });
  return kinds;
}

// Other conversations, until this one is evicted.
void crowd_out(Process& process, const Text& text) {
  for (uint32_t i = 0; i < 500 && process.rig.hit(text, kTurn) != 0; ++i) {
    process.rig.chat(tokens(200, 1000 + i), kTurn);
    process.rig.take_all_sequences();
  }
  ASSERT_EQ(process.rig.hit(text, kTurn), 0U);
  process.flush();
}

// How much a new server finds.
uint32_t stored(const EngineKind& kind, Tier& shared, const Text& text) {
  return Process(kind.options, shared).look(text, kTurn)->stored_tokens();
}

// The work of a clean shutdown, in small parts.
uint32_t hand_on_all(Process& process, uint64_t bytes = 3000) {
  uint32_t parts = 0;
  for (HandedOn done{.over = false}; !done.over;) {
    done = process.rig.cache.hand_on(done.next, bytes);
    parts += done.parts;
    process.flush();
  }
  return parts;
}

TEST(WriteBack, WhatHasLeftComesBackAndNothingIsWrittenBefore) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    Process here(kind.options, *shared, WritePolicy::write_back, few());
    here.rig.chat(kTalk, kTurn);
    here.settle();
    here.rig.take_all_sequences();
    here.flush();
    const uint32_t again = here.rig.hit(kNext, kTurn);
    ASSERT_NE(again, 0U);
    EXPECT_EQ(stored(kind, *shared, kNext), 0U);

    ASSERT_NO_FATAL_FAILURE(crowd_out(here, kNext));
    const tier::LevelStats level = here.stack->stats().levels[0];
    EXPECT_GT(level.written_back, 0U);
    EXPECT_EQ(level.written_back, level.stored);
    EXPECT_EQ(level.written_back, here.tiers.stats().written_back);
    // The rig judges the contents.
    EXPECT_EQ(here.chat(kNext, kTurn).reused_tokens, again);
    EXPECT_GT(here.last->bytes(), 0U);
    // All of it is there once the entries below or above it have left too.
    hand_on_all(here);
    EXPECT_GE(stored(kind, *shared, kNext), again);
  }
}

TEST(WriteBack, AWriteThroughLevelHearsOfNothingTwice) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared, WritePolicy::write_through, few());
  here.rig.chat(kTalk);
  here.settle();
  ASSERT_NO_FATAL_FAILURE(crowd_out(here, kNext));
  EXPECT_EQ(hand_on_all(here), 0U);
  const tier::LevelStats level = here.stack->stats().levels[0];
  EXPECT_EQ(level.written_back, 0U);
  EXPECT_EQ(level.stored, here.tiers.stats().heard);
}

TEST(WriteBack, AProcessThatEndsLeavesAllThatItHad) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    uint32_t again = 0;
    {
      Process here(kind.options, *shared, WritePolicy::write_back);
      here.rig.chat(kTalk, kTurn);
      here.rig.take_all_sequences();
      again = here.rig.hit(kNext, kTurn);
      ASSERT_NE(again, 0U);
      EXPECT_GT(hand_on_all(here), 0U);
      EXPECT_EQ(hand_on_all(here), 0U) << "it is there";
      EXPECT_EQ(here.rig.hit(kNext, kTurn), again) << "and here";
      here.rig.check("hand_on");
    }
    Process there(kind.options, *shared, WritePolicy::write_back);
    EXPECT_EQ(there.chat(kNext, kTurn).reused_tokens, again);
  }
}

// All of memory is handed on to a tier that takes a part of it. What is used most is there
// afterwards, whether or not the tier had it before.
TEST(WriteBack, TheHottestPrefixIsThereAfterMoreWasHandedOnThanATierTakes) {
  const Text hot = tokens(192, 1);
  EngineOptions engine = full_engine();
  engine.row_bytes = 1024;
  SequenceOptions options = small_cache();
  options.saved_bytes = 16U << 20U;
  for (const uint32_t uses : {2U, 20U}) {
    SCOPED_TRACE(uses);
    const std::unique_ptr<Tier> small = host_tier(1U << 20U);
    {
      Process here(engine, *small, WritePolicy::write_back, options);
      for (uint32_t i = 0; i < 60; ++i) {
        here.rig.chat(i % 3 == 0 && i / 3 < uses ? hot + tokens(64, 100 + i)
                                                 : tokens(128, 100 + i));
        here.rig.take_all_sequences();
        here.flush();
      }
      hand_on_all(here, 8U << 20U);
      EXPECT_GT(small->stats().evictions, 20U) << "the tier is too large for this test";
      EXPECT_EQ(small->stats().refused, 0U);
    }
    Process after(engine, *small, WritePolicy::write_back, options);
    EXPECT_EQ(after.look(hot + tokens(5, 3))->stored_tokens(), 192U);
  }
}

// A store that chooses by samples may evict what was put last, or what it had before.
TEST(WriteBack, WhatAStoreLostWhileItWasGivenTheRestIsHandedOnAgain) {
  const std::unique_ptr<Tier> shared = host_tier();
  Process here(full_engine(), *shared, WritePolicy::write_back);
  here.rig.chat(kTalk);
  here.rig.take_all_sequences();
  const uint32_t all = hand_on_all(here);
  ASSERT_GE(all, 4U);
  EXPECT_EQ(here.tiers.check_handed_on(), 0U);
  // Everything is offered again, and nothing of it is wanted.
  EXPECT_EQ(hand_on_all(here), 0U);
  ASSERT_TRUE(shared->purge({}, kNever).complete);
  EXPECT_EQ(hand_on_all(here), 0U) << "nobody knows yet that it is gone";
  EXPECT_EQ(here.tiers.check_handed_on(), all);
  EXPECT_EQ(hand_on_all(here), all);
  EXPECT_EQ(here.tiers.check_handed_on(), 0U);
  EXPECT_EQ(stored({"full", full_engine()}, *shared, kTalk), 200U);
}

TEST(WriteBack, AConversationThatPartsAtACheckpointFindsWhatLiesUnderIt) {
  const Text parted = kTalk.first(100) + tokens(60, 9);
  const uint32_t end[] = {100};
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const EngineTraits traits = FakeSequences(kind.options).traits();
    if (!traits.segments || !traits.checkpoints) continue;
    const std::unique_ptr<Tier> shared = host_tier();
    Process here(kind.options, *shared, WritePolicy::write_back);
    here.rig.chat(kTalk, kTurn);
    here.rig.take_all_sequences();
    hand_on_all(here);
    Process there(kind.options, *shared);
    EXPECT_EQ(there.chat(parted, {.message_ends = end}).reused_tokens, 100U);
  }
}

TEST(WriteBack, WhatCameFromALevelIsNotWrittenThereAgain) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    {
      Process here(kind.options, *shared);
      here.rig.chat(kTalk, kTurn);
      here.settle();
    }
    Process there(kind.options, *shared, WritePolicy::write_back);
    const uint64_t before = shared->stats().puts;
    const std::shared_ptr<tier::Fetch> found = there.look(kTalk, kTurn);
    ASSERT_FALSE(found->parts().empty());
    EXPECT_EQ(ok(there.rig.cache.admit(there.rig.scope, kTalk, found->parts())).refused, 0U);
    EXPECT_EQ(hand_on_all(there), 0U);
    EXPECT_EQ(shared->stats().puts, before);
  }
}

TEST(WriteBack, WhatSomebodyBroughtLeavesLikeEverythingElse) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> theirs = host_tier();
    const std::unique_ptr<Tier> ours = host_tier();
    Process other(kind.options, *theirs);
    other.rig.chat(kTalk, kTurn);
    other.settle();
    const std::shared_ptr<tier::Fetch> found = Process(kind.options, *theirs).look(kNext, kTurn);
    ASSERT_GT(found->loaded_tokens(), 0U);

    Process here(kind.options, *ours, WritePolicy::write_back, few());
    ok(here.rig.cache.admit(here.rig.scope, kNext, found->parts(), kTurn));
    ASSERT_NO_FATAL_FAILURE(crowd_out(here, kNext));
    hand_on_all(here);  // Of what may be left of it.
    EXPECT_EQ(stored(kind, *ours, kNext), found->loaded_tokens());
  }
}

TEST(WriteBack, WhatWasForgottenIsNotWritten) {
  enum class How : uint8_t { reset, scope, truncate };
  for (const EngineKind& kind : engines()) {
    for (const How how : {How::reset, How::scope, How::truncate}) {
      SCOPED_TRACE(kind.name + std::to_string(static_cast<int>(how)));
      const std::unique_ptr<Tier> shared = host_tier();
      Process here(kind.options, *shared, WritePolicy::write_back, few());
      here.rig.chat(kTalk, kTurn);
      here.rig.take_all_sequences();
      ASSERT_NE(here.rig.hit(kNext, kTurn), 0U);
      here.rig.free_is_empty = false;
      switch (how) {
        case How::reset: here.rig.cache.drop_saved(); break;
        case How::scope: here.rig.cache.drop_scope(here.rig.scope); break;
        case How::truncate: ok(here.rig.cache.truncate(here.rig.scope, kTalk, 0)); break;
      }
      EXPECT_EQ(hand_on_all(here), 0U);
      // Their slots are used for others, and these leave.
      for (uint32_t i = 0; i < 20; ++i) {
        here.rig.chat(tokens(200, 1000 + i), kTurn);
        here.rig.take_all_sequences();
      }
      hand_on_all(here);
      EXPECT_NE(stored(kind, *shared, tokens(200, 1000)), 0U);
      EXPECT_EQ(stored(kind, *shared, kNext), 0U);
    }
  }
}

TEST(WriteBack, WhatCouldNotBeRestoredIsNotWritten) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    Process here(kind.options, *shared, WritePolicy::write_back, few());
    here.rig.chat(kTalk);
    here.rig.take_all_sequences();
    here.rig.engine.faults.next(Call::load, Fault::before);
    here.rig.chat(kNext, {.keep = false});
    ASSERT_EQ(here.rig.cache.stats().quarantined, 1U);
    const uint32_t left = here.rig.hit(kNext);
    hand_on_all(here);
    EXPECT_LT(left, 200U);
    EXPECT_LE(Process(kind.options, *shared).look(kNext)->stored_tokens(), left);
  }
}

TEST(WriteBack, OnSecondUseTakesWhatAnotherPromptBeginsWith) {
  for (const EngineKind& kind : engines()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<Tier> shared = host_tier();
    Process here(kind.options, *shared, WritePolicy::on_second_use);
    here.rig.chat(kTalk, kTurn);
    here.rig.take_all_sequences();
    here.flush();
    EXPECT_EQ(stored(kind, *shared, kNext), 0U);
    const uint32_t again = here.chat(kNext, kTurn).reused_tokens;
    here.rig.take_all_sequences();
    here.flush();
    const uint32_t found = stored(kind, *shared, kNext);
    // All that both have, in whole segments, or where the state or checkpoint is that was loaded.
    EXPECT_GE(found, again - again % 64);
    EXPECT_LE(found, again);
    EXPECT_GT(here.tiers.stats().used_again, 0U);
    EXPECT_EQ(here.tiers.stats().written_back, 0U);
  }
}

// A tier that takes small entries only.
class Narrow final : public Borrowed {
 public:
  Narrow(Tier& tier, uint64_t most) : Borrowed(tier), traits_(tier.traits()) {
    traits_.max_entry_bytes = most;
  }
  const TierTraits& traits() const noexcept override { return traits_; }

 private:
  TierTraits traits_;
};

TEST(WriteBack, WhatALevelCanNeverTakeDoesNotCountAsWrittenBack) {
  const std::unique_ptr<Tier> inner = host_tier();
  tier::StackOptions options = patient();
  options.levels.push_back(
      {.tier = std::make_unique<Narrow>(*inner, 16), .write = WritePolicy::write_back});
  Process here(full_engine(), ok(tier::TierStack::create(std::move(options))), few());
  here.rig.chat(kTalk);
  here.settle();
  EXPECT_EQ(hand_on_all(here), 0U);
  EXPECT_EQ(here.tiers.stats().written_back, 0U);
  EXPECT_EQ(here.tiers.stats().written_back_bytes, 0U);
  const tier::LevelStats level = here.stack->stats().levels[0];
  EXPECT_EQ(level.too_large, 4U);
  EXPECT_EQ(level.written_back, 0U);
  EXPECT_EQ(inner->stats().entries, 0U);
}

TEST(WriteBack, TwoLevelsTakeEachWhatTheyWant) {
  const std::unique_ptr<Tier> fast = host_tier();
  const std::unique_ptr<Tier> slow = host_tier();
  tier::StackOptions options = patient();
  options.levels.push_back({.tier = std::make_unique<Borrowed>(*fast)});
  options.levels.push_back(
      {.tier = std::make_unique<Borrowed>(*slow), .write = WritePolicy::write_back});
  Process here(full_engine(), ok(tier::TierStack::create(std::move(options))), few());
  here.rig.chat(kTalk);
  here.settle();
  EXPECT_EQ(fast->stats().entries, 4U);
  EXPECT_EQ(slow->stats().entries, 0U);
  ASSERT_NO_FATAL_FAILURE(crowd_out(here, kNext));
  EXPECT_EQ(stored({"full", full_engine()}, *slow, kTalk), 200U);
  EXPECT_EQ(here.stack->stats().levels[0].written_back, 0U);
}

}  // namespace
}  // namespace stemma::test
