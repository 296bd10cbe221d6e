// Tests Responses requests: items become the conversation they came from, and unsupported requests
// are refused.
#include "server/api/responses/request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

// A separate namespace, because sources are compiled together.
namespace stemma::server::responses_request_test {
namespace {

class ResponsesRequestTest : public ::testing::Test {
 protected:
  ResponsesRequest good(const std::string& body) {
    ResponsesRequest request;
    const auto error = decode_responses(body, {}, store_, request);
    EXPECT_FALSE(error) << body << ": " << error->message;
    return request;
  }
  ApiError bad(const std::string& body) {
    ResponsesRequest request;
    const auto error = decode_responses(body, {}, store_, request);
    EXPECT_TRUE(error) << body;
    return error.value_or(ApiError{.status = 200});
  }
  ResponsesRequest items(const std::string& list, const std::string& more = "") {
    return good(R"({"model":"m","input":[)" + list + "]" + more + "}");
  }
  ApiError bad_items(const std::string& list) { return bad(R"({"input":[)" + list + "]}"); }
  ResponsesRequest with(const std::string& fields) {
    return good(R"({"input":"Hi",)" + fields + "}");
  }
  ApiError bad_with(const std::string& fields) { return bad(R"({"input":"Hi",)" + fields + "}"); }

  static bool ignores(const ResponsesRequest& request, std::string_view what) {
    const auto& ignored = request.chat.options.ignored;
    return std::ranges::find(ignored, what) != ignored.end();
  }

  ResponseStore store_{ResponseStore::Options{}};
};

TEST_F(ResponsesRequestTest, ATextIsOneMessageBehindTheInstructions) {
  const ResponsesRequest request = good(R"({"input":"Hi","instructions":"Be kind."})");
  ASSERT_EQ(request.chat.messages.size(), 2U);
  EXPECT_EQ(request.chat.messages[0].role, "system");
  EXPECT_EQ(request.chat.messages[0].text(), "Be kind.");
  EXPECT_EQ(request.chat.messages[1].role, "user");
  EXPECT_EQ(request.chat.messages[1].text(), "Hi");
  EXPECT_TRUE(request.store);
  EXPECT_EQ(request.input,
            R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}])");
  EXPECT_EQ(request.echo.instructions, R"("Be kind.")");
}

TEST_F(ResponsesRequestTest, ItemsOfOneAnswerBecomeOneMessage) {
  const ResponsesRequest request = items(
      R"({"role":"user","content":"Look"},)"
      R"({"type":"reasoning","id":"rs_K_0","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},)"
      R"({"type":"message","id":"msg_K_1","role":"assistant","content":[{"type":"output_text","text":"I look."}]},)"
      R"({"type":"function_call","id":"fc_K_2","call_id":"c1","name":"ls","arguments":"{}"},)"
      R"({"type":"custom_tool_call","id":"ctc_K_3","call_id":"c2","name":"patch","input":"*** a"},)"
      R"({"type":"function_call_output","call_id":"c1","output":"a.txt"},)"
      R"({"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"ok"}]})");
  const std::vector<Message>& messages = request.chat.messages;
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1].role, "assistant");
  EXPECT_EQ(messages[1].reasoning, "hm");
  EXPECT_EQ(messages[1].text(), "I look.");
  ASSERT_EQ(messages[1].calls.size(), 2U);
  EXPECT_EQ(messages[1].calls[0].id, "c1");
  EXPECT_EQ(messages[1].calls[0].arguments, "{}");
  EXPECT_FALSE(messages[1].calls[0].custom);
  EXPECT_TRUE(messages[1].calls[1].custom);
  EXPECT_EQ(messages[1].calls[1].arguments, "*** a");
  EXPECT_EQ(messages[2].role, "tool");
  EXPECT_EQ(messages[2].call_id, "c1");
  EXPECT_EQ(messages[2].text(), "a.txt");
  EXPECT_EQ(messages[3].call_id, "c2");
  EXPECT_EQ(messages[3].text(), "ok");
}

