// Tests the routes over real connections: the answer of each, who has access, and what happens to
// clients that are too many or ask for too much. app_cache_test.cc has /cache, app_clients_test.cc
// has clients that leave.
#include "server/app.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "support/server_rig.h"

namespace stemma::server {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::completion;
using test::conversation;
using test::error_code;
using test::HttpAnswer;
using test::HttpClient;
using test::Json;
using test::json;
using test::kChat;
using test::kCompletions;
using test::letters;
using test::ServerRig;
using test::ServerRigOptions;
using test::StreamAnswer;

// ---- Every route --------------------------------------------------------------------------------

TEST(App, EveryRouteAnswers) {
  ServerRig rig;
  rig.model.change_info().embedding_width = 4;
  rig.model.change_info().embedding_tokens = 8;
  const Json text = completion("abc", 2);
  const Json talk = conversation({{"user", "abc"}}, 2);
  const Json messages = {{"messages", talk["messages"]}};
  struct Call {
    const char* method;
    const char* path;
    Json body;
  };
  for (const Call& call : std::vector<Call>{{"GET", "/health", {}},
                                            {"GET", "/ready", {}},
                                            {"GET", "/v1/models", {}},
                                            {"GET", "/v1/models/", {}},
                                            {"GET", "/v1/models/fake", {}},
                                            {"GET", "/models", {}},
                                            {"GET", "/props", {}},
                                            {"GET", "/slots", {}},
                                            {"POST", "/v1/chat/completions", talk},
                                            {"POST", "/chat/completions", talk},
                                            {"POST", "/v1/completions", text},
                                            {"POST", "/v1/completions/", text},
                                            {"POST", "/completions", text},
                                            {"POST", "/v1/embeddings", {{"input", "abc"}}},
                                            {"POST", "/tokenize", {{"content", "abc"}}},
                                            {"POST", "/detokenize", {{"tokens", {97}}}},
                                            {"POST", "/apply-template", messages},
                                            {"GET", "/cache", {}},
                                            {"GET", "/cache/entries", {}},
                                            {"POST", "/cache/reset", Json::object()},
                                            {"POST", "/reset_prefix_cache", Json::object()},
                                            {"POST", "/cache/save", Json::object()},
                                            {"POST", "/cache/warm", {{"prompt", "abc"}}},
                                            {"POST", "/cache/pin", messages},
                                            {"POST", "/cache/truncate", messages},
                                            {"POST", "/cache/purge", {{"cache_salt", "a"}}}}) {
    SCOPED_TRACE(call.path);
    const bool reads = std::string_view(call.method) == "GET";
    const HttpAnswer answer = reads ? rig.get(call.path) : rig.post(call.path, call.body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_FALSE(json(answer).is_discarded()) << answer.body;
    // The error names the other method.
    const HttpAnswer wrong = reads ? rig.post(call.path, text) : rig.get(call.path);
    EXPECT_EQ(error_code(wrong, 405), "method_not_allowed");
    EXPECT_EQ(wrong.header("allow"), call.method);
    if (reads) {
      HttpClient client = rig.client();
      client.send(test::request_text("HEAD", call.path));
      const HttpAnswer head = client.read_answer(true);
      EXPECT_EQ(head.status, 200);
      EXPECT_EQ(head.body, "");
    }
  }
  const HttpAnswer metrics = rig.get("/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* path :
       {"/", "/v1", "/v1/chat", "/v2/completions", "/cache/", "/cache/x", "/v1/models/x/y"}) {
    if (std::string_view(path) == "/cache/") continue;
    const std::string code = error_code(rig.get(path), 404);
    EXPECT_TRUE(code == "not_found" || code == "model_not_found") << path << ": " << code;
  }
  rig.expect_quiet();
}

TEST(App, BanningEveryTokenIsTheRequestsFault) {
  ServerRig rig;
  Json request = completion("abc", 2);
  for (uint32_t token = 0; token < test::FakeModel::kVocabulary; ++token) {
    request["logit_bias"][std::to_string(token)] = -100;
  }
  const HttpAnswer answer = rig.post(kCompletions, request);
  EXPECT_EQ(error_code(answer, 400), "no_token_possible");
  const Json error = json(answer)["error"];
  EXPECT_EQ(error["param"], "logit_bias");
  EXPECT_EQ(error["message"], "no token may follow: logit_bias bans all that the model could say");
}

TEST(App, WordsThereAndBack) {
  ServerRig rig;
  const Json tokens =
      json(rig.post("/tokenize", {{"content", "a<|im_end|>"}, {"add_special", true}}));
  EXPECT_EQ(tokens["tokens"], Json({256, 97, 258}));
  EXPECT_EQ(json(rig.post("/tokenize", {{"content", "a<"}, {"with_pieces", true}}))["tokens"],
            Json::parse(R"([{"id":97,"piece":"a"},{"id":60,"piece":"<"}])"));
  EXPECT_EQ(json(rig.post("/detokenize", tokens))["content"], "<|bos|>a<|im_end|>");
  EXPECT_EQ(rig.post("/detokenize", {{"tokens", {259}}}).status, 400);
  EXPECT_EQ(
      json(rig.post("/apply-template",
                    {{"messages", Json::parse(R"([{"role":"user","content":"Hi"}])")}}))["prompt"],
      "<|bos|>" + ServerRig::rendered({{"user", "Hi"}}));
}

TEST(App, SaysWhatItServes) {
  ServerRigOptions options;
  options.app.alias = "my model";
  ServerRig rig(options);
  EXPECT_EQ(json(rig.get("/v1/models"))["data"][0]["id"], "my model");
  EXPECT_EQ(json(rig.get("/v1/models/my%20model"))["id"], "my model");
  EXPECT_EQ(error_code(rig.get("/v1/models/fake"), 404), "model_not_found");
  const Json props = json(rig.get("/props"));
  EXPECT_EQ(props["model_alias"], "my model");
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1024);
  EXPECT_EQ(props["bos_token"], "<|bos|>");
  EXPECT_EQ(props["chat_template"], rig.model.info().chat_template);
  const Json slots = json(rig.get("/slots"));
  ASSERT_EQ(slots.size(), 4U);
  for (const Json& slot : slots) {
    EXPECT_EQ(slot["state"], "free");
    EXPECT_EQ(slot["is_processing"], false);
  }
}

TEST(App, PropsSayWhichDevicesCompute) {
  EXPECT_EQ(json(ServerRig().get("/props"))["placement"],
            Json::parse(R"({"device":"CPU","layers":0,"gpu_layers":0,"gpus":[],"why_cpu":""})"));
  ServerRigOptions options;
  options.placement = {.gpus = {{"CUDA0", "NVIDIA \"H200\"", 5, 9}, {"CUDA1", "", 0, 0}},
                       .gpu_layers = 32,
                       .layers = 33,
                       .why_cpu = ""};
  EXPECT_EQ(json(ServerRig(options).get("/props"))["placement"], Json::parse(R"({
    "device": "GPU", "layers": 33, "gpu_layers": 32, "why_cpu": "", "gpus": [
      {"name": "CUDA0", "description": "NVIDIA \"H200\"", "free_bytes": 5, "total_bytes": 9},
      {"name": "CUDA1", "description": "", "free_bytes": 0, "total_bytes": 0}]})"));
}

TEST(App, UnknownModelsAreNotFound) {
  ServerRig rig;
  const Json other = {{"model", "other"}};
  EXPECT_EQ(error_code(rig.post(kCompletions, completion("a", 1, other)), 404), "model_not_found");
  EXPECT_EQ(error_code(rig.post(kChat, conversation({{"user", "a"}}, 1, other)), 404),
            "model_not_found");
  EXPECT_EQ(error_code(rig.post("/tokenize", {{"content", "a"}, {"model", "other"}}), 404),
            "model_not_found");
  EXPECT_EQ(error_code(rig.post("/cache/warm", {{"prompt", "a"}, {"model", "other"}}), 404),
            "model_not_found");
  EXPECT_EQ(rig.post(kCompletions, completion("a", 1, {{"model", "fake"}})).status, 200);
}

// ---- Keys ---------------------------------------------------------------------------------------

TEST(App, KeyIsAskedForEverywhereButWhereOperatorsLook) {
  ServerRigOptions options;
  options.app.api_key = "secret";
  ServerRig rig(options);
  for (const char* open : {"/health", "/ready"}) EXPECT_EQ(rig.get(open).status, 200) << open;
  for (const char* closed :
       {"/v1/models", "/models", "/props", "/slots", "/metrics", "/cache", "/cache/entries"}) {
    const HttpAnswer answer = rig.get(closed);
    EXPECT_EQ(error_code(answer, 401), "invalid_api_key") << closed;
    EXPECT_EQ(answer.header("www-authenticate"), "Bearer");
    EXPECT_EQ(rig.get(closed, {{"Authorization", "Bearer secret"}}).status, 200) << closed;
  }
  for (const char* closed :
       {kChat, "/chat/completions", kCompletions, "/completions", "/tokenize", "/detokenize",
        "/apply-template", "/cache/reset", "/reset_prefix_cache", "/cache/save", "/cache/warm",
        "/cache/pin", "/cache/truncate", "/cache/purge"}) {
    EXPECT_EQ(error_code(rig.post(closed, completion("a", 1)), 401), "invalid_api_key") << closed;
  }
  const auto status = [&](const char* name, const char* value) {
    return rig.post(kCompletions, completion("a", 1), {{name, value}}).status;
  };
  EXPECT_EQ(status("Authorization", "Bearer secret"), 200);
  EXPECT_EQ(status("authorization", "bearer secret"), 200);
  EXPECT_EQ(status("X-Api-Key", "secret"), 200);
  for (const char* wrong :
       {"", "s", "secre", "secrets", "secretsecret", "Secret", "secret\t\"", "terces"}) {
    EXPECT_EQ(status("Authorization", (std::string("Bearer ") + wrong).c_str()), 401) << wrong;
    EXPECT_EQ(status("X-Api-Key", wrong), 401) << wrong;
  }
  EXPECT_EQ(status("Authorization", "secret"), 401);
  EXPECT_EQ(status("Authorization", "Basic secret"), 401);
  // Unknown routes answer 404 even without a key.
  EXPECT_EQ(rig.get("/nowhere").status, 404);
}

TEST(App, WithoutAKeyAnyKeyWillDo) {
  ServerRig rig;
  EXPECT_EQ(rig.get("/v1/models", {{"Authorization", "Bearer anything"}}).status, 200);
}

// ---- Completions --------------------------------------------------------------------------------

TEST(App, AnswersAreTheModelsWholeAndStreamed) {
  ServerRig rig;
  for (const bool ends : {false, true}) {
    const std::string prompt = rig.prompt_with(40, !ends);
    const std::string right = rig.expected(prompt, 40);
    const Json whole = json(rig.post(kCompletions, completion(prompt, 40)));
    EXPECT_EQ(whole["object"], "text_completion");
    EXPECT_EQ(whole["choices"][0]["text"], right);
    EXPECT_EQ(whole["choices"][0]["finish_reason"], ends ? "stop" : "length");
    EXPECT_EQ(whole["usage"]["prompt_tokens"], prompt.size() + 1);
    EXPECT_EQ(whole["usage"]["completion_tokens"], right.size() + (ends ? 1 : 0));
    const StreamAnswer streamed =
        rig.stream(kCompletions, completion(prompt, 40, {{"stream", true}}));
    EXPECT_EQ(streamed.text(), right);
    EXPECT_TRUE(streamed.done && streamed.complete);
  }
  const std::vector<std::pair<std::string, std::string>> talk = {{"system", "s"}, {"user", "u"}};
  const std::string right = rig.expected(ServerRig::rendered(talk), 20);
  const Json whole = json(rig.post(kChat, conversation(talk, 20)));
  EXPECT_EQ(whole["object"], "chat.completion");
  EXPECT_EQ(whole["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(whole["choices"][0]["message"]["content"], right);
  EXPECT_EQ(rig.stream(kChat, conversation(talk, 20, {{"stream", true}})).text(), right);
  // The first prompt was computed, the second one found.
  EXPECT_EQ(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 1) << "the BOS";
  const Json again = json(rig.post(kChat, conversation(talk, 20)));
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"],
            again["usage"]["prompt_tokens"].get<uint64_t>() - 1);
  rig.expect_quiet();
}

TEST(App, StreamHasItsEventsInOrder) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(10, true);
  for (const bool usage : {false, true}) {
    Json more = {{"stream", true}};
    if (usage) more["stream_options"] = {{"include_usage", true}};
    const StreamAnswer chat = rig.stream(kChat, conversation({{"user", prompt}}, 10, more));
    EXPECT_EQ(chat.head.status, 200);
    EXPECT_EQ(chat.head.header("cache-control"), "no-cache");
    ASSERT_TRUE(chat.done && chat.complete);
    ASSERT_GE(chat.events.size(), 3U);
    EXPECT_EQ(chat.events[0]["choices"][0]["delta"]["role"], "assistant");
    std::set<std::string> ids;
    const size_t last = chat.events.size() - (usage ? 2 : 1);
    for (size_t i = 0; i <= last; ++i) {
      const Json& event = chat.events[i];
      ids.insert(event["id"].get<std::string>());
      EXPECT_EQ(event["object"], "chat.completion.chunk");
      EXPECT_EQ(event["choices"][0]["finish_reason"].is_null(), i != last);
    }
    EXPECT_EQ(ids.size(), 1U);
    EXPECT_TRUE(chat.events[last].contains("timings"));
    EXPECT_TRUE(chat.events[last].contains("stemma"));
    if (usage) {
      EXPECT_EQ(chat.events.back()["choices"], Json::array());
      EXPECT_EQ(chat.events.back()["usage"]["completion_tokens"],
                chat.events[last]["choices"][0]["finish_reason"] == "length"
                    ? 10U
                    : chat.text().size() + 1);
    }
  }
}

TEST(App, ChoicesAreNumberedAndWhole) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(12, true);
  const Json more = {{"n", 3}, {"temperature", 1}, {"seed", 5}};
  const Json whole = json(rig.post(kCompletions, completion(prompt, 12, more)));
  ASSERT_EQ(whole["choices"].size(), 3U);
  std::set<std::string> texts;
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    texts.insert(whole["choices"][i]["text"].get<std::string>());
  }
  EXPECT_EQ(texts.size(), 3U);
  Json streaming = more;
  streaming["stream"] = true;
  const StreamAnswer streamed = rig.stream(kCompletions, completion(prompt, 12, streaming));
  ASSERT_TRUE(streamed.done);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["text"], streamed.text(i)) << "equal seeds, equal answers";
  }
  rig.expect_quiet();
}

