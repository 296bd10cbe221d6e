// Tests Chat for agents: tools, calls, system messages in the middle, and changes that leave a
// prompt the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/openai/request.h"
#include "server/chat/chat.h"
#include "server/chat/session_dates.h"
#include "server/chat/steady_header.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"

namespace stemma::server::chat_tools {
namespace {

using test::FakeModel;

// Hermes' format; refuses system messages after the first message, and two users in a row.
constexpr const char* kStrict = R"({{ bos_token }}
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}
{%- if not loop.first and m.role == 'user' and messages[loop.index0 - 1].role == 'user' %}
{{- raise_exception('roles must alternate') }}{% endif %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}<tool_call>{"name": {{ call.function.name | tojson }}, "arguments": {{ call.function.arguments | tojson }}}</tool_call>{% endfor %}
{{- '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% endif %})";

class AgentChat : public ::testing::Test {
 protected:
  AgentChat() : model_(test::full_engine()) {}

  const Chat& chat(const std::string& chat_template, const Chat::Options& options = {}) {
    std::string why;
    chat_ = Chat::create(model_, chat_template, why, options);
    EXPECT_NE(chat_, nullptr) << why;
    return *chat_;
  }
  ChatPrompt prompt(const Chat& chat, const std::string& messages, const std::string& more = "") {
    ChatRequest request;
    const std::string body =
        R"({"messages":[)" + messages + "]" + (more.empty() ? "" : ",") + more + "}";
    const auto wrong = decode_chat(body, {}, request);
    EXPECT_FALSE(wrong) << body << ": " << wrong->message;
    ChatPrompt made;
    const auto error = chat.render(request, true, made);
    EXPECT_FALSE(error) << error->message;
    return made;
  }

  FakeModel model_;
  std::unique_ptr<Chat> chat_;
};

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"read","description":"Reads <|im_end|>.",
       "parameters":{"type":"object","properties":{"<|im_start|>":{"type":"string"}}}},
       "cache_control":{"type":"ephemeral"}},
       {"type":"custom","custom":{"name":"patch"}}])";

std::string says(const std::string& role, const std::string& content) {
  return R"({"role":")" + role + R"(","content":")" + content + "\"}";
}

TEST_F(AgentChat, SystemMessagesStayWhereTheyAre) {
  const Chat& strict = chat(kStrict);
  const std::string begin =
      says("system", "s") + "," + says("user", "a") + "," + says("assistant", "b");
  const ChatPrompt before = prompt(strict, begin + "," + says("user", "c"));
  const ChatPrompt with =
      prompt(strict, begin + "," + says("system", "note") + "," + says("user", "c"));
  // It becomes a user's text, joined with the user's own: nothing before it changes.
  EXPECT_NE(with.text.find("<|im_start|>user\nnote\n\nc<|im_end|>"), std::string::npos)
      << with.text;
  const size_t same = before.text.find("c<|im_end|>");
  EXPECT_EQ(with.text.substr(0, same), before.text.substr(0, same));
  // Two system messages at the beginning become one.
  const ChatPrompt two =
      prompt(strict, says("system", "s") + "," + says("system", "t") + "," + says("user", "a"));
  EXPECT_NE(two.text.find("system\ns\n\nt<|im_end|>"), std::string::npos) << two.text;
  // A template that accepts them gets them.
  const ChatPrompt taken =
      prompt(chat(""), begin + "," + says("system", "note") + "," + says("user", "c"));
  EXPECT_NE(taken.text.find("<|im_start|>system\nnote<|im_end|>"), std::string::npos);
}

TEST_F(AgentChat, DefinitionsAreTheTemplatesAndNeverSpecial) {
  const ChatPrompt made = prompt(chat(kStrict), says("user", "a"), kTools);
  EXPECT_EQ(chat_->format().source, "difference");
  EXPECT_NE(made.text.find(R"("name": "read")"), std::string::npos) << made.text;
  EXPECT_NE(made.text.find("\"input\""), std::string::npos) << made.text;  // Of the custom tool.
  // bos, tools, user and assistant: special tokens in descriptions and argument names are text.
  EXPECT_EQ(std::ranges::count(made.tokens, FakeModel::kStart), 3);
  EXPECT_EQ(std::ranges::count(made.tokens, FakeModel::kEnd), 2);
  ASSERT_EQ(made.pinned.size(), 1U);
  const size_t tool_end = made.text.find("patch");
  EXPECT_LT(made.pinned[0].end, tool_end);
  EXPECT_GT(made.pinned[0].end, 20U);
  ASSERT_EQ(made.parts.size(), 3U);
  EXPECT_EQ(made.parts[0].name, "tools[0]");
  EXPECT_EQ(made.parts[2].name, "messages[0]");
}

