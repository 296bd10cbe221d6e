// A Scheduler over tiers: it loads another scheduler's results before a request begins, and a tier
// that does not answer delays nobody for long.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "stemma/tier/sequence_tiers.h"
#include "support/scheduler_rig.h"
#include "tiers/borrowed_tier.h"
#include "tiers/gated_tier.h"

namespace stemma::server {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

std::unique_ptr<Tier> host_tier() {
  HostTierOptions options;
  options.capacity_bytes = 16U << 20U;
  return std::move(make_host_tier(options)).value();
}

// A server: a model, its cache and its scheduler, over a tier shared with others.
struct Server {
  // By default, a busy machine does not make a tier late.
  Server(const test::EngineKind& kind, Tier& shared,
         tier::WritePolicy write = tier::WritePolicy::write_through,
         uint64_t query_ns = 60 * kSecond, Tier* broken = nullptr, uint64_t part_bytes = 0) {
    tier::StackOptions levels;
    if (part_bytes != 0) levels.load_part_bytes = part_bytes;
    levels.query_ns = query_ns;
    levels.load_ns = 60 * kSecond;
    levels.levels.push_back({.tier = std::make_unique<test::Borrowed>(shared), .write = write});
    if (broken != nullptr)
      levels.levels.push_back({.tier = std::make_unique<test::Borrowed>(*broken)});
    stack = std::move(tier::TierStack::create(std::move(levels))).value();
    tiers = std::make_unique<tier::SequenceTiers>(
        *stack, tier::SequenceTiers::Options{.traits = FakeSequences(kind.options).traits()});
    SchedulerOptions options;
    options.tiers = tiers.get();
    options.cache.listener = tiers.get();
    rig = std::make_unique<Rig>(kind.options, options);
  }
  // Puts its results where other servers look for them.
  void settle() {
    rig->scheduler->run([](SequenceCache& cache) { cache.drain({.evict = true}); });
    EXPECT_TRUE(stack->flush(Clock::monotonic().now_ns() + 60 * kSecond));
  }

  std::unique_ptr<tier::TierStack> stack;
  std::unique_ptr<tier::SequenceTiers> tiers;
  std::unique_ptr<Rig> rig;
};

// Adds the depths where the answer to 200 words may have ended.
void where_answers_end(Generation& asked) {
  for (uint32_t depth = 200; depth <= 221; ++depth) asked.message_ends.push_back(depth);
}

class OverTiers : public ::testing::TestWithParam<test::EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Every, OverTiers, ::testing::ValuesIn(test::every_engine()),
                         [](const auto& tested) { return tested.param.name; });

TEST_P(OverTiers, AnotherServerGoesOn) {
  const std::unique_ptr<Tier> shared = host_tier();
  const std::string talk = words(200, 1);
  std::string next;
  {
    Server here(GetParam(), *shared);
    const std::shared_ptr<Ear> ear = here.rig->ask(talk, 20);
    ASSERT_TRUE(ear->wait());
    next = talk + ear->text() + words(30, 2);
    here.settle();
  }
  Server there(GetParam(), *shared);
  const std::shared_ptr<Ear> ear = there.rig->ask(next, 20, where_answers_end);
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->text(), there.rig->expected(next, 20));
  // State that can be saved at all comes back from the tier.
  const bool saves = GetParam().saves();
  EXPECT_EQ(ear->summary.cached_tokens != 0, saves);
  EXPECT_EQ(ear->summary.tier, saves ? "host" : "");
  EXPECT_EQ(ear->summary.tier_tokens != 0, saves);
  there.rig->expect_quiet();
}

