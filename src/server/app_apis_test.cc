// Tests the other APIs over a whole server: prompts in a list, stored responses, Ollama's routes.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "server/front_door.h"
#include "support/server_rig.h"

namespace stemma::test::app_apis_test {
namespace {

constexpr const char* kCompletions = "/v1/completions";
constexpr const char* kResponses = "/v1/responses";

Json answer(const HttpAnswer& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  return Json::parse(answer.body);
}

// Returns the data of all events.
std::vector<Json> events(const ServerRig& rig, const char* target, const Json& body) {
  HttpClient asking = rig.client();
  asking.send(request_text("POST", target, body.dump()));
  asking.read_head();
  std::string all;
  while (auto piece = asking.read_piece()) all += *piece;
  EXPECT_TRUE(asking.complete());
  std::vector<Json> events;
  for (const std::string& data : sse_data(all)) events.push_back(Json::parse(data));
  return events;
}

TEST(Prompts, AreAnsweredAsChoicesOfOneRequest) {
  ServerRig rig;
  const std::vector<std::string> prompts = {rig.prompt_with(6, true), rig.prompt_with(9, true),
                                            "one more"};
  std::vector<std::string> right;
  uint64_t tokens = 0;
  for (const std::string& prompt : prompts) {
    const Json alone = answer(rig.post(kCompletions, completion(prompt, 6)));
    right.push_back(alone["choices"][0]["text"]);
    tokens += alone["usage"]["total_tokens"].get<uint64_t>();
  }
  Json body = completion("", 6);
  body["prompt"] = prompts;
  const Json whole = answer(rig.post(kCompletions, body));
  ASSERT_EQ(whole["choices"].size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], right[i]);
  }
  EXPECT_EQ(whole["usage"]["total_tokens"], tokens);
  // As a stream, with two choices each, and echoed.
  body.update({{"n", 2}, {"echo", true}, {"stream", true}});
  const StreamAnswer stream = rig.stream(kCompletions, body);
  EXPECT_TRUE(stream.done);
  for (uint32_t choice = 0; choice < 6; ++choice) {
    EXPECT_EQ(stream.text(choice), prompts[choice / 2] + right[choice / 2]) << choice;
  }
  // The same with prompts in tokens.
  body = completion("", 6);
  body["prompt"] = Json::array();
  for (const std::string& prompt : prompts) {
    Json list = {256};
    for (const char c : prompt) list.push_back(static_cast<int>(c));
    body["prompt"].push_back(list);
  }
  EXPECT_EQ(answer(rig.post(kCompletions, body))["choices"][1]["text"], right[1]);
}

TEST(Prompts, OneThatIsWrongIsNamedBeforeAnyIsAnswered) {
  ServerRigOptions options;
  options.engine.context_tokens = 256;
  ServerRig rig(options);
  Json body = completion("", 4);
  body["prompt"] = {"good", letters(1000, 3)};
  EXPECT_EQ(rig.post(kCompletions, body).status, 400);
  body["prompt"] = {Json{1, 2}, Json{1, 99999}};
  EXPECT_EQ(rig.post(kCompletions, body).status, 400);
  EXPECT_EQ(rig.scheduler->stats().requests, 0U);
}

TEST(Responses, AStreamSaysWhatTheWholeSaysAndIsStored) {
  ServerRig rig;
  const Json body = {
      {"input", rig.prompt_with(8, true)}, {"max_output_tokens", 8}, {"temperature", 0}};
  const Json whole = answer(rig.post(kResponses, body));
  Json streaming = body;
  streaming["stream"] = true;
  const std::vector<Json> said = events(rig, kResponses, streaming);
  ASSERT_GT(said.size(), 4U);
  for (size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i]["sequence_number"], i);
  const Json& last = said.back()["response"];
  const auto text = [](const Json& response) {
    return response["output"][0]["content"][0]["text"];
  };
  EXPECT_EQ(text(last), text(whole));
  EXPECT_EQ(last["usage"]["total_tokens"], whole["usage"]["total_tokens"]);

  // Both are stored, under random ids.
  for (const Json* response : {&whole, &last}) {
    const std::string id = (*response)["id"];
    EXPECT_EQ(answer(rig.get("/v1/responses/" + id)), *response);
  }
  // They are forgotten together with the cache.
  rig.post("/cache/reset", Json::object());
  EXPECT_EQ(rig.get("/v1/responses/" + last["id"].get<std::string>()).status, 404);
}

TEST(Responses, AConversationGoesOnFromAStoredOne) {
  ServerRig rig;
  const Json first = answer(rig.post(
      kResponses, {{"input", "a long question"}, {"max_output_tokens", 6}, {"temperature", 0}}));
  const Json next = answer(rig.post(kResponses, {{"input", "more"},
                                                 {"previous_response_id", first["id"]},
                                                 {"max_output_tokens", 6},
                                                 {"temperature", 0}}));
  Json all = Json::array({{{"role", "user"}, {"content", "a long question"}}});
  for (const Json& item : first["output"]) all.push_back(item);
  all.push_back({{"role", "user"}, {"content", "more"}});
  const Json same =
      answer(rig.post(kResponses, {{"input", all}, {"max_output_tokens", 6}, {"temperature", 0}}));
  EXPECT_EQ(next["usage"]["input_tokens"], same["usage"]["input_tokens"]);
  EXPECT_EQ(next["output"][0]["content"], same["output"][0]["content"]);
  EXPECT_EQ(next["previous_response_id"], first["id"]);
}

