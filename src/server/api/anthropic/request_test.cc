// Bodies of Anthropic's Messages API: how they are decoded, and which are refused.
#include "server/api/anthropic/request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace stemma::server {
namespace {

constexpr uint64_t kHourNs = 3'600'000'000'000U;

ChatRequest read(const std::string& body, AnthropicBody kind = AnthropicBody::messages) {
  ChatRequest request;
  const auto error = decode_anthropic(body, kind, {}, request);
  EXPECT_FALSE(error) << error->message << "\n" << body;
  return request;
}

std::string with(const std::string& messages, const std::string& more = "") {
  return R"({"model":"m","max_tokens":10,"messages":[)" + messages + "]" +
         (more.empty() ? "" : "," + more) + "}";
}
const char* const kHi = R"({"role":"user","content":"Hi"})";

// Returns the error's message.
std::string refused(const std::string& body, const std::string& param = "*") {
  ChatRequest request;
  const auto error = decode_anthropic(body, AnthropicBody::messages, {}, request);
  EXPECT_TRUE(error) << body;
  if (!error) return "";
  EXPECT_EQ(error->status, 400);
  if (param != "*") {
    EXPECT_EQ(error->param, param) << error->message;
  }
  return error->message;
}

bool ignores(const ChatRequest& request, const std::string& name) {
  return std::ranges::count(request.options.ignored, name) != 0;
}

TEST(AnthropicRequest, TheLeastOne) {
  const ChatRequest request = read(with(kHi));
  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(request.options.max_tokens, 10U);
  ASSERT_EQ(request.messages.size(), 1U);
  EXPECT_EQ(request.messages[0].role, "user");
  EXPECT_EQ(request.messages[0].text(), "Hi");
  EXPECT_TRUE(request.add_generation_prompt);
  EXPECT_EQ(request.thinking.wanted, false);
  EXPECT_TRUE(request.options.ignored.empty());
}

TEST(AnthropicRequest, SystemIsTextOrBlocks) {
  EXPECT_EQ(read(with(kHi, R"("system":"Be kind.")")).messages[0].text(), "Be kind.");
  const ChatRequest request = read(with(kHi, R"("system":[
      {"type":"text","text":"One."},
      {"type":"text","text":"Two.","cache_control":{"type":"ephemeral","ttl":"1h"}}])"));
  const Message& system = request.messages[0];
  EXPECT_EQ(system.role, "system");
  EXPECT_EQ(system.text(), "One.\n\nTwo.");
  ASSERT_EQ(system.parts.size(), 2U);
  EXPECT_FALSE(system.parts[0].cache_control);
  EXPECT_EQ(system.parts[1].cache_control->ttl_ns, kHourNs);
  EXPECT_EQ(read(with(kHi, R"("system":[])")).messages.size(), 1U);
}

TEST(AnthropicRequest, SystemInTheMiddleStaysThere) {
  const ChatRequest request =
      read(with(std::string(kHi) + R"(,{"role":"system","content":"Note."},)" + kHi));
  ASSERT_EQ(request.messages.size(), 3U);
  EXPECT_EQ(request.messages[1].role, "system");
  EXPECT_EQ(request.messages[1].text(), "Note.");
}

const char* const kCalls = R"(
    {"role":"assistant","content":[
      {"type":"thinking","thinking":"Hm. ","signature":"tr_abc"},
      {"type":"redacted_thinking","data":"xyz"},
      {"type":"text","text":"I will "},{"type":"text","text":"look."},
      {"type":"tool_use","id":"toolu_1","name":"read","input":{"z":1,"a":[true]}},
      {"type":"tool_use","id":"toolu_2","name":"list","input":{}}]})";
const char* const kResults = R"(
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"a"},
        {"type":"text","text":"b"}],"is_error":true},
      {"type":"tool_result","tool_use_id":"toolu_1"},
      {"type":"text","text":"And now?"}]})";