TEST(App, ChoicesOfAPromptWhoseLogitsAreKeptAllAnswer) {
  ServerRigOptions options;
  options.scheduler.cache.logits_bytes = 1U << 20U;
  ServerRig rig(options);
  const std::string prompt = rig.prompt_with(5, true);
  ASSERT_EQ(rig.post(kCompletions, completion(prompt, 5)).status, 200);
  HttpClient client = rig.client();
  const Json whole = json(client.post(kCompletions, completion(prompt, 5, {{"n", 3}}).dump()));
  ASSERT_EQ(whole["choices"].size(), 3U);
  for (const Json& choice : whole["choices"]) EXPECT_EQ(choice["text"], rig.expected(prompt, 5));
  rig.expect_quiet();
}

TEST(App, LogprobsComeWithEveryToken) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(6, true);
  const std::string right = rig.expected(prompt, 6);
  const Json plain = json(rig.post(kCompletions, completion(prompt, 6, {{"logprobs", 2}})));
  const Json& logprobs = plain["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), 6U);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(logprobs["tokens"][i], right.substr(i, 1));
    EXPECT_EQ(logprobs["text_offset"][i], i);
    EXPECT_LE(logprobs["token_logprobs"][i].get<double>(), 0);
    EXPECT_LE(logprobs["top_logprobs"][i].size(), 3U);
  }
  const Json more = {{"logprobs", true}, {"top_logprobs", 2}, {"stream", true}};
  const StreamAnswer chat = rig.stream(kChat, conversation({{"user", prompt}}, 6, more));
  std::string said;
  for (const Json& event : chat.events) {
    const Json& choice = event["choices"][0];
    if (!choice.contains("logprobs") || choice["logprobs"].is_null()) continue;
    for (const Json& each : choice["logprobs"]["content"]) {
      said += each["token"].get<std::string>();
      EXPECT_EQ(each["top_logprobs"].size(), 2U);
    }
  }
  EXPECT_EQ(said, chat.text());
  EXPECT_FALSE(said.empty());
}