// Parts that are usable alone are loaded while the rest of the prompt is still on its way.
TEST_P(OverTiers, WhatHasArrivedIsTakenInBeforeTheRest) {
  if (!GetParam().saves()) return;
  const std::unique_ptr<Tier> shared = host_tier();
  const std::string talk = words(400, 1);
  {
    Server here(GetParam(), *shared);
    ASSERT_TRUE(here.rig->ask(talk, 4)->wait());
    here.settle();
  }
  test::Gated gate(*shared);
  // One entry at a time.
  Server there(GetParam(), gate, tier::WritePolicy::write_through, 60 * kSecond, nullptr, 1);
  const std::shared_ptr<Ear> ear = there.rig->ask(talk, 4);
  const EngineTraits traits = FakeSequences(GetParam().options).traits();
  const bool bit_by_bit = traits.segments && traits.rewind == Rewind::any;
  if (bit_by_bit) {
    // The part must arrive while the second entry is held back.
    uint64_t taken = 0;
    const uint64_t until_ns = Clock::monotonic().now_ns() + 60 * kSecond;
    while (taken == 0 && Clock::monotonic().now_ns() < until_ns) {
      there.rig->scheduler->run([&](SequenceCache& cache) { taken = cache.stats().segment_bytes; });
    }
    EXPECT_NE(taken, 0U);
    EXPECT_EQ(there.rig->scheduler->stats().cached_tokens, 0U) << "it waits for the rest";
  }
  gate.open();
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->text(), there.rig->expected(talk, 4));
  if (bit_by_bit) {
    EXPECT_GE(ear->summary.cached_tokens, 384U);
    EXPECT_EQ(ear->summary.tier, "host");
    EXPECT_GE(ear->summary.tier_tokens, 384U);
    EXPECT_GT(ear->summary.tier_bytes, 0U);
  }
  there.rig->expect_quiet();
}

// Nobody tells the server where the answers ended.
TEST_P(OverTiers, AServerGoesOnWhereTheOneBeforeStoppedInEveryTurn) {
  const std::unique_ptr<Tier> shared = host_tier();
  std::string talk = words(150, 1);
  size_t before = 0;
  for (uint32_t turn = 0; turn < 7; ++turn) {
    Server server(GetParam(), *shared);
    const std::shared_ptr<Ear> ear = server.rig->ask(talk, 20);
    ASSERT_TRUE(ear->wait());
    EXPECT_EQ(ear->text(), server.rig->expected(talk, 20));
    // All that the server before had, except the last token, which it generated and had no need to
    // compute.
    if (GetParam().saves() && turn != 0) {
      EXPECT_GE(ear->summary.cached_tokens, before - 1) << turn;
    }
    talk += ear->text();
    before = talk.size();
    talk += words(20 + 11 * turn, turn + 2);
    server.settle();
  }
}

TEST_P(OverTiers, AServerThatEndsLeavesAllToAWriteBackTier) {
  const std::unique_ptr<Tier> shared = host_tier();
  const std::string talk = words(200, 1);
  const bool saves = GetParam().saves();
  std::string next;
  {
    Server here(GetParam(), *shared, tier::WritePolicy::write_back);
    const std::shared_ptr<Ear> ear = here.rig->ask(talk, 20);
    ASSERT_TRUE(ear->wait());
    next = talk + ear->text() + words(30, 2);
    here.settle();
    EXPECT_EQ(here.stack->stats().levels[0].hits, 0U);
    const Scheduler::Kept kept =
        here.rig->scheduler->keep_everything(Clock::monotonic().now_ns() + 30 * kSecond);
    EXPECT_TRUE(kept.ran);
    EXPECT_TRUE(kept.in_tiers);
    EXPECT_TRUE(kept.written_back.over);
    EXPECT_EQ(kept.written_back.parts != 0, saves);
    // Everything is there: the second time there is nothing to do.
    const Scheduler::Kept again =
        here.rig->scheduler->keep_everything(Clock::monotonic().now_ns() + 30 * kSecond);
    EXPECT_EQ(again.written_back.parts, 0U);
    here.rig->scheduler->stop();
    EXPECT_FALSE(here.rig->scheduler->keep_everything(0).ran);
  }
  Server there(GetParam(), *shared, tier::WritePolicy::write_back);
  const std::shared_ptr<Ear> ear = there.rig->ask(next, 20, where_answers_end);
  ASSERT_TRUE(ear->wait());
  EXPECT_EQ(ear->text(), there.rig->expected(next, 20));
  EXPECT_EQ(ear->summary.tier_tokens != 0, saves);
}

// ---- Forgetting ----

