// Purging removes what is named, wherever it lies, and nothing else.
#include <cstring>

#include "tiers/tier_suite.h"

namespace stemma::test::suite_purge {

using enum TierOutcome;

namespace {

uint64_t soon() { return Clock::monotonic().now_ns() + kPatienceNs; }

// Entries of a prompt that belong to one scope.
std::vector<Entry> owned(uint64_t owner, uint64_t prompt, uint32_t count, uint64_t bytes) {
  std::vector<Entry> made = entries(prompt, count, bytes);
  for (Entry& one : made) std::memcpy(one.key.chain.bytes.data() + 24, &owner, sizeof owner);
  return made;
}

constexpr uint64_t kMine = 0x0102'0304'0506'0708U, kOther = kMine ^ 1U, kThird = kMine << 1U;

}  // namespace

TEST_P(TierContract, APurgeTakesOneScopeAndLeavesTheOthers) {
  const auto mine = owned(kMine, 1, 40, 3000), more = owned(kMine, 2, 3, 100'000);
  const auto other = owned(kOther, 3, 40, 3000), third = owned(kThird, 4, 3, 100'000);
  for (const auto* some : {&mine, &other, &more, &third}) {
    ASSERT_EQ(client->put(*some), all(some->size(), done));
  }
  const Purged purged = tier->purge({.owner = owner_of(mine[0].key)}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.error, "");
  EXPECT_EQ(purged.entries, 43U);
  EXPECT_EQ(purged.bytes, 40U * 3000 + 3U * 100'000);
  for (const auto* some : {&mine, &more}) {
    EXPECT_EQ(client->contains(*some), all(some->size(), absent));
    for (const Entry& one : *some) expect_absent(one);
  }
  for (const auto* some : {&other, &third}) {
    for (const Entry& one : *some) expect_there(one);
  }
  const Purged again = tier->purge({.owner = owner_of(mine[0].key)}, soon());
  EXPECT_TRUE(again.complete);
  EXPECT_EQ(again.entries, 0U);
  EXPECT_EQ(client->put(mine), all(mine.size(), done)) << "the scope may come again";
  for (const Entry& one : mine) expect_there(one);
}

TEST_P(TierContract, APurgeOfALayoutLeavesOtherLayouts) {
  const auto mine = owned(kMine, 1, 10, 2000);
  auto other = owned(kMine, 2, 10, 2000);
  for (Entry& one : other) one.info.layout ^= 1U;
  ASSERT_EQ(client->put(mine), all(mine.size(), done));
  ASSERT_EQ(client->put(other), all(other.size(), done));
  const Purged purged = tier->purge({.layout = mine[0].info.layout}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.entries, mine.size());
  for (const Entry& one : mine) expect_absent(one);
  for (const Entry& one : other) expect_there(one);
}

TEST_P(TierContract, APurgeOfWhatIsDeeperLeavesWhatIsNot) {
  const auto mine = owned(kMine, 1, 10, 2000), other = owned(kOther, 2, 10, 2000);
  ASSERT_EQ(client->put(mine), all(mine.size(), done));
  ASSERT_EQ(client->put(other), all(other.size(), done));
  // Entry 3 ends at 64, entry 4 begins there.
  const Purged purged = tier->purge({.owner = owner_of(mine[0].key), .keep = 64}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.entries, 6U);
  for (size_t i = 0; i < mine.size(); ++i) i < 4 ? expect_there(mine[i]) : expect_absent(mine[i]);
  for (const Entry& one : other) expect_there(one);
}

// A prompt's entries, each of which names the one before. The first `shared` come from `with`.
std::vector<Entry> branch(std::vector<Entry> made, const std::vector<Entry>& with = {},
                          size_t shared = 0) {
  for (size_t i = 0; i < made.size(); ++i) {
    if (i < shared) {
      made[i] = with[i];
    } else {
      made[i].info.parent = i == 0 ? 77 : link_of(made[i - 1].key.chain);
    }
  }
  return made;
}

TEST_P(TierContract, APurgeOfWhatFollowsAPrefixLeavesWhatPartsFromItBefore) {
  const auto trunk = branch(owned(kMine, 1, 12, 2000));
  const auto side = branch(owned(kMine, 2, 12, 2000), trunk, 8);   // Parts behind the prefix.
  const auto other = branch(owned(kMine, 3, 12, 2000), trunk, 3);  // Parts before it.
  Entry checkpoint = other[11];
  checkpoint.key.kind = EntryKind::checkpoint;
  checkpoint.info.begin = 0;
  for (const auto* some : {&trunk, &side, &other}) {
    ASSERT_EQ(client->put(*some), all(some->size(), done));
  }
  ASSERT_EQ(client->put(checkpoint), done);
  // The prefix is the first six of the trunk, and a little more.
  const Purge what{.owner = kMine, .keep = 100, .follows = link_of(trunk[5].key.chain)};
  const Purged purged = tier->purge(what, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  if (!place->keeps_parents()) {
    EXPECT_EQ(purged.unsure, purged.entries);
    EXPECT_EQ(purged.entries, 6U + 4U + 6U + 1U) << "all that reaches beyond the prefix";
    for (size_t i = 6; i < 12; ++i) expect_absent(trunk[i]);
    for (size_t i = 0; i < 6; ++i) expect_there(trunk[i]);
    return;
  }
  EXPECT_EQ(purged.entries, 6U + 4U);
  EXPECT_EQ(purged.unsure, 0U);
  for (size_t i = 0; i < 12; ++i) {
    i < 6 ? expect_there(trunk[i]) : expect_absent(trunk[i]);
    i < 6 ? expect_there(side[i]) : expect_absent(side[i]);
    expect_there(other[i]);
  }
  expect_there(checkpoint);
}

TEST_P(TierContract, APurgeOfWhatFollowsAPrefixTakesWhatNobodyCanTell) {
  const auto trunk = branch(owned(kMine, 1, 12, 2000));
  const auto other = branch(owned(kMine, 3, 12, 2000), trunk, 3);
  auto unknown = owned(kMine, 4, 12, 2000);
  std::vector<Entry> put = trunk;
  put.insert(put.end(), other.begin() + 3, other.end());
  put.push_back(unknown[11]);
  // Both have a hole; behind it nobody knows which prompt an entry belongs to.
  put.erase(put.begin() + 12 + 9 - 4);  // other[8]
  put.erase(put.begin() + 8);           // trunk[8]
  ASSERT_EQ(client->put(put), all(put.size(), done));
  const Purge what{.owner = kMine, .keep = 96, .follows = link_of(trunk[5].key.chain)};
  const Purged purged = tier->purge(what, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  if (!place->keeps_parents()) {
    EXPECT_EQ(purged.unsure, purged.entries);
    for (size_t i = 6; i < 12; ++i) expect_absent(trunk[i]);
    for (size_t i = 6; i < 12; ++i) expect_absent(other[i]);
    return;
  }
  EXPECT_EQ(purged.unsure, 3U + 3U + 1U);
  EXPECT_EQ(purged.entries, 2U + 3U + 3U + 1U);
  for (size_t i = 0; i < 12; ++i) {
    i < 6 ? expect_there(trunk[i]) : expect_absent(trunk[i]);
    i < 8 ? expect_there(other[i]) : expect_absent(other[i]);
  }
  expect_absent(unknown[11]);
}

TEST_P(TierContract, APurgeOfEverythingLeavesNothing) {
  const auto mine = owned(kMine, 1, 10, 2000), other = owned(kOther, 2, 10, 2000);
  ASSERT_EQ(client->put(mine), all(mine.size(), done));
  ASSERT_EQ(client->put(other), all(other.size(), done));
  const Purged purged = tier->purge({}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.entries, 20U);
  EXPECT_EQ(client->contains(mine), all(mine.size(), absent));
  EXPECT_EQ(client->contains(other), all(other.size(), absent));
}

TEST_P(TierContract, WhatWasPurgedDoesNotComeBackWhenTheTierIsOpenedAgain) {
  if (!tier->traits().outlives_process) GTEST_SKIP() << "it ends with the process";
  const auto mine = owned(kMine, 1, 40, 3000), other = owned(kOther, 3, 40, 3000);
  ASSERT_EQ(client->put(mine), all(mine.size(), done));
  ASSERT_EQ(client->put(other), all(other.size(), done));
  ASSERT_TRUE(tier->purge({.owner = owner_of(mine[0].key)}, soon()).complete);
  open(kRoomy);
  for (const Entry& one : mine) expect_absent(one);
  for (const Entry& one : other) expect_there(one);
}

TEST_P(TierContract, APurgeWaitsForWhatWasSubmittedBefore) {
  const auto mine = owned(kMine, 1, 60, 50'000);
  Work work(TierOp::put, mine);
  work.submit_to(*tier);
  const Purged purged = tier->purge({.owner = owner_of(mine[0].key)}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(work.finish().outcomes(), all(mine.size(), done));
  EXPECT_EQ(purged.entries, mine.size());
  EXPECT_EQ(client->contains(mine), all(mine.size(), absent));
}

TEST_P(TierContract, OthersPutAndGetWhileAPurgeGoesOn) {
  const auto mine = owned(kMine, 1, 200, 2000), other = owned(kOther, 2, 50, 2000);
  const auto later = owned(kThird, 3, 50, 2000);
  ASSERT_EQ(client->put(mine), all(mine.size(), done));
  ASSERT_EQ(client->put(other), all(other.size(), done));
  Work get(TierOp::get, other), put(TierOp::put, later);
  get.submit_to(*tier);
  put.submit_to(*tier);
  EXPECT_EQ(tier->purge({.owner = owner_of(mine[0].key)}, soon()).entries, mine.size());
  EXPECT_EQ(get.finish().outcomes(), all(other.size(), done));
  EXPECT_EQ(put.finish().outcomes(), all(later.size(), done));
  for (const auto* some : {&other, &later}) {
    for (const Entry& one : *some) expect_there(one);
  }
}

}  // namespace stemma::test::suite_purge