TEST(App, EchoComesFirst) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(4, true);
  const std::string right = prompt + rig.expected(prompt, 4);
  EXPECT_EQ(
      json(rig.post(kCompletions, completion(prompt, 4, {{"echo", true}})))["choices"][0]["text"],
      right);
  EXPECT_EQ(
      rig.stream(kCompletions, completion(prompt, 4, {{"echo", true}, {"stream", true}})).text(),
      right);
  // The same for a prompt in tokens.
  Json tokens = {256};
  for (const char c : prompt) tokens.push_back(static_cast<int>(c));
  Json body = completion("", 4, {{"echo", true}});
  body["prompt"] = tokens;
  EXPECT_EQ(json(rig.post(kCompletions, body))["choices"][0]["text"], right);
}

TEST(App, StopTextsEndAnswers) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(12, true);
  const std::string right = rig.expected(prompt, 12);
  const std::string stop = right.substr(5, 2);
  const Json whole = json(rig.post(kCompletions, completion(prompt, 12, {{"stop", stop}})));
  EXPECT_EQ(whole["choices"][0]["text"], right.substr(0, right.find(stop)));
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "stop");
}

TEST(App, NoTokensAreAnAnswerToo) {
  ServerRig rig;
  const Json whole = json(rig.post(kCompletions, completion("abc", 0)));
  EXPECT_EQ(whole["choices"][0]["text"], "");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 0);
  const StreamAnswer streamed = rig.stream(kCompletions, completion("abc", 0, {{"stream", true}}));
  EXPECT_EQ(streamed.head.status, 200);
  EXPECT_TRUE(streamed.done && streamed.complete);
}