TEST_F(ResponsesRequestTest, AnAnswerEndsWhereItsIdOrItsOrderSays) {
  const std::string said = R"({"type":"message","role":"assistant","content":"a","id":")";
  // Different ids mean two answers. The same id, or none, means one.
  EXPECT_EQ(items(said + R"(msg_K_0"},)" + said + R"(msg_L_0"})").chat.messages.size(), 2U);
  EXPECT_EQ(items(said + R"(msg_K_0"},)" + said + R"(msg_K_1"})").chat.messages.size(), 1U);
  // Thinking and text after a call begin another answer.
  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"},)";
  EXPECT_EQ(items(call + R"({"role":"assistant","content":"a"})").chat.messages.size(), 2U);
  EXPECT_EQ(items(call + R"({"type":"reasoning","summary":[]})").chat.messages.size(), 2U);
}

TEST_F(ResponsesRequestTest, ThinkingIsReadFromItsSummaryWhereThatIsAllThereIs) {
  const auto request = items(
      R"({"type":"reasoning","id":"rs_K_0","encrypted_content":"K","summary":[{"type":"summary_text","text":"so"}]})");
  EXPECT_EQ(request.chat.messages.at(0).reasoning, "so");
  EXPECT_EQ(request.chat.messages.at(0).transcript_id, "K");
}

TEST_F(ResponsesRequestTest, ResultsAnswerCallsThatWaitForThem) {
  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::string result = R"({"type":"function_call_output","call_id":"c","output":"1"})";
  EXPECT_EQ(bad_items(result).param, "input[0].call_id");
  EXPECT_EQ(bad_items(call + "," + result + "," + result).param, "input[2].call_id");
  EXPECT_EQ(bad_items(call + "," + call).param, "input[1].call_id");
  // An id may be used again once its call is answered: other servers number calls by turn.
  EXPECT_EQ(items(call + "," + result + "," + call + "," + result).chat.messages.size(), 4U);
}

TEST_F(ResponsesRequestTest, WhatIsNoTextIsRefusedByName) {
  EXPECT_EQ(
      bad_items(R"({"role":"user","content":[{"type":"input_image","image_url":"data:,"}]})").param,
      "input[0].content[0].type");
  EXPECT_EQ(bad_items(R"({"type":"web_search_call","id":"ws_1"})").param, "input[0].type");
  EXPECT_EQ(bad_items(R"({"role":"robot","content":"x"})").param, "input[0].role");
  EXPECT_EQ(bad_items("7").param, "input[0]");
  EXPECT_EQ(bad_items("").param, "input");
  EXPECT_EQ(bad("{}").code, "missing_required_parameter");
  EXPECT_EQ(bad("[").code, "invalid_json");
  EXPECT_EQ(bad_with(R"("background":true)").param, "background");
  EXPECT_EQ(bad_with(R"("conversation":"conv_1")").param, "conversation");
  EXPECT_EQ(bad_with(R"("truncation":"some")").param, "truncation");
}

TEST_F(ResponsesRequestTest, HintsAndUnknownFieldsArePassedOverAndNamed) {
  const auto request = with(
      R"("client_metadata":{"a":"b"},"service_tier":"auto","truncation":"auto","new_thing":1,"background":false)");
  for (const char* name : {"client_metadata", "service_tier", "truncation", "new_thing"}) {
    EXPECT_TRUE(ignores(request, name)) << name;
  }
  EXPECT_EQ(request.echo.truncation, R"("auto")");
}

TEST_F(ResponsesRequestTest, ToolsAreFlatAndThoseOfOpenAiArePassedOver) {
  const auto request = with(
      R"("tools":[{"type":"function","name":"f","description":"d","strict":true,)"
      R"("parameters":{"type":"object"}},{"type":"custom","name":"patch","format":{"type":"text"}},)"
      R"({"type":"web_search"},{"type":"namespace","name":"ns","tools":[)"
      R"({"type":"function","name":"f"},{"type":"function","name":"g"}]}],"parallel_tool_calls":false)");
  const auto& tools = request.chat.tools;
  ASSERT_EQ(tools.size(), 4U);
  EXPECT_EQ(tools[0].name, "f");
  EXPECT_TRUE(tools[0].strict);
  EXPECT_NE(tools[0].parameters.find("type"), nullptr);
  EXPECT_TRUE(tools[1].custom);
  EXPECT_EQ(tools[2].name, "ns__f");  // Another tool already has the plain name.
  EXPECT_EQ(tools[3].name, "g");
  ASSERT_EQ(request.namespaced.size(), 2U);
  EXPECT_EQ(request.namespaced[1].name_space, "ns");
  EXPECT_TRUE(ignores(request, "tools[2] (web_search)"));
  EXPECT_FALSE(request.chat.parallel_calls);
}