void salted(Generation& asked) { asked.salt = "a tenant's"; }

uint64_t soon() { return Clock::monotonic().now_ns() + 60 * kSecond; }

TEST_P(OverTiers, AForgottenTenantIsForgottenEverywhere) {
  if (!GetParam().saves()) GTEST_SKIP() << "nothing of it reaches a tier";
  const std::unique_ptr<Tier> shared = host_tier();
  const std::string talk = words(200, 1);
  Server here(GetParam(), *shared);
  ASSERT_TRUE(here.rig->ask(talk, 20, salted)->wait());
  const std::shared_ptr<Ear> ear = here.rig->ask(talk, 20);
  ASSERT_TRUE(ear->wait());
  here.settle();
  const uint64_t before = shared->stats().entries;
  const Scope scope = here.rig->scheduler->scope("a tenant's").value();
  const Scheduler::Forgotten forgotten = here.rig->scheduler->forget(
      &scope, {}, soon(), [&](SequenceCache& cache) { cache.drop_scope(scope); });
  EXPECT_TRUE(forgotten.ran);
  ASSERT_EQ(forgotten.tiers.size(), 1U);
  EXPECT_TRUE(forgotten.tiers[0].purged.complete);
  EXPECT_GT(forgotten.tiers[0].purged.entries, 0U);
  EXPECT_EQ(shared->stats().entries, before - forgotten.tiers[0].purged.entries);
  here.settle();
  EXPECT_EQ(shared->stats().entries, before - forgotten.tiers[0].purged.entries);
  const std::shared_ptr<Ear> again = here.rig->ask(talk, 1, salted);
  ASSERT_TRUE(again->wait());
  EXPECT_EQ(again->summary.cached_tokens, 0U);
  Server there(GetParam(), *shared);
  const std::string next = talk + ear->text() + words(30, 2);
  const std::shared_ptr<Ear> other = there.rig->ask(next, 1, where_answers_end);
  ASSERT_TRUE(other->wait());
  EXPECT_GT(other->summary.tier_tokens, 0U) << "others keep what is theirs";
}

// The prompt was loaded before the tenant was forgotten, and its request begins afterwards.
TEST_P(OverTiers, WhatWasFetchedBeforeDoesNotComeBack) {
  if (!GetParam().saves()) GTEST_SKIP() << "nothing of it reaches a tier";
  const std::unique_ptr<Tier> shared = host_tier();
  std::string next = words(200, 1);
  {
    Server before(GetParam(), *shared);
    const std::shared_ptr<Ear> ear = before.rig->ask(next, 20, salted);
    ASSERT_TRUE(ear->wait());
    next += ear->text() + words(30, 2);
    before.settle();
  }
  Server here(GetParam(), *shared);
  const Scope scope = here.rig->scheduler->scope("a tenant's").value();
  const std::vector<Token> prompt = *here.rig->model.tokenize(next, true, true);
  Generation ends;
  where_answers_end(ends);
  const tier::FetchOptions how{.message_ends = ends.message_ends};
  const auto fetch = here.tiers->fetch(scope, {.tokens = prompt}, how);
  ASSERT_TRUE(fetch->wait(soon()));
  ASSERT_FALSE(fetch->parts().empty());
  bool dropped = false;
  for (const tier::LevelPurged& level : here.tiers->forget(scope, {}, soon(), [&] {
         EXPECT_TRUE(fetch->parts().empty()) << "nothing comes from there any more";
         const auto during = here.tiers->fetch(scope, {.tokens = prompt}, how);
         EXPECT_TRUE(during->wait(soon()));
         EXPECT_TRUE(during->parts().empty());
         dropped = true;
       })) {
    EXPECT_TRUE(level.purged.complete) << level.purged.error;
  }
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(fetch->parts().empty());
}