// ---- What cannot be -----------------------------------------------------------------------------

TEST(App, BadBodiesAreRefusedByName) {
  ServerRig rig;
  for (const char* path : {kChat, kCompletions, "/tokenize", "/detokenize", "/apply-template",
                           "/cache/warm", "/cache/pin", "/cache/truncate", "/cache/purge"}) {
    for (const char* body : {"", "{", "[]", "null", "7", "{\"a\":1}", "\xFF"}) {
      const HttpAnswer answer = rig.client().post(path, body);
      EXPECT_EQ(answer.status, 400) << path << " " << body << ": " << answer.body;
      EXPECT_TRUE(json(answer).contains("error"));
    }
  }
  EXPECT_EQ(error_code(rig.post(kCompletions, completion("a", 1, {{"colour", "red"}})), 400),
            "unknown_parameter");
  EXPECT_EQ(rig.post(kCompletions, completion("a", 1, {{"logit_bias", {{"259", 1}}}})).status, 400);
  Json wild = completion("", 1);
  wild["prompt"] = {1, 259};
  EXPECT_EQ(rig.post(kCompletions, wild).status, 400);
  EXPECT_EQ(rig.scheduler->stats().requests, 0U);
}

TEST(App, PromptsLongerThanTheContextAreRefused) {
  ServerRig rig;
  for (const Json& body : {completion(letters(1100, 1), 5), completion(letters(1023, 1), 5)}) {
    const HttpAnswer answer = rig.post(kCompletions, body);
    EXPECT_EQ(error_code(answer, 400), "context_length_exceeded");
  }
  EXPECT_EQ(error_code(rig.post(kChat, conversation({{"user", letters(1100, 1)}}, 5)), 400),
            "context_length_exceeded");
  EXPECT_EQ(error_code(rig.post("/cache/warm", {{"prompt", letters(1100, 1)}}), 400),
            "context_length_exceeded");
  const Json fits = json(rig.post(kCompletions, completion(letters(1022, 1), 5)));
  EXPECT_EQ(fits["usage"]["prompt_tokens"], 1023);
}

