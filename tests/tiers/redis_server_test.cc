// One real server, and how the tier behaves when it misbehaves.
#include <netdb.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>

#include "stemma/log.h"
#include "tier/redis/key_name.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

using tier::redis::KeyName;
using tier::redis::RedisCounters;
using tier::redis::RedisTier;

using enum TierOutcome;

std::string name_of(const Entry& one) { return std::string(KeyName(one.key).text()); }

std::set<std::string> addresses_of(const char* host) {
  std::set<std::string> out;
  addrinfo* found = nullptr;
  if (getaddrinfo(host, nullptr, nullptr, &found) != 0) return out;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    char text[64];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0) {
      out.insert(text);
    }
  }
  freeaddrinfo(found);
  return out;
}

class RedisServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (server_program().empty()) GTEST_SKIP() << "there is no redis-server on this machine";
  }
};

TEST_F(RedisServerTest, APrefixQueryIsOneRoundTrip) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());
  ASSERT_TRUE(ready(*tier)) << tier->problem();
  Client client(*tier);
  const auto prompt = entries(1, 2'048, 64);
  EXPECT_EQ(client.put(std::span(prompt).first(1'000)), Outcomes(1'000, done));
  const RedisCounters before = tier->counters();
  const Outcomes there = client.contains(prompt);
  const RedisCounters after = tier->counters();
  EXPECT_EQ(after.round_trips - before.round_trips, 1U);
  EXPECT_EQ(after.commands - before.commands, 2'048U);
  for (size_t i = 0; i < there.size(); ++i) EXPECT_EQ(there[i], i < 1'000 ? done : absent) << i;
}

TEST_F(RedisServerTest, WhatIsThereIsNotWrittenAgain) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());
  auto other = open_redis(server.url());
  const auto some = entries(1, 8, 100'000);
  EXPECT_EQ(Client(*tier).put(some), Outcomes(8, done));
  EXPECT_EQ(Client(*other).put(some), Outcomes(8, done));
  EXPECT_LT(other->counters().sent_bytes, 10'000U);
  EXPECT_EQ(other->stats().already_there, 8U);
  EXPECT_EQ(tier->stats().already_there, 0U);
  EXPECT_EQ(Client(*other).get(some[3]).bytes, some[3].bytes);
}

TEST_F(RedisServerTest, ValuesThatAreNotTheEntryAreMissesAndGo) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  auto tier = open_redis(server.url());
  Client client(*tier);
  const Entry one = entry(1, 0, 5'000);
  const Entry other = entry(1, 1, 5'000);
  ASSERT_EQ(client.put(one), done);
  ASSERT_EQ(client.put(other), done);
  const std::string good = raw.command({"GET", name_of(one)}).text;
  ASSERT_EQ(good.size(), 5'128U);
  std::vector<std::string> wrong = {"",
                                    "x",
                                    std::string(128, 'x'),
                                    std::string(5'128, 'x'),
                                    good.substr(0, 5'127),
                                    good + "x",
                                    good.substr(0, 128),
                                    raw.command({"GET", name_of(other)}).text};
  for (size_t at :
       {0UL, 8UL, 12UL, 20UL, 60UL, 70UL, 85UL, 110UL, 127UL, 128UL, 3'000UL, 5'127UL}) {
    wrong.push_back(good);
    wrong.back()[at] = static_cast<char>(wrong.back()[at] ^ 4);
  }
  for (size_t i = 0; i < wrong.size(); ++i) {
    raw.command({"SET", name_of(one), wrong[i]});
    EXPECT_EQ(client.get(one).outcome, TierOutcome::corrupt) << i;
    EXPECT_EQ(client.contains(one), absent) << i;
    EXPECT_EQ(client.put(one), done) << i;
    EXPECT_EQ(client.get(one).bytes, one.bytes) << i;
  }
  EXPECT_EQ(tier->stats().corrupt, wrong.size());
  // A value that is not a string.
  raw.command({"DEL", name_of(one)});
  raw.command({"LPUSH", name_of(one), "x"});
  EXPECT_EQ(client.contains(one), absent);
  EXPECT_EQ(client.get(one).outcome, TierOutcome::corrupt);
  raw.command({"LPUSH", name_of(one), "x"});
  EXPECT_EQ(client.put(one), done);
  EXPECT_EQ(client.get(one).bytes, one.bytes);
  EXPECT_TRUE(tier->problem().empty()) << tier->problem();
}

TEST_F(RedisServerTest, EntriesWithATimeToLiveGoAndAPutRenewsThem) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  auto tier = open_redis(server.url() + "?ttl=10000");
  Client client(*tier);
  const Entry one = entry(1, 0, 1'000);
  EXPECT_EQ(client.put(one), done);
  EXPECT_GE(raw.command({"TTL", name_of(one)}).integer, 9'000);
  raw.command({"EXPIRE", name_of(one), "5000"});
  EXPECT_EQ(client.put(one), done);
  EXPECT_EQ(tier->stats().already_there, 1U);
  EXPECT_GE(raw.command({"TTL", name_of(one)}).integer, 9'000);
  raw.command({"PEXPIRE", name_of(one), "1"});
  EXPECT_TRUE(eventually([&] { return client.contains(one) == absent; }));
}

// A server evicts by last use. Its clock counts whole seconds, so the test makes the key old.
TEST_F(RedisServerTest, TouchMakesAnEntryYoung) {
  RedisServer server({"--maxmemory-policy", "allkeys-lru"});
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  auto tier = open_redis(server.url());
  const Entry one = entry(1, 0, 1'000);
  ASSERT_EQ(Client(*tier).put(one), done);
  const std::string dump = raw.command({"DUMP", name_of(one)}).text;
  raw.command({"RESTORE", name_of(one), "0", dump, "REPLACE", "IDLETIME", "5000"});
  ASSERT_GE(raw.command({"OBJECT", "IDLETIME", name_of(one)}).integer, 5'000);
  EXPECT_EQ(Client(*tier).touch(std::span(&one, 1))[0], done);
  EXPECT_LT(raw.command({"OBJECT", "IDLETIME", name_of(one)}).integer, 2'000);
  EXPECT_EQ(Client(*tier).get(one).bytes, one.bytes);
}

TEST_F(RedisServerTest, TouchRenewsATimeToLive) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  auto tier = open_redis(server.url() + "?ttl=10000");
  const Entry one = entry(1, 0, 1'000);
  ASSERT_EQ(Client(*tier).put(one), done);
  raw.command({"EXPIRE", name_of(one), "5000"});
  EXPECT_EQ(Client(*tier).touch(std::span(&one, 1))[0], done);
  EXPECT_GE(raw.command({"TTL", name_of(one)}).integer, 9'000);
  raw.command({"DEL", name_of(one)});
  EXPECT_EQ(Client(*tier).touch(std::span(&one, 1))[0], absent);
}

TEST_F(RedisServerTest, AValueThatIsTooLargeIsAMissAndGoes) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  auto tier = open_redis(server.url());
  Client client(*tier);
  const auto some = entries(1, 2, 1'000);
  ASSERT_EQ(client.put(some), Outcomes(2, done));
  // More than any entry may have.
  ASSERT_EQ(raw.command({"SETRANGE", name_of(some[0]), "70000000", "x"}).integer, 70'000'001);
  EXPECT_EQ(client.get(some[0]).outcome, TierOutcome::corrupt);
  EXPECT_TRUE(eventually([&] { return client.get(some[0]).outcome == absent; }));
  EXPECT_EQ(client.get(some[1]).bytes, some[1].bytes);
  EXPECT_EQ(tier->counters().drops, 0U);
  EXPECT_EQ(tier->problem(), "");
}

TEST_F(RedisServerTest, AServerThatRefusesEverythingIsNotOpen) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  RawClient raw(server.port());
  // It may come in and see the slot map, and nothing else.
  raw.command({"ACL", "SETUSER", "guest", "on", ">secret", "~*", "+ping", "+select", "+cluster"});
  auto tier = open_redis("redis://guest:secret@127.0.0.1:" + std::to_string(server.port()));
  ASSERT_TRUE(ready(*tier)) << tier->problem();
  EXPECT_TRUE(tier->stats().reachable);
  Client client(*tier);
  const auto some = entries(1, 32, 1'000);
  EXPECT_EQ(client.contains(some), Outcomes(32, failed));
  EXPECT_FALSE(tier->stats().reachable);
  EXPECT_NE(tier->problem().find("NOPERM"), std::string::npos) << tier->problem();
  raw.command({"ACL", "SETUSER", "guest", "+@all"});
  EXPECT_EQ(client.contains(some), Outcomes(32, absent));
  EXPECT_TRUE(tier->stats().reachable);
  EXPECT_EQ(tier->problem(), "");
}

TEST_F(RedisServerTest, AServerWithoutALimitOrThatDoesNotMakeRoomIsNamed) {
  const struct {
    std::vector<std::string> options;
    const char* said;
    uint64_t room_bytes;  // For payloads.
  } cases[] = {{{}, "has no maxmemory", 0},
               {{"--maxmemory", "64mb", "--maxmemory-policy", "noeviction"},
                "refuses writes when",
                40U << 20U},
               {{"--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"},
                "keeps 67108864 bytes",
                40U << 20U}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.said);
    struct Heard {
      std::mutex mutex;
      std::string lines;
    } heard;
    const auto hear = [](LogLevel, std::string_view line, void* to) {
      Heard& out = *static_cast<Heard*>(to);
      const std::lock_guard lock(out.mutex);
      out.lines += line;
    };
    set_log_handler(hear, &heard);
    RedisServer server(one.options);
    ASSERT_TRUE(server.wait_up());
    auto tier = open_redis(server.url());
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(heard.mutex);
      return heard.lines.find(one.said) != std::string::npos;
    })) << heard.lines;
    EXPECT_EQ(tier->stats().room_bytes, one.room_bytes);
    tier.reset();
    set_log_handler(nullptr, nullptr);
  }
}

TEST_F(RedisServerTest, AFullServerRefusesAndAnEvictingOneForgets) {
  RedisServer server({"--maxmemory", "8mb", "--maxmemory-policy", "noeviction"});
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());
  Client client(*tier);
  const auto many = entries(1, 32, 512U << 10U);
  const Outcomes outcomes = client.put(many);
  EXPECT_EQ(outcomes.front(), done);
  EXPECT_EQ(outcomes.back(), TierOutcome::refused);
  EXPECT_TRUE(tier->stats().reachable);
  RawClient(server.port()).command({"CONFIG", "SET", "maxmemory-policy", "allkeys-lru"});
  EXPECT_EQ(client.put(many.back()), done);
  EXPECT_EQ(client.get(many.back()).bytes, many.back().bytes);
}

// A server that refuses writes is up and answers: only a log line tells the operator.
TEST_F(RedisServerTest, WhoeverRunsItHearsOnceThatItTakesNothing) {
  struct Heard {
    std::mutex mutex;
    std::vector<std::string> lines;
    int with(std::string_view word) {
      const std::lock_guard lock(mutex);
      return static_cast<int>(std::ranges::count_if(
          lines, [&](const std::string& line) { return line.find(word) != std::string::npos; }));
    }
  } heard;
  const auto hear = [](LogLevel level, std::string_view line, void* user) {
    Heard& all = *static_cast<Heard*>(user);
    const std::lock_guard lock(all.mutex);
    if (level == LogLevel::warning) all.lines.emplace_back(line);
  };
  RedisServer server({"--maxmemory", "2mb", "--maxmemory-policy", "noeviction"});
  ASSERT_TRUE(server.wait_up());
  set_log_handler(hear, &heard);
  {
    auto tier = open_redis(server.url());
    Client client(*tier);
    EXPECT_EQ(client.put(entries(1, 16, 512U << 10U)).back(), TierOutcome::refused);
    EXPECT_EQ(heard.with("OOM"), 1);
    RawClient raw(server.port());
    raw.command({"CONFIG", "SET", "maxmemory", "0"});
    raw.command({"REPLICAOF", "127.0.0.1", "1"});
    EXPECT_EQ(client.put(entries(2, 2, 1000)), Outcomes(2, failed));
    EXPECT_EQ(heard.with("READONLY"), 1);
  }
  set_log_handler(nullptr, nullptr);
}

TEST_F(RedisServerTest, PasswordsAndUsersAreAskedForAndNeverShown) {
  RedisServer server({"--requirepass", "right"});
  ASSERT_TRUE(server.wait_up());
  const std::string at = "127.0.0.1:" + std::to_string(server.port());
  {
    auto tier = open_redis("redis://:right@" + at);
    ASSERT_TRUE(ready(*tier)) << tier->problem();
    EXPECT_EQ(Client(*tier).put(entry(1, 0, 100)), done);
  }
  RawClient raw(server.port());
  raw.command({"AUTH", "right"});
  raw.command({"ACL", "SETUSER", "cache", "on", ">s3cret", "~stemma:*", "+get", "+set", "+getrange",
               "+strlen", "+unlink", "+expire"});
  {
    // No more rights than needed: not even to ask for the slots.
    auto tier = open_redis("redis://cache:s3cret@" + at);
    ASSERT_TRUE(ready(*tier)) << tier->problem();
    Client client(*tier);
    EXPECT_EQ(client.put(entry(2, 0, 100)), done);
    EXPECT_EQ(client.get(entry(2, 0, 100)).outcome, done);
    EXPECT_EQ(client.remove(entry(2, 0, 100)), done);
  }
  for (const char* who : {"", ":wrongsecret@", "cache:wrongsecret@", "nobody:wrongsecret@"}) {
    auto tier = open_redis(std::string("redis://") + who + at);
    EXPECT_FALSE(ready(*tier)) << who;
    EXPECT_NE(tier->problem().find("password"), std::string::npos) << tier->problem();
    EXPECT_NE(tier->problem().find(at), std::string::npos) << tier->problem();
    EXPECT_EQ(tier->problem().find("wrongsecret"), std::string::npos);
    const uint64_t begin = now_ns();
    EXPECT_EQ(Client(*tier).contains(entry(1, 0, 100)), failed);
    EXPECT_LT(now_ns() - begin, kPatientMs * kMs);
    EXPECT_FALSE(tier->stats().reachable);
  }
  // Once it is corrected on the server, the tier finds it without a restart.
  auto tier = open_redis("redis://cache:changed@" + at);
  EXPECT_FALSE(ready(*tier));
  raw.command({"ACL", "SETUSER", "cache", ">changed"});
  EXPECT_TRUE(eventually([&] { return Client(*tier).contains(entry(1, 0, 100)) == done; }));
  EXPECT_TRUE(tier->problem().empty()) << tier->problem();
}

TEST_F(RedisServerTest, AServerThatIsAwayIsNamedAndFoundWhenItComes) {
  Port port;
  const std::string at = "127.0.0.1:" + port.text();
  auto tier = open_redis("redis://" + at);
  EXPECT_FALSE(ready(*tier));
  EXPECT_NE(tier->problem().find(at + ": Connection refused"), std::string::npos)
      << tier->problem();
  const uint64_t begin = now_ns();
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(Client(*tier).put(entry(1, i, 100)), failed);
  EXPECT_LT(now_ns() - begin, kPatientMs * kMs);
  EXPECT_EQ(tier->stats().failed, 20U);
  RedisServer server({}, std::move(port));
  EXPECT_TRUE(eventually([&] { return Client(*tier).put(entry(1, 0, 100)) == done; }));

  auto nameless = open_redis("redis://no-such-host.invalid:6379");
  EXPECT_FALSE(ready(*nameless));
  EXPECT_NE(nameless->problem().find("no address is known"), std::string::npos)
      << nameless->problem();
}

TEST_F(RedisServerTest, NamesAndIpv6AddressesAreFound) {
  RedisServer server({"--bind", "127.0.0.1", "-::1"});
  ASSERT_TRUE(server.wait_up());
  auto named = open_redis("redis://localhost:" + std::to_string(server.port()));
  ASSERT_TRUE(ready(*named)) << named->problem();
  EXPECT_EQ(Client(*named).put(entry(1, 0, 100)), done);
  std::ifstream addresses("/proc/net/if_inet6");
  std::string line;
  if (!std::getline(addresses, line)) GTEST_SKIP() << "this machine has no IPv6";
  auto v6 = open_redis("redis://[::1]:" + std::to_string(server.port()));
  ASSERT_TRUE(ready(*v6)) << v6->problem();
  EXPECT_EQ(Client(*v6).get(entry(1, 0, 100)).outcome, done);
  // A name with two addresses, of which one listens: the tier finds that one.
  for (const std::string& bind : addresses_of("localhost")) {
    RedisServer half({"--bind", bind});
    auto tier = open_redis("redis://localhost:" + std::to_string(half.port()));
    EXPECT_TRUE(eventually([&] { return Client(*tier).put(entry(1, 0, 100)) == done; }))
        << bind << " " << tier->problem();
  }
}

TEST_F(RedisServerTest, AStalledServerCostsOneBoundedDelay) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  constexpr uint64_t kStallMs = 2'000;
  auto tier = open_redis(server.url(), kStallMs);
  Client client(*tier);
  const auto some = entries(1, 4, 1U << 20U);
  ASSERT_EQ(client.put(some), Outcomes(4, done));
  server.stop();

  // With a deadline: late, and not failed as when the stall is noticed. Then its memory is free.
  Work late(TierOp::get, some);
  late.batch->deadline_ns = now_ns() + 100 * kMs;
  late.submit_to(*tier);
  late.finish();
  EXPECT_EQ(late.outcomes(), Outcomes(4, TierOutcome::late));
  for (Bytes& room : late.rooms) std::fill(room.begin(), room.end(), uint8_t{0xA5});

  // Without one: failed, once the stall is noticed.
  uint64_t begin = now_ns();
  EXPECT_EQ(client.get(some[0]).outcome, failed);
  EXPECT_LT(now_ns() - begin, (kStallMs + kSlowMs) * kMs);
  // Then nothing waits any more, not even while it is being probed: far less than a stall for each.
  begin = now_ns();
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(client.put(entry(2, i, 1'000)), failed);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(now_ns() - begin, 40 * kStallMs * kMs / 2);
  EXPECT_FALSE(tier->stats().reachable);

  server.go_on();
  EXPECT_TRUE(eventually([&] { return client.get(some[0]).outcome == done; }));
  EXPECT_EQ(client.get(some[1]).bytes, some[1].bytes);
  for (const Bytes& room : late.rooms) {
    for (const uint8_t byte : room) ASSERT_EQ(byte, 0xA5);
  }
}

TEST_F(RedisServerTest, APutThatIsHalfSentLeavesNothingBehind) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());  // Only the deadline ends it.
  Client client(*tier);
  const Entry first = entry(1, 0, 4U << 20U);
  ASSERT_EQ(client.put(first), done);  // The connections are there.
  // This process may sleep when the server should fall asleep: then all of them are put, and the
  // test tries others.
  size_t late = 0;
  for (uint64_t prompt = 2; late == 0 && prompt < 100; ++prompt) {
    const auto some = entries(prompt, 11, 4U << 20U);
    Work work(TierOp::put, some);
    const uint64_t sent = tier->counters().sent_bytes;
    work.batch->deadline_ns = now_ns() + 300 * kMs;
    work.submit_to(*tier);
    // It falls asleep in the middle of them, and no socket holds so much.
    while (tier->counters().sent_bytes < sent + (6U << 20U) && !work.batch->finished()) {
    }
    server.stop();
    work.finish();
    for (const TierOutcome outcome : work.outcomes()) late += outcome == TierOutcome::late ? 1 : 0;
    // Its memory may be reused at once.
    for (Entry& one : work.entries) std::fill(one.bytes.begin(), one.bytes.end(), uint8_t{0});
    server.go_on();
    ASSERT_TRUE(eventually([&] { return client.get(first).outcome == done; }));
    for (const Entry& one : some) client.whole_or_absent(one);
    RawClient(server.port()).command({"FLUSHALL"});
    ASSERT_EQ(client.put(first), done);
  }
  EXPECT_GT(late, 0U);
}

TEST_F(RedisServerTest, AServerThatIsKilledUnderLoadIsBackWithoutARestartOfOurs) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());
  ASSERT_TRUE(ready(*tier));
  Load load(*tier, 3, 200'000, 1'000);
  for (int kill = 0; kill < 3; ++kill) {
    const uint64_t before = load.done;
    EXPECT_TRUE(eventually([&] { return load.done > before + 100; }));
    server.kill();
    const uint64_t failures = load.not_done;
    EXPECT_TRUE(eventually([&] { return load.not_done > failures + 50; }));
    server.restart();
  }
  const uint64_t before = load.done;
  EXPECT_TRUE(eventually([&] { return load.done > before + 100; }));
  load.stop();
  EXPECT_EQ(load.wrong, 0U);
  EXPECT_LT(load.longest_ns, (1'000 + kSlowMs) * kMs);
  EXPECT_EQ(tier->counters().breaks, 3U);
}

TEST_F(RedisServerTest, ATierThatGoesEndsWhatIsUnderWay) {
  RedisServer server;
  ASSERT_TRUE(server.wait_up());
  auto tier = open_redis(server.url());
  const auto some = entries(1, 16, 1U << 20U);
  Work put(TierOp::put, some);
  put.submit_to(*tier);
  server.stop();
  Work get(TierOp::get, some);
  get.submit_to(*tier);
  const uint64_t begin = now_ns();
  tier.reset();
  EXPECT_LT(now_ns() - begin, kPatientMs * kMs);
  EXPECT_TRUE(put.batch->finished());
  EXPECT_TRUE(get.batch->finished());
  server.go_on();
}

class RedisServerTls : public RedisServerTest {
 protected:
  void SetUp() override {
    RedisServerTest::SetUp();
    if (IsSkipped()) return;
    if (!tier::redis::has_tls()) GTEST_SKIP() << "this build has no TLS";
    const std::string in = "cd '" + folder.path() + "' && exec >/dev/null 2>&1 && ";
    const char* make =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca "
        "-keyout ca.key -out ca.pem && cp ca.key other.key && "
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
        "/CN=other "
        "-keyout other.key -out other.pem && "
        "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=cache.test "
        "-keyout server.key -out server.csr && "
        "printf 'subjectAltName=DNS:cache.test,IP:127.0.0.1' > san && "
        "openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
        "-extfile san -out server.pem";
    if (std::system((in + make).c_str()) != 0) GTEST_SKIP() << "no certificates: no openssl?";
  }
  std::string file(const char* name) const { return folder.path() + "/" + name; }
  TempFolder folder;
};

TEST_F(RedisServerTls, CertificatesAreCheckedBothWays) {
  RedisServer server({"--tls-port", RedisServer::kSecondPort, "--tls-cert-file", file("server.pem"),
                      "--tls-key-file", file("server.key"), "--tls-ca-cert-file", file("ca.pem"),
                      "--tls-auth-clients", "optional"});
  if (!server.wait_up()) GTEST_SKIP() << "this server has no TLS";
  const std::string at = "127.0.0.1:" + std::to_string(server.second_port());
  const auto some = entries(1, 6, 700'000);
  {
    auto tier = open_redis("rediss://" + at + "?ca=" + file("ca.pem"));
    ASSERT_TRUE(ready(*tier)) << tier->problem();
    Client client(*tier);
    EXPECT_EQ(client.put(some), Outcomes(6, done));
    for (const Entry& one : some) EXPECT_EQ(client.get(one).bytes, one.bytes);
    EXPECT_EQ(client.contains(entries(1, 500, 700'000))[499], absent);
  }
  const std::string base = "rediss://" + at;
  const auto open_with = [&](const std::string& options) { return open_redis(base + options); };
  for (const std::string& options :
       {"?ca=" + file("other.pem"), std::string(), "?tls-name=else.where&ca=" + file("ca.pem")}) {
    auto tier = open_with(options);
    EXPECT_FALSE(ready(*tier)) << options;
    EXPECT_NE(tier->problem().find("certificate is not trusted"), std::string::npos)
        << tier->problem();
  }
  for (const std::string& options :
       {"?tls-name=cache.test&ca=" + file("ca.pem"), std::string("?verify=no")}) {
    auto tier = open_with(options);
    ASSERT_TRUE(ready(*tier)) << options << tier->problem();
    EXPECT_EQ(Client(*tier).get(some[0]).bytes, some[0].bytes);
  }
  // A plain client at a TLS port, or the reverse, gets an error that says so.
  auto plain = open_redis("redis://" + at, kImpatientMs);
  EXPECT_FALSE(ready(*plain));
  EXPECT_FALSE(plain->problem().empty());
  auto secured = open_redis("rediss://127.0.0.1:" + std::to_string(server.port()) + "?verify=no",
                            kImpatientMs);
  EXPECT_FALSE(ready(*secured));
  EXPECT_NE(secured->problem().find("no TLS"), std::string::npos) << secured->problem();
  // A server that requires a client certificate.
  RawClient(server.port()).command({"CONFIG", "SET", "tls-auth-clients", "yes"});
  auto unknown = open_redis("rediss://" + at + "?ca=" + file("ca.pem"));
  EXPECT_FALSE(ready(*unknown));
  auto known = open_redis("rediss://" + at + "?ca=" + file("ca.pem") +
                          "&cert=" + file("server.pem") + "&key=" + file("server.key"));
  EXPECT_TRUE(ready(*known)) << known->problem();
  // Files that do not exist.
  for (const char* options : {"?ca=/nowhere.pem", "?cert=/nowhere.pem&key=/nowhere.key"}) {
    const auto tier = RedisTier::create(redis_options("rediss://" + at + options, kPatientMs));
    ASSERT_FALSE(tier);
    EXPECT_EQ(tier.error().code(), Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace stemma::test
