#include "stemma/tier/tier_stack.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <new>
#include <thread>

#include "stemma/tier/faulty_tier.h"
#include "stemma/tier/host_tier.h"
#include "support/now.h"
#include "tiers/gated_tier.h"
#include "tiers/tier_suite.h"

namespace stemma::test {
namespace {

using tier::LevelMask;
using tier::Loaded;
using tier::Payload;
using tier::Sighting;
using tier::StackLevel;
using tier::StackOptions;
using tier::StoreItem;
using tier::TierStack;
using tier::Wanted;
using tier::WritePolicy;

// Two levels of host memory, each with a FaultyTier around it.
class Stack : public ::testing::Test {
 protected:
  void SetUp() override { make({}); }

  void make(StackOptions options, WritePolicy upper = WritePolicy::write_through,
            WritePolicy lower = WritePolicy::write_through) {
    stack.reset();
    // A long deadline: unless a test is about deadlines, a busy machine must not make a tier late.
    if (options.query_ns == StackOptions{}.query_ns) options.query_ns = kPatienceNs;
    options.levels.clear();
    for (const WritePolicy policy : {upper, lower}) {
      auto tier = std::make_unique<FaultyTier>(make_host_tier({.capacity_bytes = kRoomy}).value(),
                                               FaultPlan{});
      tiers[options.levels.size()] = tier.get();
      StackLevel level;
      level.tier = std::move(tier);
      level.write = policy;
      options.levels.push_back(std::move(level));
    }
    stack = TierStack::create(std::move(options)).value();
  }

  static Wanted wanted(const Entry& one) { return {one.key, one.info, 16}; }
  static std::vector<Wanted> wanted(std::span<const Entry> some) {
    std::vector<Wanted> all;
    for (const Entry& one : some) all.push_back(wanted(one));
    return all;
  }
  static StoreItem item(const Entry& one, Sighting sighting = Sighting::computed) {
    auto payload = Payload::make(one.bytes.size());
    std::memcpy(payload->data.get(), one.bytes.data(), one.bytes.size());
    return {one.key, one.info, payload, {}, kDefaultPriority, sighting};
  }
  // Stores an entry as an engine does that has just computed it.
  LevelMask see(const Entry& one, Sighting sighting = Sighting::computed) {
    const LevelMask levels = stack->wanting(one.key, sighting);
    if (levels != 0) stack->store(item(one, sighting), levels);
    EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
    return levels;
  }
  void put(size_t level, std::span<const Entry> some) { Client(*tiers[level]).put(some); }
  bool there(size_t level, const Entry& one) {
    return Client(*tiers[level]).contains(one) == TierOutcome::done;
  }
  static bool right(const Loaded& loaded, const Entry& one) {
    return loaded.payload != nullptr &&
           Bytes(loaded.payload->span().begin(), loaded.payload->span().end()) == one.bytes;
  }

  FaultyTier* tiers[2] = {};
  std::unique_ptr<TierStack> stack;
  std::vector<Entry> prompt = entries(1, 8, 5000);
};

}  // namespace

TEST_F(Stack, WriteThroughStoresWhatWasSeenOnce) {
  EXPECT_EQ(see(prompt[0]), 0b11U);
  EXPECT_TRUE(there(0, prompt[0]));
  EXPECT_TRUE(there(1, prompt[0]));
  // And not again.
  EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
  EXPECT_EQ(stack->stats().levels[1].stored, 1U);
}

TEST_F(Stack, OnSecondUseStoresWhatWasSeenTwice) {
  make({}, WritePolicy::write_through, WritePolicy::on_second_use);
  EXPECT_EQ(see(prompt[0]), 0b01U);
  EXPECT_FALSE(there(1, prompt[0]));
  EXPECT_EQ(see(prompt[0], Sighting::used_again), 0b10U);
  EXPECT_TRUE(there(1, prompt[0]));
  EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
}

TEST_F(Stack, WriteBackStoresWhatLeaves) {
  make({}, WritePolicy::write_back, WritePolicy::write_back);
  EXPECT_EQ(see(prompt[0]), 0U);
  EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b11U);
  EXPECT_TRUE(there(0, prompt[0]));
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0U) << "it is there";
  EXPECT_EQ(stack->stats().levels[1].stored, 1U);
  EXPECT_EQ(stack->stats().levels[1].written_back, 1U);
}

