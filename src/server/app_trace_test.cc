// Tests /cache/trace over real connections.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "replay/byte_source.h"
#include "replay/replay.h"
#include "replay/trace.h"
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
using test::json;
using test::kCompletions;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;

// A running recording and its output.
class Recording {
 public:
  Recording(const ServerRig& rig, const std::string& query) : client_(rig.client()) {
    client_.send(test::request_text("GET", "/cache/trace" + query));
    head = client_.read_head();
    number = head.header("stemma-recording");
  }
  // Reads until it contains `said`, or ends.
  std::string text_until(std::string_view said) {
    std::string all;
    while (all.find(said) == std::string::npos) {
      const auto piece = client_.read_piece();
      if (!piece) break;
      all += *piece;
    }
    return all;
  }
  // Reads until it ends.
  std::string text() {
    std::string all;
    while (auto piece = client_.read_piece()) all += *piece;
    EXPECT_TRUE(client_.complete());
    return all;
  }
  replay::Trace trace() {
    replay::Trace trace;
    replay::LoadReport report;
    const std::string all = text();
    EXPECT_EQ(replay::load_trace(*replay::ByteSource::of(all), {}, trace, report), "") << all;
    return trace;
  }
  void end(const ServerRig& rig) const {
    EXPECT_EQ(rig.post("/cache/trace/end?recording=" + number, Json()).status, 200);
  }
  void abort() { client_.abort(); }

  HttpAnswer head;
  std::string number;

 private:
  HttpClient client_;
};

TEST(AppTrace, RequestsAreRecordedAsTheyCame) {
  ServerRig rig;
  Recording recording(rig, "?block_tokens=16");
  ASSERT_EQ(recording.head.status, 200);
  EXPECT_EQ(recording.head.header("content-type"), "application/jsonl");
  // Differs from the other prompt in its first letter, and has an answer of 8 tokens.
  std::string prompt;
  for (uint32_t seed = 1; prompt.empty() || rig.expected(prompt, 8).size() < 8; ++seed) {
    prompt = "A" + letters(99, seed);
  }
  ASSERT_EQ(rig.post(kCompletions, completion(prompt, 8, {{"prompt_cache_key", "x"}})).status, 200);
  const std::string ends = rig.prompt_with(300, false, 40);
  const Json ended = json(rig.post(kCompletions, completion(ends, 400)));
  ASSERT_EQ(ended["choices"][0]["finish_reason"], "stop");
  ASSERT_EQ(
      rig.post(kCompletions, completion(prompt + "more", 8, {{"prompt_cache_key", "x"}})).status,
      200);
  // A refused request is not recorded.
  ASSERT_EQ(rig.post(kCompletions, completion(letters(100'000, 1), 8)).status, 400);
  recording.end(rig);
  const replay::Trace trace = recording.trace();
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.block_tokens, 16U);
  EXPECT_EQ(trace.requests[0].input_tokens, 101U);
  EXPECT_EQ(trace.requests[0].output_tokens, 8U);
  EXPECT_EQ(trace.requests[0].finish, FinishReason::length);
  EXPECT_EQ(trace.requests[0].session, 1U);
  EXPECT_EQ(trace.requests[1].session, 0U);
  EXPECT_EQ(trace.requests[1].finish, FinishReason::end_turn);
  EXPECT_EQ(trace.requests[1].output_tokens, ended["usage"]["completion_tokens"]);
  EXPECT_EQ(trace.requests[2].session, 1U);
  EXPECT_EQ(trace.requests[2].turn, 2U);
  // 6 whole blocks, 2 others, and the first 6 again.
  EXPECT_EQ(trace.unique_blocks, 8U);
  EXPECT_EQ(trace.block_refs, 14U);
  EXPECT_LE(trace.requests[0].time_ns, trace.requests[1].time_ns);
}

TEST(AppTrace, ACancelledRequestIsRecordedWithWhatItHad) {
  ServerRig rig(ServerRigOptions::endless());
  rig.model.pass_us = 2'000;
  Recording recording(rig, "?block_tokens=16");
  const Json body = completion(letters(30, 1), ServerRigOptions::kEndless,
                               {{"ignore_eos", true}, {"stream", true}});
  HttpClient leaves = rig.client();
  leaves.send(test::request_text("POST", kCompletions, body.dump()));
  leaves.read_head();
  ASSERT_TRUE(leaves.read_piece().has_value());
  leaves.abort();
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().cancelled == 1; }));
  rig.expect_quiet();
  recording.end(rig);
  const replay::Trace trace = recording.trace();
  ASSERT_EQ(trace.requests.size(), 1U);
  EXPECT_EQ(trace.requests[0].finish, FinishReason::cancelled);
  EXPECT_GE(trace.requests[0].output_tokens, 1U);
  EXPECT_LT(trace.requests[0].output_tokens, ServerRigOptions::kEndless - 31);
}

