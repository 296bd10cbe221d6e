// Clients that ask for much, or have no right to ask: what they cost other clients, and how they
// are refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/app.h"
#include "support/server_rig.h"

namespace stemma::server {
namespace crowd {
namespace {

using test::becomes_true;
using test::completion;
using test::conversation;
using test::error_code;
using test::FakeModel;
using test::HttpAnswer;
using test::HttpClient;
using test::json;
using test::Json;
using test::letters;
using test::request_text;
using test::ServerRig;
using test::ServerRigOptions;

constexpr const char* kCompletions = "/v1/completions";

// A prompt whose body counts as large, and fits into the context.
std::string large_prompt(uint64_t seed) { return letters(100'000, seed); }
ServerRigOptions roomy() { return ServerRigOptions::endless(); }

std::string head_of(std::string_view method, std::string_view path, const std::string& more) {
  return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + more + "\r\n";
}

// ---- Before the body ----------------------------------------------------------------------------

TEST(AppCrowd, RefusalsThatTheHeadDecidesDoNotWaitForTheBody) {
  ServerRigOptions options;
  options.app.api_key = "secret";
  ServerRig rig(options);
  const std::string body = "Content-Length: 60000000\r\n";
  const std::string key = "Authorization: Bearer secret\r\n";
  struct Case {
    std::string head;
    int status;
    const char* code;
  };
  for (const Case& each : std::vector<Case>{
           {head_of("POST", kCompletions, body), 401, "invalid_api_key"},
           {head_of("POST", kCompletions, body + "Expect: 100-continue\r\n"), 401,
            "invalid_api_key"},
           {head_of("POST", kCompletions, "Transfer-Encoding: chunked\r\n"), 401,
            "invalid_api_key"},
           {head_of("POST", kCompletions, body + "X-Api-Key: secreT\r\n"), 401, "invalid_api_key"},
           {head_of("POST", "/nowhere", key + body), 404, "not_found"},
           {head_of("PUT", kCompletions, key + body), 405, "method_not_allowed"},
       }) {
    HttpClient client = rig.client();
    ASSERT_TRUE(client.send(each.head));
    const HttpAnswer answer = client.read_answer(false, HttpClient::Interim::show);
    EXPECT_EQ(error_code(answer, each.status), each.code) << each.head;
    EXPECT_EQ(answer.header("connection"), "close");
  }
  // With the key, the server asks for the body and reads it.
  HttpClient client = rig.client();
  const std::string text = completion("abc", 2).dump();
  client.send(head_of(
      "POST", kCompletions,
      key + "Expect: 100-continue\r\nContent-Length: " + std::to_string(text.size()) + "\r\n"));
  EXPECT_EQ(client.read_answer(false, HttpClient::Interim::show).status, 100);
  client.send(text);
  EXPECT_EQ(client.read_answer().status, 200);
}

// ---- Work that takes long -----------------------------------------------------------------------

TEST(AppCrowd, SmallRequestsDoNotWaitBehindLargeOnes) {
  ServerRig rig(roomy());
  FakeModel::TextHold hold(rig.model, 100'000);
  std::vector<HttpClient> heavy;
  for (uint32_t i = 0; i < 4; ++i) {
    heavy.push_back(rig.client());
    ASSERT_TRUE(heavy.back().send(
        request_text("POST", kCompletions, completion(large_prompt(i), 1).dump())));
  }
  ASSERT_TRUE(hold.wait(1));
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2)).status, 200);
  EXPECT_EQ(rig.post("/tokenize", {{"content", "abc"}}).status, 200);
  hold.let_go();
  for (HttpClient& each : heavy) EXPECT_EQ(each.read_answer().status, 200);
  rig.expect_quiet();
}

TEST(AppCrowd, WhatWaitsForTheEngineHoldsNoRequestUp) {
  ServerRig rig;
  FakeModel::Hold pass(rig.model);
  HttpClient first = rig.client();
  first.send(request_text("POST", kCompletions, completion("abc", 2).dump()));
  ASSERT_TRUE(pass.wait());
  std::vector<HttpClient> errands;
  for (uint32_t i = 0; i < 4; ++i) {
    errands.push_back(rig.client());
    ASSERT_TRUE(errands.back().send(request_text("POST", "/cache/reset", "{}")));
  }
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().requests == 5; }));
  EXPECT_EQ(rig.post("/tokenize", {{"content", "abc"}}).status, 200);
  pass.let_go();
  for (HttpClient& each : errands) EXPECT_EQ(each.read_answer().status, 200);
  EXPECT_EQ(first.read_answer().status, 200);
}

