#include "tier/shared/books.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "support/environment.h"

namespace stemma::tier::shared {
namespace {

constexpr uint64_t kRoom = 4096;
constexpr uint64_t kNow = 1'000'000;

EntryKey key_of(uint8_t folder, uint8_t number) {
  EntryKey key;
  key.chain.bytes[0] = static_cast<uint8_t>(folder << 4U);
  key.chain.bytes[9] = number;
  return key;
}

void put(Books& books, const EntryKey& key, uint64_t used_ns,
         Priority priority = kDefaultPriority) {
  Books::Plan plan;
  ASSERT_TRUE(books.plan(key, kRoom, plan));
  for (const Books::Victim& victim : plan.victims) books.gone(victim);
  books.end_victims(plan);
  books.publish(plan, used_ns, priority);
  books.settle(key);
}

std::vector<EntryKey> victims_of(Books& books, uint64_t room) {
  Books::Plan plan;
  EXPECT_TRUE(books.plan(key_of(255, 255), room, plan));
  std::vector<EntryKey> keys;
  for (const Books::Victim& victim : plan.victims) keys.push_back(victim.key);
  books.cancel(plan);
  return keys;
}

TEST(SharedBooks, TheLeastRecentlyUsedGoesFirst) {
  Books books(3 * kRoom, 100 * kRoom);
  for (uint8_t i = 0; i < 3; ++i) put(books, key_of(1, i), 100U + i);
  books.use(key_of(1, 0), 200);
  EXPECT_EQ(victims_of(books, 2 * kRoom), (std::vector{key_of(1, 1), key_of(1, 2)}));
  EXPECT_EQ(books.entries(), 3U);
  EXPECT_EQ(books.used_bytes(), 3 * kRoom);
  put(books, key_of(1, 7), 1, kMaxPriority);
  EXPECT_EQ(victims_of(books, kRoom), std::vector{key_of(1, 2)});
}

TEST(SharedBooks, WhatItsBatchStillHoldsDoesNotGo) {
  Books books(2 * kRoom, 100 * kRoom);
  Books::Plan first, second, third;
  ASSERT_TRUE(books.plan(key_of(1, 1), kRoom, first));
  books.publish(first, 1, kDefaultPriority);
  ASSERT_TRUE(books.plan(key_of(1, 2), kRoom, second));
  books.publish(second, 2, kDefaultPriority);
  EXPECT_FALSE(books.plan(key_of(1, 3), kRoom, third));
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  books.settle(key_of(1, 2));
  EXPECT_EQ(victims_of(books, kRoom), std::vector{key_of(1, 2)});
}

// The room of a large victim is not promised twice while the victim may still stay.
TEST(SharedBooks, WhoChangesHisMindLeavesTheCapacityAsItWas) {
  Books books(4 * kRoom, 100 * kRoom);
  Books::Plan large, first, second;
  ASSERT_TRUE(books.plan(key_of(1, 1), 4 * kRoom, large));
  books.publish(large, 1, kDefaultPriority);
  books.settle(key_of(1, 1));
  ASSERT_TRUE(books.plan(key_of(1, 2), kRoom, first));
  EXPECT_EQ(first.victims.size(), 1U);
  EXPECT_FALSE(books.plan(key_of(1, 3), kRoom, second));
  books.cancel(first);
  EXPECT_EQ(books.used_bytes(), 4 * kRoom);
  ASSERT_TRUE(books.plan(key_of(1, 2), kRoom, first));
  books.gone(first.victims[0]);
  books.end_victims(first);
  EXPECT_EQ(books.used_bytes(), kRoom);
  EXPECT_TRUE(books.plan(key_of(1, 3), kRoom, second));
}

// Other machines have put more than fits: a put evicts the excess too, instead of being refused.
TEST(SharedBooks, ADirectoryThatOthersFilledTooMuchStillTakesAPut) {
  Books books(4 * kRoom, 100 * kRoom);
  std::vector<Books::Seen> seen;
  for (uint8_t i = 0; i < 6; ++i) seen.push_back({key_of(1, i), kRoom, 100U + i});
  books.begin_folder(1);
  books.merge(1, seen, 0, kNow);
  ASSERT_EQ(books.used_bytes(), 6 * kRoom);
  Books::Plan plan, second;
  ASSERT_TRUE(books.plan(key_of(2, 1), kRoom, plan));
  EXPECT_EQ(plan.victims.size(), 3U);
  EXPECT_EQ(books.used_bytes(), 4 * kRoom);
  // One of them stays: its room is taken from the put's promise, and another entry has to go.
  books.keep(plan, plan.victims.back(), Books::Stays::in_order, 100, kNow);
  plan.victims.pop_back();
  EXPECT_EQ(plan.owed, kRoom);
  for (const Books::Victim& victim : plan.victims) books.gone(victim);
  books.end_victims(plan);
  EXPECT_EQ(books.used_bytes(), 4 * kRoom);
  ASSERT_TRUE(books.add_victims(plan));
  ASSERT_EQ(plan.victims.size(), 1U);
  books.gone(plan.victims[0]);
  books.end_victims(plan);
  books.publish(plan, 200, kDefaultPriority);
  EXPECT_EQ(books.used_bytes(), 4 * kRoom);
  EXPECT_EQ(books.entries(), 4U);
}

// Holds back only the part of a large victim that neither the put nor the excess needs.
TEST(SharedBooks, OnlyWhatIsLeftOfALargeVictimIsHeldBack) {
  Books books(6 * kRoom, 100 * kRoom);
  const std::vector<Books::Seen> seen{{key_of(1, 1), 4 * kRoom, 100},
                                      {key_of(1, 2), 4 * kRoom, 200}};
  books.begin_folder(1);
  books.merge(1, seen, 0, kNow);
  Books::Plan plan, second;
  ASSERT_TRUE(books.plan(key_of(2, 1), kRoom, plan));
  ASSERT_EQ(plan.victims.size(), 1U);
  EXPECT_EQ(plan.extra, kRoom);
  EXPECT_EQ(books.used_bytes(), 6 * kRoom);
  books.cancel(plan);
  EXPECT_EQ(books.used_bytes(), 8 * kRoom);
  ASSERT_TRUE(books.plan(key_of(2, 1), kRoom, plan));
  books.gone(plan.victims[0]);
  books.end_victims(plan);
  EXPECT_EQ(books.used_bytes(), 5 * kRoom);
  EXPECT_TRUE(books.plan(key_of(2, 2), kRoom, second));
  EXPECT_TRUE(second.victims.empty());
}

TEST(SharedBooks, AScanFindsWhatOthersDid) {
  Books books(10 * kRoom, 100 * kRoom);
  put(books, key_of(1, 1), 100);
  put(books, key_of(1, 2), 110);
  put(books, key_of(2, 1), 120);
  books.begin_folder(1);
  // Another machine has removed the first, used the second and put a third; the second folder is
  // not scanned here.
  const std::vector<Books::Seen> seen{{key_of(1, 2), kRoom, 500}, {key_of(1, 3), 3 * kRoom, 300}};
  books.merge(1, seen, 2 * kRoom, kNow);
  EXPECT_EQ(books.find(key_of(1, 1)), nullptr);
  EXPECT_EQ(books.find(key_of(1, 2))->used_ns, 500U);
  EXPECT_EQ(books.find(key_of(1, 3))->used_ns, 300U);
  EXPECT_NE(books.find(key_of(2, 1)), nullptr);
  EXPECT_EQ(books.entries(), 3U);
  EXPECT_EQ(books.used_bytes(), 5 * kRoom + 2 * kRoom);
  books.begin_folder(1);
  books.merge(1, seen, 0, kNow);
  EXPECT_EQ(books.used_bytes(), 5 * kRoom);
}

TEST(SharedBooks, WhatHappensDuringAListingCountsMoreThanIt) {
  Books books(10 * kRoom, 100 * kRoom);
  put(books, key_of(1, 1), 100);
  put(books, key_of(1, 2), 100);
  Books::Plan writing;
  ASSERT_TRUE(books.plan(key_of(1, 4), kRoom, writing));
  books.begin_folder(1);
  books.forget(key_of(1, 1), books.moment());
  put(books, key_of(1, 3), 100);
  // Listed before 1 was removed and 3 was put; 4 is our own put, not done yet.
  const std::vector<Books::Seen> seen{
      {key_of(1, 1), kRoom, 100}, {key_of(1, 2), kRoom, 100}, {key_of(1, 4), kRoom, 100}};
  books.merge(1, seen, 0, kNow);
  EXPECT_EQ(books.find(key_of(1, 1)), nullptr);
  EXPECT_NE(books.find(key_of(1, 3)), nullptr);
  EXPECT_EQ(books.find(key_of(1, 4)), nullptr);
  EXPECT_EQ(books.used_bytes(), 3 * kRoom);
  books.publish(writing, 100, kDefaultPriority);
  EXPECT_EQ(books.entries(), 3U);
  EXPECT_EQ(books.used_bytes(), 3 * kRoom);
}

// A clock that runs ahead does not make an entry immortal.
TEST(SharedBooks, TimesToComeAreNow) {
  Books books(2 * kRoom, 100 * kRoom);
  books.begin_folder(1);
  books.merge(1, std::vector<Books::Seen>{{key_of(1, 1), kRoom, 10 * kNow}}, 0, kNow);
  put(books, key_of(1, 2), kNow + 1);
  EXPECT_EQ(victims_of(books, kRoom), std::vector{key_of(1, 1)});
  EXPECT_EQ(books.find(key_of(1, 1))->on_file_ns, 10 * kNow);
}

TEST(SharedBooks, MuchThatNoScanHasSeenWaitsForOne) {
  Books books(100 * kRoom, 4 * kRoom);
  EXPECT_TRUE(books.may_promise(50 * kRoom)) << "one may be larger than that";
  for (uint8_t i = 0; i < 3; ++i) put(books, key_of(1, i), 100);
  EXPECT_TRUE(books.wants_scan());
  EXPECT_TRUE(books.may_promise(kRoom));
  EXPECT_FALSE(books.may_promise(2 * kRoom));
  books.begin_scan();
  put(books, key_of(1, 3), 100);
  books.end_scan();
  EXPECT_FALSE(books.wants_scan());
  EXPECT_TRUE(books.may_promise(3 * kRoom));
  EXPECT_FALSE(books.may_promise(4 * kRoom)) << "what came during the scan was not seen";
}

// The put's file may appear after another process has listed the folder: to that process it is as
// new as a put after the scan.
TEST(SharedBooks, APutThatIsUnderWayWhenAScanBeginsIsStillUnseen) {
  Books books(100 * kRoom, 4 * kRoom);
  Books::Plan first, second;
  put(books, key_of(1, 9), 100);
  ASSERT_TRUE(books.plan(key_of(1, 1), 2 * kRoom, first));
  ASSERT_TRUE(books.plan(key_of(1, 2), kRoom, second));
  EXPECT_TRUE(books.scan_would_help());
  books.begin_scan();
  books.cancel(second);
  books.end_scan();
  EXPECT_FALSE(books.may_promise(3 * kRoom));
  EXPECT_TRUE(books.may_promise(2 * kRoom));
  EXPECT_FALSE(books.scan_would_help()) << "only the end of the put changes that";
  EXPECT_FALSE(books.wants_scan());
  books.publish(first, 100, kDefaultPriority);
  EXPECT_TRUE(books.scan_would_help());
  books.begin_scan();
  books.end_scan();
  EXPECT_TRUE(books.may_promise(50 * kRoom));
}

TEST(SharedBooks, WhatStaysForeverIsCountedAndNotChosen) {
  Books books(2 * kRoom, 100 * kRoom);
  put(books, key_of(1, 1), 1);
  put(books, key_of(1, 2), 2);
  Books::Plan plan;
  ASSERT_TRUE(books.plan(key_of(1, 3), kRoom, plan));
  ASSERT_EQ(plan.victims.size(), 1U);
  books.keep(plan, plan.victims[0], Books::Stays::forever, 0, 0);
  books.end_victims(plan);
  ASSERT_TRUE(books.add_victims(plan));
  EXPECT_EQ(plan.victims[0].key, key_of(1, 2));
  books.gone(plan.victims[0]);
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  EXPECT_EQ(books.entries(), 1U);
}

// The room of a victim that stays was promised to an unwritten put; the promise is withdrawn.
TEST(SharedBooks, AVictimThatStaysTakesItsRoomBack) {
  Books books(2 * kRoom, 100 * kRoom);
  put(books, key_of(1, 1), 1);
  put(books, key_of(1, 2), 2);
  Books::Plan plan;
  ASSERT_TRUE(books.plan(key_of(1, 3), kRoom, plan));
  books.keep(plan, plan.victims[0], Books::Stays::in_order, 500, kNow);
  books.end_victims(plan);
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  EXPECT_EQ(plan.owed, kRoom);
  ASSERT_TRUE(books.add_victims(plan));
  ASSERT_EQ(plan.victims.size(), 1U);
  EXPECT_EQ(plan.victims[0].key, key_of(1, 2));
  EXPECT_EQ(plan.owed, 0U);
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  // With no entry left to evict, the put still owes the room; a cancelled put owes nothing.
  books.keep(plan, plan.victims[0], Books::Stays::forever, 0, 0);
  books.end_victims(plan);
  Books::Plan other;
  ASSERT_TRUE(books.plan(key_of(1, 4), kRoom, other));
  EXPECT_FALSE(books.add_victims(plan));
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  books.cancel(plan);
  books.cancel(other);
  EXPECT_EQ(books.used_bytes(), 2 * kRoom);
  EXPECT_EQ(books.entries(), 2U);
}

TEST(SharedBooks, WhatWasPutSinceIsNotForgotten) {
  Books books(4 * kRoom, 100 * kRoom);
  put(books, key_of(1, 1), 1);
  const uint64_t moment = books.moment();
  put(books, key_of(1, 1), 2);  // After its file was removed, before the books heard of it.
  books.forget(key_of(1, 1), moment);
  EXPECT_NE(books.find(key_of(1, 1)), nullptr);
  books.forget(key_of(1, 1), books.moment());
  EXPECT_EQ(books.used_bytes(), 0U);
}

// Puts of any size that end in any order, with victims that go or stay: the capacity holds after
// every call, and in the end the counts match the content.
TEST(SharedBooks, CapacityHoldsWhateverStays) {
  const uint64_t seed = test::from_environment("STEMMA_TIER_SEED", std::random_device{}());
  std::printf("STEMMA_TIER_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  constexpr uint64_t kCapacity = 40 * kRoom;
  Books books(kCapacity, 1'000'000 * kRoom);
  std::vector<Books::Plan> open;
  uint64_t now = 1;
  for (uint32_t step = 0; step < 20'000; ++step) {
    if (open.size() < 4 && random() % 2 == 0) {
      Books::Plan plan;
      const auto number = static_cast<uint8_t>(random() % 60);
      if (books.plan(key_of(number % 4, number), (1 + random() % 9) * kRoom, plan)) {
        open.push_back(std::move(plan));
      }
    } else if (!open.empty()) {
      const size_t at = random() % open.size();
      Books::Plan& plan = open[at];
      const uint64_t what = random() % 10;
      if (!plan.victims.empty() && what != 0) {
        const Books::Victim victim = plan.victims.back();
        plan.victims.pop_back();
        if (what < 7) {
          books.gone(victim);
        } else {
          ++now;
          books.keep(plan, victim, Books::Stays::in_order, now, now);
        }
      } else if (what == 0) {
        books.cancel(plan);
        open.erase(open.begin() + static_cast<ptrdiff_t>(at));
      } else {
        books.end_victims(plan);
        if (plan.owed != 0) {
          if (!books.add_victims(plan) && plan.victims.empty()) {
            books.cancel(plan);
            open.erase(open.begin() + static_cast<ptrdiff_t>(at));
          }
        } else {
          books.publish(plan, ++now, kDefaultPriority);
          books.settle(plan.key);
          open.erase(open.begin() + static_cast<ptrdiff_t>(at));
        }
      }
    }
    ASSERT_LE(books.used_bytes(), kCapacity) << "step " << step;
  }
  for (Books::Plan& plan : open) books.cancel(plan);
  uint64_t there = 0;
  for (uint8_t number = 0; number < 60; ++number) {
    const Books::Entry* entry = books.find(key_of(number % 4, number));
    there += entry != nullptr ? entry->room : 0;
  }
  EXPECT_EQ(books.used_bytes(), there);
}

}  // namespace
}  // namespace stemma::tier::shared