TEST(App, FullQueueIsToldWithWhenToComeAgain) {
  ServerRigOptions options = ServerRigOptions::endless();
  options.engine.sequences = 1;
  options.scheduler.queue = 1;
  ServerRig rig(options);
  rig.model.pass_us = 20'000;
  const Json body = completion(letters(40, 1), ServerRigOptions::kEndless,
                               {{"ignore_eos", true}, {"stream", true}});
  const auto ask = [&] {
    HttpClient client = rig.client();
    client.send(test::request_text("POST", kCompletions, body.dump()));
    return client;
  };
  // One request runs, one waits.
  HttpClient first = ask();
  ASSERT_EQ(first.read_head().status, 200);
  HttpClient second = ask();
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().waiting == 1; }));
  for (uint32_t i = 1; i <= 3; ++i) {
    // Also after passes in which the waiting request could not begin.
    ASSERT_TRUE(first.read_piece() && first.read_piece());
    HttpClient third = ask();
    const HttpAnswer answer = third.read_answer();
    EXPECT_EQ(error_code(answer, 503), "overloaded");
    EXPECT_EQ(answer.header("retry-after"), "1");
    EXPECT_EQ(rig.scheduler->stats().refused, i);
  }
  // A retry of a refused request does not count as another request.
  EXPECT_EQ(rig.post(kCompletions, body, {{"x-stainless-retry-count", "1"}}).status, 503);
  EXPECT_EQ(rig.post(kCompletions, body, {{"x-envoy-attempt-count", "2"}}).status, 503);
  EXPECT_EQ(rig.scheduler->stats().refused, 3U);
  const HttpAnswer warm = rig.post("/cache/warm", {{"prompt", "abc"}});
  EXPECT_EQ(error_code(warm, 503), "overloaded");
  EXPECT_EQ(warm.header("retry-after"), "1");
  // The waiting request gets its turn, and its place is free again.
  first.abort();
  ASSERT_EQ(second.read_head().status, 200);
  HttpClient fourth = ask();
  ASSERT_TRUE(becomes_true([&] { return rig.scheduler->stats().waiting == 1; }));
  rig.model.pass_us = 0;
  second.abort();
  fourth.abort();
  rig.expect_quiet();
}