TEST_F(Stack, AUseIsToldToTheLevelsThatHaveIt) {
  ManualClock clock;  // A slow machine does not end a tick.
  make({.clock = &clock});
  see(prompt[0]);
  EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
  EXPECT_EQ(stack->stats().levels[0].tier.touched, 1U);
  EXPECT_EQ(stack->stats().levels[1].tier.touched, 1U);
  // Not every use: nothing was put since that could have pushed it out.
  for (int i = 0; i < 50; ++i) see(prompt[0], Sighting::used_again);
  EXPECT_EQ(stack->stats().levels[1].tier.touched, 1U);
  // Once a part of the level was replaced, the level is told of uses again.
  for (uint64_t p = 10; p < 13; ++p) see(entry(p, 0, kRoomy / 64));
  see(prompt[0], Sighting::used_again);
  EXPECT_EQ(stack->stats().levels[1].tier.touched, 2U);
  // Also after some seconds: others may have put something there.
  clock.advance_ns(11'000'000'000);
  see(prompt[0], Sighting::used_again);
  EXPECT_EQ(stack->stats().levels[1].tier.touched, 3U);
}

// A Redis does not report its capacity; a small one replaces everything soon.
TEST_F(Stack, ALevelThatDoesNotTellItsCapacityIsToldOften) {
  class Untold final : public Tier {
   public:
    explicit Untold(std::unique_ptr<Tier> tier) : tier_(std::move(tier)), traits_(tier_->traits()) {
      traits_.capacity_bytes = 0;
    }
    const TierTraits& traits() const noexcept override { return traits_; }
    void submit(std::shared_ptr<TierBatch> batch) override { tier_->submit(std::move(batch)); }
    TierStats stats() const override { return tier_->stats(); }
    bool flush(uint64_t until_ns) override { return tier_->flush(until_ns); }
    Purged purge(const Purge& what, uint64_t until_ns) override {
      return tier_->purge(what, until_ns);
    }

   private:
    const std::unique_ptr<Tier> tier_;
    TierTraits traits_;
  };
  ManualClock clock;
  StackOptions options{.clock = &clock};
  StackLevel level;
  level.tier = std::make_unique<Untold>(make_host_tier({.capacity_bytes = kRoomy}).value());
  options.levels.push_back(std::move(level));
  stack = TierStack::create(std::move(options)).value();
  see(prompt[0]);
  const uint64_t before = stack->stats().levels[0].tier.touched;
  // 16 MiB are put in pieces of 128 KiB: the level is told at least after each sixteenth of that.
  for (uint64_t p = 100; p < 228; ++p) {
    see(entry(p, 0, 128U << 10U));
    see(prompt[0], Sighting::used_again);
  }
  EXPECT_GE(stack->stats().levels[0].tier.touched - before, 16U);
  EXPECT_LE(stack->stats().levels[0].tier.touched - before, 64U) << "not at every use";
}

// A use that overtakes the put of its entry would be answered "it is not there", and the entry
// would be put again.
TEST_F(Stack, AnEntryOnItsWayIsNotPutASecondTime) {
  tiers[1]->set_plan({.stall = true});
  const LevelMask levels = stack->wanting(prompt[0].key, Sighting::computed);
  stack->store(item(prompt[0]), levels);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(stack->wanting(prompt[0].key, Sighting::used_again), 0U) << i;
  tiers[1]->set_plan({});
  ASSERT_TRUE(stack->flush(now_ns() + kPatienceNs));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U) << i;
  EXPECT_EQ(stack->stats().levels[1].stored, 1U);
  EXPECT_TRUE(there(1, prompt[0]));
}

