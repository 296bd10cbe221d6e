// Tests what the server gives agents: calls, forms and thinking, over a model that answers at
// random.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/server_rig.h"

namespace stemma::test::app_tools {
namespace {

Json weather() {
  return Json::parse(R"({"type":"function","function":{"name":"get_weather",
      "description":"Tells the weather.","parameters":{"type":"object","properties":{
        "days":{"type":"integer"},"unit":{"type":"string","enum":["C","F"]}},
        "required":["days","unit"],"additionalProperties":false}}})");
}
Json patch() {
  return Json::parse(R"({"type":"custom","custom":{"name":"patch","description":"Patches."}})");
}
// Room for descriptions of tools and for long answers.
ServerRigOptions roomy() {
  ServerRigOptions options;
  options.engine.context_tokens = 16384;
  return options;
}
Json asking(const std::string& text, const Json& more) {
  return conversation({{"user", text}}, 2000, more);
}
void expect_weather(const std::string& arguments) {
  const Json parsed = Json::parse(arguments, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << arguments;
  EXPECT_EQ(parsed.size(), 2U) << arguments;
  EXPECT_TRUE(parsed["days"].is_number_integer()) << arguments;
  EXPECT_TRUE(parsed["unit"] == "C" || parsed["unit"] == "F") << arguments;
}

TEST(AppTools, RequiredCallsAreMadeWholeAndStreamed) {
  ServerRig rig(roomy());
  for (int i = 0; i < 5; ++i) {
    const Json body = asking(letters(20, 100 + i), {{"tools", {weather(), patch()}},
                                                    {"tool_choice", "required"},
                                                    {"parallel_tool_calls", false}});
    const Json whole = json(rig.post(kChat, body));
    const Json& choice = whole["choices"][0];
    ASSERT_EQ(choice["finish_reason"], "tool_calls") << whole;
    EXPECT_TRUE(choice["message"]["content"].is_null());
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U);
    const Json& call = choice["message"]["tool_calls"][0];
    EXPECT_TRUE(call["id"].get<std::string>().starts_with("call_"));
    std::string said;
    if (call["type"] == "custom") {
      EXPECT_EQ(call["custom"]["name"], "patch");
      said = call["custom"]["input"];
    } else {
      EXPECT_EQ(call["function"]["name"], "get_weather");
      said = call["function"]["arguments"];
      expect_weather(said);
    }
    Json streamed = body;
    streamed["stream"] = true;
    const StreamAnswer events = rig.stream(kChat, streamed);
    ASSERT_TRUE(events.done);
    std::string joined;
    std::string name;
    for (const Json& event : events.events) {
      for (const Json& each : event["choices"]) {
        if (!each["delta"].contains("tool_calls")) continue;
        const Json& delta = each["delta"]["tool_calls"][0];
        EXPECT_EQ(delta["index"], 0);
        const Json& own = delta.contains("custom") ? delta["custom"] : delta["function"];
        if (own.contains("name")) name = own["name"];
        joined += own.value("arguments", own.value("input", ""));
      }
    }
    EXPECT_EQ(joined, said);
    EXPECT_EQ(events.events.back()["choices"][0]["finish_reason"], "tool_calls");
  }
  rig.expect_quiet();
}

TEST(AppTools, ANamedToolIsCalledAndNoOther) {
  ServerRig rig(roomy());
  const Json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  for (int i = 0; i < 5; ++i) {
    const Json answer = json(rig.post(
        kChat, asking(letters(20, i), {{"tools", {weather(), patch()}}, {"tool_choice", named}})));
    const Json& calls = answer["choices"][0]["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1U) << answer;
    EXPECT_EQ(calls[0]["function"]["name"], "get_weather");
    expect_weather(calls[0]["function"]["arguments"]);
  }
}

TEST(AppTools, AConversationGoesOnWithResults) {
  ServerRig rig(roomy());
  Json body = asking("Weather?", {{"tools", {weather()}}, {"tool_choice", "required"}});
  const Json first = json(rig.post(kChat, body));
  const Json& message = first["choices"][0]["message"];
  body["messages"].push_back(message);
  for (const Json& call : message["tool_calls"]) {
    body["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "Rain."}});
  }
  body["tool_choice"] = "auto";
  const Json second = json(rig.post(kChat, body));
  ASSERT_TRUE(second.contains("choices")) << second;
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"],
            first["usage"]["prompt_tokens"].get<int>() / 2);
  EXPECT_TRUE(second["stemma"]["parted_in"].is_string());
}

TEST(AppTools, AnswersHaveTheFormThatIsAsked) {
  ServerRig rig(roomy());
  const Json schema = Json::parse(R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"array","items":{"type":"boolean"},"maxItems":3}},"required":["a","b"],
      "additionalProperties":false})");
  const std::vector<Json> forms = {
      {{"response_format", {{"type", "json_object"}}}},
      {{"response_format",
        {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}},
      {{"json_schema", schema}}};
  for (const Json& form : forms) {
    for (int i = 0; i < 3; ++i) {
      Json more = form;
      more["temperature"] = i;
      more["seed"] = 5;
      const Json answer = json(rig.post(kChat, asking(letters(20, i), more)));
      const Json& choice = answer["choices"][0];
      // Random answers may be endless; an answer that ended is JSON.
      if (choice["finish_reason"] == "length") continue;
      const Json said =
          Json::parse(choice["message"]["content"].get<std::string>(), nullptr, false);
      ASSERT_TRUE(said.is_object()) << answer;
      if (form.contains("json_schema")) {
        EXPECT_TRUE(said["a"].is_number_integer()) << said;
        EXPECT_LE(said["b"].size(), 3U);
      }
    }
  }
  const Json answer =
      json(rig.post(kChat, asking("x", {{"grammar", "root ::= \"yes\" | \"no\""}})));
  const std::string said = answer["choices"][0]["message"]["content"];
  EXPECT_TRUE(said == "yes" || said == "no") << said;
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
}

