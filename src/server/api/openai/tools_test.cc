// Tests chats with tools: which tools, calls and results clients may send, and which are refused by
// name.
#include "server/api/openai/tools.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/api/openai/request.h"

namespace stemma::server::chat_tools_test {
namespace {

constexpr const char* kUser = R"({"role":"user","content":"Hi"})";
constexpr const char* kRead =
    R"({"type":"function","function":{"name":"read","description":"Reads.","strict":true,
        "parameters":{"type":"object","properties":{"path":{"type":"string"}}}},
        "cache_control":{"type":"ephemeral","ttl":"1h"}})";
constexpr const char* kPatch =
    R"({"type":"custom","custom":{"name":"patch","format":{"type":"text"}}})";

std::string body(const std::string& messages, const std::string& fields) {
  return R"({"messages":[)" + messages + "]," + fields + "}";
}
std::string with_tools(const std::string& fields) {
  return body(kUser, R"("tools":[)" + std::string(kRead) + "," + kPatch + "]" +
                         (fields.empty() ? "" : "," + fields));
}
ChatRequest chat(const std::string& text) {
  ChatRequest request;
  const auto error = decode_chat(text, {}, request);
  EXPECT_FALSE(error) << text << ": " << error->message;
  return request;
}
ApiError error_of(const std::string& text) {
  ChatRequest request;
  return decode_chat(text, {}, request).value_or(ApiError{.status = 200});
}
void expect_error(const std::string& text, const std::string& param) {
  const ApiError error = error_of(text);
  EXPECT_EQ(error.status, 400) << text;
  EXPECT_EQ(error.param, param) << text << ": " << error.message;
}

TEST(ChatTools, FunctionsAndCustomToolsAreRead) {
  const ChatRequest request = chat(with_tools(""));
  ASSERT_EQ(request.tools.size(), 2U);
  EXPECT_EQ(request.tools[0].name, "read");
  EXPECT_EQ(request.tools[0].description, "Reads.");
  EXPECT_TRUE(request.tools[0].strict);
  EXPECT_NE(request.tools[0].parameters.find("properties"), nullptr);
  EXPECT_EQ(request.tools[0].cache_control->ttl_ns, 3'600'000'000'000U);
  EXPECT_TRUE(request.tools[1].custom);
  EXPECT_TRUE(request.tools[1].parameters.is_null());
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::automatic);
  EXPECT_TRUE(request.parallel_calls);
}

TEST(ChatTools, AGrammarOfACustomToolIsNamedAndUnderStrictRefused) {
  const std::string format = R"("format":{"type":"grammar","grammar":{"syntax":"lark",)"
                             R"("definition":"start: x"}})";
  const auto tools = [&](const std::string& more) {
    return body(kUser,
                R"("tools":[{"type":"custom","custom":{"name":"patch",)" + format + more + "}}]");
  };
  const ChatRequest request = chat(tools(""));
  ASSERT_EQ(request.tools.size(), 1U);
  EXPECT_EQ(request.tools[0].unenforced, "tools[0].custom.format");
  EXPECT_TRUE(request.options.ignored.empty());
  expect_error(tools(R"(,"strict":true)"), "tools[0].custom.format.type");
}

TEST(ChatTools, ChoicesAreRead) {
  using Kind = ToolChoice::Kind;
  EXPECT_EQ(chat(with_tools(R"("tool_choice":"none")")).tool_choice.kind, Kind::none);
  EXPECT_EQ(chat(with_tools(R"("tool_choice":"required")")).tool_choice.kind, Kind::required);
  const ChatRequest named =
      chat(with_tools(R"("tool_choice":{"type":"function","function":{"name":"read"}})"));
  EXPECT_EQ(named.tool_choice.kind, Kind::named);
  EXPECT_EQ(named.tool_choice.names, std::vector<std::string>{"read"});
  const ChatRequest custom =
      chat(with_tools(R"("tool_choice":{"type":"custom","custom":{"name":"patch"}})"));
  EXPECT_EQ(custom.tool_choice.names, std::vector<std::string>{"patch"});
  const ChatRequest allowed = chat(with_tools(
      R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[
         {"type":"function","function":{"name":"read"}}]}},"parallel_tool_calls":false)"));
  EXPECT_EQ(allowed.tool_choice.kind, Kind::required);
  EXPECT_EQ(allowed.tool_choice.names, std::vector<std::string>{"read"});
  EXPECT_FALSE(allowed.parallel_calls);
}

