// The same contract where room is short, where many come at once, and over random operations.
//
//   STEMMA_TIER_SEED=n   what random runs begin with (otherwise the clock; printed)
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <random>
#include <thread>

#include "support/environment.h"
#include "support/now.h"
#include "tiers/tier_suite.h"

namespace stemma::test {

using enum TierOutcome;

namespace {

// Prompts of 8 entries of which about 4 fit.
constexpr uint32_t kBlocks = 8;
uint64_t entry_bytes(const Tier& tier) {
  return std::min(tier.traits().capacity_bytes / (4 * kBlocks + 6), tier.traits().max_entry_bytes);
}

// Looks at a tier's size all the time.
class CapacityWatch {
 public:
  explicit CapacityWatch(const Tier& tier)
      : thread_([this, &tier] {
          while (!stop_.load()) {
            most_ = std::max(most_, tier.stats().used_bytes);
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
        }) {}
  ~CapacityWatch() {
    if (thread_.joinable()) (void)most_bytes();
  }
  uint64_t most_bytes() {
    stop_ = true;
    thread_.join();
    return most_;
  }

 private:
  std::atomic<bool> stop_{false};
  uint64_t most_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_P(TierContract, CapacityHoldsAndTheDeepestGoFirst) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  CapacityWatch watch(*tier);
  std::vector<std::vector<Entry>> prompts;
  for (uint64_t p = 0; p < 12; ++p) {
    prompts.push_back(entries(p, kBlocks, bytes - p));
    EXPECT_EQ(client->put(prompts.back()), all(kBlocks, done));
    // What was put last is there.
    EXPECT_EQ(kept_of(prompts.back()), kBlocks);
    for (const auto& prompt : prompts) kept_of(prompt);
  }
  EXPECT_LE(watch.most_bytes(), tier->traits().capacity_bytes);
  const TierStats stats = tier->stats();
  EXPECT_GT(stats.evictions, 0U);
  EXPECT_GE(stats.evicted_bytes, stats.evictions * (bytes - 12));
  uint64_t there = 0;
  for (const auto& prompt : prompts) {
    for (const Entry& one : prompt) there += client->whole_or_absent(one) ? 1U : 0U;
  }
  EXPECT_EQ(there, tier->stats().entries);
  // Room is used, not only kept within bounds.
  EXPECT_GE(there * bytes, tier->traits().capacity_bytes / 2);
}

TEST_P(TierContract, OfOnePromptTooLargeForAllTheHeadIsKept) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const auto prompt = entries(1, 12 * kBlocks, entry_bytes(*tier));
  const Outcomes outcomes = client->put(prompt);
  for (const TierOutcome outcome : outcomes) EXPECT_TRUE(outcome == done || outcome == refused);
  const size_t kept = kept_of(prompt);
  EXPECT_GE(kept, 2 * kBlocks);
  EXPECT_LT(kept, prompt.size());
  EXPECT_LE(tier->stats().used_bytes, tier->traits().capacity_bytes);
}

TEST_P(TierContract, WhatWasReadStaysLonger) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  const auto read = entries(1, kBlocks, bytes);
  const auto unread = entries(2, kBlocks, bytes);
  ASSERT_EQ(client->put(read), all(kBlocks, done));
  ASSERT_EQ(client->put(unread), all(kBlocks, done));
  ASSERT_EQ(client->get(read)[0].outcome, done);
  for (uint64_t p = 10; kept_of(unread) == kBlocks && p < 30; ++p)
    client->put(entries(p, kBlocks / 2, bytes));
  EXPECT_LT(kept_of(unread), kBlocks);
  EXPECT_EQ(kept_of(read), kBlocks);
}

TEST_P(TierContract, TouchSaysWhatIsThere) {
  const auto prompt = entries(1, kBlocks, 10'000);
  EXPECT_EQ(client->touch(prompt), all(kBlocks, absent));
  ASSERT_EQ(client->put(prompt), all(kBlocks, done));
  EXPECT_EQ(client->touch(prompt), all(kBlocks, done));
  ASSERT_EQ(client->remove(prompt), all(kBlocks, done));
  EXPECT_EQ(client->touch(prompt), all(kBlocks, absent));
  EXPECT_EQ(tier->stats().touched, kBlocks);
}

// Entries used above and never read here go last, in the order of their prefix.
TEST_P(TierContract, WhatWasTouchedStaysLonger) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  const auto hot = entries(1, kBlocks, bytes);
  const auto cold = entries(2, kBlocks, bytes);
  ASSERT_EQ(client->put(hot), all(kBlocks, done));
  ASSERT_EQ(client->put(cold), all(kBlocks, done));
  for (uint64_t p = 10; p < 30; ++p) {
    ASSERT_EQ(client->touch(hot), all(kBlocks, done)) << "after " << p - 10 << " other prompts";
    client->put(entries(p, kBlocks, bytes));
  }
  EXPECT_EQ(client->contains(hot), all(kBlocks, done));
  EXPECT_EQ(client->contains(cold), all(kBlocks, absent));
}

TEST_P(TierContract, WhatMattersMoreStaysLonger) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  auto dear = entries(1, kBlocks, bytes);
  for (Entry& one : dear) one.priority = 80;
  ASSERT_EQ(client->put(dear), all(kBlocks, done));
  for (uint64_t p = 10; p < 22; ++p) client->put(entries(p, kBlocks, bytes));
  EXPECT_GT(tier->stats().evictions, kBlocks);
  EXPECT_EQ(kept_of(dear), kBlocks);
}