TEST(AppTools, SeveralChoicesFollowTheirRulesEach) {
  ServerRig rig(roomy());
  const Json answer = json(rig.post(
      kChat, asking("x", {{"grammar", "root ::= [ab]{3}"}, {"n", 4}, {"temperature", 1}})));
  ASSERT_EQ(answer["choices"].size(), 4U);
  for (const Json& choice : answer["choices"]) {
    const std::string said = choice["message"]["content"];
    EXPECT_EQ(said.size(), 3U);
    EXPECT_EQ(said.find_first_not_of("ab"), std::string::npos);
  }
}

TEST(AppTools, WhatIsBannedAndDemandedIsAnErrorThatSaysSo) {
  ServerRig rig(roomy());
  const HttpAnswer answer =
      rig.post(kChat, asking("x", {{"grammar", "root ::= \"a\""}, {"logit_bias", {{"97", -100}}}}));
  EXPECT_EQ(answer.status, 400) << answer.body;
  EXPECT_NE(answer.body.find("logit_bias"), std::string::npos) << answer.body;
  rig.expect_quiet();
}

TEST(AppTools, WhatCannotBeEnforcedIsRefusedOrNamed) {
  ServerRig rig(roomy());
  Json tool = weather();
  tool["function"]["parameters"]["properties"]["days"] = {{"type", "array"}, {"uniqueItems", true}};
  const HttpAnswer listed = rig.post(kChat, conversation({{"user", "x"}}, 5, {{"tools", {tool}}}));
  EXPECT_EQ(listed.status, 200) << listed.body;
  EXPECT_NE(listed.header("x-stemma-unenforced").find("uniqueItems"), std::string::npos);
  tool["function"]["strict"] = true;
  const HttpAnswer refused = rig.post(kChat, conversation({{"user", "x"}}, 5, {{"tools", {tool}}}));
  EXPECT_EQ(error_code(refused, 400), "unsupported_schema");
  EXPECT_NE(refused.body.find("uniqueItems"), std::string::npos) << refused.body;
}

TEST(AppTools, WhatIsPassedOverIsNamedInAHeader) {
  ServerRig rig(roomy());
  const Json body = conversation({{"user", "x"}}, 3, {{"user", "u"}, {"new_thing", 5}});
  EXPECT_EQ(rig.post(kChat, body).header("x-stemma-ignored"), "user, new_thing");
  Json streamed = body;
  streamed["stream"] = true;
  EXPECT_EQ(rig.stream(kChat, streamed).head.header("x-stemma-ignored"), "user, new_thing");
}

TEST(AppTools, HostileSchemasAndToolsHurtNobody) {
  ServerRig rig(roomy());
  std::string deep = R"({"type":"string"})";
  for (int i = 0; i < 90; ++i) deep = R"({"anyOf":[)" + deep + "]}";
  Json many = Json::array();
  for (int i = 0; i < 300; ++i) {
    Json tool = weather();
    tool["function"]["name"] = "tool_" + std::to_string(i);
    many.push_back(tool);
  }
  const std::vector<Json> bodies = {
      asking("x", {{"json_schema", Json::parse(R"({"$ref":"#"})")}}),
      asking("x",
             {{"json_schema", Json::parse(R"x({"type":"string","pattern":"(a*)*(b|a)*$"})x")}}),
      asking("x", {{"json_schema", Json::parse(R"x({"type":"string","pattern":"(?=x)"})x")}}),
      asking("x", {{"json_schema", Json::parse(R"({"enum":[]})")}}),
      asking("x", {{"json_schema", Json::parse(deep)}}),
      asking("x", {{"grammar", "root ::= root \"a\""}}),
      asking("x", {{"grammar", std::string(10'000, '(')}}),
      asking("x", {{"tools", many}, {"tool_choice", "required"}}),
  };
  for (Json body : bodies) {
    body["max_tokens"] = 200;
    const HttpAnswer answer = rig.post(kChat, body);
    EXPECT_TRUE(answer.status == 200 || answer.status == 400) << answer.body;
    if (answer.status == 400) {
      EXPECT_FALSE(error_code(answer, 400).empty()) << answer.body;
    }
  }
  rig.expect_quiet();
}

TEST(AppTools, ModelsWithoutToolsAreToldOfThemInASystemMessage) {
  ServerRig rig(roomy());
  const Json prompt =
      json(rig.post("/apply-template", {{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                        {"tools", {weather()}}}));
  const std::string text = prompt["prompt"];
  EXPECT_NE(text.find("<|im_start|>system\n# Tools"), std::string::npos) << text;
  EXPECT_NE(text.find("get_weather"), std::string::npos) << text;
  EXPECT_NE(text.find("<tool_call>"), std::string::npos) << text;
}

}  // namespace
}  // namespace stemma::test::app_tools