TEST(AppCrowd, WorkForClientsThatLeftIsNotDone) {
  ServerRig rig(roomy());
  const uint32_t before = rig.model.texts;
  FakeModel::TextHold hold(rig.model, 100'000);
  std::vector<HttpClient> heavy;
  for (uint32_t i = 0; i < 6; ++i) {
    heavy.push_back(rig.client());
    heavy.back().send(request_text("POST", kCompletions, completion(large_prompt(i), 1).dump()));
  }
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().requests == 6; }));
  ASSERT_TRUE(hold.wait(1));
  for (HttpClient& each : heavy) each.abort();
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().gone == 6; }));
  hold.let_go();
  EXPECT_EQ(rig.post(kCompletions, completion(large_prompt(7), 1)).status, 200);
  // The prompt that was being tokenised, and the last one.
  EXPECT_LE(rig.model.texts, before + 2);
  rig.expect_quiet();
}

// ---- What cannot be answered --------------------------------------------------------------------

TEST(AppCrowd, PromptsThatCannotFitAreNotTokenised) {
  ServerRig rig;  // 1024 tokens, none of them longer than 12 bytes.
  const uint32_t before = rig.model.texts;
  const std::string text = letters(20'000, 1);
  EXPECT_EQ(error_code(rig.post(kCompletions, completion(text, 5)), 400),
            "context_length_exceeded");
  EXPECT_EQ(error_code(rig.post("/v1/chat/completions", conversation({{"user", text}}, 5)), 400),
            "context_length_exceeded");
  EXPECT_EQ(error_code(rig.post("/cache/warm", {{"prompt", text}}), 400),
            "context_length_exceeded");
  EXPECT_EQ(rig.model.texts, before);
  // A long text may consist of special tokens only.
  std::string marks;
  for (int i = 0; i < 900; ++i) marks += "<|im_start|>";
  EXPECT_EQ(rig.post(kCompletions, completion(marks, 5)).status, 200);
}

TEST(AppCrowd, LaneThatIsFullSaysWhenToComeAgain) {
  ServerRigOptions options = roomy();
  options.app.jobs.most_waiting = 1;
  ServerRig rig(options);
  FakeModel::TextHold hold(rig.model, 100'000);
  std::vector<HttpClient> heavy;
  const auto ask = [&](const test::HttpFields& headers = {}) {
    heavy.push_back(rig.client());
    heavy.back().send(
        request_text("POST", kCompletions, completion(large_prompt(1), 1).dump(), headers));
  };
  ask();
  ASSERT_TRUE(hold.wait(1));
  ask();
  const auto says = [&](const std::string& line) {
    return rig.get("/metrics").body.find("\n" + line + "\n") != std::string::npos;
  };
  ASSERT_TRUE(becomes_true([&] { return says("stemma_jobs_waiting{lane=\"large\"} 1"); }));
  // One is being read, one waits. A client that retries counts only once.
  for (const char* tried : {"0", "1", "2"}) {
    ask({{"X-Stainless-Retry-Count", tried}});
    const HttpAnswer answer = heavy.back().read_answer();
    EXPECT_EQ(error_code(answer, 503), "overloaded");
    EXPECT_EQ(answer.header("retry-after"), "1");
  }
  EXPECT_TRUE(says("stemma_jobs_waiting{lane=\"large\"} 1"));
  EXPECT_TRUE(says("stemma_jobs_refused_total{lane=\"large\"} 3"));
  EXPECT_TRUE(says("stemma_requests_refused_total 1"));
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 1)).status, 200) << "small ones are served";
  hold.let_go();
  EXPECT_EQ(heavy[0].read_answer().status, 200);
  EXPECT_EQ(heavy[1].read_answer().status, 200);
}