TEST(AppTrace, SaltsShareNoBlocks) {
  ServerRig rig;
  Recording recording(rig, "?block_tokens=16");
  for (const char* salt : {"a", "b", "a"}) {
    const Json body = completion(letters(64, 1), 1, {{"cache_salt", salt}});
    ASSERT_EQ(rig.post(kCompletions, body).status, 200);
  }
  recording.end(rig);
  EXPECT_EQ(recording.trace().unique_blocks, 8U);
}

TEST(AppTrace, AServerThatEndsEndsItsRecordings) {
  ServerRig rig(ServerRigOptions::endless());
  rig.model.pass_us = 5'000;
  Recording recording(rig, "");
  std::thread asks([&] {
    rig.post(kCompletions,
             completion(letters(30, 1), ServerRigOptions::kEndless, {{"ignore_eos", true}}));
  });
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().running == 1; }));
  // The same order as in `stemma serve`.
  rig.app->close();
  rig.scheduler->stop();
  rig.app->end_streams();
  asks.join();
  const replay::Trace trace = recording.trace();
  ASSERT_EQ(trace.requests.size(), 1U) << "what was cut off is there, too";
  EXPECT_EQ(trace.requests[0].finish, FinishReason::cancelled);
  EXPECT_EQ(trace.block_tokens, 512U);
  EXPECT_EQ(rig.get("/cache/trace").status, 503);
}

TEST(AppTrace, ReadersThatGoMakeRoom) {
  ServerRig rig;
  std::vector<Recording> all;
  for (uint32_t i = 0; i < 4; ++i) all.emplace_back(rig, "");
  EXPECT_EQ(error_code(rig.get("/cache/trace"), 503), "overloaded");
  all[1].abort();
  EXPECT_TRUE(becomes_true([&] {
    Recording one(rig, "");
    if (one.head.status != 200) return false;
    one.end(rig);
    EXPECT_EQ(one.text(), "{\"stemma_trace\":1,\"block_tokens\":512}\n{\"end\":0}\n");
    return true;
  }));
  // Other clients have not noticed.
  ASSERT_EQ(rig.post(kCompletions, completion(letters(64, 1), 1)).status, 200);
  all[3].end(rig);
  EXPECT_EQ(all[3].trace().requests.size(), 1U);
}

TEST(AppTrace, WrongCallsAreNamed) {
  ServerRigOptions options;
  options.app.api_key = "secret";
  ServerRig rig(options);
  EXPECT_EQ(rig.get("/cache/trace").status, 401);
  EXPECT_EQ(rig.post("/cache/trace/end?recording=1", Json()).status, 401);
  const test::HttpFields key = {{"Authorization", "Bearer secret"}};
  for (const char* wrong : {"0", "15", "1025", "many", "16x", "-16", ""}) {
    const auto answer = rig.get(std::string("/cache/trace?block_tokens=") + wrong, key);
    EXPECT_EQ(error_code(answer, 400), "invalid_value") << wrong;
  }
  for (const char* wrong : {"?recording=7", "", "?recording=x"}) {
    const auto answer = rig.post(std::string("/cache/trace/end") + wrong, Json(), key);
    EXPECT_EQ(error_code(answer, 404), "not_found") << wrong;
  }
  EXPECT_EQ(rig.post("/cache/trace", Json(), key).status, 405);
  HttpClient client = rig.client();
  client.send(test::request_text("HEAD", "/cache/trace", "", key));
  EXPECT_EQ(client.read_answer(true).status, 200);
}

TEST(AppTrace, AQuietRecordingStaysAndSaysSo) {
  ServerRigOptions options;
  options.app.keep_alive = 50ms;
  ServerRig rig(options);
  Recording recording(rig, "");
  std::string text = recording.text_until("}\n\n");
  ASSERT_EQ(rig.post(kCompletions, completion(letters(64, 1), 1)).status, 200);
  recording.end(rig);
  text += recording.text();
  EXPECT_NE(text.find("}\n\n"), std::string::npos) << text;
  replay::Trace trace;
  replay::LoadReport report;
  EXPECT_EQ(replay::load_trace(*replay::ByteSource::of(text), {}, trace, report), "");
}

}  // namespace
}  // namespace stemma::server
