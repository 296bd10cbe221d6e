// What a purge leaves on a Redis server, and what it reports when it cannot know.
#include <array>
#include <cstring>

#include "tier/entry.h"
#include "tier/redis/key_name.h"
#include "tier/redis/unsettled_puts.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

using enum TierOutcome;
using tier::redis::KeyName;
using tier::redis::RedisTier;
using tier::redis::UnsettledPuts;

constexpr uint64_t kMine = 0x0102'0304'0506'0708U, kOther = kMine ^ 1U;

uint64_t soon() { return now_ns() + kPatienceNs; }

std::vector<Entry> owned(uint64_t owner, uint64_t prompt, uint32_t count, uint64_t bytes) {
  std::vector<Entry> made = entries(prompt, count, bytes);
  for (Entry& one : made) std::memcpy(one.key.chain.bytes.data() + 24, &owner, sizeof owner);
  return made;
}

class RedisPurge : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "there is no redis-server on this machine";
    server = std::make_unique<RedisServer>();
    ASSERT_TRUE(server->wait_up());
    raw = std::make_unique<RawClient>(server->port());
  }
  // Puts while the server holds all writes back. The put ends without an answer.
  TierOutcome put_held_back(RedisTier& tier, const std::vector<Entry>& some, uint64_t deadline_ms) {
    raw->command({"CLIENT", "PAUSE", "600000", "WRITE"});
    Work put(TierOp::put, some);
    put.batch->deadline_ns = now_ns() + deadline_ms * kMs;
    put.submit_to(tier);
    const TierOutcome outcome = put.finish().outcomes()[0];
    EXPECT_GE(tier.counters().sent_bytes, some[0].bytes.size()) << "it had been sent";
    return outcome;
  }
  // A good entry's value, but of a format that is yet to come.
  std::string newer_value(const Entry& one) {
    std::string value = raw->command({"GET", std::string(KeyName(one.key).text())}).text;
    value[8] = 9;
    const std::span<const uint8_t> head(reinterpret_cast<const uint8_t*>(value.data()), 120);
    const uint64_t sum = tier::sum(head);
    std::memcpy(value.data() + 120, &sum, 8);
    return value;
  }

  std::unique_ptr<RedisServer> server;
  std::unique_ptr<RawClient> raw;
};

}  // namespace