TEST(AnthropicRequest, CallsThinkingAndResults) {
  const ChatRequest request = read(with(std::string(kHi) + "," + kCalls + "," + kResults));
  ASSERT_EQ(request.messages.size(), 5U);
  const Message& answer = request.messages[1];
  EXPECT_EQ(answer.role, "assistant");
  EXPECT_EQ(answer.text(), "I will look.") << "joined as they are";
  EXPECT_EQ(answer.reasoning, "Hm. ");
  EXPECT_EQ(answer.transcript_id, "tr_abc");
  ASSERT_EQ(answer.calls.size(), 2U);
  EXPECT_EQ(answer.calls[0].id, "toolu_1");
  EXPECT_EQ(answer.calls[0].name, "read");
  EXPECT_EQ(answer.calls[0].arguments, R"({"z":1,"a":[true]})") << "in the order of the client";
  EXPECT_EQ(request.messages[2].role, "tool");
  EXPECT_EQ(request.messages[2].call_id, "toolu_2");
  EXPECT_EQ(request.messages[2].text(), "a\n\nb");
  EXPECT_TRUE(request.messages[2].is_error);
  EXPECT_EQ(request.messages[3].text(), "") << "a tool that says nothing";
  EXPECT_FALSE(request.messages[3].is_error);
  EXPECT_EQ(request.messages[4].role, "user");
  EXPECT_TRUE(ignores(request, "messages[1].content[1].type=redacted_thinking"));
}

TEST(AnthropicRequest, AnswersInARowAreOne) {
  const ChatRequest request = read(with(std::string(kHi) + R"(,
      {"role":"assistant","content":"One, "},{"role":"assistant","content":"two"})"));
  ASSERT_EQ(request.messages.size(), 2U);
  EXPECT_EQ(request.messages[1].text(), "One, two");
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.add_generation_prompt);
}

TEST(AnthropicRequest, ToolsAndTheirChoice) {
  const std::string tools = R"("tools":[
      {"name":"read","description":"Reads.","input_schema":{"type":"object","properties":{}},
       "cache_control":{"type":"ephemeral"},"defer_loading":false},
      {"type":"custom","name":"list","input_schema":{"type":"object"},"strict":true}])";
  const ChatRequest request = read(with(kHi, tools));
  ASSERT_EQ(request.tools.size(), 2U);
  EXPECT_EQ(request.tools[0].description, "Reads.");
  EXPECT_EQ(request.tools[0].cache_control->ttl_ns, kHourNs / 12);
  EXPECT_TRUE(request.tools[1].strict);
  EXPECT_TRUE(ignores(request, "tools[0].defer_loading"));
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::automatic);
  EXPECT_TRUE(request.parallel_calls);
  const auto choice = [&](const std::string& text) {
    return read(with(kHi, tools + R"(,"tool_choice":)" + text));
  };
  EXPECT_EQ(choice(R"({"type":"any"})").tool_choice.kind, ToolChoice::Kind::required);
  EXPECT_EQ(choice(R"({"type":"none"})").tool_choice.kind, ToolChoice::Kind::none);
  EXPECT_FALSE(choice(R"({"type":"auto","disable_parallel_tool_use":true})").parallel_calls);
  const ChatRequest named = choice(R"({"type":"tool","name":"list"})");
  EXPECT_EQ(named.tool_choice.kind, ToolChoice::Kind::named);
  EXPECT_EQ(named.tool_choice.names, std::vector<std::string>{"list"});
  refused(with(kHi, tools + R"(,"tool_choice":{"type":"tool","name":"x"})"), "tool_choice.name");
  refused(with(kHi, tools + R"(,"tool_choice":{"type":"some"})"), "tool_choice.type");
  refused(with(kHi, R"("tool_choice":{"type":"any"})"), "tool_choice.type");
}