TEST_F(Stack, WhatAStalledLevelHasIsLoadedFromTheNext) {
  make({.query_ns = 40'000'000, .load_ns = kPatienceNs, .rest_ns = 600'000'000'000});
  put(0, prompt);
  put(1, prompt);
  tiers[0]->set_plan({.stall = true});
  const auto asked = wanted(prompt);
  const std::vector<Loaded> loaded =
      stack->load(asked, std::vector<LevelMask>(prompt.size(), 0b11));
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_TRUE(right(loaded[i], prompt[i])) << i;
    EXPECT_EQ(loaded[i].level, 1U);
  }
  tiers[0]->set_plan({});
}

TEST_F(Stack, AnEntryThatALevelLostIsPutAgainWhenItIsUsed) {
  for (const WritePolicy lower : {WritePolicy::write_through, WritePolicy::on_second_use}) {
    make({}, WritePolicy::write_through, lower);
    see(prompt[0]);
    see(prompt[0], Sighting::used_again);
    ASSERT_TRUE(there(1, prompt[0]));
    Client(*tiers[1]).remove(std::span(prompt).first(1));
    // The stack assumes that the entry is there until the next time it tells the level of a use.
    for (uint64_t p = 10; p < 13; ++p) see(entry(p, 0, kRoomy / 64));
    EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
    EXPECT_EQ(see(prompt[0], Sighting::used_again), 0b10U);
    EXPECT_TRUE(there(1, prompt[0]));
    EXPECT_EQ(see(prompt[0], Sighting::used_again), 0U);
  }
}

// A hot set larger than a level: each put pushes out an entry that is used next.
TEST_F(Stack, WhatALevelLosesAgainAndAgainIsPutLessAndLess) {
  constexpr uint32_t kRounds = 64;
  StackOptions options;
  options.query_ns = kPatienceNs;
  StackLevel level;
  level.tier = make_host_tier({.capacity_bytes = 1U << 20U}).value();
  options.levels.push_back(std::move(level));
  stack = TierStack::create(std::move(options)).value();
  std::vector<Entry> hot;
  for (uint64_t p = 0; p < 40; ++p) hot.push_back(entry(100 + p, 0, 50'000));
  for (const Entry& one : hot) see(one);
  const uint64_t before = stack->stats().levels[0].stored;
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (const Entry& one : hot) see(one, Sighting::used_again);
  }
  const uint64_t uses = kRounds * hot.size();
  const uint64_t again = stack->stats().levels[0].stored - before;
  EXPECT_LT(again, uses / 4) << "of " << uses;
  EXPECT_GT(again, hot.size() / 2) << "what is used all the time is not given up";
}

TEST_F(Stack, WhatALevelLostOnceIsBackAtTheNextUse) {
  for (const Entry& one : prompt) see(one);
  for (int emptied = 0; emptied < 4; ++emptied) {
    Client(*tiers[1]).remove(prompt);
    for (uint64_t p = 0; p < 3; ++p) see(entry(10 + p, emptied, kRoomy / 64));
    for (int use = 0; use < 2; ++use) {
      for (const Entry& one : prompt) see(one, Sighting::used_again);
    }
    for (const Entry& one : prompt) EXPECT_TRUE(there(1, one)) << emptied;
    // It stays for a while, and its loss is forgotten.
    for (uint64_t p = 0; p < 3; ++p) see(entry(20 + p, emptied, kRoomy / 64));
    for (const Entry& one : prompt) see(one, Sighting::used_again);
  }
}

// Leaving memory is the last chance. An entry that a level was given long ago may have been pushed
// out since.
TEST_F(Stack, WhatLeavesIsOfferedAgainWhereItMayHaveBeenPushedOut) {
  make({}, WritePolicy::write_back, WritePolicy::write_back);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b11U);
  for (uint64_t p = 0; p < 4; ++p) see(entry(30 + p, 0, kRoomy / 64), Sighting::evicted);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0U) << "little was put since";
  for (uint64_t p = 0; p < 32; ++p) see(entry(40 + p, 0, kRoomy / 64), Sighting::evicted);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b11U);
  EXPECT_EQ(stack->stats().levels[1].tier.already_there, 1U) << "and is not written twice";
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0U);
}

// Knowing what one level has says nothing about another.
TEST_F(Stack, WhatLeavesIsOfferedToALevelAlsoIfAnotherOneIsKnownToHaveIt) {
  make({}, WritePolicy::write_back, WritePolicy::write_back);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b11U);
  // It is read above all the time, while so much is put below that it may be gone there.
  for (uint64_t p = 0; p < 64; ++p) {
    see(entry(40 + p, 0, kRoomy / 64), Sighting::evicted);
    const LevelMask above = 0b01;
    const Wanted one = wanted(prompt[0]);
    ASSERT_TRUE(right(stack->load({&one, 1}, {&above, 1})[0], prompt[0]));
    EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  }
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b10U);
}

