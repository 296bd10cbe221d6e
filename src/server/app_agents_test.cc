// An agent's conversation through each API, on every kind of memory: fifty turns with thinking and
// tools. Each turn computes only its new tokens and at most eight more. The figures are properties
// of the tests (--gtest_output=json:FILE).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/step_script.h"

namespace stemma::test::app_agents_test {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kTurns = 50;
constexpr uint32_t kMostExtra = 8;

struct Turn {
  uint32_t prompt = 0;
  uint32_t evaluated = 0;
  uint32_t generated = 0;
  std::string thought = {};
  Json arguments = {};  // The call's arguments.
};

// A client of one API. It sends messages back as clients do, with arguments that it has parsed and
// written again.
class Agent {
 public:
  Agent() = default;
  virtual ~Agent() = default;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Begins the conversation; later calls give the result of the last call.
  virtual void begin(const std::string& text) = 0;
  virtual void result(const std::string& text) = 0;
  virtual Turn turn(const ScriptedRig& rig) = 0;
};

// Writes the members in alphabetical order, without blanks.
std::string anew(const std::string& arguments) { return Json::parse(arguments).dump(); }

class ChatAgent final : public Agent {
 public:
  void begin(const std::string& text) override {
    messages_.push_back({{"role", "user"}, {"content", text}});
  }
  void result(const std::string& text) override {
    const Json call = messages_.back()["tool_calls"][0];
    messages_.push_back({{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", text}});
  }
  Turn turn(const ScriptedRig& rig) override {
    const Json function = {{"name", "read"}, {"parameters", step_arguments()}};
    const Json answer = rig.post("/v1/chat/completions",
                                 {{"messages", messages_},
                                  {"temperature", 0},
                                  {"tools", {{{"type", "function"}, {"function", function}}}}});
    Json message = answer["choices"][0]["message"];
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
    Json& call = message["tool_calls"][0]["function"];
    call["arguments"] = anew(call["arguments"]);
    messages_.push_back(message);
    const Json& usage = answer["usage"];
    Turn turn{.prompt = usage["prompt_tokens"], .generated = usage["completion_tokens"]};
    turn.evaluated = turn.prompt - usage["prompt_tokens_details"]["cached_tokens"].get<uint32_t>();
    EXPECT_EQ(usage["total_tokens"], turn.prompt + turn.generated);
    turn.thought = message["reasoning_content"];
    turn.arguments = Json::parse(call["arguments"].get<std::string>());
    return turn;
  }

 private:
  Json messages_ = Json::array();
};

class MessagesAgent final : public Agent {
 public:
  void begin(const std::string& text) override {
    messages_.push_back({{"role", "user"}, {"content", text}});
  }
  void result(const std::string& text) override {
    const Json call = messages_.back()["content"].back();
    messages_.push_back(
        {{"role", "user"},
         {"content", {{{"type", "tool_result"}, {"tool_use_id", call["id"]}, {"content", text}}}}});
  }
  Turn turn(const ScriptedRig& rig) override {
    const Json answer = rig.post(
        "/v1/messages", {{"model", "scripted"},
                         {"max_tokens", 2000},
                         {"temperature", 0},
                         {"thinking", {{"type", "adaptive"}}},
                         {"tools", {{{"name", "read"}, {"input_schema", step_arguments()}}}},
                         {"messages", messages_}});
    EXPECT_EQ(answer["stop_reason"], "tool_use");
    messages_.push_back({{"role", "assistant"}, {"content", answer["content"]}});
    const Json& usage = answer["usage"];
    Turn turn{.generated = usage["output_tokens"]};
    turn.evaluated = usage["input_tokens"].get<uint32_t>() +
                     usage["cache_creation_input_tokens"].get<uint32_t>();
    turn.prompt = turn.evaluated + usage["cache_read_input_tokens"].get<uint32_t>();
    turn.thought = answer["content"][0]["thinking"];
    turn.arguments = answer["content"].back()["input"];
    return turn;
  }

 private:
  Json messages_ = Json::array();
};

// With `stored`, continues from previous_response_id and sends only what is new.
class ResponsesAgent final : public Agent {
 public:
  explicit ResponsesAgent(bool stored) : stored_(stored) {}

  void begin(const std::string& text) override {
    input_.push_back({{"role", "user"}, {"content", text}});
  }
  void result(const std::string& text) override {
    input_.push_back({{"type", "function_call_output"}, {"call_id", call_id_}, {"output", text}});
  }
  Turn turn(const ScriptedRig& rig) override {
    Json body = {
        {"input", input_},
        {"temperature", 0},
        {"store", stored_},
        {"include", {"reasoning.encrypted_content"}},
        {"tools", {{{"type", "function"}, {"name", "read"}, {"parameters", step_arguments()}}}}};
    if (!id_.empty() && stored_) body["previous_response_id"] = id_;
    const Json answer = rig.post("/v1/responses", body);
    EXPECT_EQ(answer["status"], "completed");
    id_ = answer["id"];
    if (stored_) input_ = Json::array();
    Turn turn;
    for (Json item : answer["output"]) {
      if (item["type"] == "reasoning") turn.thought = item["content"][0]["text"];
      if (item["type"] == "function_call") {
        call_id_ = item["call_id"];
        item["arguments"] = anew(item["arguments"]);
        turn.arguments = Json::parse(item["arguments"].get<std::string>());
      }
      if (!stored_) input_.push_back(item);
    }
    const Json& usage = answer["usage"];
    turn.prompt = usage["input_tokens"];
    turn.generated = usage["output_tokens"];
    turn.evaluated = turn.prompt - usage["input_tokens_details"]["cached_tokens"].get<uint32_t>();
    EXPECT_EQ(usage["total_tokens"], turn.prompt + turn.generated);
    return turn;
  }

 private:
  const bool stored_;
  Json input_ = Json::array();
  std::string id_;
  std::string call_id_;
};

class OllamaAgent final : public Agent {
 public:
  void begin(const std::string& text) override {
    messages_.push_back({{"role", "user"}, {"content", text}});
  }
  void result(const std::string& text) override {
    messages_.push_back({{"role", "tool"}, {"tool_name", "read"}, {"content", text}});
  }
  Turn turn(const ScriptedRig& rig) override {
    const Json function = {{"name", "read"}, {"parameters", step_arguments()}};
    const Json answer =
        rig.post("/api/chat", {{"model", "scripted"},
                               {"stream", false},
                               {"options", {{"temperature", 0}}},
                               {"messages", messages_},
                               {"tools", {{{"type", "function"}, {"function", function}}}}});
    Json message = answer["message"];
    // Calls in Ollama's API have no ids.
    for (Json& call : message["tool_calls"]) call.erase("id");
    messages_.push_back(message);
    Turn turn{.prompt = answer["prompt_eval_count"],
              .evaluated = answer["stemma"]["evaluated_tokens"],
              .generated = answer["eval_count"]};
    EXPECT_EQ(turn.evaluated + answer["stemma"]["reused_tokens"].get<uint32_t>(), turn.prompt);
    turn.thought = message["thinking"];
    turn.arguments = message["tool_calls"][0]["function"]["arguments"];
    return turn;
  }

 private:
  Json messages_ = Json::array();
};

struct Api {
  const char* name;
  std::unique_ptr<Agent> (*make)();
};
void PrintTo(const Api& api, std::ostream* out) { *out << api.name; }

std::vector<Api> every_api() {
  return {{"chat_completions", [] { return std::unique_ptr<Agent>(new ChatAgent()); }},
          {"messages", [] { return std::unique_ptr<Agent>(new MessagesAgent()); }},
          {"responses", [] { return std::unique_ptr<Agent>(new ResponsesAgent(false)); }},
          {"responses_stored", [] { return std::unique_ptr<Agent>(new ResponsesAgent(true)); }},
          {"ollama", [] { return std::unique_ptr<Agent>(new OllamaAgent()); }}};
}

class EveryApi : public testing::TestWithParam<std::tuple<Api, EngineKind>> {};
INSTANTIATE_TEST_SUITE_P(Agents, EveryApi,
                         testing::Combine(testing::ValuesIn(every_api()),
                                          testing::ValuesIn(every_engine())),
                         [](const auto& tested) {
                           return std::string(std::get<0>(tested.param).name) + "_" +
                                  std::get<1>(tested.param).name;
                         });

TEST_P(EveryApi, EachTurnComputesWhatIsNew) {
  const ScriptedRig rig(step_rig(std::get<1>(GetParam()).options), do_step);
  const auto agent = std::get<0>(GetParam()).make();
  agent->begin("begin with step 0");
  Turn before;
  uint32_t prompts = 0;
  uint32_t evaluated = 0;
  uint32_t most_extra = 0;
  for (uint32_t step = 0; step < kTurns; ++step) {
    const uint64_t computed = rig.model.computed();
    const Turn turn = agent->turn(rig);
    ASSERT_EQ(turn.arguments["line"], step);
    EXPECT_NE(turn.thought.find("working on step " + std::to_string(step)), std::string::npos);
    // The API reports what the model did.
    EXPECT_LE(rig.model.computed() - computed, turn.evaluated + turn.generated) << "turn " << step;
    const uint32_t fresh = turn.prompt - before.prompt - before.generated;
    if (step != 0)
      most_extra = std::max(most_extra, turn.evaluated - std::min(fresh, turn.evaluated));
    prompts += turn.prompt;
    evaluated += turn.evaluated;
    before = turn;
    agent->result("done, go to step " + std::to_string(step + 1));
  }
  EXPECT_LE(most_extra, kMostExtra);
  const Json stats = rig.get("/cache")["transcripts"];
  EXPECT_EQ(stats["remembered"], kTurns);
  EXPECT_EQ(stats["spliced"], kTurns * (kTurns - 1) / 2);
  EXPECT_EQ(stats["different"].get<int>() + stats["unfit"].get<int>() + stats["unknown"].get<int>(),
            0);
  RecordProperty("prompt_tokens", static_cast<int>(prompts));
  RecordProperty("evaluated_tokens", static_cast<int>(evaluated));
  RecordProperty("most_extra_tokens_of_a_turn", static_cast<int>(most_extra));
}

// A call whose argument depends on all of the prompt: one from a wrong prefix would differ.
std::string sum_up(std::string_view prompt) {
  uint64_t sum = 1469598103934665603U;
  for (const char c : prompt) sum = (sum ^ static_cast<uint8_t>(c)) * 1099511628211U;
  const std::string text = std::to_string(sum);
  return "<think>\nthe sum is " + text + "\n</think>\n\nhere it is\n<tool_call>\n" +
         R"({"name": "read", "arguments": {"path": "p)" + text + "\"}}\n</tool_call>";
}

TEST_P(EveryApi, AnswersAreThoseOfAServerWithoutReuse) {
  const ScriptedRig reusing(step_rig(std::get<1>(GetParam()).options), sum_up);
  ScriptedRigOptions plain = step_rig(std::get<1>(GetParam()).options);
  plain.scheduler.reuse = false;
  const ScriptedRig computing(plain, sum_up);
  const auto one = std::get<0>(GetParam()).make();
  const auto other = std::get<0>(GetParam()).make();
  for (const auto* agent : {&one, &other}) (*agent)->begin("begin with the sum");
  uint32_t reused = 0;
  for (uint32_t step = 0; step < 12; ++step) {
    const Turn here = one->turn(reusing);
    const Turn there = other->turn(computing);
    EXPECT_EQ(here.arguments, there.arguments) << step;
    EXPECT_EQ(here.thought, there.thought) << step;
    EXPECT_EQ(here.prompt, there.prompt) << step;
    EXPECT_EQ(here.generated, there.generated) << step;
    EXPECT_EQ(there.evaluated, there.prompt) << step;
    reused += here.prompt - here.evaluated;
    for (const auto* agent : {&one, &other}) {
      (*agent)->result("result " + std::to_string(step));
    }
  }
  EXPECT_GT(reused, 0U);
}

// Effort and budget reach the template where it knows them. Otherwise a header names them, as the
// request did.
TEST(Agents, EffortAndBudgetThatHaveNoEffectAreNamed) {
  const ScriptedRig rig(step_rig(full_engine()), do_step);
  const Json user = {{{"role", "user"}, {"content", "step 1"}}};
  const auto ignored = [&](const char* target, Json body) {
    body["model"] = "scripted";
    const HttpAnswer answer = rig.ask(target, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return std::string(answer.header("x-stemma-ignored"));
  };
  EXPECT_EQ(ignored("/v1/chat/completions", {{"messages", user}, {"reasoning_effort", "high"}}),
            "reasoning_effort");
  EXPECT_EQ(ignored("/v1/chat/completions", {{"messages", user}, {"thinking_budget", 500}}),
            "thinking_budget");
  EXPECT_EQ(ignored("/v1/responses", {{"input", "step 1"}, {"reasoning", {{"effort", "low"}}}}),
            "reasoning.effort");
  Json message = {{"max_tokens", 2000}, {"messages", user}};
  EXPECT_EQ(ignored("/v1/messages", message), "");
  message["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  message["output_config"] = {{"effort", "high"}};
  EXPECT_EQ(ignored("/v1/messages", message), "output_config.effort, thinking.budget_tokens");
  EXPECT_EQ(ignored("/api/chat", {{"messages", user}, {"stream", false}, {"think", "high"}}),
            "think");
}

// As Codex offers apply_patch: the tool is there, its grammar is named as not enforced.
TEST(Agents, AToolWithAGrammarIsOfferedAndItsGrammarNamed) {
  const ScriptedRig rig(step_rig(full_engine()), do_step);
  const Json grammar = {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: x"}};
  const Json flat = {{"type", "custom"}, {"name", "apply_patch"}, {"format", grammar}};
  const auto unenforced = [&](const char* target, const Json& body) {
    const HttpAnswer answer = rig.ask(target, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.header("x-stemma-ignored"), "");
    return std::string(answer.header("x-stemma-unenforced"));
  };
  Json responses = {{"model", "scripted"},
                    {"input", "step 1"},
                    {"max_output_tokens", 200},
                    {"tools", Json::array({flat})}};
  EXPECT_NE(unenforced("/v1/responses", responses).find("tools[0].format"), std::string::npos);
  const Json custom = {{"type", "custom"},
                       {"custom", {{"name", "apply_patch"}, {"format", grammar}}}};
  const Json user = {{{"role", "user"}, {"content", "step 1"}}};
  EXPECT_NE(unenforced("/v1/chat/completions", {{"model", "scripted"},
                                                {"messages", user},
                                                {"max_tokens", 200},
                                                {"tools", Json::array({custom})}})
                .find("tools[0].custom.format"),
            std::string::npos);
  responses["tools"][0]["strict"] = true;
  EXPECT_EQ(rig.ask("/v1/responses", responses).status, 400);
}

// A schema of some 2,500 bytes: long descriptions, a long bounded text, and a type that contains
// itself. Calls have its members in the order in which this JSON prints them, which is sorted.
Json large_schema() {
  Json schema = Json::parse(R"({"type":"object","properties":{"path":{"type":"string"},
      "line":{"type":"integer"},"text":{"type":"string","maxLength":65536},
      "tree":{"$ref":"#/$defs/tree"}},"required":["path","line"],"additionalProperties":false,
      "$defs":{"tree":{"type":"object","properties":{"name":{"type":"string"},
        "below":{"type":"array","items":{"$ref":"#/$defs/tree"}}}}}})");
  schema["properties"]["path"]["description"] = std::string(1040, 'p');
  schema["properties"]["tree"]["description"] = std::string(1040, 't');
  return schema;
}

TEST(Agents, TwoHundredToolsOfHalfAMegabyteAreOfferedAndCalled) {
  constexpr uint32_t kTools = 200;
  const auto call_one = [](std::string_view prompt) {
    const std::string n = std::to_string(step_of(prompt));
    return "<think>\nthe tool of step " + n + "\n</think>\n\n<tool_call>\n{\"name\": \"tool_" + n +
           R"(", "arguments": {"line": )" + n +
           R"(, "path": "a", "text": "x", "tree": {"below": [{"below": [], "name": "s"}], "name": "r"}}})" +
           "\n</tool_call>";
  };
  ScriptedRigOptions options = step_rig(full_engine());
  options.engine.context_tokens = 1U << 20U;
  options.engine.checked_tokens = 64;
  const ScriptedRig rig(options, call_one);
  Json tools = Json::array();
  for (uint32_t t = 0; t < kTools; ++t) {
    tools.push_back({{"name", "tool_" + std::to_string(t)},
                     {"input_schema", large_schema()},
                     {"strict", true}});
  }
  EXPECT_GT(tools.dump().size(), 500'000U);
  Json messages = {{{"role", "user"}, {"content", "begin with step 137"}}};
  uint32_t first_prompt = 0;
  for (const uint32_t step : {137U, 0U, 199U}) {
    const Json body = {{"model", "scripted"},
                       {"max_tokens", 2000},
                       {"thinking", {{"type", "adaptive"}}},
                       {"tool_choice", {{"type", "any"}}},
                       {"tools", tools},
                       {"messages", messages}};
    const HttpAnswer said = HttpClient(rig.http->port(), std::chrono::minutes(10))
                                .post("/v1/messages", body.dump(), {});
    ASSERT_EQ(said.status, 200) << said.body;
    const Json answer = Json::parse(said.body);
    const Json& call = answer["content"].back();
    ASSERT_EQ(call["name"], "tool_" + std::to_string(step)) << answer.dump().substr(0, 500);
    EXPECT_EQ(call["input"]["line"], step);
    EXPECT_EQ(call["input"]["tree"]["below"][0]["name"], "s");
    const uint32_t evaluated = answer["stemma"]["evaluated_tokens"];
    if (first_prompt == 0) {
      first_prompt = evaluated;
      EXPECT_GT(first_prompt, 250'000U);
    } else {
      EXPECT_LT(evaluated, 200U);
    }
    messages.push_back({{"role", "assistant"}, {"content", answer["content"]}});
    messages.push_back({{"role", "user"},
                        {"content",
                         {{{"type", "tool_result"},
                           {"tool_use_id", call["id"]},
                           {"content", step == 137 ? "go to step 0" : "go to step 199"}}}}});
  }
}

// Each API names the part that changed as its own requests name it.
TEST(Agents, EveryAnswerSaysWhyItMissedAndWhichPartChanged) {
  const std::string rule(300, 'r');
  const auto function = [&](const std::string& about) -> Json {
    return {{"name", "read"}, {"description", about}, {"parameters", step_arguments()}};
  };
  const auto talk = [](const std::string& said) -> Json {
    return {{{"role", "user"}, {"content", "begin with step 0"}},
            {{"role", "assistant"}, {"content", said}},
            {{"role", "user"}, {"content", "go to step 1"}}};
  };
  const auto with_system = [&](const std::string& system, const std::string& said) {
    Json list = {{{"role", "system"}, {"content", system}}};
    for (const Json& each : talk(said)) list.push_back(each);
    return list;
  };
  using Make = std::function<Json(const std::string& about, const std::string& system,
                                  const std::string& said)>;
  struct Case {
    const char* target;
    Make body;
    std::vector<const char*> places;  // Of the tool, the system's text and the answer.
  };
  const std::vector<Case> cases = {
      {"/v1/chat/completions",
       [&](const auto& about, const auto& system, const auto& said) -> Json {
         return {{"messages", with_system(system, said)},
                 {"tools", {{{"type", "function"}, {"function", function(about)}}}}};
       },
       {"tools[0]", "messages[0]", "messages[2]"}},
      {"/v1/messages",
       [&](const auto& about, const auto& system, const auto& said) -> Json {
         return {
             {"model", "scripted"},
             {"max_tokens", 2000},
             {"system", system},
             {"messages", talk(said)},
             {"tools",
              {{{"name", "read"}, {"description", about}, {"input_schema", step_arguments()}}}}};
       },
       {"tools[0]", "system", "messages[1]"}},
      {"/v1/responses",
       [&](const auto& about, const auto& system, const auto& said) -> Json {
         Json tool = function(about);
         tool["type"] = "function";
         return {{"instructions", system}, {"input", talk(said)}, {"tools", Json::array({tool})}};
       },
       {"tools[0]", "instructions", "input[1]"}},
      {"/api/chat",
       [&](const auto& about, const auto& system, const auto& said) -> Json {
         return {{"model", "scripted"},
                 {"stream", false},
                 {"messages", with_system(system, said)},
                 {"tools", {{{"type", "function"}, {"function", function(about)}}}}};
       },
       {"tools[0]", "messages[0]", "messages[2]"}},
  };
  for (const Case& each : cases) {
    const ScriptedRig rig(step_rig(full_engine()), do_step);
    SCOPED_TRACE(each.target);
    const Json first = rig.post(each.target, each.body("about", rule, "said"))["stemma"];
    EXPECT_EQ(first["miss"], "first_use");
    EXPECT_EQ(first["reused_tokens"], 0);
    const Json same = rig.post(each.target, each.body("about", rule, "said"))["stemma"];
    EXPECT_EQ(same["miss"], "none");
    EXPECT_FALSE(same.contains("parted_in")) << same;
    const Json bodies[] = {each.body("other", rule, "said"), each.body("about", "x" + rule, "said"),
                           each.body("about", rule, "nothing")};
    for (size_t i = 0; i < each.places.size(); ++i) {
      const Json report = rig.post(each.target, bodies[i])["stemma"];
      EXPECT_EQ(report["parted_in"], each.places[i]) << report;
      EXPECT_EQ(report["miss"], "first_use") << report;
    }
  }
}

}  // namespace
}  // namespace stemma::test::app_agents_test
