// A server with many clients, some of which misbehave, and an engine that sometimes fails: nobody
// waits forever, nobody gets another client's answer, and nothing is left at the end.
//
// STEMMA_SERVER_SECONDS says for how long, STEMMA_SERVER_SEED which clients come.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "support/environment.h"
#include "support/server_rig.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace stemma::server {
namespace {

using namespace std::chrono_literals;
using Now = std::chrono::steady_clock;
using test::becomes_true;
using test::completion;
using test::HttpAnswer;
using test::HttpClient;
using test::Json;
using test::kCompletions;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;

uint64_t run_seconds() { return test::from_environment("STEMMA_SERVER_SECONDS", 4); }

// Memory of the process in use, without what the allocator keeps for later.
uint64_t resident_bytes() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
  std::ifstream statm("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  statm >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(base::mix(seed)) {}
  uint32_t roll(uint32_t sides) {
    state_ = base::mix(state_ + 0x9E37'79B9'7F4A'7C15U);
    return static_cast<uint32_t>(state_ % sides);
  }

 private:
  uint64_t state_;
};

// The right answers, computed once for each prompt: the longest one, of which every shorter one is
// a prefix.
class Truth {
 public:
  static constexpr uint32_t kLongest = 48;
  explicit Truth(const ServerRig& rig) : rig_(rig) {}
  std::string operator()(const std::string& prompt, uint32_t tokens) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = known_.find(prompt); found != known_.end())
        return found->second.substr(0, tokens);
    }
    std::string whole = rig_.expected(prompt, kLongest);
    const std::lock_guard lock(mutex_);
    if (known_.size() > 4096) known_.clear();
    return known_.emplace(prompt, std::move(whole)).first->second.substr(0, tokens);
  }

 private:
  const ServerRig& rig_;
  std::mutex mutex_;
  std::map<std::string, std::string> known_;
};

struct Totals {
  std::atomic<uint64_t> right = 0;
  std::atomic<uint64_t> aborted = 0;
  std::atomic<uint64_t> overloaded = 0;
  std::atomic<uint64_t> failed = 0;  // By the engine, as expected.
  std::atomic<uint64_t> resets = 0;
};

// One request of a client: a stream that is read to its end, or abandoned. Returns false if
// something is wrong with it.
void one_request(const ServerRig& rig, Dice& dice, Truth& truth, Totals& totals,
                 bool failures_expected) {
  const std::string prompt = letters(80, dice.roll(3)) + letters(dice.roll(60), dice.roll(40));
  const uint32_t tokens = 1 + dice.roll(Truth::kLongest);
  Json more = {{"stream", true}};
  if (dice.roll(4) == 0) more["prompt_cache_key"] = "talk " + std::to_string(dice.roll(20));
  if (dice.roll(6) == 0) more["cache_salt"] = "salt " + std::to_string(dice.roll(3));
  const uint32_t choices = dice.roll(10) == 0 ? 2 : 1;
  more["n"] = choices;
  const bool leaves = dice.roll(4) == 0;
  HttpClient client = rig.client(60s);
  ASSERT_TRUE(client.connected());
  client.send(test::request_text("POST", kCompletions, completion(prompt, tokens, more).dump()));
  if (leaves) {
    // Leave before the answer, in its middle, or after it.
    const uint32_t pieces = dice.roll(6);
    if (pieces != 0) client.read_head();
    for (uint32_t i = 1; i < pieces && client.read_piece(); ++i) {
    }
    if (dice.roll(2) == 0) {
      client.abort();
    } else {
      client.close();
    }
    ++totals.aborted;
    return;
  }
  const test::StreamAnswer answer = ServerRig::read_stream(client);
  ASSERT_TRUE(answer.complete) << "stuck or cut off: " << prompt << ", status "
                               << answer.head.status;
  if (answer.head.status == 503) {
    ++totals.overloaded;
    return;
  }
  const bool failed = answer.head.status == 500 ||
                      (!answer.events.empty() && answer.events.back().contains("error"));
  const std::string right = truth(prompt, tokens);
  if (failed) {
    ASSERT_TRUE(failures_expected) << answer.head.body;
    for (uint32_t i = 0; i < choices; ++i) {
      ASSERT_TRUE(right.starts_with(answer.text(i))) << "what came before was wrong";
    }
    ++totals.failed;
    return;
  }
  ASSERT_EQ(answer.head.status, 200) << answer.head.body;
  ASSERT_TRUE(answer.done) << prompt;
  for (uint32_t i = 0; i < choices; ++i) ASSERT_EQ(answer.text(i), right) << prompt;
  ++totals.right;
}