TEST(App, PassThatFailsBeforeTheFirstTokenIsAnError) {
  ServerRig rig;
  for (const bool stream : {false, true}) {
    rig.model.failing_passes = 2;
    const HttpAnswer answer = rig.post(kCompletions, completion("abc", 5, {{"stream", stream}}));
    EXPECT_EQ(error_code(answer, 500), "");
    EXPECT_EQ(rig.model.failing_passes, 0U);
    EXPECT_EQ(rig.post(kCompletions, completion("abc", 5)).status, 200);
  }
  rig.expect_quiet();
}

TEST(App, PassThatFailsInTheMiddleIsTheLastEvent) {
  ServerRig rig(ServerRigOptions::endless());
  rig.model.pass_us = 2'000;
  HttpClient client = rig.client();
  const Json body = completion(letters(30, 1), ServerRigOptions::kEndless,
                               {{"ignore_eos", true}, {"stream", true}});
  client.send(test::request_text("POST", kCompletions, body.dump()));
  ASSERT_EQ(client.read_head().status, 200);
  ASSERT_TRUE(client.read_piece());
  rig.model.failing_passes = 100;
  std::string rest;
  while (auto piece = client.read_piece()) rest += *piece;
  rig.model.failing_passes = 0;
  EXPECT_TRUE(client.complete());
  const std::vector<std::string> events = test::sse_data(rest);
  ASSERT_FALSE(events.empty());
  const Json last = Json::parse(events.back());
  EXPECT_EQ(last["error"]["type"], "server_error") << events.back();
  rig.expect_quiet();
}