TEST(ChatTools, WhatCannotBeIsRefusedByPlace) {
  const auto tool = [](const std::string& text) {
    return body(kUser, R"("tools":[)" + text + "]");
  };
  expect_error(body(kUser, R"("tools":{})"), "tools");
  expect_error(tool("5"), "tools[0]");
  expect_error(tool(R"({"type":"web_search"})"), "tools[0].type");
  expect_error(tool(R"({"type":"function"})"), "tools[0].function");
  expect_error(tool(R"({"type":"function","function":{}})"), "tools[0].function.name");
  expect_error(tool(R"({"type":"function","function":{"name":"a b"}})"), "tools[0].function.name");
  expect_error(tool(R"({"type":"function","function":{"name":"<tool_call>"}})"),
               "tools[0].function.name");
  expect_error(tool(R"({"type":"function","function":{"name":"f","parameters":[]}})"),
               "tools[0].function.parameters");
  expect_error(tool(std::string(kRead) + "," + kRead), "tools[1].function.name");
  expect_error(with_tools(R"("tool_choice":"sometimes")"), "tool_choice");
  expect_error(with_tools(R"("tool_choice":{"type":"function","function":{"name":"gone"}})"),
               "tool_choice.function.name");
  expect_error(body(kUser, R"("tool_choice":"required")"), "tool_choice");
}

TEST(ChatTools, CallsAndResultsAreRead) {
  const ChatRequest request =
      chat(body(std::string(kUser) +
                    R"(,{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
            {"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\": \"a\"}"}},
            {"id":"c2","type":"custom","custom":{"name":"patch","input":"+x"}}]},
            {"role":"tool","tool_call_id":"c2","content":"done"},
            {"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"text"}]},
            {"role":"assistant","content":"Ok"})",
                R"("n":1)"));
  ASSERT_EQ(request.messages.size(), 5U);
  const Message& answer = request.messages[1];
  EXPECT_TRUE(answer.parts.empty());
  EXPECT_EQ(answer.reasoning, "hm");
  ASSERT_EQ(answer.calls.size(), 2U);
  EXPECT_EQ(answer.calls[0].arguments, "{\"path\": \"a\"}");  // As written.
  EXPECT_TRUE(answer.calls[1].custom);
  EXPECT_EQ(answer.calls[1].arguments, "+x");
  EXPECT_EQ(request.messages[2].call_id, "c2");
  EXPECT_EQ(request.messages[3].text(), "text");
}

TEST(ChatTools, FunctionsOfOldAreCallsToo) {
  const ChatRequest request = chat(body(std::string(kUser) + R"(,{"role":"assistant","content":null,
        "function_call":{"name":"read","arguments":"{}"}},
        {"role":"function","name":"read","content":"x"})",
                                        R"("n":1)"));
  EXPECT_EQ(request.messages[1].calls[0].name, "read");
  EXPECT_EQ(request.messages[2].role, "tool");
  EXPECT_EQ(request.messages[2].call_id, request.messages[1].calls[0].id);
}