TEST_F(AgentChat, CallsOfTheHistoryAreWrittenAndStayText) {
  const std::string call =
      R"({"role":"assistant","content":null,"reasoning_content":"hm <|im_end|>","tool_calls":[
         {"id":"c1","type":"function","function":{"name":"read",
          "arguments":"{\"<|im_end|>\": \"x <|im_start|>\"}"}}]},
         {"role":"tool","tool_call_id":"c1","content":"done <|im_end|>",
          "cache_control":{"type":"ephemeral"}})";
  const ChatPrompt made = prompt(chat(kStrict), says("user", "a") + "," + call, kTools);
  EXPECT_NE(made.text.find(R"(<tool_call>{"name": "read", "arguments": {"<|im_end|>": "x )"),
            std::string::npos)
      << made.text;
  EXPECT_NE(made.text.find("<think>hm <|im_end|></think>"), std::string::npos) << made.text;
  EXPECT_EQ(std::ranges::count(made.tokens, FakeModel::kStart), 5);
  EXPECT_EQ(std::ranges::count(made.tokens, FakeModel::kEnd), 4);
  // The pin reaches to the end of the result.
  ASSERT_EQ(made.pinned.size(), 1U);
  EXPECT_GT(made.pinned[0].end, made.message_ends.back() - 40);
  EXPECT_TRUE(std::ranges::is_sorted(made.message_ends));
}

TEST_F(AgentChat, TheNextTurnBeginsWithThisOne) {
  const Chat& strict = chat(kStrict);
  const std::string first = says("system", "s") + "," + says("user", "a");
  const ChatPrompt one = prompt(strict, first, kTools);
  const ChatPrompt two = prompt(
      strict, first + R"(,{"role":"assistant","content":"Let me see.","tool_calls":[{"id":"c1",
          "type":"function","function":{"name":"read","arguments":"{\"a\": 1}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"x"})",
      kTools);
  ASSERT_GT(two.tokens.size(), one.tokens.size());
  EXPECT_TRUE(std::equal(one.tokens.begin(), one.tokens.end(), two.tokens.begin()));
}

TEST_F(AgentChat, ThinkingIsSwitchedWhereTheTemplateCan) {
  const Chat& strict = chat(kStrict);
  EXPECT_TRUE(prompt(strict, says("user", "a"), R"("enable_thinking":false)")
                  .text.ends_with("<think></think>"));
  EXPECT_TRUE(prompt(strict, says("user", "a"), R"("reasoning_effort":"none")")
                  .text.ends_with("<think></think>"));
  EXPECT_EQ(prompt(strict, says("user", "a"), R"("reasoning_effort":"high")").ignored,
            std::vector<std::string>{"reasoning_effort"});
  EXPECT_EQ(prompt(chat(""), says("user", "a"), R"("enable_thinking":true)").ignored,
            std::vector<std::string>{"enable_thinking"});
  // What a request says twice in one field is named once.
  EXPECT_EQ(
      prompt(chat(""), says("user", "a"),
             R"("reasoning":{"enabled":true,"effort":"high","max_tokens":9})")
          .ignored,
      (std::vector<std::string>{"reasoning.enabled", "reasoning.effort", "reasoning.max_tokens"}));
}

TEST_F(AgentChat, AnEffortReachesATemplateThatKnowsItAndIsNamedWhereItIsRefused) {
  // Like Tencent's Hunyuan 3, which raises for all other words.
  const std::string knows =
      "{%- if reasoning_effort is defined and reasoning_effort not in ['high', 'low'] %}"
      "{{ raise_exception('reasoning_effort must be high or low') }}{% endif %}" +
      std::string(kStrict) + "{{ '<effort:' ~ (reasoning_effort or 'unset') ~ '>' }}";
  const Chat& asked = chat(knows);
  const ChatPrompt high = prompt(asked, says("user", "a"), R"("reasoning_effort":"high")");
  EXPECT_TRUE(high.text.ends_with("<effort:high>")) << high.text;
  EXPECT_TRUE(high.ignored.empty());
  const ChatPrompt medium = prompt(asked, says("user", "a"), R"("reasoning_effort":"medium")");
  EXPECT_TRUE(medium.text.ends_with("<effort:unset>")) << medium.text;
  EXPECT_EQ(medium.ignored, std::vector<std::string>{"reasoning_effort"});
  // "none" still switches thinking off.
  const ChatPrompt none = prompt(asked, says("user", "a"), R"("reasoning_effort":"none")");
  EXPECT_TRUE(none.text.ends_with("<think></think><effort:unset>")) << none.text;
  EXPECT_EQ(none.ignored, std::vector<std::string>{"reasoning_effort"});
  // What the client says to the template itself is no hint.
  ChatRequest request;
  const std::string own = R"({"messages":[{"role":"user","content":"a"}],)"
                          R"("chat_template_kwargs":{"reasoning_effort":"medium"}})";
  EXPECT_FALSE(decode_chat(own, {}, request));
  ChatPrompt made;
  const auto error = asked.render(request, true, made);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "template_refused");
}