TEST_F(Stack, WhatIsTooLargeForALevelIsCountedOnceAndNotPut) {
  StackOptions options;
  StackLevel level;
  level.tier = make_host_tier({.capacity_bytes = 1U << 20U}).value();
  options.levels.push_back(std::move(level));
  stack = TierStack::create(std::move(options)).value();
  const Entry large = entry(7, 0, 2U << 20U);
  EXPECT_EQ(stack->wanting(large.key, Sighting::computed), 0b1U)
      << "nobody knows yet how large it is";
  EXPECT_EQ(stack->store(item(large), 0b1), 0U);
  for (const Sighting sighting : {Sighting::computed, Sighting::used_again, Sighting::evicted})
    EXPECT_EQ(see(large, sighting), 0U);
  const tier::LevelStats stats = stack->stats().levels[0];
  EXPECT_EQ(stats.too_large, 1U);
  EXPECT_EQ(stats.lost, 0U);
  EXPECT_EQ(stats.stored, 0U);
  EXPECT_EQ(stats.tier.refused, 0U);
}

TEST_F(Stack, WriteBackGetsWhatIsUsedOftenAndNeverLeaves) {
  make({}, WritePolicy::write_back, WritePolicy::write_back);
  see(prompt[0]);
  uint32_t uses = 1;
  while (!there(1, prompt[0]) && uses < 100) {
    see(prompt[0], Sighting::used_again);
    ++uses;
  }
  EXPECT_TRUE(there(0, prompt[0]));
  EXPECT_TRUE(there(1, prompt[0]));
  EXPECT_GT(uses, 2U) << "what is used once more may leave soon, and is written then";
  EXPECT_LT(uses, 10U);
}

TEST_F(Stack, WhatALevelRefusesIsNotOfferedAgain) {
  ManualClock clock;  // A slow machine does not end a tick.
  make({.clock = &clock});
  const Entry large = entry(5, 0, kRoomy + 1);
  see(large);
  EXPECT_FALSE(there(1, large));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(see(large, Sighting::used_again), 0U) << i;
}

// A tier that stalls only in the load costs no more than one that never answers.
TEST_F(Stack, ALoadFromAStalledLevelIsGivenUpLongBeforeItsTimeIsOver) {
  make({.query_ns = 40'000'000, .load_ns = kPatienceNs, .rest_ns = 600'000'000'000});
  put(1, std::span(prompt).first(4));
  const auto asked = wanted(std::span(prompt).first(4));
  std::vector<LevelMask> levels(4, 0b10);
  tiers[1]->set_plan({.stall = true});
  const uint64_t begun = now_ns();
  for (const Loaded& one : stack->load(asked, levels)) EXPECT_EQ(one.payload, nullptr);
  EXPECT_LT(now_ns() - begun, kPatienceNs / 4);
  EXPECT_EQ(stack->stats().rests, 1U);
  // Nobody else waits for it.
  EXPECT_EQ(stack->where(asked), std::vector<LevelMask>(4, 0));
  tiers[1]->set_plan({});
  EXPECT_EQ(stack->load(asked, levels)[0].payload, nullptr) << "it rests";
}

TEST_F(Stack, WhatWasFoundOnALevelIsNotWrittenBackToIt) {
  make({}, WritePolicy::write_back, WritePolicy::write_back);
  put(1, std::span(prompt).first(1));
  const auto asked = wanted(std::span(prompt).first(1));
  EXPECT_TRUE(right(stack->load(asked, stack->where(asked))[0], prompt[0]));
  EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  EXPECT_TRUE(there(0, prompt[0])) << "promoted";
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0U);
  // Until the stack sees that it is gone.
  Client(*tiers[1]).remove(std::span(prompt).first(1));
  stack->where(asked);
  EXPECT_EQ(see(prompt[0], Sighting::evicted), 0b10U);
}

TEST_F(Stack, EveryLevelIsAskedForEveryDepthAndHolesAreSeen) {
  put(0, std::span(prompt).first(3));
  put(1, std::span(prompt).subspan(2, 3));
  put(1, std::span(prompt).subspan(6, 1));
  const auto levels = stack->where(wanted(prompt));
  EXPECT_EQ(levels, (std::vector<LevelMask>{0b01, 0b01, 0b11, 0b10, 0b10, 0, 0b10, 0}));
  EXPECT_EQ(TierStack::covered(levels), 5U);
  EXPECT_EQ(TierStack::covered(std::span(levels).subspan(6)), 1U);
  // One batch a level, whatever the number of entries.
  EXPECT_EQ(stack->stats().queries, 1U);
}

TEST_F(Stack, AnEntryOfAnotherSizeIsNotOurs) {
  put(0, std::span(prompt).first(1));
  std::vector<Wanted> other = wanted(std::span(prompt).first(1));
  other[0].info.bytes = 4999;
  EXPECT_EQ(stack->where(other)[0], 0U);
  const std::vector<LevelMask> anyway{0b01};
  EXPECT_EQ(stack->load(other, anyway)[0].payload, nullptr);
}

TEST_F(Stack, WhatIsFoundBelowGoesUp) {
  put(1, prompt);
  const auto loaded = stack->load(wanted(prompt), stack->where(wanted(prompt)));
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_TRUE(right(loaded[i], prompt[i]));
    EXPECT_EQ(loaded[i].level, 1U);
  }
  EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  EXPECT_EQ(stack->stats().levels[0].promoted, prompt.size());
  const auto again = stack->load(wanted(prompt), stack->where(wanted(prompt)));
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_TRUE(right(again[i], prompt[i]));
    EXPECT_EQ(again[i].level, 0U);
  }
  EXPECT_EQ(stack->stats().levels[0].hits, prompt.size());
  EXPECT_EQ(stack->stats().levels[1].hits, prompt.size());
}

