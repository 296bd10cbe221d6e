// A real cluster of three primaries with a replica each, and how the tier behaves when parts of it
// fail. STEMMA_REDIS_ROUNDS=n repeats what can be repeated.
#include <cstdlib>
#include <set>

#include "tier/redis/key_name.h"
#include "tier/redis/slots.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

using tier::redis::hash_slot;
using tier::redis::KeyName;
using tier::redis::RedisCounters;

using enum TierOutcome;
// A node that sleeps this long is replaced; a busy machine pauses a node for much less.
constexpr uint32_t kNodeTimeoutMs = 5'000;

uint16_t slot_of(const Entry& one) { return hash_slot(KeyName(one.key).text()); }

uint32_t rounds() {
  const char* wanted = std::getenv("STEMMA_REDIS_ROUNDS");
  return wanted != nullptr ? static_cast<uint32_t>(std::max(1, std::atoi(wanted))) : 1U;
}

class RedisClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "there is no redis-server on this machine";
    cluster = std::make_unique<RedisCluster>(3, true, kNodeTimeoutMs);
    ASSERT_TRUE(cluster->formed());
    tier = open_redis(cluster->url());
    ASSERT_TRUE(ready(*tier)) << tier->problem();
    client = std::make_unique<Client>(*tier);
  }
  // Waits until all entries can be put and read back.
  bool whole_again(std::span<const Entry> some) {
    return eventually([&] {
      if (client->put(some) != Outcomes(some.size(), done)) return false;
      for (const Got& got : client->get(some)) {
        if (got.outcome != done) return false;
      }
      return true;
    });
  }
  uint32_t primary_of(const Entry& one) {
    for (uint32_t ask = 0; ask < 6; ++ask) {
      if (!cluster->servers[ask]->answers()) continue;
      if (const auto owner = cluster->owner_of(slot_of(one), ask)) return *owner;
    }
    return 0;
  }

  std::unique_ptr<RedisCluster> cluster;
  std::unique_ptr<tier::redis::RedisTier> tier;
  std::unique_ptr<Client> client;
};

