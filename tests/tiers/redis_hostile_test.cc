// A server that lies. Whatever it answers, items end in time, nothing wrong is believed, and the
// tier survives.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <mutex>

#include "stemma/log.h"
#include "tier/entry.h"
#include "tiers/redis_rig.h"

namespace stemma::test {
namespace {

using Words = std::vector<std::string>;

const std::string kSilence = "-";

// Answers each command with what a function says; an empty answer closes the connection.
class FakeServer {
 public:
  using Answer = std::function<std::string(const Words&)>;

  // `trickle` follows the first answer to a GET, again and again. `info` answers INFO, which the
  // tier sends now and then; few tests are about that.
  explicit FakeServer(
      Answer answer, std::string trickle = "",
      Answer info = [](const Words&) -> std::string { return "-ERR no\r\n"; })
      : answer_(std::move(answer)), info_(std::move(info)), trickle_(std::move(trickle)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    listen_fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(listen(listen_fd_, 64), 0);
    getsockname(listen_fd_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~FakeServer() {
    stop_ = true;
    shutdown(listen_fd_, SHUT_RDWR);
    accepting_.join();
    close(listen_fd_);
    const std::lock_guard lock(mutex_);
    for (const int fd : fds_) shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int fd : fds_) close(fd);
  }
  std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  uint16_t port() const { return port_; }

 private:
  void accept_all() {
    while (!stop_) {
      const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const std::lock_guard lock(mutex_);
      fds_.push_back(fd);
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  }
  void serve(int fd) {
    tier::redis::ReplyParser parser({.text_bytes = size_t{64} << 20U});
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) return;
      std::string_view left(buffer, static_cast<size_t>(got));
      while (!left.empty()) {
        left.remove_prefix(parser.feed(left));
        if (parser.stage() == tier::redis::ReplyParser::Stage::failed) return;
        if (parser.stage() != tier::redis::ReplyParser::Stage::done) continue;
        Words words;
        for (const auto& word : parser.reply().elements) words.push_back(word.text);
        const std::string answer = words[0] == "INFO" ? info_(words) : answer_(words);
        if (answer.empty()) {
          shutdown(fd, SHUT_RDWR);
          return;
        }
        if (answer != kSilence && send(fd, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) return;
        while (!trickle_.empty() && words[0] == "GET" && !stop_) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          if (send(fd, trickle_.data(), trickle_.size(), MSG_NOSIGNAL) < 0) return;
        }
      }
    }
  }