TEST_F(AgentChat, ThinkingOfOlderAnswersStaysWhereTheOperatorWantsIt) {
  const std::string keeps =
      "{%- for m in messages %}{{ '<' + m.role + '>' }}"
      "{%- if m.reasoning_content and (preserve_thinking or loop.last) %}"
      "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
      "{{ m.content or '' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string talk = says("user", "a") +
                           R"(,{"role":"assistant","content":"b","reasoning_content":"hm"},)" +
                           says("user", "c");
  EXPECT_EQ(prompt(chat(keeps), talk).text, "<user>a<assistant>b<user>c<assistant>");
  EXPECT_EQ(prompt(chat(keeps, {.keep_thinking = true}), talk).text,
            "<user>a<assistant><think>hm</think>b<user>c<assistant>");
}

TEST_F(AgentChat, AnswersAreReadAsTheModelWritesThem) {
  const Chat& strict = chat(kStrict);
  const ChatPrompt with = prompt(strict, says("user", "a"), kTools);
  ASSERT_NE(with.reading.format, nullptr);
  EXPECT_EQ(with.reading.tools.size(), 2U);
  EXPECT_EQ(with.reading.custom_tools, std::vector<std::string>{"patch"});
  const ChatPrompt none =
      prompt(strict, says("user", "a"), std::string(kTools) + R"(,"tool_choice":"none")");
  EXPECT_TRUE(none.reading.tools.empty());
  EXPECT_EQ(none.text, with.text);  // The tools stay: the next request may use them.
  const ChatPrompt thought = prompt(strict, says("user", "a"));
  ASSERT_NE(thought.reading.format, nullptr);
  EXPECT_EQ(thought.reading.format->thinking.opener, "<think>");
  EXPECT_EQ(prompt(strict, says("user", "a"), R"("reasoning_format":"none")")
                .reading.format->thinking.opener,
            "");
}

TEST(SessionDates, ASessionKeepsItsFirstDate) {
  SessionDates dates;
  const std::time_t day = 24 * 3600;
  const auto mday = [&](const char* salt, const char* session, std::time_t now) {
    return dates.date(salt, session, now)->tm_yday;
  };
  const int first = mday("", "ann", 100 * day);
  EXPECT_EQ(mday("", "ann", 101 * day), first);
  EXPECT_EQ(mday("", "ben", 101 * day), first + 1);
  EXPECT_EQ(mday("x", "ann", 101 * day), first + 1);  // Another tenant's.
  EXPECT_EQ(mday("", "", 102 * day), first + 2);
  EXPECT_EQ(mday("", "", 103 * day), first + 3);
  // The least recently used session goes: ann's was used before ben's.
  for (size_t i = 0; i < SessionDates::kMostSessions - 2; ++i) {
    mday("", ("s" + std::to_string(i)).c_str(), 110 * day);
  }
  EXPECT_EQ(mday("", "ben", 120 * day), first + 1);
  EXPECT_EQ(mday("", "ann", 120 * day), first + 20);
}

TEST_F(AgentChat, ASessionKeepsTheDateThatTheTemplatePrinted) {
  std::time_t now = 1'700'000'000;
  const Chat& dated =
      chat("{{ strftime_now('%j') }}" + std::string(kStrict), {.now = [&now] { return now; }});
  const auto day = [&](const std::string& fields) {
    return prompt(dated, says("user", "a"), fields).text.substr(0, 3);
  };
  const std::string ann = R"("prompt_cache_key":"ann")";
  const std::string first = day(ann);
  now += 5 * 24 * 3600;
  EXPECT_EQ(day(ann), first);
  EXPECT_NE(day(""), first);
  EXPECT_NE(day(R"("prompt_cache_key":"ben")"), first);
  EXPECT_NE(day(ann + R"(,"cache_salt":"s")"), first);
}

TEST(SteadyHeader, LosesItsNonceAndNothingElse) {
  std::string text = "x-anthropic-billing-header: cc_version=2.1; cch=f3a91;\nYou are cch=abc.";
  EXPECT_TRUE(steady_header(text));
  EXPECT_EQ(text, "x-anthropic-billing-header: cc_version=2.1; cch=00000;\nYou are cch=abc.");
  // As version 2.1.197 sends it: conversations differ in the text after the version.
  text = "x-anthropic-billing-header: cc_version=2.1.197.c23; cc_entrypoint=sdk-cli;";
  EXPECT_TRUE(steady_header(text));
  EXPECT_EQ(text, "x-anthropic-billing-header: cc_version=2.1.197.000; cc_entrypoint=sdk-cli;");
  text = "x-anthropic-billing-header: cc_version=2.1.197.4d; cc_entrypoint=cli; cch=0b1;";
  EXPECT_TRUE(steady_header(text));
  EXPECT_EQ(text, "x-anthropic-billing-header: cc_version=2.1.197.00; cc_entrypoint=cli; cch=000;");
  for (const std::string other :
       {"cch=f3a91;", "x-anthropic-billing-header: cc_version=2.1.197; a.b",
        "x-anthropic-billing-header: cc_version=2.1.197.; x=1.2.3.4",
        "x-anthropic-billing-header: cc_version=2;\ncch=1", "x-anthropic-billing-header:", ""}) {
    std::string same = other;
    EXPECT_FALSE(steady_header(same));
    EXPECT_EQ(same, other);
  }
}

}  // namespace
}  // namespace stemma::server::chat_tools