TEST_F(RedisClusterTest, APrefixQueryIsOneRoundTripPerNodeAndOneSeedIsEnough) {
  const auto prompt = entries(1, 2'048, 64);
  EXPECT_EQ(client->put(prompt), Outcomes(2'048, done));
  RedisCounters before = tier->counters();
  EXPECT_EQ(client->contains(prompt), Outcomes(2'048, done));
  RedisCounters after = tier->counters();
  EXPECT_EQ(after.round_trips - before.round_trips, 3U);
  EXPECT_EQ(after.commands - before.commands, 2'048U);
  EXPECT_EQ(after.redirects, 0U);
  // Even a replica, the only reachable host of the list, leads to all nodes.
  const Port nobody;
  const std::string url = "redis://127.0.0.1:" + nobody.text() +
                          ",127.0.0.1:" + std::to_string(cluster->servers[4]->port());
  auto other = open_redis(url);
  ASSERT_TRUE(ready(*other)) << other->problem();
  EXPECT_EQ(Client(*other).contains(prompt), Outcomes(2'048, done));
  EXPECT_EQ(other->counters().redirects, 0U);
}

TEST_F(RedisClusterTest, SlotsThatMoveUnderLoadAreFollowed) {
  // Everything that the load uses on the first primary moves to the second during the load.
  Load load(*tier, 2, 20'000, 60'000);
  const uint64_t before = load.rounds;
  ASSERT_TRUE(eventually([&] { return load.rounds > before + 5; }));
  std::set<uint16_t> slots;
  for (uint32_t thread = 0; thread < 2; ++thread) {
    for (uint64_t prompt = 0; prompt < 5; ++prompt) {
      for (const Entry& one : entries(7'000 + thread + prompt * 100, 6, 20'000)) {
        if (primary_of(one) == 0) slots.insert(slot_of(one));
      }
    }
  }
  ASSERT_GT(slots.size(), 3U);
  for (uint32_t round = 0; round < rounds(); ++round) {
    for (const uint16_t slot : slots) {
      ASSERT_TRUE(cluster->move_slot(slot, round % 2, 1 - round % 2)) << slot;
    }
  }
  // A slot that stays open: moved keys are asked for at the new node, with ASKING.
  const Entry here = entry(1, 0, 100);
  const uint16_t slot = slot_of(here);
  ASSERT_EQ(client->put(here), done);
  const uint32_t from = primary_of(here), to = (from + 1) % 3;
  RawClient(cluster->servers[to]->port())
      .command({"CLUSTER", "SETSLOT", std::to_string(slot), "IMPORTING", cluster->id_of(from)});
  RawClient(cluster->servers[from]->port())
      .command({"CLUSTER", "SETSLOT", std::to_string(slot), "MIGRATING", cluster->id_of(to)});
  RawClient(cluster->servers[from]->port())
      .command({"MIGRATE", "127.0.0.1", std::to_string(cluster->servers[to]->port()),
                std::string(KeyName(here.key).text()), "0", "60000"});
  const uint64_t redirects = tier->counters().redirects;
  EXPECT_EQ(client->get(here).bytes, here.bytes);
  EXPECT_EQ(client->get(here).bytes, here.bytes);
  EXPECT_GE(tier->counters().redirects, redirects + 2);
  EXPECT_TRUE(cluster->move_slot(slot, from, to));
  EXPECT_EQ(client->get(here).bytes, here.bytes);

  const uint64_t after = load.rounds;
  EXPECT_TRUE(eventually([&] { return load.rounds > after + 5; }));
  load.stop();
  EXPECT_EQ(load.wrong, 0U);
  EXPECT_EQ(load.not_done, 0U);  // Nothing was ever unavailable.
  EXPECT_GT(tier->counters().redirects, 0U);
}

TEST_F(RedisClusterTest, AKilledPrimaryIsReplacedAndOthersGoOn) {
  const auto some = entries(1, 60, 10'000);
  ASSERT_TRUE(whole_again(some));
  Load load(*tier, 2, 10'000, 1'000);
  for (uint32_t round = 0; round < rounds(); ++round) {
    const uint32_t victim = primary_of(some[round % some.size()]);
    std::vector<Entry> on_others;
    for (const Entry& one : some) {
      if (primary_of(one) != victim) on_others.push_back(one);
    }
    ASSERT_GT(on_others.size(), 10U);
    cluster->servers[victim]->kill();
    // The others' entries are served all the time.
    for (const uint64_t until = now_ns() + 500 * kMs; now_ns() < until;) {
      for (const Got& got : client->get(on_others)) EXPECT_EQ(got.outcome, done);
    }
    EXPECT_TRUE(whole_again(some)) << tier->problem();
    EXPECT_NE(primary_of(some[round % some.size()]), victim);
    EXPECT_TRUE(eventually([&] { return tier->problem().empty(); })) << tier->problem();
    // It comes back as a replica, with empty memory.
    cluster->servers[victim]->restart();
    EXPECT_TRUE(cluster->servers[victim]->wait_up());
    if (rounds() > 1) std::this_thread::sleep_for(std::chrono::seconds(8));
  }
  load.stop();
  EXPECT_EQ(load.wrong, 0U);
  EXPECT_LT(load.longest_ns, (1'000 + kSlowMs) * kMs);
}

TEST_F(RedisClusterTest, AStalledNodeCostsItsOwnEntriesOneDelay) {
  const auto some = entries(1, 60, 10'000);
  constexpr uint64_t kStallMs = 2'000;  // The others may sleep a while, too.
  tier = open_redis(cluster->url(), kStallMs);
  client = std::make_unique<Client>(*tier);
  ASSERT_TRUE(whole_again(some));
  const uint32_t victim = primary_of(some[0]);
  std::vector<Entry> on_others, on_it;
  for (const Entry& one : some) (primary_of(one) == victim ? on_it : on_others).push_back(one);
  cluster->servers[victim]->stop();
  uint64_t begin = now_ns();
  const Outcomes first = client->contains(on_it);
  EXPECT_EQ(first, Outcomes(on_it.size(), failed));
  EXPECT_LT(now_ns() - begin, (kStallMs + kSlowMs) * kMs);
  // From now on neither part waits: far less than a stall for each. (A replica may have taken its
  // place: then all is done.)
  begin = now_ns();
  for (uint32_t i = 0; i < 20; ++i) {
    for (const Got& got : client->get(on_others)) EXPECT_EQ(got.outcome, done);
    client->contains(on_it);
  }
  EXPECT_LT(now_ns() - begin, 20 * kStallMs * kMs / 2);
  EXPECT_TRUE(whole_again(some)) << tier->problem();
  cluster->servers[victim]->go_on();
  // The tier asks the node that ends up as primary.
  EXPECT_TRUE(whole_again(some)) << tier->problem();
}

TEST_F(RedisClusterTest, AClusterThatForgetsEverythingIsAnEmptyOne) {
  const auto some = entries(1, 30, 10'000);
  ASSERT_TRUE(whole_again(some));
  for (const auto& server : cluster->servers) server->kill();
  const uint64_t begin = now_ns();
  EXPECT_EQ(client->contains(some), Outcomes(some.size(), failed));
  EXPECT_LT(now_ns() - begin, kPatientMs * kMs);
  EXPECT_EQ(client->contains(some), Outcomes(some.size(), failed));
  for (const auto& server : cluster->servers) server->restart();
  EXPECT_TRUE(eventually([&] {
    return client->contains(some) == Outcomes(some.size(), TierOutcome::absent);
  })) << tier->problem();
  EXPECT_TRUE(whole_again(some));
}

}  // namespace
}  // namespace stemma::test