TEST_F(ResponsesRequestTest, AGrammarOfACustomToolIsNamedAndUnderStrictRefused) {
  // As Codex offers it.
  const std::string tool =
      R"("tools":[{"type":"custom","name":"apply_patch","format":{"type":"grammar","syntax":"lark","definition":"start: x"})";
  const auto request = with(tool + "}]");
  ASSERT_EQ(request.chat.tools.size(), 1U);
  EXPECT_TRUE(request.chat.tools[0].custom);
  EXPECT_EQ(request.chat.tools[0].unenforced, "tools[0].format");
  EXPECT_TRUE(request.chat.options.ignored.empty());
  const auto error = bad_with(tool + R"(,"strict":true}])");
  EXPECT_EQ(error.param, "tools[0].format.type");
  EXPECT_NE(error.message.find("cannot be enforced"), std::string::npos);
  EXPECT_EQ(bad_with(R"("tools":[{"type":"custom","name":"p","format":{"type":"xml"}}])").param,
            "tools[0].format.type");
}

TEST_F(ResponsesRequestTest, ToolChoiceNamesToolsThatAreThere) {
  const std::string tools = R"("tools":[{"type":"function","name":"f"},{"type":"web_search"}],)";
  using Kind = ToolChoice::Kind;
  EXPECT_EQ(with(tools + R"("tool_choice":"none")").chat.tool_choice.kind, Kind::none);
  EXPECT_EQ(with(tools + R"("tool_choice":"required")").chat.tool_choice.kind, Kind::required);
  const auto named = with(tools + R"("tool_choice":{"type":"function","name":"f"})");
  EXPECT_EQ(named.chat.tool_choice.kind, Kind::named);
  EXPECT_EQ(named.chat.tool_choice.names, std::vector<std::string>{"f"});
  const auto allowed = with(
      tools +
      R"("tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]})");
  EXPECT_EQ(allowed.chat.tool_choice.kind, Kind::required);
  EXPECT_EQ(allowed.chat.tool_choice.names, std::vector<std::string>{"f"});
  EXPECT_EQ(bad_with(tools + R"("tool_choice":{"type":"function","name":"g"})").param,
            "tool_choice.name");
  EXPECT_EQ(bad_with(tools + R"("tool_choice":{"type":"web_search"})").param, "tool_choice.type");
  EXPECT_EQ(bad_with(R"("tool_choice":"required")").param, "tool_choice");
  EXPECT_EQ(bad_with(R"("tool_choice":"maybe")").param, "tool_choice");
}

TEST_F(ResponsesRequestTest, TheFormOfTheAnswerAndItsThinking) {
  const auto schema = with(
      R"("text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}}})");
  EXPECT_EQ(schema.chat.form.kind, AnswerForm::Kind::json_schema);
  EXPECT_TRUE(schema.chat.form.strict);
  EXPECT_EQ(with(R"("text":{"format":{"type":"json_object"}})").chat.form.kind,
            AnswerForm::Kind::json_object);
  EXPECT_EQ(with(R"("text":{"format":{"type":"text"},"verbosity":"low"})").chat.form.kind,
            AnswerForm::Kind::free);
  EXPECT_EQ(bad_with(R"("text":{"format":{"type":"json_schema","name":"n"}})").param,
            "text.format.schema");
  EXPECT_EQ(bad_with(R"("text":{"format":{"type":"xml"}})").param, "text.format.type");

  const auto high = with(R"("reasoning":{"effort":"high","summary":"auto"})");
  EXPECT_EQ(high.chat.thinking.wanted, true);
  EXPECT_EQ(high.chat.thinking.effort, "high");
  EXPECT_TRUE(high.summary);
  EXPECT_EQ(with(R"("reasoning":{"effort":"none"})").chat.thinking.wanted, false);
  EXPECT_FALSE(with(R"("reasoning":{"summary":"auto"})").chat.thinking.wanted.has_value());
}