TEST(App, OneFailedPassIsNotSeen) {
  ServerRig rig;
  const std::string prompt = rig.prompt_with(30, true);
  rig.model.failing_passes = 1;
  EXPECT_EQ(rig.stream(kCompletions, completion(prompt, 30, {{"stream", true}})).text(),
            rig.expected(prompt, 30));
}

// ---- The end ------------------------------------------------------------------------------------

TEST(App, IsNotReadyOnceItCloses) {
  ServerRig rig;
  EXPECT_EQ(json(rig.get("/ready"))["status"], "ready");
  rig.app->close();
  const HttpAnswer answer = rig.get("/ready");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_EQ(rig.get("/health").status, 200);
  EXPECT_EQ(rig.post(kCompletions, completion("abc", 1)).status, 200)
      << "whoever still comes is served";
}

TEST(App, StoppedSchedulerIsAnOverloadedServer) {
  ServerRig rig;
  rig.scheduler->stop();
  EXPECT_EQ(error_code(rig.post(kCompletions, completion("abc", 1)), 503), "overloaded");
  for (const char* path : {"/cache/reset", "/cache/save"}) {
    EXPECT_EQ(error_code(rig.post(path, Json::object()), 503), "overloaded") << path;
  }
  for (const char* path : {"/cache/warm", "/cache/truncate"}) {
    EXPECT_EQ(error_code(rig.post(path, {{"prompt", "a"}}), 503), "overloaded") << path;
  }
  EXPECT_EQ(error_code(rig.post("/cache/purge", {{"cache_salt", "a"}}), 503), "overloaded");
  EXPECT_EQ(rig.get("/health").status, 200);
}

// ---- Watching -----------------------------------------------------------------------------------

TEST(App, SlotsSayWhoIsUnderWay) {
  ServerRig rig(ServerRigOptions::endless());
  rig.model.pass_us = 2'000;
  HttpClient client = rig.client();
  const Json body = completion(letters(30, 1), ServerRigOptions::kEndless,
                               {{"ignore_eos", true}, {"stream", true}});
  client.send(test::request_text("POST", kCompletions, body.dump()));
  ASSERT_EQ(client.read_head().status, 200);
  uint32_t busy = 0;
  for (const Json& slot : json(rig.get("/slots"))) {
    if (slot["is_processing"] == false) continue;
    ++busy;
    EXPECT_EQ(slot["state"], "leased");
    EXPECT_EQ(slot["prompt_tokens"], 31);
    EXPECT_EQ(slot["id_task"], 1);
  }
  EXPECT_EQ(busy, 1U);
  client.abort();
  rig.expect_quiet();
}

TEST(App, LogHasALineForEveryRequest) {
  ServerRig rig;
  ASSERT_EQ(rig.post(kCompletions, completion("abc", 1)).status, 200);
  rig.model.failing_passes = 2;
  ASSERT_EQ(rig.post(kCompletions, completion("abd", 1)).status, 500);
  const std::vector<std::string> lines = rig.log();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_NE(lines[0].find(" path=/v1/completions status=200 prompt=4 reused=0 evaluated=4 "),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find(" status=500 prompt=4 error=\"the model failed: "), std::string::npos)
      << lines[1];
}

}  // namespace
}  // namespace stemma::server