TEST(AnthropicRequest, ThinkingAndForm) {
  const ChatRequest enabled =
      read(with(kHi, R"("thinking":{"type":"enabled","budget_tokens":2048})"));
  EXPECT_EQ(enabled.thinking.wanted, true);
  EXPECT_EQ(enabled.thinking.budget_tokens, 2048U);
  const ChatRequest adaptive =
      read(with(kHi, R"("thinking":{"type":"adaptive"},"output_config":{"effort":"high"})"));
  EXPECT_EQ(adaptive.thinking.wanted, true);
  EXPECT_EQ(adaptive.thinking.effort, "high");
  EXPECT_EQ(read(with(kHi, R"("thinking":{"type":"disabled"})")).thinking.wanted, false);
  refused(with(kHi, R"("thinking":{"type":"enabled"})"), "thinking.budget_tokens");
  refused(with(kHi, R"("thinking":{"type":"much"})"), "thinking.type");
  const ChatRequest form = read(
      with(kHi, R"("output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}})"));
  EXPECT_EQ(form.form.kind, AnswerForm::Kind::json_schema);
  EXPECT_TRUE(form.form.strict);
}

TEST(AnthropicRequest, SamplingStopsAndHints) {
  const ChatRequest request = read(with(kHi, R"("temperature":0.5,"top_k":40,"top_p":0.9,
      "stop_sequences":["END","\n\n"],"stream":true,"metadata":{"user_id":"session-7"},
      "service_tier":"auto","context_management":{"edits":[]},"cache_salt":"mine")"));
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.5F);
  EXPECT_EQ(request.options.sampling.top_k, 40U);
  EXPECT_EQ(request.options.stop, (std::vector<std::string>{"END", "\n\n"}));
  EXPECT_TRUE(request.options.stream);
  EXPECT_EQ(request.options.user_session, "session-7");
  EXPECT_EQ(request.options.salt, "mine");
  EXPECT_TRUE(ignores(request, "service_tier"));
  EXPECT_TRUE(ignores(request, "context_management"));
  EXPECT_FALSE(ignores(request, "metadata"));
}

TEST(AnthropicRequest, CacheControlStaysWithItsBlock) {
  const ChatRequest request = read(with(R"(
      {"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                                {"type":"text","text":"b"}]},
      {"role":"assistant","content":[
        {"type":"tool_use","id":"t","name":"f","input":{},"cache_control":{"type":"ephemeral"}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r",
        "cache_control":{"type":"ephemeral","ttl":"1h"}}]})"));
  EXPECT_TRUE(request.messages[0].parts[0].cache_control);
  EXPECT_FALSE(request.messages[0].parts[1].cache_control);
  EXPECT_TRUE(request.messages[1].cache_control);
  EXPECT_EQ(request.messages[2].cache_control->ttl_ns, kHourNs);
  EXPECT_TRUE(read(with(kHi, R"("cache_control":{"type":"ephemeral"})")).messages[0].cache_control);
  refused(with(kHi, R"("cache_control":{"type":"forever"})"), "cache_control.type");
  refused(with(kHi, R"("cache_control":{"type":"ephemeral","ttl":"1d"})"), "cache_control.ttl");
}

TEST(AnthropicRequest, WhatWouldChangeTheAnswerIsRefusedByName) {
  for (const char* type : {"image", "document", "search_result", "container_upload"}) {
    const std::string says =
        refused(with(R"({"role":"user","content":[{"type":")" + std::string(type) + R"("}]})"),
                "messages[0].content[0].type");
    EXPECT_NE(says.find(type), std::string::npos) << says;
  }
  const std::string shell =
      refused(with(kHi, R"("tools":[{"type":"bash_20250124","name":"bash"}])"), "tools[0].type");
  EXPECT_NE(shell.find("bash_20250124"), std::string::npos) << shell;
  refused(with(kHi, R"("mcp_servers":[{"url":"x"}])"), "mcp_servers");
  EXPECT_FALSE(read(with(kHi, R"("mcp_servers":[])")).messages.empty());
  refused(with(kHi, R"("thread":{"type":"create"})"), "thread");
  refused(with(R"({"role":"user","content":"x"},{"role":"assistant","content":[
      {"type":"server_tool_use","id":"s","name":"web_search","input":{}}]})"),
          "messages[1].content[0].type");
}