TEST(AppCrowd, AnswersAboutTextHaveALimit) {
  ServerRigOptions options;
  options.app.answer_bytes = 1000;
  options.app.text_bytes = 2000;
  ServerRig rig(options);
  const auto tokenize = [&](size_t bytes, bool pieces) {
    return rig.post("/tokenize", {{"content", std::string(bytes, 'a')}, {"with_pieces", pieces}});
  };
  EXPECT_EQ(tokenize(40, true).status, 200);  // {"id":97,"piece":"a"}, has 22 bytes.
  EXPECT_EQ(error_code(tokenize(50, true), 400), "answer_too_large");
  EXPECT_EQ(tokenize(300, false).status, 200);
  EXPECT_EQ(error_code(tokenize(400, false), 400), "answer_too_large");
  EXPECT_EQ(error_code(tokenize(2001, false), 413), "text_too_large");
  EXPECT_EQ(error_code(rig.post("/detokenize", {{"tokens", std::vector<int>(1001, 97)}}), 400),
            "answer_too_large");
  EXPECT_EQ(
      error_code(rig.post("/apply-template",
                          {{"messages", {{{"role", "user"}, {"content", letters(1000, 1)}}}}}),
                 400),
      "answer_too_large");
}

TEST(AppCrowd, CompletionsThatTakeTooMuchMemoryEndAndSaySo) {
  ServerRigOptions options = ServerRigOptions::endless();
  options.app.answer_bytes = 200'000;
  ServerRig rig(options);
  // Logprobs of an endless answer, and those of a prompt once for every choice.
  const Json bodies[] = {
      completion("abc", ServerRigOptions::kEndless, {{"ignore_eos", true}, {"logprobs", 5}}),
      completion(letters(60, 1), 1, {{"n", 128}, {"logprobs", 5}, {"echo", true}})};
  for (const Json& body : bodies) {
    EXPECT_EQ(error_code(rig.post(kCompletions, body), 400), "answer_too_large");
    rig.expect_quiet();
  }
  EXPECT_EQ(rig.scheduler->stats().cancelled + rig.scheduler->stats().completed, 2U);
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2, {{"n", 2}, {"logprobs", 5}})).status, 200);
}

// ---- What the operator sees ---------------------------------------------------------------------

TEST(AppCrowd, EveryAnswerHasItsRequestId) {
  ServerRig rig;
  const auto id = [&](const std::string& given) {
    return rig.get("/health", {{"X-Request-Id", given}}).header("x-request-id");
  };
  EXPECT_EQ(id("build-7/step:3"), "build-7/step:3");
  // Characters that could confuse a log are replaced.
  for (const std::string& strange :
       {std::string("a b"), std::string("a\"b"), std::string(129, 'a')}) {
    EXPECT_EQ(id(strange).size(), 32U);
    EXPECT_NE(id(strange), id(strange));
  }
  const test::HttpFields mine = {{"X-Request-Id", "mine"}};
  EXPECT_EQ(rig.get("/nowhere", mine).header("x-request-id"), "mine");
  EXPECT_EQ(rig.client().post("/nowhere", "{}", mine).header("x-request-id"), "mine");
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2), mine).header("x-request-id"), "mine");
  EXPECT_EQ(
      rig.post(kCompletions, completion("abc", 2, {{"stream", true}}), mine).header("x-request-id"),
      "mine");
  HttpClient wrong = rig.client();
  wrong.send("nonsense\r\n\r\n");
  EXPECT_EQ(wrong.read_answer().header("x-request-id").size(), 32U);
}