TEST(Ollama, LinesSayWhatTheWholeSays) {
  ServerRig rig;
  const std::string model = rig.app->model_id();
  Json body = {{"model", model + ":latest"},
               {"messages", Json::array({{{"role", "user"}, {"content", "Hello"}}})},
               {"options", {{"temperature", 0}, {"num_predict", 8}}}};
  const HttpAnswer streamed = rig.post("/api/chat", body);
  EXPECT_EQ(streamed.header("content-type"), "application/x-ndjson");
  std::string content;
  Json last;
  std::istringstream lines(streamed.body);
  for (std::string line; std::getline(lines, line);) {
    last = Json::parse(line);
    content += last["message"]["content"];
  }
  EXPECT_EQ(last["done"], true);
  body["stream"] = false;
  const Json whole = answer(rig.post("/api/chat", body));
  EXPECT_EQ(whole["message"]["content"], content);
  EXPECT_EQ(whole["eval_count"], last["eval_count"]);
  EXPECT_EQ(answer(rig.get("/api/tags"))["models"][0]["name"], model);
  EXPECT_EQ(answer(rig.post("/api/show", {{"model", model}}))["details"]["format"], "gguf");
}

// With --any-model. Clients of the Messages API compare the name with the one that they asked for.
TEST(Models, AnyNameIsAnsweredAndTheServedOneReported) {
  ServerRigOptions options;
  options.app.any_model = true;
  options.app.alias = "local";
  const ServerRig rig(options);
  const Json user = {{{"role", "user"}, {"content", "Hi"}}};
  const Json chat = {{"model", "gpt-5"}, {"max_tokens", 2}, {"messages", user}};
  EXPECT_EQ(answer(rig.post("/v1/chat/completions", chat))["model"], "local");
  const Json completion = {{"model", "gpt-5"}, {"max_tokens", 2}, {"prompt", "Hi"}};
  EXPECT_EQ(answer(rig.post("/v1/completions", completion))["model"], "local");
  const Json responses = {{"model", "gpt-5"}, {"max_output_tokens", 2}, {"input", "Hi"}};
  EXPECT_EQ(answer(rig.post("/v1/responses", responses))["model"], "local");
  const Json message = {{"model", "claude-haiku-4-5"}, {"max_tokens", 2}, {"messages", user}};
  EXPECT_EQ(answer(rig.post("/v1/messages", message))["model"], "claude-haiku-4-5");
  const Json lines = {{"model", "llama3"},
                      {"messages", user},
                      {"stream", false},
                      {"options", {{"num_predict", 2}}}};
  EXPECT_EQ(answer(rig.post("/api/chat", lines))["model"], "local");
}

// Whether a body is an error in the shape of the API that the path belongs to.
bool has_shape_of(const std::string& path, const Json& body) {
  if (path.starts_with("/v1/messages")) {
    return body.value("type", "") == "error" && body["error"]["type"].is_string() &&
           body.contains("request_id");
  }
  if (path.starts_with("/api/")) return body.contains("error") && body["error"].is_string();
  return body.contains("error") && body["error"].is_object() && !body.contains("type");
}

TEST(Errors, BeforeARouteIsFoundHaveTheShapeOfTheirApi) {
  ServerRigOptions options;
  options.app.api_key = "secret";
  options.http.body_bytes = 1000;
  const ServerRig rig(options);
  for (const std::string path : {"/v1/messages/batches", "/api/embed", "/v1/audio"}) {
    const HttpAnswer unknown = rig.post(path, Json::object());
    EXPECT_EQ(unknown.status, 404) << path;
    EXPECT_TRUE(has_shape_of(path, Json::parse(unknown.body))) << unknown.body;
  }
  for (const std::string path : {"/v1/messages", "/api/chat", "/v1/responses"}) {
    const HttpAnswer large = rig.post(path, {{"input", std::string(2000, 'x')}});
    EXPECT_EQ(large.status, 413) << path;
    EXPECT_TRUE(has_shape_of(path, Json::parse(large.body))) << large.body;
  }
  const HttpAnswer large = rig.post("/v1/messages", {{"input", std::string(2000, 'x')}});
  EXPECT_EQ(Json::parse(large.body)["error"]["type"], "request_too_large");
}

TEST(Errors, WhileTheModelLoadsHaveTheShapeOfTheirApi) {
  server::FrontDoor front;
  server::HttpOptions options;
  options.log = [](std::string_view) {};
  front.connect(options);
  auto http = server::HttpServer::create(
      options, [&](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
        front.handle(std::move(request), std::move(reply));
      });
  ASSERT_TRUE(http);
  ASSERT_TRUE((*http)->start());
  for (const std::string path :
       {"/v1/messages", "/v1/messages/count_tokens", "/api/chat", "/v1/responses"}) {
    for (const std::string body : {"", "{}"}) {  // A head alone is refused in another place.
      const HttpAnswer loading = HttpClient((*http)->port()).post(path, body);
      const bool anthropic = path.starts_with("/v1/messages");
      EXPECT_EQ(loading.status, anthropic ? 529 : 503) << path;
      const Json parsed = Json::parse(loading.body);
      EXPECT_TRUE(has_shape_of(path, parsed)) << loading.body;
      EXPECT_EQ(anthropic, parsed["error"].is_object() &&
                               parsed["error"]["type"] == "overloaded_error" &&
                               parsed.contains("request_id"));
      EXPECT_EQ(loading.header("retry-after"), "1");
    }
  }
  (*http)->stop();
}

TEST(Ollama, ErrorsHaveItsShape) {
  ServerRig rig;
  for (const HttpAnswer& refused :
       {rig.post("/api/chat", {{"model", "another"},
                               {"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}}),
        rig.post("/api/generate", {{"prompt", "x"}}), rig.get("/api/chat")}) {
    EXPECT_GE(refused.status, 400);
    const Json body = Json::parse(refused.body);
    EXPECT_EQ(body.size(), 1U);
    EXPECT_TRUE(body["error"].is_string());
  }
}

}  // namespace
}  // namespace stemma::test::app_apis_test