TEST_F(RedisPurge, APutThatWasCutOffByItsDeadlineCannotLandAfterwards) {
  auto tier = open_redis(server->url());
  const auto mine = owned(kMine, 1, 1, 5000), other = owned(kOther, 2, 1, 5000);
  ASSERT_EQ(put_held_back(*tier, mine, 3'000), late);
  const Purged too_early = tier->purge({.owner = kMine}, now_ns() + 1'000 * kMs);
  EXPECT_FALSE(too_early.complete);
  EXPECT_NE(too_early.error.find("no answer yet"), std::string::npos) << too_early.error;
  EXPECT_TRUE(tier->purge({.owner = kOther}, soon()).complete) << "nobody else waits for it";
  raw->command({"CLIENT", "UNPAUSE"});
  const Purged purged = tier->purge({.owner = kMine}, soon());
  EXPECT_TRUE(purged.complete) << purged.error;
  EXPECT_EQ(purged.entries, 1U) << "the server had carried it out";
  EXPECT_EQ(Client(*tier).contains(mine), all(1, absent));
}

TEST_F(RedisPurge, APutWhoseConnectionBrokeKeepsAPurgeFromBeingCompleteForAWhile) {
  const auto mine = owned(kMine, 1, 1, 5000);
  for (const bool settles : {false, true}) {
    raw->command({"FLUSHALL"});
    auto options = redis_options(server->url(), kImpatientMs);
    options.settle_ns = settles ? 1 : 3'600'000 * kMs;
    auto tier = open_redis(options);
    EXPECT_EQ(put_held_back(*tier, mine, 60'000), failed);
    const Purged purged = tier->purge({.owner = kMine}, now_ns() + 1'000 * kMs);
    EXPECT_EQ(purged.complete, settles) << purged.error;
    if (!settles) {
      EXPECT_NE(purged.error.find("connection broke"), std::string::npos) << purged.error;
      EXPECT_TRUE(tier->purge({.owner = kOther}, soon()).complete) << "nobody else waits for it";
    }
    raw->command({"CLIENT", "UNPAUSE"});
  }
}

TEST(UnsettledPuts, EachIsWaitedForUntilItIsAnsweredOrLongLost) {
  const EntryKey mine = owned(kMine, 1, 1, 10)[0].key, other = owned(kOther, 1, 1, 10)[0].key;
  UnsettledPuts puts(1'000 * kMs);
  const auto why = [&](const Purge& what) { return puts.wait(what, now_ns()); };
  EXPECT_EQ(why({}), "");
  puts.set_adrift(mine);
  puts.set_adrift(mine);
  puts.set_adrift(other);
  EXPECT_NE(why({.owner = kMine}), "");
  puts.settle(mine);
  EXPECT_NE(why({.owner = kMine}), "") << "there are two";
  puts.settle(mine);
  EXPECT_EQ(why({.owner = kMine}), "");
  EXPECT_NE(why({}), "") << "the other's";
  puts.lose(other, /*adrift=*/true, now_ns() - 2'000 * kMs);
  EXPECT_EQ(why({}), "") << "lost long ago";
  puts.lose(other, /*adrift=*/false, now_ns() + 3'600'000 * kMs);
  EXPECT_EQ(why({.owner = kMine}), "");
  EXPECT_NE(why({.owner = kOther}), "");
  // Of very many entries only the time is known.
  for (size_t i = 0; i < UnsettledPuts::kMostLost; ++i) {
    puts.lose(other, /*adrift=*/false, now_ns() + 3'600'000 * kMs);
  }
  EXPECT_NE(why({.owner = kMine}), "");
}

TEST_F(RedisPurge, WhatAnEarlierVersionWroteGoesWithEveryPurge) {
  const auto mine = owned(kMine, 1, 2, 500);
  auto tier = open_redis(server->url());
  ASSERT_EQ(Client(*tier).put(mine), all(2, done));
  const std::string old = "stemma:1:" + std::string(64, 'a') + ":segment:0";
  const std::string letter = "stemma:1:letter";
  for (const Purge& what : {Purge{.owner = kOther}, Purge{.layout = 1}, Purge{}}) {
    raw->command({"SET", old, "an entry of version 1"});
    raw->command({"SET", letter, "not ours"});
    const Purged purged = tier->purge(what, soon());
    EXPECT_TRUE(purged.complete) << purged.error;
    EXPECT_EQ(purged.entries, what == Purge{} ? 3U : 1U);
    EXPECT_EQ(raw->command({"EXISTS", old}).integer, 0);
    EXPECT_EQ(raw->command({"EXISTS", letter}).integer, 1);
  }
}

// A list, say, that somebody put under one of our names.
TEST_F(RedisPurge, AKeyOfAnotherTypeGoesAndKeepsNothingThere) {
  auto tier = open_redis(server->url());
  const auto mine = owned(kMine, 1, 20, 500), other = owned(kOther, 2, 3, 500);
  const std::string name(KeyName(mine[0].key).text());
  const std::string others(KeyName(other[0].key).text());
  for (const Purge& what : {Purge{.owner = kMine}, Purge{.owner = kMine, .keep = 1}}) {
    for (const std::vector<std::string>& make :
         {std::vector<std::string>{"LPUSH", name, "x"}, {"HSET", name, "x", "y"}}) {
      raw->command({"FLUSHALL"});
      ASSERT_EQ(Client(*tier).put(mine), all(20, done));
      ASSERT_EQ(Client(*tier).put(other), all(3, done));
      raw->command({"DEL", name, others});
      raw->command(make);
      raw->command({"LPUSH", others, "x"});
      const Purged purged = tier->purge(what, soon());
      EXPECT_TRUE(purged.complete) << purged.error;
      EXPECT_EQ(purged.entries, 20U);
      EXPECT_EQ(raw->command({"EXISTS", name}).integer, 0);
      EXPECT_EQ(raw->command({"DBSIZE"}).integer, 3) << "others' stay";
      EXPECT_TRUE(tier->problem().empty()) << tier->problem();
    }
  }
}

TEST_F(RedisPurge, AnEntryOfANewerVersionDoesNotKeepTheOthersThere) {
  auto tier = open_redis(server->url());
  auto mine = owned(kMine, 1, 50, 500);
  for (const bool by_name : {false, true}) {
    ASSERT_EQ(Client(*tier).put(mine), all(50, done));
    const std::string name(KeyName(mine[0].key).text());
    raw->command({"SET", name, newer_value(mine[0])});
    const Purge what{.owner = kMine, .keep = by_name ? 0U : 1U};
    const Purged purged = tier->purge(what, soon());
    EXPECT_EQ(purged.complete, by_name) << purged.error;
    EXPECT_EQ(purged.error.find("newer") != std::string::npos, !by_name) << purged.error;
    EXPECT_EQ(purged.entries, by_name ? 50U : 49U);
    EXPECT_EQ(raw->command({"DBSIZE"}).integer, by_name ? 0 : 1);
    raw->command({"FLUSHALL"});
  }
}

// It may be one node of a cluster; then the purge would miss all entries on the others.
TEST_F(RedisPurge, AServerThatDoesNotSayWhetherThereAreOthersIsNotBelievedToBeAlone) {
  const auto mine = owned(kMine, 1, 2, 500);
  auto tier = open_redis(server->url());
  ASSERT_EQ(Client(*tier).put(mine), all(2, done));
  raw->command({"ACL", "SETUSER", "default", "-cluster"});
  const Purged refused = tier->purge({.owner = kMine}, soon());
  EXPECT_FALSE(refused.complete);
  EXPECT_NE(refused.error.find("CLUSTER SLOTS"), std::string::npos) << refused.error;
  raw->command({"ACL", "SETUSER", "default", "+cluster"});
  EXPECT_TRUE(tier->purge({.owner = kMine}, soon()).complete);
}

}  // namespace stemma::test