TEST(AnthropicRequest, ToolsThatAnthropicRunsAndUnknownMembersArePassedOverAndNamed) {
  const ChatRequest request =
      read(with(kHi, R"("tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},
        {"name":"f","input_schema":{},"cache_control":{"type":"ephemeral","scope":"global"}},
        {"type":"code_execution_20250825","name":"code_execution"}])"));
  ASSERT_EQ(request.tools.size(), 1U);
  EXPECT_EQ(request.tools[0].name, "f");
  EXPECT_TRUE(request.tools[0].cache_control);
  EXPECT_EQ(
      request.options.ignored,
      (std::vector<std::string>{"tools[0] (web_search_20250305)", "tools[1].cache_control.scope",
                                "tools[2] (code_execution_20250825)"}));
  // Nothing can call it.
  refused(with(kHi, R"("tools":[{"type":"web_search_20250305","name":"web_search"}],
        "tool_choice":{"type":"tool","name":"web_search"})"),
          "tool_choice.name");
}

TEST(AnthropicRequest, CallsAndResultsBelongTogether) {
  const std::string call = std::string(kHi) + R"(,{"role":"assistant","content":[
      {"type":"tool_use","id":"t1","name":"f","input":{}}]})";
  const auto result = [](const std::string& id) {
    return R"({"role":"user","content":[{"type":"tool_result","tool_use_id":")" + id +
           R"(","content":"r"}]})";
  };
  read(with(call + "," + result("t1")));
  read(with(call + R"(,{"role":"system","content":"x"},)" + result("t1")));
  refused(with(call), "messages");
  refused(with(call + "," + kHi), "messages");
  refused(with(result("t1")), "messages[0].content[0].tool_use_id");
  refused(with(call + "," + result("t2")), "messages[2].content[0].tool_use_id");
  refused(with(call + "," + result("t1") + "," + result("t1")),
          "messages[3].content[0].tool_use_id");
  refused(with(call + "," + kHi + R"(,{"role":"assistant","content":"x"},)" + result("t1")),
          "messages[3].content");
  refused(with(call + "," + result("t1") + R"(,{"role":"assistant","content":[
      {"type":"tool_use","id":"t1","name":"f","input":{}}]},)" +
               result("t1")),
          "messages[3].content[0].id");
  refused(with(std::string(kHi) + R"(,{"role":"assistant","content":[
      {"type":"tool_use","id":"t1","name":"f","input":"text"}]},)" +
               result("t1")),
          "messages[1].content[0].input");
}

TEST(AnthropicRequest, MalformedBodiesAreRefusedWithTheField) {
  refused("{", "");
  refused("[]", "");
  refused(R"({"model":"m","messages":[{"role":"user","content":"Hi"}]})", "max_tokens");
  refused(R"({"model":"m","max_tokens":0,"messages":[{"role":"user","content":"Hi"}]})",
          "max_tokens");
  refused(R"({"max_tokens":1})", "messages");
  refused(R"({"max_tokens":1,"messages":[]})", "messages");
  refused(R"({"max_tokens":1,"messages":[7]})", "messages[0]");
  refused(R"({"max_tokens":1,"messages":[{"content":"x"}]})", "messages[0].role");
  refused(R"({"max_tokens":1,"messages":[{"role":"tool","content":"x"}]})", "messages[0].role");
  refused(R"({"max_tokens":1,"messages":[{"role":"user"}]})", "messages[0].content");
  refused(R"({"max_tokens":1,"messages":[{"role":"user","content":[]}]})", "messages[0].content");
  refused(R"({"max_tokens":1,"messages":[{"role":"user","content":[{"text":"x"}]}]})",
          "messages[0].content[0].type");
  refused(with(kHi, R"("stop_sequences":"x")"), "stop_sequences");
  refused(with(kHi, R"("stop_sequences":[""])"), "stop_sequences");
  refused(with(kHi, R"("system":7)"), "system");
  refused(with(kHi, R"("tools":[{"name":"a"}])"), "tools[0].input_schema");
  refused(with(kHi, R"("tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}])"),
          "tools[1].name");
  refused(with(kHi, R"("metadata":{"user_id":7})"), "metadata.user_id");
}

TEST(AnthropicRequest, CountingNeedsNoMaxTokens) {
  EXPECT_EQ(read(R"({"model":"m","messages":[{"role":"user","content":"Hi"}]})",
                 AnthropicBody::count_tokens)
                .messages.size(),
            1U);
}

}  // namespace
}  // namespace stemma::server