TEST_P(OverTiers, AResetEmptiesTheTiersOfThisModelOnly) {
  if (!GetParam().saves()) GTEST_SKIP() << "nothing of it reaches a tier";
  const std::unique_ptr<Tier> shared = host_tier();
  Server here(GetParam(), *shared);
  ASSERT_TRUE(here.rig->ask(words(200, 1), 20, salted)->wait());
  ASSERT_TRUE(here.rig->ask(words(200, 2), 20)->wait());
  here.settle();
  const std::vector<uint8_t> bytes(100);
  const auto foreign = TierBatch::make(TierOp::put, 1).value();
  foreign->items()[0].info = {.begin = 0, .end = 16, .layout = 1, .bytes = 100, .words = 0};
  foreign->items()[0].source = bytes;
  shared->submit(foreign);
  ASSERT_TRUE(foreign->wait(soon()));
  const Scheduler::Forgotten forgotten =
      here.rig->scheduler->forget(nullptr, {}, soon(), [](SequenceCache& cache) {
        cache.drop_scope(Scope::from_digest({}));
        cache.drop_saved();
      });
  EXPECT_TRUE(forgotten.tiers[0].purged.complete);
  EXPECT_EQ(shared->stats().entries, 1U) << "what another model stored";
}

TEST(OverATier, ThatStallsAWriteBackEndsInTime) {
  FaultyTier shared(host_tier(), {.stall = true});
  Server server(test::every_engine().front(), shared, tier::WritePolicy::write_back, kSecond / 20);
  ASSERT_TRUE(server.rig->ask(words(200, 1), 5)->wait());
  const uint64_t begin_ns = Clock::monotonic().now_ns();
  const Scheduler::Kept kept = server.rig->scheduler->keep_everything(begin_ns + kSecond / 2);
  EXPECT_TRUE(kept.ran);
  EXPECT_FALSE(kept.in_tiers);
  EXPECT_LT(Clock::monotonic().now_ns() - begin_ns, 20 * kSecond);
  server.rig->scheduler->stop();
  shared.set_plan({});
}

// A broken tier loses its entries. A call that saves everything reports that, and the lost entries
// are written once the tier works again.
TEST(OverATier, ThatLosesEntriesNothingIsSaidToBeThere) {
  for (const auto write : {tier::WritePolicy::write_through, tier::WritePolicy::write_back}) {
    FaultyTier shared(host_tier(), {.fail = 1000});
    Server server(test::every_engine().front(), shared, write);
    const auto save = [&] {
      return server.rig->scheduler->keep_everything(Clock::monotonic().now_ns() + 600 * kSecond);
    };
    const std::string talk = words(200, 1);
    ASSERT_TRUE(server.rig->ask(talk, 5)->wait());
    const Scheduler::Kept lost = save();
    ASSERT_TRUE(lost.ran);
    EXPECT_FALSE(lost.in_tiers);
    ASSERT_EQ(lost.tiers.size(), 1U);
    EXPECT_EQ(lost.tiers[0].name, "host");
    EXPECT_EQ(lost.tiers[0].stored, 0U);
    EXPECT_EQ(lost.tiers[0].waiting, 0U);
    // Some entries may have been lost, offered again, and lost again.
    const uint64_t parts = server.tiers->stats().heard;
    EXPECT_GE(parts, 3U);
    EXPECT_GE(lost.tiers[0].lost, parts);
    // The tier still loses everything.
    EXPECT_FALSE(save().in_tiers);
    shared.set_plan({});
    const Scheduler::Kept good = save();
    EXPECT_TRUE(good.in_tiers);
    EXPECT_EQ(good.tiers[0].stored, parts) << "each part is there once";
    EXPECT_EQ(good.tiers[0].waiting, 0U);
    // There is nothing left to do.
    const Scheduler::Kept again = save();
    EXPECT_TRUE(again.in_tiers);
    EXPECT_EQ(again.written_back.parts, 0U);
    EXPECT_EQ(again.tiers[0].stored, parts);
    Server other(test::every_engine().front(), shared, write);
    const std::shared_ptr<Ear> ear = other.rig->ask(talk, 5);
    ASSERT_TRUE(ear->wait());
    EXPECT_GT(ear->summary.tier_tokens, 0U);
  }
}