TEST_F(Stack, WhatIsDamagedAboveIsServedFromBelow) {
  put(0, prompt);
  put(1, prompt);
  tiers[0]->set_plan({.flip = 1000});
  const auto loaded = stack->load(wanted(prompt), stack->where(wanted(prompt)));
  for (size_t i = 0; i < prompt.size(); ++i) {
    EXPECT_TRUE(right(loaded[i], prompt[i]));
    EXPECT_EQ(loaded[i].level, 1U);
  }
  EXPECT_EQ(stack->stats().levels[0].misses, prompt.size());
}

TEST_F(Stack, WhatCannotBeHadIsAMiss) {
  put(1, prompt);
  const auto levels = stack->where(wanted(prompt));
  tiers[1]->set_plan({.fail = 1000});
  for (const Loaded& loaded : stack->load(wanted(prompt), levels))
    EXPECT_EQ(loaded.payload, nullptr);
}

// The rest is released only after the first ones are handed over.
TEST_F(Stack, EntriesAreHandedOverWhileOthersAreOnTheirWay) {
  const std::unique_ptr<Tier> inner = make_host_tier({.capacity_bytes = kRoomy}).value();
  Client(*inner).put(prompt);
  auto gated = std::make_unique<Gated>(*inner);
  Gated& gate = *gated;
  StackOptions options;
  options.query_ns = kPatienceNs;
  options.load_part_bytes = 2 * prompt[0].bytes.size();
  options.transfer_bytes = prompt.size() * 2 * prompt[0].bytes.size();
  StackLevel level;
  level.tier = std::move(gated);
  options.levels.push_back(std::move(level));
  stack = TierStack::create(std::move(options)).value();
  std::vector<size_t> order;
  size_t before_the_rest = 0;
  const auto all = wanted(prompt);
  const std::vector<Loaded> loaded =
      stack->load(all, stack->where(all), kNever, [&](size_t index, const Loaded& one) {
        EXPECT_TRUE(right(one, prompt[index])) << index;
        order.push_back(index);
        if (gate.held() == 0) return;
        if (++before_the_rest == 2) gate.open();
      });
  EXPECT_EQ(before_the_rest, 2U) << "the next part was asked for, and had not come";
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  for (const Loaded& one : loaded) EXPECT_EQ(one.payload, nullptr);
  EXPECT_EQ(loaded[7].info.bytes, prompt[7].bytes.size());
  EXPECT_GT(stack->stats().levels[0].bytes_per_second, 0);
}