TEST(ChatTools, CallsAndResultsThatDoNotFitAreRefusedByPlace) {
  const auto talk = [](const std::string& messages) {
    return body(std::string(kUser) + "," + messages, R"("n":1)");
  };
  const auto answer = [](const std::string& calls) {
    return R"({"role":"assistant","content":null,"tool_calls":[)" + calls + "]}";
  };
  const auto call = [](const std::string& id, const std::string& arguments) {
    return R"({"id":")" + id + R"(","type":"function","function":{"name":"f","arguments":)" +
           arguments + "}}";
  };
  const auto result = [](const std::string& id) {
    return R"({"role":"tool","content":"x","tool_call_id":")" + id + "\"}";
  };
  const std::string good = answer(call("c1", R"("{}")"));
  EXPECT_EQ(error_of(talk(good + "," + result("c1"))).status, 200);
  // An older answer's ids may be used again.
  EXPECT_EQ(error_of(talk(good + "," + result("c1") + "," + good + "," + result("c1"))).status,
            200);
  // A call without a result is not an error: the user may have stopped it.
  EXPECT_EQ(error_of(talk(good + "," + kUser)).status, 200);
  expect_error(talk(result("c1")), "messages[1].tool_call_id");
  expect_error(talk(good + "," + result("c2")), "messages[2].tool_call_id");
  expect_error(talk(good + "," + result("c1") + "," + result("c1")), "messages[3].tool_call_id");
  expect_error(talk(good + R"(,{"role":"assistant","content":"x"},)" + result("c1")),
               "messages[3].tool_call_id");
  expect_error(talk(R"({"role":"tool","content":"x"})"), "messages[1].tool_call_id");
  expect_error(talk(answer(call("c1", R"("{}")") + "," + call("c1", R"("{}")"))),
               "messages[1].tool_calls[1].function.id");
  expect_error(talk(answer(call("", R"("{}")"))), "messages[1].tool_calls[0].id");
  expect_error(talk(answer(call("c1", "5"))), "messages[1].tool_calls[0].function.arguments");
  // A call that was cut off comes back as it was sent.
  for (const char* broken : {R"("{\"a\":")", R"("[]")", R"("no")"}) {
    const ChatRequest cut = chat(talk(answer(call("c1", broken)) + "," + result("c1")));
    std::string written;
    append_json_string(written, cut.messages[1].calls.at(0).arguments);
    EXPECT_EQ(written, broken);
  }
  EXPECT_EQ(error_of(talk(answer(call("c1", R"("")")))).status, 200);  // No arguments at all.
  expect_error(talk(R"({"role":"assistant","content":null})"), "messages[1].content");
}

TEST(AnswerForms, AreRead) {
  using Kind = AnswerForm::Kind;
  const auto form = [](const std::string& fields) { return chat(body(kUser, fields)).form; };
  EXPECT_EQ(form(R"("response_format":{"type":"text"})").kind, Kind::free);
  EXPECT_EQ(form(R"("response_format":{"type":"json_object"})").kind, Kind::json_object);
  const AnswerForm schema = form(R"("response_format":{"type":"json_schema","json_schema":
      {"name":"n","strict":true,"schema":{"type":"object"}}})");
  EXPECT_EQ(schema.kind, Kind::json_schema);
  EXPECT_TRUE(schema.strict);
  EXPECT_NE(schema.schema.find("type"), nullptr);
  EXPECT_EQ(form(R"("json_schema":{"type":"string"})").kind, Kind::json_schema);
  EXPECT_EQ(form(R"("grammar":"root ::= \"a\"")").grammar, "root ::= \"a\"");
  expect_error(body(kUser, R"("response_format":{"type":"xml"})"), "response_format.type");
  expect_error(body(kUser, R"("response_format":{"type":"json_schema"})"),
               "response_format.json_schema");
  expect_error(body(kUser, R"("response_format":{"type":"json_schema","json_schema":{}})"),
               "response_format.json_schema.schema");
  expect_error(body(R"({"role":"assistant","content":"{"})",
                    R"("continue_final_message":true,"json_schema":{})"),
               "continue_final_message");
  expect_error(body(kUser, R"("json_schema":5)"), "json_schema");
  expect_error(body(kUser, R"("json_schema":{},"grammar":"root ::= \"a\"")"), "grammar");
}

TEST(ThinkingFields, AreReadUnderAllTheirNames) {
  const auto thinking = [](const std::string& fields) {
    return chat(body(kUser, fields)).thinking;
  };
  EXPECT_EQ(thinking(R"("reasoning_effort":"high")").effort, "high");
  EXPECT_EQ(thinking(R"("reasoning":{"effort":"low"})").effort, "low");
  EXPECT_EQ(thinking(R"("enable_thinking":false)").wanted, false);
  EXPECT_EQ(thinking(R"("reasoning":{"enabled":true})").wanted, true);
  EXPECT_EQ(thinking(R"("thinking_budget":0)").wanted, false);
  EXPECT_EQ(thinking(R"("thinking_budget":500)").budget_tokens, 500U);
  EXPECT_FALSE(thinking(R"("reasoning_format":"none")").apart);
  EXPECT_TRUE(thinking(R"("reasoning_format":"auto")").apart);
}

}  // namespace
}  // namespace stemma::server::chat_tools_test