TEST(AppCrowd, EveryStatusIsCountedAndLogged) {
  ServerRigOptions options;
  options.app.api_key = "secret";
  options.http.body_bytes = 5000;
  ServerRig rig(options);
  const test::HttpFields key = {{"Authorization", "Bearer secret"}, {"X-Request-Id", "mine"}};
  const auto counted = [&](const std::string& route, int status) {
    const std::string line = "\nstemma_http_responses_total{route=\"" + route + "\",status=\"" +
                             std::to_string(status) + "\"} 1\n";
    return rig.get("/metrics", key).body.find(line) != std::string::npos;
  };
  // Reads the last line of the log, which is written before the client can know.
  const auto logged = [&](const std::string& text) {
    const std::vector<std::string> log = rig.log();
    return !log.empty() && log.back().find(text) != std::string::npos &&
           log.back().find(" client=127.0.0.1:") != std::string::npos;
  };
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2)).status, 401);
  EXPECT_TRUE(counted(kCompletions, 401));
  EXPECT_TRUE(logged("path=/v1/completions method=POST status=401"));
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2, {{"tools", "x"}}), key).status, 400);
  EXPECT_TRUE(counted(kCompletions, 400));
  EXPECT_TRUE(logged("status=400"));
  EXPECT_TRUE(logged("request_id=mine error=\"Unsupported parameter: 'tools'")) << rig.log().back();
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 2), key).status, 200);
  EXPECT_TRUE(counted(kCompletions, 200));
  EXPECT_TRUE(logged("status=200 prompt=4"));
  EXPECT_TRUE(logged("request_id=mine"));
  EXPECT_EQ(rig.post("/nowhere%0aelse", Json::object(), key).status, 404);
  EXPECT_TRUE(counted("other", 404));
  EXPECT_TRUE(logged("path=/nowhere?else method=POST status=404"));
  EXPECT_EQ(rig.post("/tokenize", {{"content", letters(6000, 1)}}, key).status, 413);
  EXPECT_TRUE(counted("/tokenize", 413));
  EXPECT_TRUE(logged("path=/tokenize method=POST status=413"));
  HttpClient wrong = rig.client();
  wrong.send("nonsense\r\n\r\n");
  EXPECT_EQ(wrong.read_answer().status, 400);
  EXPECT_TRUE(counted("other", 400));
  EXPECT_EQ(rig.get("/props", key).status, 200);
  EXPECT_TRUE(logged("path=/props method=GET status=200"));
  // Health checks do not fill the log.
  EXPECT_EQ(rig.get("/health").status, 200);
  EXPECT_TRUE(counted("/health", 200));
  EXPECT_TRUE(logged("path=/props"));
}

