// Clients that leave, and clients that wait long.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "server/app.h"
#include "support/server_rig.h"

namespace stemma::server {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::completion;
using test::error_code;
using test::HttpAnswer;
using test::HttpClient;
using test::Json;
using test::kCompletions;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;

constexpr uint32_t kEndless = ServerRigOptions::kEndless;

// ---- Clients that leave -------------------------------------------------------------------------

TEST(AppClients, ClientThatLeavesFreesItsSequenceAndHurtsNobody) {
  ServerRig rig(ServerRigOptions::endless());
  rig.model.pass_us = 2'000;
  const std::string prompt = rig.prompt_with(60, true);
  std::thread other([&] {
    EXPECT_EQ(rig.stream(kCompletions, completion(prompt, 60, {{"stream", true}})).text(),
              rig.expected(prompt, 60));
  });
  for (const bool stream : {true, false}) {
    HttpClient client = rig.client();
    client.send(test::request_text(
        "POST", kCompletions,
        completion(letters(40, 1), kEndless, {{"ignore_eos", true}, {"stream", stream}}).dump()));
    const uint64_t before = rig.scheduler->stats().cancelled;
    if (stream) {
      ASSERT_EQ(client.read_head().status, 200);
      ASSERT_TRUE(client.read_piece());
    } else {
      // Wait until it has begun: a client that leaves earlier never reaches the scheduler.
      ASSERT_TRUE(becomes_true([&] {
        return std::ranges::any_of(rig.scheduler->running(), [](const Scheduler::Running& each) {
          return each.prompt_tokens == 41 && each.generated_tokens > 0;
        });
      }));
    }
    client.abort();
    EXPECT_TRUE(becomes_true([&] { return rig.scheduler->stats().cancelled == before + 1; }))
        << stream;
  }
  other.join();
  rig.expect_quiet();
  EXPECT_EQ(rig.scheduler->stats().failed, 0U);
}

TEST(AppClients, ClientThatLeavesTheQueueIsForgotten) {
  ServerRigOptions options = ServerRigOptions::endless();
  options.engine.sequences = 1;
  ServerRig rig(options);
  rig.model.pass_us = 2'000;
  const Json body = completion(letters(30, 1), kEndless, {{"ignore_eos", true}, {"stream", true}});
  HttpClient first = rig.client();
  first.send(test::request_text("POST", kCompletions, body.dump()));
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().running == 1; }));
  HttpClient second = rig.client();
  second.send(test::request_text("POST", kCompletions, body.dump()));
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().waiting == 1; }));
  second.abort();
  EXPECT_TRUE(becomes_true([&] { return rig.scheduler->stats().cancelled == 1; }));
  first.abort();
  rig.expect_quiet();
}

// ---- Streams that wait --------------------------------------------------------------------------

struct Waiting {
  explicit Waiting(std::chrono::milliseconds keep_alive) : rig(options(keep_alive)) {
    // One request is running and holds the only sequence.
    rig.model.pass_us = 2'000;
    first.send(test::request_text("POST", kCompletions, body(true, kEndless)));
    EXPECT_EQ(first.read_head().status, 200);
  }
  static ServerRigOptions options(std::chrono::milliseconds keep_alive) {
    ServerRigOptions options = ServerRigOptions::endless();
    options.engine.sequences = 1;
    options.app.keep_alive = keep_alive;
    options.http.half_close_time = 100ms;
    return options;
  }
  static std::string body(bool stream, uint32_t tokens) {
    return completion(letters(30, 1), tokens, {{"ignore_eos", true}, {"stream", stream}}).dump();
  }
  HttpClient ask(bool stream) {
    HttpClient client = rig.client();
    client.send(test::request_text("POST", kCompletions, body(stream, 900)));
    EXPECT_TRUE(becomes_true([&] { return rig.scheduler->stats().waiting == 1; }));
    return client;
  }

  ServerRig rig;
  HttpClient first = rig.client();
};

TEST(AppClients, StreamThatWaitsLongSaysThatItIsThere) {
  Waiting wait(150ms);
  HttpClient second = wait.ask(true);
  const HttpAnswer head = second.read_head();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("content-type"), "text/event-stream");
  EXPECT_EQ(head.header("cache-control"), "no-cache");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(second.read_piece(), ": keep-alive\n\n");
  wait.first.abort();
  wait.rig.model.pass_us = 0;
  std::string all;
  while (auto piece = second.read_piece()) all += *piece;
  EXPECT_TRUE(second.complete());
  const std::vector<std::string> events = test::sse_data(all);
  ASSERT_GT(events.size(), 2U);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(Json::parse(events.front()).contains("choices"));
  wait.rig.expect_quiet();
}

TEST(AppClients, FailureOfAStreamThatHasSaidSoIsItsLastEvent) {
  Waiting wait(150ms);
  HttpClient second = wait.ask(true);
  ASSERT_EQ(second.read_head().status, 200);
  ASSERT_EQ(second.read_piece(), ": keep-alive\n\n");
  std::thread stopping([&] { wait.rig.scheduler->stop(); });
  std::string all;
  while (auto piece = second.read_piece()) all += *piece;
  stopping.join();
  EXPECT_TRUE(second.complete());
  const std::vector<std::string> events = test::sse_data(all);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(Json::parse(events[0])["error"]["code"], "overloaded");
}

TEST(AppClients, FailureBeforeThatHasItsStatus) {
  for (const auto keep_alive : {0ms, 10'000ms}) {
    Waiting wait(keep_alive);
    HttpClient second = wait.ask(true);
    std::this_thread::sleep_for(400ms);
    wait.rig.scheduler->stop();
    const HttpAnswer answer = second.read_answer();
    EXPECT_EQ(error_code(answer, 503), "overloaded");
    EXPECT_EQ(answer.header("retry-after"), "1");
  }
}

TEST(AppClients, WholeAnswerIsNeverBegunEarly) {
  Waiting wait(150ms);
  HttpClient second = wait.ask(false);
  std::this_thread::sleep_for(400ms);
  wait.rig.scheduler->stop();
  EXPECT_EQ(error_code(second.read_answer(), 503), "overloaded");
}

// Some tools send their request from a pipe: they close their sending side and wait for the answer.
TEST(AppClients, ClientThatHalfClosesWaitsForItsTurnAndGetsItsAnswer) {
  for (const bool stream : {true, false}) {
    Waiting wait(0ms);
    HttpClient second = wait.ask(stream);
    second.half_close();
    std::this_thread::sleep_for(600ms);
    EXPECT_EQ(wait.rig.scheduler->stats().cancelled, 0U) << stream;
    wait.first.abort();
    wait.rig.model.pass_us = 0;
    const HttpAnswer answer = second.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.complete);
    wait.rig.expect_quiet();
  }
}

TEST(AppClients, ClientThatClosesWhileItWaitsIsForgotten) {
  for (const bool stream : {true, false}) {
    Waiting wait(0ms);
    HttpClient second = wait.ask(stream);
    second.close();
    EXPECT_TRUE(becomes_true([&] { return wait.rig.scheduler->stats().cancelled == 1; }));
    wait.first.abort();
    wait.rig.expect_quiet();
  }
}

}  // namespace
}  // namespace stemma::server