TEST_F(ResponsesRequestTest, StoredTurnsComeBeforeTheRequestsOwn) {
  store_.put(
      "", "resp_A",
      {.head = "",
       .output =
           R"([{"type":"message","id":"msg_A_0","role":"assistant","content":[{"type":"output_text","text":"2"}]}])",
       .tail = "",
       .input = R"([{"role":"user","content":"1"}])",
       .previous_id = ""});
  store_.put(
      "", "resp_B",
      {.head = "",
       .output =
           R"([{"type":"function_call","id":"fc_B_0","call_id":"c","name":"f","arguments":"{}"}])",
       .tail = "",
       .input = R"([{"role":"user","content":"3"}])",
       .previous_id = "resp_A"});
  const auto request = items(R"({"type":"function_call_output","call_id":"c","output":"4"})",
                             R"(,"previous_response_id":"resp_B","instructions":"new")");
  std::string all;
  for (const Message& message : request.chat.messages)
    all += message.role + ":" + message.text() + ";";
  EXPECT_EQ(all, "system:new;user:1;assistant:2;user:3;assistant:;tool:4;");
  EXPECT_EQ(request.input, R"([{"type":"function_call_output","call_id":"c","output":"4"}])");

  // Neither an unknown response nor one of another salt is found.
  EXPECT_EQ(bad_with(R"("previous_response_id":"resp_C")").status, 404);
  EXPECT_EQ(bad_with(R"("previous_response_id":"resp_B","cache_salt":"s")").code,
            "previous_response_not_found");
  // If one turn of a conversation is gone, the conversation is gone.
  EXPECT_TRUE(store_.erase("", "resp_A"));
  EXPECT_EQ(bad_with(R"("previous_response_id":"resp_B")").status, 404);
}

TEST_F(ResponsesRequestTest, AReferenceStandsForAStoredItem) {
  store_.put(
      "", "resp_A",
      {.head = "",
       .output =
           R"([{"type":"reasoning","id":"rs_A_0","summary":[]},{"type":"message","id":"msg_A_1","role":"assistant","content":[{"type":"output_text","text":"2"}]}])",
       .tail = "",
       .input = "[]",
       .previous_id = ""});
  const auto request =
      items(R"({"role":"user","content":"1"},{"type":"item_reference","id":"msg_A_1"})");
  ASSERT_EQ(request.chat.messages.size(), 2U);
  EXPECT_EQ(request.chat.messages[1].text(), "2");
  EXPECT_EQ(bad_items(R"({"type":"item_reference","id":"msg_A_7"})").status, 404);
  EXPECT_EQ(bad_items(R"({"type":"item_reference","id":"msg_Z_0"})").param, "input[0].id");
}

TEST_F(ResponsesRequestTest, ReferencesAreLimitedInNumberAndBytes) {
  const std::string text(60'000, 'x');
  store_.put("", "resp_A",
             {.head = "",
              .output = R"([{"type":"message","id":"msg_A_0","role":"assistant","content":")" +
                        text + R"("}])",
              .tail = "",
              .input = "[]",
              .previous_id = ""});
  const std::string reference = R"({"type":"item_reference","id":"msg_A_0"})";
  const auto many = [&](size_t count) {
    std::string list = reference;
    for (size_t i = 1; i < count; ++i) list += "," + reference;
    return list;
  };
  // All of them are the same answer, so they become one message.
  EXPECT_EQ(items(many(200)).chat.messages.at(0).text().size(), 200 * text.size());
  const ApiError large = bad_items(many(400));  // 24 MB.
  EXPECT_EQ(large.status, 400);
  EXPECT_EQ(large.code, "too_many_references");
  EXPECT_NE(large.message.find("16777216 bytes"), std::string::npos) << large.message;
  EXPECT_EQ(bad_items(many(1'000'000)).code, "too_many_references");

  store_.put("", "resp_B",
             {.head = "",
              .output = R"([{"type":"reasoning","id":"rs_B_0","summary":[]}])",
              .tail = "",
              .input = "[]",
              .previous_id = ""});
  std::string small;
  for (size_t i = 0; i < 4097; ++i) {
    small += std::string(i == 0 ? "" : ",") + R"({"type":"item_reference","id":"rs_B_0"})";
  }
  const ApiError often = bad_items(small);
  EXPECT_EQ(often.param, "input[4096]");
  EXPECT_NE(often.message.find("4096 item references"), std::string::npos) << often.message;
}

}  // namespace
}  // namespace stemma::server::responses_request_test