// A tier whose sync fails once, and which then gives up what it cannot vouch for.
class Unsyncable final : public test::Borrowed {
 public:
  explicit Unsyncable(Tier& tier) : Borrowed(tier) {}
  bool flush(uint64_t until_ns) override {
    if (!fails.exchange(false)) return Borrowed::flush(until_ns);
    Borrowed::flush(until_ns);
    purge({}, until_ns);
    return false;
  }
  std::atomic<bool> fails{false};
};

TEST(OverATier, WhoseSyncFailsEverythingIsWrittenAgain) {
  for (const auto write : {tier::WritePolicy::write_through, tier::WritePolicy::write_back}) {
    const std::unique_ptr<Tier> below = host_tier();
    Unsyncable shared(*below);
    Server server(test::every_engine().front(), shared, write);
    const auto save = [&] {
      return server.rig->scheduler->keep_everything(Clock::monotonic().now_ns() + 600 * kSecond);
    };
    ASSERT_TRUE(server.rig->ask(words(200, 1), 5)->wait());
    ASSERT_TRUE(save().in_tiers);
    const uint64_t parts = below->stats().entries;
    ASSERT_GE(parts, 3U);
    shared.fails = true;
    EXPECT_FALSE(save().in_tiers);
    EXPECT_EQ(below->stats().entries, 0U);
    EXPECT_TRUE(save().in_tiers);
    EXPECT_EQ(below->stats().entries, parts);
  }
}

TEST(OverATier, ThatLosesEntriesAnotherOneStillGetsEverything) {
  FaultyTier broken(host_tier(), {.fail = 1000});
  const std::unique_ptr<Tier> good = host_tier();
  const std::string talk = words(200, 1);
  {
    Server server(test::every_engine().front(), *good, tier::WritePolicy::write_back, 60 * kSecond,
                  &broken);
    ASSERT_TRUE(server.rig->ask(talk, 5)->wait());
    const Scheduler::Kept kept =
        server.rig->scheduler->keep_everything(Clock::monotonic().now_ns() + 600 * kSecond);
    EXPECT_FALSE(kept.in_tiers);
    EXPECT_TRUE(kept.written_back.over);
    EXPECT_GE(kept.written_back.parts, 3U);
  }
  Server other(test::every_engine().front(), *good);
  const std::shared_ptr<Ear> ear = other.rig->ask(talk, 5);
  ASSERT_TRUE(ear->wait());
  EXPECT_GT(ear->summary.tier_tokens, 0U);
}

TEST_P(OverTiers, ATierThatFailsChangesNoAnswer) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    FaultyTier shared(host_tier(),
                      {.seed = seed, .fail = 200, .lose_answer = 100, .tear = 100, .flip = 100});
    Server here(GetParam(), shared);
    Server there(GetParam(), shared);
    std::vector<std::pair<std::string, std::shared_ptr<Ear>>> asked;
    for (uint32_t i = 0; i < 12; ++i) {
      const std::string talk = words(100, 1) + words(20 * (i % 4), i);
      asked.emplace_back(talk, (i % 2 == 0 ? here : there).rig->ask(talk, 10));
      if (i % 4 == 3) here.settle();
    }
    for (const auto& [talk, ear] : asked) {
      ASSERT_TRUE(ear->wait());
      EXPECT_EQ(ear->text(), here.rig->expected(talk, 10));
    }
  }
}

TEST(OverATier, ThatStallsNobodyWaitsForLong) {
  FaultyTier shared(host_tier(), {.stall = true});
  Server server(test::every_engine().front(), shared, tier::WritePolicy::write_through,
                kSecond / 20);
  for (uint32_t i = 0; i < 5; ++i) {
    const std::string talk = words(100, i);
    const std::shared_ptr<Ear> ear = server.rig->ask(talk, 5);
    ASSERT_TRUE(ear->wait());
    EXPECT_EQ(ear->text(), server.rig->expected(talk, 5));
  }
  // Requests that wait for the tier can be cancelled, and the scheduler may stop meanwhile.
  for (uint32_t i = 0; i < 20; ++i) {
    server.rig->ask(words(100, 100 + i), 5);
    if (i % 2 == 0) server.rig->scheduler->cancel(server.rig->number);
  }
  server.rig->scheduler->stop();
  shared.set_plan({});
}

}  // namespace
}  // namespace stemma::server