  Answer answer_, info_;
  std::string trickle_;
  int listen_fd_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread accepting_;
  std::mutex mutex_;
  std::vector<int> fds_;
  std::vector<std::thread> threads_;
};

constexpr const char* kNoCluster = "-ERR This instance has cluster support disabled\r\n";

// Accepts clients as a single server would, and answers everything else as the test says.
FakeServer::Answer polite_then(const std::string& answer) {
  return [answer](const Words& words) -> std::string {
    if (words[0] == "PING") return "+PONG\r\n";
    if (words[0] == "CLUSTER") return kNoCluster;
    return answer;
  };
}

std::string bulk(std::string_view bytes) {
  return "$" + std::to_string(bytes.size()) + "\r\n" + std::string(bytes) + "\r\n";
}

std::string value_of(const Entry& one, uint64_t sum) {
  tier::EntryHeader header{.key = one.key, .info = one.info, .sum = sum};
  std::array<uint8_t, tier::kHeaderBytes> bytes;
  tier::write_header(header, bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) +
         std::string(one.bytes.begin(), one.bytes.end());
}

// Every operation ends within a bounded time, and none reports anything untrue.
void expect_nothing_believed(const std::string& url, const std::string& what) {
  SCOPED_TRACE(what);
  auto tier = open_redis(url, kImpatientMs);
  const auto some = entries(1, 3, 2'000);
  for (const TierOp op : {TierOp::get, TierOp::contains, TierOp::put, TierOp::remove}) {
    Work work(op, some);
    const uint64_t begin = now_ns();
    work.submit_to(*tier);
    work.finish();
    EXPECT_LT(now_ns() - begin, (4 * kImpatientMs + kSlowMs) * kMs);
    if (op != TierOp::get) continue;
    for (const TierOutcome outcome : work.outcomes()) EXPECT_NE(outcome, TierOutcome::done);
  }
}

TEST(RedisHostile, RepliesThatAreNotAnswersAreNotBelieved) {
  const Entry one = entry(1, 0, 2'000);
  const std::string good = value_of(one, tier::sum({}, one.bytes));
  std::string flipped = good;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  EntryInfo huge = one.info;
  huge.bytes = uint64_t{1} << 40U;
  Entry vast = one;
  vast.info = huge;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"not RESP", "HTTP/1.1 400 Bad Request\r\n\r\n"},
      {"nothing but line ends", "\r\n\r\n\r\n"},
      {"an integer", ":7\r\n"},
      {"a negative integer", ":-7\r\n"},
      {"another simple string", "+QUEUED\r\n"},
      {"an array", "*2\r\n+a\r\n+b\r\n"},
      {"a push", ">2\r\n+message\r\n+x\r\n"},
      {"too many replies", "$-1\r\n:0\r\n+OK\r\n:0\r\n$-1\r\n"},
      {"a value of no length", "$0\r\n\r\n"},
      {"a value of any length", "$9223372036854775807\r\n"},
      {"a value that is longer than it says", "$3\r\nabcdef\r\n"},
      {"a negative length", "$-5\r\n"},
      {"an array of any length", "*2147483647\r\n"},
      {"arrays in arrays",
       [] {
         std::string deep;
         for (int i = 0; i < 1'000; ++i) deep += "*1\r\n";
         return deep;
       }()},
      {"an endless line", "+" + std::string(100'000, 'x')},
      {"a flipped bit", bulk(flipped)},
      {"half an entry", bulk(good.substr(0, 900))},
      {"an entry and more", bulk(good + "more")},
      {"an entry that says it is vast", bulk(value_of(vast, 0))},
      {"half an entry, and then nothing",
       "$" + std::to_string(good.size()) + "\r\n" + good.substr(0, 700)},
      {"an error", "-ERR no\r\n"},
      {"an error of no words", "-\r\n"},
      {"a move without a place", "-MOVED\r\n"},
      {"a move to nonsense", "-MOVED 1 nonsense\r\n"},
      {"a move to port 0", "-MOVED 1 127.0.0.1:0\r\n"},
      {"a move to nobody", "-MOVED 1 127.0.0.1:1\r\n"},
      {"an ask of nobody", "-ASK 1 127.0.0.1:1\r\n"},
      {"try again, for ever", "-TRYAGAIN x\r\n"},
      {"read only, for ever", "-READONLY x\r\n"},
      {"loading, for ever", "-LOADING x\r\n"},
      {"a cluster that is down", "-CLUSTERDOWN x\r\n"},
      {"silence", kSilence},
      {"a closed door", ""},
  };
  for (const auto& [what, answer] : cases) {
    FakeServer server(polite_then(answer));
    expect_nothing_believed(server.url(), what);
  }
}

TEST(RedisHostile, AMoveToItselfIsFollowedAFewTimes) {
  uint16_t port = 0;
  std::atomic<uint32_t> asked{0};
  FakeServer server([&](const Words& words) -> std::string {
    if (words[0] == "PING") return "+PONG\r\n";
    if (words[0] == "CLUSTER") return kNoCluster;
    ++asked;
    return "-MOVED 1 127.0.0.1:" + std::to_string(port) + "\r\n";
  });
  port = server.port();
  auto tier = open_redis(server.url());
  EXPECT_EQ(Client(*tier).contains(entry(1, 0, 10)), TierOutcome::failed);
  EXPECT_EQ(asked, 6U);
}

TEST(RedisHostile, EndlesslyManyNodesAreNotFollowed) {
  std::atomic<uint32_t> asked{0};
  FakeServer server([&](const Words& words) -> std::string {
    if (words[0] == "PING") return "+PONG\r\n";
    if (words[0] == "CLUSTER") return kNoCluster;
    const uint32_t n = ++asked;
    return "-MOVED 1 127.1." + std::to_string(n / 250 % 250) + "." + std::to_string(n % 250) +
           ":1\r\n";
  });
  auto tier = open_redis(server.url());
  const auto many = entries(1, 3'000, 10);
  for (const TierOutcome outcome : Client(*tier).contains(many))
    EXPECT_NE(outcome, TierOutcome::done);
}

TEST(RedisHostile, MapsThatMakeNoSenseAreNoMaps) {
  for (const char* map : {"*1\r\n:1\r\n", ":1\r\n", "+OK\r\n", "$-1\r\n", "*0\r\n",
                          "-LOADING x\r\n", "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n$1\r\nh\r\n:1\r\n",
                          "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:1\r\n", "", "-"}) {
    SCOPED_TRACE(map);
    FakeServer server([&](const Words& words) -> std::string {
      if (words[0] == "PING") return "+PONG\r\n";
      if (words[0] == "CLUSTER") return map;
      return "$-1\r\n";
    });
    auto tier = open_redis(server.url(), kImpatientMs);
    Work work(TierOp::contains, entries(1, 3, 10));
    const uint64_t begin = now_ns();
    work.submit_to(*tier);
    work.finish();
    EXPECT_LT(now_ns() - begin, (2 * kImpatientMs + kSlowMs) * kMs);
    EXPECT_EQ(work.outcomes(), Outcomes(3, TierOutcome::failed));
  }
}

TEST(RedisHostile, AWelcomeThatIsNoneIsSaidSo) {
  for (const char* welcome : {"HTTP/1.1 400 Bad Request\r\n", "+HELLO\r\n", ":1\r\n",
                              "-ERR go away\r\n", "-LOADING x\r\n", "", "-"}) {
    SCOPED_TRACE(welcome);
    FakeServer server([&](const Words&) -> std::string { return welcome; });
    auto tier = open_redis(server.url(), kImpatientMs);
    EXPECT_FALSE(ready(*tier));
    EXPECT_FALSE(tier->problem().empty());
    EXPECT_EQ(Client(*tier).contains(entry(1, 0, 10)), TierOutcome::failed);
  }
}

TEST(RedisHostile, ATrickleIsNotAnAnswer) {
  const Entry one = entry(1, 0, 100'000);
  FakeServer server(polite_then("$100128\r\n"), "x");
  constexpr uint64_t kStallMs = 1'000;  // The trickle may pause on a busy machine.
  auto tier = open_redis(server.url(), kStallMs);
  Work work(TierOp::get, std::span(&one, 1));
  const uint64_t begin = now_ns();
  work.submit_to(*tier);
  work.finish();
  EXPECT_EQ(work.outcomes()[0], TierOutcome::failed);
  // Takes longer than a stall because some bytes come, but not for ever.
  EXPECT_GT(now_ns() - begin, 3 * kStallMs * kMs);
  EXPECT_LT(now_ns() - begin, (4 * kStallMs + kSlowMs) * kMs);
}

// If the tier's own thread sleeps or gets no processor for longer than a stall, the server has not
// stalled: its answer is there when the thread wakes.
TEST(RedisHostile, AnAnswerThatCameWhileWeSleptIsAnAnswer) {
  const Entry one = entry(1, 0, 5'000);
  std::atomic<bool> asked{false}, asleep{false};
  FakeServer server([&](const Words& words) -> std::string {
    if (words[0] == "PING") return "+PONG\r\n";
    if (words[0] == "CLUSTER") return kNoCluster;
    if (words[0] != "GET") return ":0\r\n";
    asked = true;
    while (!asleep) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return bulk(value_of(one, tier::sum({}, one.bytes)));
  });
  constexpr uint64_t kStallMs = 2'000;
  auto tier = open_redis(server.url(), kStallMs);
  Work get(TierOp::get, std::span(&one, 1));
  get.submit_to(*tier);
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  const auto other = entries(2, 1, 10);
  Work contains(TierOp::contains, other);
  contains.batch->on_done = [&](TierBatch&) {
    asleep = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(kStallMs + 500));
  };
  contains.submit_to(*tier);
  EXPECT_EQ(get.finish().outcomes()[0], TierOutcome::done);
  EXPECT_EQ(contains.finish().outcomes()[0], TierOutcome::absent);
  EXPECT_EQ(tier->counters().breaks, 0U);
}

TEST(RedisHostile, AServerThatBreaksOffBeforeItSaysItsLimitIsAskedAgain) {
  static std::atomic<uint32_t> warned;
  warned = 0;
  set_log_handler(
      [](LogLevel, std::string_view line, void*) {
        if (line.find("has no maxmemory") != std::string_view::npos) ++warned;
      },
      nullptr);
  std::atomic<uint32_t> asked{0};
  FakeServer server(polite_then(":0\r\n"), "", [&](const Words&) -> std::string {
    if (asked++ == 0) return "";
    return bulk("# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
  });
  {
    auto tier = open_redis(server.url());
    Client client(*tier);
    // A question opens a connection if there is none.
    EXPECT_TRUE(eventually([&] {
      (void)client.contains(entry(1, 0, 500));
      return warned.load() != 0;
    }));
  }
  EXPECT_GE(asked.load(), 2U);
  EXPECT_EQ(warned.load(), 1U) << "it is told once";
  set_log_handler(nullptr, nullptr);
}

// Answers that wait to be sent count as memory of the server, which evicts entries for them.
TEST(RedisHostile, ASmallServerIsAskedForLittleAtATime) {
  std::atomic<uint32_t> asked{0};
  const FakeServer::Answer polite = polite_then(kSilence);
  const auto count = [&](const Words& words) {
    if (words[0] == "GET") ++asked;
    return polite(words);
  };
  FakeServer server(count, "", [](const Words&) {
    return bulk("# Memory\r\nmaxmemory:67108864\r\nmaxmemory_policy:allkeys-lru\r\n");
  });
  auto tier = open_redis(server.url(), 60'000);
  ASSERT_TRUE(eventually([&] { return tier->stats().room_bytes != 0; }));
  const auto some = entries(1, 20, 128U << 10U);
  Work work(TierOp::get, some);
  work.batch->deadline_ns = now_ns() + 3'000 * kMs;  // A busy machine asks late, too.
  work.submit_to(*tier);
  // Requests that were cut loose still count as in flight, so nothing is sent in their place.
  EXPECT_EQ(work.finish().outcomes(), Outcomes(20, TierOutcome::late));
  EXPECT_GE(asked.load(), 2U);
  EXPECT_LE(asked.load(), 4U) << "of 128 KiB, from a server of 64 MiB";
}

TEST(RedisHostile, AServerThatLiedAndThenTellsTheTruthIsBelievedAgain) {
  const Entry one = entry(1, 0, 5'000);
  const std::string good = bulk(value_of(one, tier::sum({}, one.bytes)));
  std::atomic<int> left{5};
  FakeServer server([&](const Words& words) -> std::string {
    if (words[0] == "PING") return "+PONG\r\n";
    if (words[0] == "CLUSTER") return kNoCluster;
    if (words[0] == "GET") return --left >= 0 ? "$garbage\r\n" : good;
    return ":1\r\n";
  });
  auto tier = open_redis(server.url());
  EXPECT_TRUE(eventually([&] { return Client(*tier).get(one).outcome == TierOutcome::done; }));
  EXPECT_EQ(Client(*tier).get(one).bytes, one.bytes);
  EXPECT_GE(tier->counters().breaks, 5U);
}

}  // namespace
}  // namespace stemma::test