TEST(AppCrowd, ClientThatDoesNotWaitForItsAnswerIsA499) {
  ServerRig rig(roomy());
  FakeModel::TextHold hold(rig.model, 100'000);
  HttpClient client = rig.client();
  client.send(request_text("POST", kCompletions, completion(large_prompt(1), 1).dump()));
  ASSERT_TRUE(hold.wait(1));
  client.abort();
  ASSERT_TRUE(becomes_true([&] { return rig.http->counters().gone == 1; }));
  EXPECT_NE(rig.get("/metrics").body.find("route=\"/v1/completions\",status=\"499\"} 1\n"),
            std::string::npos);
}

// ---- Pages of other sites -----------------------------------------------------------------------

TEST(AppCrowd, PagesOfOtherSitesDoNotReachTheCacheWithoutAKey) {
  ServerRig rig;
  const auto status = [&](const std::string& head, const char* path = "/cache/reset",
                          const char* method = "POST") {
    HttpClient client = rig.client();
    const bool posts = std::string_view(method) == "POST";
    client.send(std::string(method) + " " + path + " HTTP/1.1\r\n" + head +
                (posts ? "Content-Length: 2\r\n\r\n{}" : "\r\n"));
    return client.read_answer().status;
  };
  const std::string local = "Host: 127.0.0.1:8080\r\n";
  const std::string browser = "User-Agent: Mozilla/5.0\r\n";
  const std::string form = "Content-Type: text/plain\r\n";
  // A page posts blindly: browsers tell which site the page is from.
  EXPECT_EQ(status(local + form + "Origin: https://evil.example\r\n"), 403);
  EXPECT_EQ(status(local + form + "Origin: null\r\n"), 403);
  EXPECT_EQ(status(local + "Origin: http://127.0.0.1:3000\r\n"), 403) << "another server's page";
  EXPECT_EQ(status(local + "Sec-Fetch-Site: cross-site\r\n"), 403);
  EXPECT_EQ(status(local + "Origin: https://evil.example\r\n", "/reset_prefix_cache"), 403);
  // The page's own host name points to this machine.
  EXPECT_EQ(status("Host: evil.example:8080\r\nOrigin: http://evil.example:8080\r\n"), 403);
  EXPECT_EQ(status("Host: evil.example\r\n" + browser, "/cache/entries", "GET"), 403);
  // The page only embeds the address as a picture.
  EXPECT_EQ(status(local + "Sec-Fetch-Site: cross-site\r\n", "/cache/trace", "GET"), 403);
  // A browser that names no site, with body types that any page may post.
  EXPECT_EQ(status(local + browser + form), 403);
  EXPECT_EQ(status(local + browser + "Content-Type: application/x-www-form-urlencoded\r\n"), 403);
  // Our own page, programs, and the operator who types the address.
  EXPECT_EQ(status(local + "Origin: http://127.0.0.1:8080\r\n"), 200);
  EXPECT_EQ(status("Host: LocalHost:8080\r\nOrigin: http://localhost:8080\r\n"), 200);
  EXPECT_EQ(status("Host: [::1]:8080\r\nOrigin: http://[::1]:8080\r\n"), 200);
  EXPECT_EQ(status("Host: gpu7:8080\r\nUser-Agent: curl/8\r\n"
                   "Content-Type: application/x-www-form-urlencoded\r\n"),
            200);
  EXPECT_EQ(status(local + browser + "Sec-Fetch-Site: none\r\n", "/cache", "GET"), 200);
  // Other routes do not check this.
  EXPECT_EQ(status(local + "Origin: https://evil.example\r\n", "/health", "GET"), 200);
}

TEST(AppCrowd, NamedPagesAndKeysReachTheCache) {
  ServerRigOptions options;
  options.app.site = {.cors_origin = "https://console.example", .host = "gpu7"};
  {
    ServerRig rig(options);
    const auto status = [&](const test::HttpFields& headers) {
      return rig.post("/cache/reset", Json::object(), headers).status;
    };
    EXPECT_EQ(status({{"Origin", "https://console.example"}}), 200);
    EXPECT_EQ(status({{"Origin", "https://evil.example"}}), 403);
    EXPECT_TRUE(is_own_host("GPU7:8080", "gpu7"));
    EXPECT_FALSE(is_own_host("gpu7.evil.example", "gpu7"));
    EXPECT_FALSE(is_own_host("notlocalhost", ""));
    EXPECT_TRUE(is_own_host("a.localhost", ""));
    EXPECT_FALSE(is_own_host("", ""));
  }
  options.app.site = {};
  options.app.api_key = "secret";
  ServerRig rig(options);
  EXPECT_EQ(rig.post("/cache/reset", Json::object(),
                     {{"Origin", "https://console.example"}, {"X-Api-Key", "secret"}})
                .status,
            200);
}

TEST(AppCrowd, WhetherASaltIsInUseIsNotTold) {
  ServerRig rig;
  const auto miss = [&](const std::string& prompt, const std::string& salt) {
    return json(
        rig.post(kCompletions, completion(prompt, 1, {{"cache_salt", salt}})))["stemma"]["miss"];
  };
  EXPECT_EQ(miss("abc", "in use"), "first_use");
  EXPECT_EQ(miss("xyz", "in use"), "first_use");
  EXPECT_EQ(miss("xyz", "a guess"), "first_use");
}

}  // namespace
}  // namespace crowd
}  // namespace stemma::server