TEST(Load, ManyClientsGetTheirOwnAnswersWhateverOthersDo) {
  const uint64_t seed = test::from_environment("STEMMA_SERVER_SEED", 1);
  // Long runs repeat every kind of engine; short runs use four kinds, each for a while.
  std::vector<test::EngineKind> kinds = test::every_engine();
  if (run_seconds() < 60) {
    std::erase_if(kinds, [](const test::EngineKind& kind) {
      const std::string name = kind.name;
      return name != "full" && name != "full_state" && name != "window" && name != "hybrid";
    });
  }
  const auto each = std::chrono::milliseconds(run_seconds() * 1000 / kinds.size());
  for (size_t k = 0; k < kinds.size(); ++k) {
    SCOPED_TRACE(kinds[k].name);
    ServerRigOptions options;
    options.engine = kinds[k].options;
    options.engine.sequences = 8;
    options.engine.context_tokens = 900;  // Eight requests can need more.
    options.batch_tokens = 128;
    options.scheduler.queue = 48;
    options.scheduler.answer_tokens = 16;
    options.scheduler.cache.saved_bytes = 100'000;
    options.app.log = [](std::string_view) {};
    ServerRig rig(options);
    // The engine's other calls fail, too; the server recovers from that.
    static constexpr test::Call kFailing[] = {test::Call::clear, test::Call::trim,
                                              test::Call::copy,  test::Call::size,
                                              test::Call::save,  test::Call::load};
    rig.scheduler->run([&](SequenceCache&) {
      rig.model.fake().faults = test::FaultSchedule::random(seed + k, 5, kFailing);
    });
    Truth truth(rig);
    Totals totals;
    const auto until = Now::now() + each;
    std::atomic<bool> over = false;
    std::vector<std::thread> threads;
    for (uint32_t c = 0; c < 64; ++c) {
      threads.emplace_back([&, c] {
        Dice dice(seed * 1'000'003 + k * 1000 + c);
        while (Now::now() < until && !::testing::Test::HasFatalFailure()) {
          one_request(rig, dice, truth, totals, true);
        }
      });
    }
    threads.emplace_back([&] {
      Dice dice(seed * 77 + k);
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5 + dice.roll(40)));
        rig.model.failing_passes = 1 + (dice.roll(8) == 0 ? 1 : 0);
        if (dice.roll(10) == 0) {
          EXPECT_EQ(rig.post("/cache/reset", Json::object()).status, 200);
          ++totals.resets;
        }
        for (const char* path : {"/metrics", "/slots", "/cache", "/cache/entries"}) {
          if (dice.roll(8) == 0) {
            EXPECT_EQ(rig.get(path).status, 200) << path;
          }
        }
      }
    });
    for (uint32_t c = 0; c < 64; ++c) threads[c].join();
    over = true;
    threads.back().join();
    rig.model.failing_passes = 0;
    rig.expect_quiet();
    const SchedulerStats stats = rig.scheduler->stats();
    std::cout << "  " << kinds[k].name << ", seed " << seed << ": " << totals.right << " right, "
              << totals.aborted << " aborted, " << totals.failed << " failed, " << totals.overloaded
              << " overloaded, " << totals.resets << " resets; " << stats.passes << " passes ("
              << stats.failed_passes << " failed), " << stats.suspensions << " suspensions, "
              << stats.cached_tokens << " of " << stats.prompt_tokens << " tokens reused\n";
    EXPECT_GT(totals.right, 0U);
    EXPECT_EQ(stats.waiting, 0U);
    EXPECT_EQ(rig.scheduler->cache().stats().leased_sequences, 0U);
  }
}