TEST_F(Stack, WhatALevelDoesNotHaveAnyMoreComesFromTheNextInEveryPart) {
  StackOptions small;
  small.load_part_bytes = 2 * prompt[0].bytes.size();
  make(std::move(small));
  put(0, prompt);
  put(1, prompt);
  tiers[0]->set_plan({.fail = 500});
  std::vector<bool> seen(prompt.size());
  const auto all = wanted(prompt);
  (void)stack->load(all, std::vector<LevelMask>(prompt.size(), 0b11), kNever,
                    [&](size_t index, const Loaded& one) {
                      EXPECT_TRUE(right(one, prompt[index])) << index;
                      EXPECT_FALSE(seen[index]) << index;
                      seen[index] = true;
                    });
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << i;
  const auto stats = stack->stats();
  EXPECT_EQ(stats.levels[0].hits + stats.levels[1].hits, prompt.size());
  EXPECT_GT(stats.levels[1].hits, 0U);
}

TEST_F(Stack, OfSeveralWhoWantOneEntryOneAsks) {
  // However long the other requests may wait for it.
  StackOptions patient;
  patient.load_ns = kNever;
  make(std::move(patient));
  put(1, prompt);
  const auto levels = stack->where(wanted(prompt));
  tiers[1]->set_plan({.delay_ns = 200'000'000});
  std::vector<std::thread> threads;
  std::atomic<uint32_t> good{0};
  for (uint32_t self = 0; self < 4; ++self) {
    threads.emplace_back([&] {
      const auto loaded = stack->load(wanted(prompt), levels);
      for (size_t i = 0; i < prompt.size(); ++i) good += right(loaded[i], prompt[i]) ? 1U : 0U;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good.load(), 4 * prompt.size());
  const auto stats = stack->stats();
  // Requests that came after the first had landed asked for themselves.
  EXPECT_EQ(stats.levels[1].tier.gets + stats.shared_loads, 4 * prompt.size());
  EXPECT_GE(stats.shared_loads, prompt.size());
}

// A request without memory for an entry does not keep it from others.
TEST_F(Stack, ALoadThatBrokeOffLeavesNothingOnItsWay) {
  class Short final : public Tier {
   public:
    explicit Short(std::unique_ptr<Tier> tier) : tier_(std::move(tier)) {}
    const TierTraits& traits() const noexcept override { return tier_->traits(); }
    void submit(std::shared_ptr<TierBatch> batch) override {
      if (batch->op() == TierOp::get && !has_thrown_.exchange(true)) throw std::bad_alloc();
      tier_->submit(std::move(batch));
    }
    TierStats stats() const override { return tier_->stats(); }
    bool flush(uint64_t until_ns) override { return tier_->flush(until_ns); }
    Purged purge(const Purge& what, uint64_t until_ns) override {
      return tier_->purge(what, until_ns);
    }

   private:
    const std::unique_ptr<Tier> tier_;
    std::atomic<bool> has_thrown_{false};
  };
  StackOptions options;
  options.query_ns = kPatienceNs;
  StackLevel level;
  level.tier = std::make_unique<Short>(make_host_tier({.capacity_bytes = kRoomy}).value());
  Client(*level.tier).put(prompt);
  options.levels.push_back(std::move(level));
  stack = TierStack::create(std::move(options)).value();
  const auto all = wanted(prompt);
  const auto levels = stack->where(all);
  EXPECT_THROW((void)stack->load(all, levels), std::bad_alloc);
  const auto loaded = stack->load(all, levels);
  for (size_t i = 0; i < prompt.size(); ++i) EXPECT_TRUE(right(loaded[i], prompt[i])) << i;
  EXPECT_EQ(stack->stats().shared_loads, 0U);
}

TEST_F(Stack, AStalledLevelCostsOneBoundedDelay) {
  constexpr uint64_t kQueryNs = 2'000'000'000;  // The other one may be slow, too.
  make({.query_ns = kQueryNs, .rest_ns = 600'000'000'000});
  put(0, std::span(prompt).first(4));
  put(1, prompt);
  tiers[1]->set_plan({.stall = true});
  uint64_t begin = now_ns();
  EXPECT_EQ(TierStack::covered(stack->where(wanted(prompt))), 4U);
  EXPECT_GE(now_ns() - begin, kQueryNs - 10'000'000);
  EXPECT_LT(now_ns() - begin, 30'000'000'000U);
  EXPECT_EQ(stack->stats().rests, 1U);
  begin = now_ns();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(TierStack::covered(stack->where(wanted(prompt))), 4U);
  EXPECT_LT(now_ns() - begin, 50 * kQueryNs);
  EXPECT_EQ(stack->stats().rests, 1U);
}

TEST_F(Stack, NeverIsATimeThatMayBeSaidOfAnything) {
  make({.query_ns = 5'000'000, .load_ns = kNever, .store_ns = kNever, .rest_ns = kNever});
  // The stack waits for a slow tier, and loses nothing that the tier took.
  tiers[1]->set_plan({.delay_ns = 100'000'000});
  for (const Entry& one : prompt)
    stack->store(item(one), stack->wanting(one.key, Sighting::computed));
  EXPECT_TRUE(stack->flush(kNever));
  EXPECT_EQ(stack->stats().levels[1].lost, 0U);
  for (const Entry& one : prompt)
    EXPECT_EQ(stack->wanting(one.key, Sighting::computed) & 0b10U, 0U);
  // One that did not answer is not asked again.
  tiers[1]->set_plan({.stall = true});
  for (int i = 0; i < 3; ++i) (void)stack->where(wanted(prompt));
  EXPECT_EQ(stack->stats().rests, 1U);
}

TEST_F(Stack, ARestedLevelIsAskedAgain) {
  make({.query_ns = 5'000'000, .rest_ns = 1'000'000});
  put(1, prompt);
  tiers[1]->set_plan({.stall = true});
  EXPECT_EQ(TierStack::covered(stack->where(wanted(prompt))), 0U);
  tiers[1]->set_plan({});
  size_t found = 0;
  // Not all may be reported within its few milliseconds.
  for (const uint64_t give_up = now_ns() + kPatienceNs;
       found != prompt.size() && now_ns() < give_up;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    found = TierStack::covered(stack->where(wanted(prompt)));
  }
  EXPECT_EQ(found, prompt.size());
}

TEST_F(Stack, ALoadEndsWhenItsTimeIsOver) {
  put(1, prompt);
  const auto levels = stack->where(wanted(prompt));
  tiers[1]->set_plan({.stall = true});
  const uint64_t begin = now_ns();
  for (const Loaded& loaded : stack->load(wanted(prompt), levels, 20'000'000))
    EXPECT_EQ(loaded.payload, nullptr);
  EXPECT_LT(now_ns() - begin, 30'000'000'000U);
}

TEST_F(Stack, AStalledLevelDoesNotHoldUpTheOthers) {
  // Stored while it has an hour to answer; and what is given up, after a while, is wanted again.
  for (const uint64_t store_ns : {60 * kPatienceNs, kPatienceNs / 20}) {
    make({.store_ns = store_ns});
    tiers[1]->set_plan({.stall = true});
    for (const Entry& one : prompt) stack->store(item(one), 0b11);
    if (store_ns < kPatienceNs) break;
    while (!there(0, prompt.back())) std::this_thread::yield();
    for (const Entry& one : prompt) EXPECT_TRUE(there(0, one));
    tiers[1]->set_plan({});
  }
  EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  EXPECT_EQ(stack->stats().levels[1].lost, prompt.size());
  EXPECT_EQ(stack->wanting(prompt[0].key, Sighting::used_again), 0b10U);
}

TEST_F(Stack, ASlowLevelIsNotWaitedForWhenComputingIsFaster) {
  make({.probe_ns = 60'000'000'000});
  put(1, prompt);
  tiers[1]->set_plan({.delay_ns = 10'000'000, .bytes_per_second = 1'000'000});
  const auto levels = stack->where(wanted(prompt));
  // The engine's speed is unknown.
  EXPECT_EQ(stack->choose(wanted(prompt), levels).count, prompt.size());
  (void)stack->load(wanted(std::span(prompt).first(4)), levels);
  stack->prefilled(1000, 1'000'000);
  EXPECT_EQ(stack->choose(wanted(prompt), levels).count, 0U);
  EXPECT_EQ(stack->stats().levels[1].too_slow, prompt.size());
  // A slow engine still gains.
  for (int i = 0; i < 60; ++i) stack->prefilled(10, 10'000'000'000);
  EXPECT_EQ(stack->choose(wanted(prompt), levels).count, prompt.size());
}

TEST_F(Stack, ALevelThatBecameFastIsFoundOut) {
  make({.probe_ns = 1});
  put(1, prompt);
  tiers[1]->set_plan({.delay_ns = 300'000'000});
  const auto levels = stack->where(wanted(prompt));
  stack->prefilled(1000, 500'000'000);
  EXPECT_EQ(stack->choose(wanted(prompt), levels).count, 0U);
  tiers[1]->set_plan({});
  bool found = false;
  for (int i = 0; i < 200 && !found; ++i) {
    found = stack->choose(wanted(prompt), levels).count == prompt.size();
    EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  }
  EXPECT_TRUE(found);
  EXPECT_GE(stack->stats().probes, 1U);
}

TEST_F(Stack, PrefetchingBringsUpWhatLiesBelow) {
  put(1, prompt);
  stack->prefetch(wanted(prompt));
  EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  for (const Entry& one : prompt) EXPECT_TRUE(there(0, one));
  EXPECT_EQ(stack->stats().prefetches, prompt.size());
}

TEST_F(Stack, AFullQueueTakesNoMoreAndSaysSo) {
  make({.store_ns = kPatienceNs, .queue_bytes = 12'000});
  tiers[1]->set_plan({.stall = true});
  // Which ones are dropped depends on when the writer takes the first ones from the queue.
  std::vector<EntryKey> dropped;
  for (const Entry& one : prompt) {
    if (stack->store(item(one), 0b10) == 0) dropped.push_back(one.key);
  }
  const auto stats = stack->stats().levels[1];
  EXPECT_GE(dropped.size(), prompt.size() - 4);
  EXPECT_EQ(stats.dropped, dropped.size());
  EXPECT_EQ(stats.stored + stats.dropped, prompt.size());
  tiers[1]->set_plan({});
  EXPECT_TRUE(stack->flush(now_ns() + kPatienceNs));
  for (const EntryKey& key : dropped) {
    EXPECT_NE(stack->wanting(key, Sighting::computed) & 0b10U, 0U);
  }
}

TEST_F(Stack, UnderFaultsNothingWrongIsLoaded) {
  make({.store_ns = 50'000'000});
  for (FaultyTier* tier : tiers) {
    tier->set_plan({.seed = 3,
                    .fail = 100,
                    .lose_answer = 50,
                    .tear = 100,
                    .flip = 100,
                    .forget = 50,
                    .jitter_ns = 100'000});
  }
  std::vector<std::thread> threads;
  std::atomic<uint64_t> hits{0};
  for (uint64_t self = 0; self < 3; ++self) {
    threads.emplace_back([&, self] {
      for (uint64_t round = 0; round < 30; ++round) {
        const auto some = entries((self + round) % 5, 8, 3000);
        for (const Entry& one : some)
          stack->store(item(one), stack->wanting(one.key, Sighting::computed));
        const auto loaded = stack->load(wanted(some), stack->where(wanted(some)));
        for (size_t i = 0; i < some.size(); ++i) {
          if (loaded[i].payload == nullptr) continue;
          EXPECT_TRUE(right(loaded[i], some[i]));
          ++hits;
        }
        if (round % 4 == 0) stack->prefetch(wanted(some));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(hits.load(), 50U);
}

TEST_F(Stack, AStackMayEndWhileMuchIsUnderWay) {
  tiers[1]->set_plan({.delay_ns = 2'000'000});
  for (const Entry& one : prompt) stack->store(item(one), 0b11);
  stack->prefetch(wanted(prompt));
  stack.reset();
}

TEST(StackOptionsTest, ImpossibleOnesAreNamed) {
  EXPECT_EQ(TierStack::create({}).error().code(), Errc::invalid_argument);
  StackOptions empty;
  empty.levels.resize(1);
  EXPECT_EQ(TierStack::create(std::move(empty)).error().code(), Errc::invalid_argument);
}

}  // namespace stemma::test