TEST_P(TierContract, RemovedRoomIsRoom) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  for (uint64_t round = 0; round < 10; ++round) {
    const auto prompt = entries(round, 2 * kBlocks, bytes);
    ASSERT_EQ(client->put(prompt), all(2 * kBlocks, done)) << round;
    ASSERT_EQ(kept_of(prompt), 2 * kBlocks);
    ASSERT_EQ(client->remove(prompt), all(2 * kBlocks, done)) << round;
  }
  EXPECT_EQ(tier->stats().entries, 0U);
}

TEST_P(TierContract, EveryItemIsCountedOnce) {
  const auto prompt = entries(1, 6, 10'000);
  client->put(std::span(prompt).first(3));
  client->put(std::span(prompt).first(3));
  client->get(prompt);
  client->contains(prompt);
  client->touch(prompt);
  client->remove(std::span(prompt).subspan(2));
  Entry bad = entry(3, 0, 100);
  bad.info.bytes = 0;
  bad.bytes.clear();
  client->put(bad);
  EXPECT_TRUE(tier->flush(now_ns() + kPatienceNs));
  const TierStats stats = tier->stats();
  EXPECT_EQ(counted(stats), client->items());
  EXPECT_EQ(stats.puts, 6U);
  EXPECT_EQ(stats.gets, 3U);
  EXPECT_EQ(stats.get_bytes, 30'000U);
  EXPECT_EQ(stats.contains, 3U);
  EXPECT_EQ(stats.removed, 1U);
  EXPECT_EQ(stats.absent, 12U);
  EXPECT_EQ(stats.refused, 1U);
  EXPECT_EQ(stats.corrupt + stats.failed + stats.late + stats.cancelled, 0U);
  EXPECT_GE(stats.put_bytes, 30'000U);
  EXPECT_TRUE(stats.reachable);
}

// Only one thread puts and removes each entry, so that thread knows whether it must be there; the
// others know only what it holds if it is there.
TEST_P(TierContract, ManyThreadsSeeWhatTheyPutAndNothingWrong) {
  constexpr uint32_t kThreads = 4, kOwn = 24;
  const uint32_t rounds = kSanitized ? 60 : 200;
  const uint64_t seed = first_seed();
  const auto made = [](uint32_t thread, uint32_t i) {
    return entry(1000 + thread, i, 1 + (i * 7919 + thread) % 50'000);
  };
  std::atomic<uint64_t> items{0};
  std::vector<std::thread> threads;
  for (uint32_t self = 0; self < kThreads; ++self) {
    threads.emplace_back([&, self] {
      std::mt19937_64 random(seed + self);
      Client mine(*tier);
      std::vector<bool> there(kOwn);
      for (uint32_t round = 0; round < rounds; ++round) {
        const auto first = static_cast<uint32_t>(random() % (kOwn - 6));
        const auto count = static_cast<uint32_t>(1 + random() % 6);
        const auto some = [&](uint32_t thread) {
          std::vector<Entry> picked;
          for (uint32_t i = 0; i < count; ++i) picked.push_back(made(thread, first + i));
          return picked;
        };
        switch (random() % 4) {
          case 0:
            EXPECT_EQ(mine.put(some(self)), all(count, done));
            std::fill_n(there.begin() + first, count, true);
            break;
          case 1: {
            const Outcomes outcomes = mine.remove(some(self));
            for (uint32_t i = 0; i < count; ++i) {
              EXPECT_EQ(outcomes[i], there[first + i] ? done : absent);
              there[first + i] = false;
            }
            break;
          }
          default: {
            const auto whose = static_cast<uint32_t>(random() % kThreads);
            const auto wanted = some(whose);
            const auto got = mine.get(wanted);
            for (uint32_t i = 0; i < count; ++i) {
              if (whose == self) {
                EXPECT_EQ(got[i].outcome, there[first + i] ? done : absent);
              } else {
                EXPECT_TRUE(got[i].outcome == done || got[i].outcome == absent)
                    << to_string(got[i].outcome);
              }
              if (got[i].outcome == done) {
                EXPECT_EQ(got[i].bytes, wanted[i].bytes);
              }
            }
          }
        }
      }
      items += mine.items();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(tier->flush(now_ns() + kPatienceNs));
  EXPECT_EQ(counted(tier->stats()), items.load());
}

// The same under pressure: nothing wrong is served and capacity holds, whatever is there.
TEST_P(TierContract, ManyThreadsUnderPressureSeeNothingWrong) {
  if (!open_tight()) GTEST_SKIP() << "its server decides";
  const uint64_t bytes = entry_bytes(*tier);
  const uint32_t rounds = kSanitized ? 40 : 150;
  const uint64_t seed = first_seed();
  CapacityWatch watch(*tier);
  std::vector<std::thread> threads;
  for (uint32_t self = 0; self < 4; ++self) {
    threads.emplace_back([&, self] {
      std::mt19937_64 random(seed + self);
      Client mine(*tier);
      for (uint32_t round = 0; round < rounds; ++round) {
        const uint64_t p = random() % 10;
        const auto prompt = entries(p, static_cast<uint32_t>(1 + random() % kBlocks), bytes - p);
        switch (random() % 5) {
          case 0: mine.remove(prompt); break;
          case 1:
          case 2:
            for (const TierOutcome outcome : mine.put(prompt))
              EXPECT_TRUE(outcome == done || outcome == refused) << to_string(outcome);
            break;
          default:
            for (const Entry& one : prompt) mine.whole_or_absent(one);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(watch.most_bytes(), tier->traits().capacity_bytes);
}

// Random operations against a map. With room for all, what must be there is known exactly.
TEST_P(TierContract, RandomOperationsAgreeWithAMap) {
  struct Known {
    uint64_t bytes;
    bool words;
  };
  const uint32_t steps = kSanitized ? 150 : 500;
  std::mt19937_64 random(first_seed());
  std::map<uint64_t, Known> model;  // By number of the key.
  const auto made = [](uint64_t key, const Known& known) {
    Entry one = entry(key / 8, static_cast<uint32_t>(key % 8), known.bytes);
    return known.words ? with_words(std::move(one)) : one;
  };
  for (uint32_t step = 0; step < steps; ++step) {
    const uint64_t what = random() % 100;
    if (what == 0 && tier->traits().outlives_process) {
      open(kRoomy);
      continue;
    }
    std::vector<uint64_t> keys;
    std::vector<Entry> batch;
    for (uint64_t n = 1 + random() % 8; n > 0; --n) {
      const uint64_t key = random() % 64;
      if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
      keys.push_back(key);
      const auto known = model.find(key);
      // Sizes change now and then: that is another description under the same key.
      batch.push_back(known != model.end() && (what >= 40 || random() % 4 != 0)
                          ? made(key, known->second)
                          : made(key, {1 + random() % 40'000, random() % 3 == 0}));
    }
    if (what < 40) {
      ASSERT_EQ(client->put(batch), all(batch.size(), done)) << "step " << step;
      for (size_t i = 0; i < keys.size(); ++i)
        model[keys[i]] = {batch[i].info.bytes, !batch[i].words.empty()};
    } else if (what < 80) {
      const auto got = client->get(batch);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(got[i].outcome, model.contains(keys[i]) ? done : absent) << "step " << step;
        if (got[i].outcome != done) continue;
        ASSERT_EQ(got[i].bytes, batch[i].bytes) << "step " << step;
        ASSERT_EQ(got[i].info.words, words_of(batch[i])) << "step " << step;
      }
    } else {
      const bool removes = what < 90;
      const Outcomes outcomes = removes ? client->remove(batch) : client->contains(batch);
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(outcomes[i], model.contains(keys[i]) ? done : absent) << "step " << step;
        if (removes) model.erase(keys[i]);
      }
    }
    if (tier->traits().capacity_bytes != 0) {
      ASSERT_EQ(tier->stats().entries, model.size()) << "step " << step;
    }
  }
}

}  // namespace stemma::test