// The first fifth of the run warms everything up. After that, resident memory may grow by what the
// allocator and the kernel scatter (8 MiB), but not with the number of requests.
TEST(Load, MemoryStaysAsItIs) {
  const uint64_t seed = test::from_environment("STEMMA_SERVER_SEED", 1);
  ServerRigOptions options;
  options.engine.sequences = 8;
  options.batch_tokens = 128;
  options.scheduler.cache.saved_bytes = 100'000;
  options.scheduler.cache.sessions = 64;
  options.app.log = [](std::string_view) {};
  ServerRig rig(options);
  Truth truth(rig);
  Totals totals;
  const auto work = [&](std::chrono::milliseconds length, uint32_t round) {
    const auto until = Now::now() + length;
    std::vector<std::thread> threads;
    for (uint32_t c = 0; c < 16; ++c) {
      threads.emplace_back([&, c] {
        Dice dice(seed * 31 + round * 1000 + c);
        while (Now::now() < until && !::testing::Test::HasFatalFailure()) {
          one_request(rig, dice, truth, totals, false);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    rig.expect_quiet();
    return resident_bytes();
  };
  // Every prompt has its right answer by now, so the test's own memory stays constant, too.
  const auto length = std::chrono::milliseconds(std::max<uint64_t>(run_seconds() * 500, 1500));
  const uint64_t warm = work(length / 3, 1);
  const uint64_t requests = totals.right + totals.aborted;
  const uint64_t end = work(length * 2 / 3, 2);
  std::cout << "  seed " << seed << ": " << warm / 1024 << " KiB resident after " << requests
            << " requests, " << end / 1024 << " KiB after " << totals.right + totals.aborted
            << "\n";
  if (!test::kSanitized) {
    EXPECT_LT(end, warm + (8U << 20U));
  }
  EXPECT_TRUE(becomes_true([&] { return rig.http->counters().connections_open == 0; }));
}

TEST(Load, AThousandWhoComeAtOnceAreAllAnswered) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  constexpr uint32_t kClients = 1000;
  if (files.rlim_cur < 2 * kClients + 100) GTEST_SKIP() << "only " << files.rlim_cur << " files";
  ServerRigOptions options;
  options.engine.sequences = 8;
  options.batch_tokens = 128;
  options.scheduler.queue = 600;
  options.app.log = [](std::string_view) {};
  ServerRig rig(options);
  const auto begin = Now::now();
  std::vector<HttpClient> clients;
  clients.reserve(kClients);
  for (uint32_t i = 0; i < kClients; ++i) {
    clients.push_back(rig.client(120s));
    ASSERT_TRUE(clients.back().connected()) << i;
  }
  const auto prompt = [](uint32_t i) { return letters(40, 1) + letters(5, 100 + i % 50); };
  for (uint32_t i = 0; i < kClients; ++i) {
    ASSERT_TRUE(
        clients[i].send(test::request_text("POST", kCompletions, completion(prompt(i), 4).dump())));
  }
  Truth truth(rig);
  uint32_t answered = 0;
  uint32_t refused = 0;
  for (uint32_t i = 0; i < kClients; ++i) {
    const HttpAnswer answer = clients[i].read_answer();
    ASSERT_TRUE(answer.complete) << i;
    if (answer.status == 503) {
      EXPECT_EQ(answer.header("retry-after"), "1");
      ++refused;
      continue;
    }
    ASSERT_EQ(answer.status, 200) << answer.body;
    ASSERT_EQ(Json::parse(answer.body)["choices"][0]["text"], truth(prompt(i), 4));
    ++answered;
  }
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Now::now() - begin);
  std::cout << "  " << answered << " answered, " << refused << " refused, " << spent.count()
            << " ms\n";
  EXPECT_EQ(answered + refused, kClients);
  EXPECT_GE(answered, 600U);
  rig.expect_quiet();
}

TEST(Load, ClientThatReadsSlowlyHurtsNobody) {
  ServerRigOptions options;
  options.engine.context_tokens = 40'000;
  options.batch_tokens = 128;
  options.http.write_time = 30s;  // Anyone who waited for them would wait this long.
  options.http.stream_buffer_bytes = 64U << 10U;
  options.app.log = [](std::string_view) {};
  ServerRig rig(options);
  // Two clients that read nothing of their answers.
  std::vector<HttpClient> slow;
  for (uint32_t i = 0; i < 2; ++i) {
    slow.emplace_back(rig.http->port(), 60s, 4096);
    slow.back().send(test::request_text(
        "POST", kCompletions,
        completion(letters(20, i), 15'000, {{"stream", true}, {"ignore_eos", true}}).dump()));
  }
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().requests == 2; }));
  Truth truth(rig);
  auto longest = 0ms;
  uint32_t served = 0;
  for (uint32_t i = 0; i < 100; ++i) {
    const std::string prompt = letters(30, 50 + i % 5);
    const std::string right = truth(prompt, 4);
    const auto begin = Now::now();
    const test::StreamAnswer answer =
        rig.stream(kCompletions, completion(prompt, 4, {{"stream", true}}));
    longest = std::max(longest,
                       std::chrono::duration_cast<std::chrono::milliseconds>(Now::now() - begin));
    ASSERT_EQ(answer.text(), right);
    ++served;
  }
  EXPECT_LT(longest, options.http.write_time);
  // They were cut off, or their answers were small enough to be buffered.
  EXPECT_TRUE(becomes_true([&] { return rig.scheduler->stats().running == 0; }));
  const SchedulerStats stats = rig.scheduler->stats();
  std::cout << "  " << served << " others served, the slowest in " << longest.count() << " ms; "
            << stats.cancelled << " slow ones cut off, " << stats.completed - served
            << " completed\n";
  EXPECT_EQ(stats.cancelled + stats.completed, served + 2);
  rig.expect_quiet();
}

}  // namespace
}  // namespace stemma::server
