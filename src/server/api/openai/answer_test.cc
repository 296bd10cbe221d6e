// Tests answers: they are what OpenAI's clients expect, and valid JSON whatever the model writes.
#include "server/api/openai/answer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stemma::server {
namespace {

using Parsed = nlohmann::json;

AnswerHead head(AnswerKind kind, bool usage = false, bool logprobs = false, uint32_t choices = 1) {
  return {.kind = kind,
          .id = "id-1",
          .model = "m \"x\"",
          .fingerprint = "fp",
          .created_s = 17,
          .choices = choices,
          .include_usage = usage,
          .logprobs = logprobs};
}

// Returns the events of a stream, with [DONE] as a string.
std::vector<Parsed> events(std::string_view text) {
  std::vector<Parsed> out;
  while (!text.empty()) {
    EXPECT_TRUE(text.starts_with("data: "));
    const size_t end = text.find("\n\n");
    EXPECT_NE(end, text.npos);
    const std::string_view data = text.substr(6, end - 6);
    EXPECT_EQ(data.find('\n'), data.npos);
    out.push_back(data == "[DONE]" ? Parsed("[DONE]") : Parsed::parse(data));
    text.remove_prefix(end + 2);
  }
  return out;
}

TokenLogprob token(Token id, float logprob, std::string bytes,
                   std::vector<std::pair<TokenChance, std::string>> others = {}) {
  return {{id, logprob}, std::move(bytes), std::move(others)};
}

Summary summary() {
  Summary out;
  out.prompt_tokens = 10;
  out.cached_tokens = 6;
  out.generated_tokens = 4;
  out.timings = {.queued_ns = 1'000'000, .prompt_ns = 8'000'000, .generated_ns = 2'000'000};
  out.report.reused_tokens = 6;
  out.report.evaluated_tokens = 4;
  out.report.matched_tokens = 7;
  out.report.steps[static_cast<size_t>(Step::fork)] = 6;
  out.report.reason = SequenceMiss::first_use;
  return out;
}

using EventKind = dialect::EventKind;

AnswerPart says(std::string text, uint32_t choice = 0, std::vector<TokenLogprob> logprobs = {}) {
  return {.choice = choice, .event = {.text = std::move(text)}, .logprobs = std::move(logprobs)};
}
AnswerPart event_part(EventKind kind, std::string text, uint32_t call = 0) {
  return {.event = {.kind = kind, .call = call, .text = std::move(text)}};
}

TEST(AnswerStream, OfAChatIsRolesTextEndsUsageAndDone) {
  OpenaiWriter writer(head(AnswerKind::chat, true));
  std::string out;
  writer.start({}, out);
  writer.part(says("Hi \"you\"\n"), out);
  writer.part(says(""), out);  // An empty part writes nothing.
  writer.end_choice({.stop = AnswerStop::length, .generated_tokens = 4}, out);
  writer.finish(summary(), out);
  const std::vector<Parsed> list = events(out);
  ASSERT_EQ(list.size(), 5U);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(list[i]["id"], "id-1");
    EXPECT_EQ(list[i]["object"], "chat.completion.chunk");
    EXPECT_EQ(list[i]["created"], 17);
    EXPECT_EQ(list[i]["model"], "m \"x\"");
    EXPECT_EQ(list[i]["system_fingerprint"], "fp");
    ASSERT_TRUE(list[i].contains("usage"));
    EXPECT_EQ(list[i]["usage"].is_null(), i != 3);
  }
  EXPECT_EQ(list[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(list[1]["choices"][0]["delta"], Parsed({{"content", "Hi \"you\"\n"}}));
  EXPECT_TRUE(list[1]["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(list[1]["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(list[2]["choices"][0]["delta"], Parsed::object());
  EXPECT_EQ(list[2]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(list[3]["choices"].empty());
  EXPECT_EQ(list[3]["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(list[3]["usage"]["completion_tokens"], 4);
  EXPECT_EQ(list[3]["usage"]["total_tokens"], 14);
  EXPECT_EQ(list[3]["usage"]["prompt_tokens_details"]["cached_tokens"], 6);
  EXPECT_EQ(list[3]["timings"]["cache_n"], 6);
  EXPECT_EQ(list[3]["stemma"]["reused_tokens"], 6);
  EXPECT_EQ(list[4], "[DONE]");
}

TEST(AnswerStream, WithoutUsageSaysNothingOfItAndTheLastEndReports) {
  OpenaiWriter writer(head(AnswerKind::chat, false, false, 3));
  std::string out;
  writer.end_choice({.choice = 1}, out);
  writer.end_choice({.choice = 0}, out);
  out.clear();
  writer.part(says("x", 2), out);
  writer.end_choice(
      {.choice = 2, .stop = AnswerStop::stop_text, .stop_text = "\n#", .generated_tokens = 1}, out);
  writer.finish(summary(), out);
  const std::vector<Parsed> list = events(out);
  ASSERT_EQ(list.size(), 4U);
  EXPECT_FALSE(list[1].contains("usage"));
  EXPECT_EQ(list[1]["choices"][0]["index"], 2);
  EXPECT_EQ(list[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(list[2]["choices"][0]["stop_reason"], "\n#");
  EXPECT_FALSE(list[2].contains("usage"));
  EXPECT_EQ(list[2]["timings"]["predicted_n"], 4);
  EXPECT_EQ(list[2]["stemma"]["miss"], "first_use");
  EXPECT_EQ(list[3], "[DONE]");
}

TEST(AnswerStream, OfACompletionHasTextAndRunningOffsets) {
  OpenaiWriter writer(head(AnswerKind::completion, false, true, 2));
  std::string out;
  writer.start({}, out);
  EXPECT_TRUE(out.empty());  // Only chats have roles.
  writer.part(says("a\xE2\x82\xAC", 0, {token(1, -0.5F, "a\xE2"), token(2, -1.0F, "\x82\xAC")}),
              out);
  writer.part(says("z", 1, {token(3, -1.0F, "z")}), out);
  writer.part(says("b", 0, {token(3, -2.0F, "b")}), out);
  const std::vector<Parsed> list = events(out);
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[0]["object"], "text_completion");
  EXPECT_EQ(list[0]["choices"][0]["text"], "a\xE2\x82\xAC");
  EXPECT_EQ(list[0]["choices"][0]["logprobs"]["text_offset"], Parsed({0, 1}));
  EXPECT_EQ(list[1]["choices"][0]["logprobs"]["text_offset"], Parsed({0}));
  EXPECT_EQ(list[2]["choices"][0]["logprobs"]["text_offset"], Parsed({2}));
}

TEST(AnswerStream, ThinkingAndCallsAreDeltasOfTheirOwn) {
  OpenaiWriter writer(head(AnswerKind::chat));
  std::string out;
  writer.part(event_part(EventKind::reasoning, "hm"), out);
  AnswerPart begin = event_part(EventKind::call_begin, "read");
  begin.call_id = "call_1";
  writer.part(begin, out);
  writer.part(event_part(EventKind::arguments, "{\"a\":"), out);
  writer.part(event_part(EventKind::arguments, "1}"), out);
  writer.part(event_part(EventKind::call_end, ""), out);
  begin = event_part(EventKind::call_begin, "patch", 1);
  begin.call_id = "call_2";
  begin.custom = true;
  writer.part(begin, out);
  AnswerPart input = event_part(EventKind::arguments, "+x", 1);
  input.custom = true;
  writer.part(input, out);
  writer.end_choice({.stop = AnswerStop::tool_calls}, out);
  writer.finish(summary(), out);
  const std::vector<Parsed> list = events(out);
  ASSERT_EQ(list.size(), 9U);
  const auto delta = [&](size_t i) { return list[i]["choices"][0]["delta"]; };
  EXPECT_EQ(delta(1), Parsed({{"reasoning_content", "hm"}}));
  EXPECT_EQ(delta(2)["tool_calls"][0], Parsed::parse(R"({"index":0,"id":"call_1","type":"function",
                              "function":{"name":"read","arguments":""}})"));
  EXPECT_EQ(delta(3)["tool_calls"][0],
            Parsed::parse(R"({"index":0,"function":{"arguments":"{\"a\":"}})"));
  EXPECT_EQ(delta(5)["tool_calls"][0], Parsed::parse(R"({"index":1,"id":"call_2","type":"custom",
                              "custom":{"name":"patch","input":""}})"));
  EXPECT_EQ(delta(6)["tool_calls"][0], Parsed::parse(R"({"index":1,"custom":{"input":"+x"}})"));
  EXPECT_EQ(list[7]["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Answer, OfAChatIsOneObject) {
  OpenaiWriter writer(head(AnswerKind::chat, false, true, 2));
  std::vector<WholeChoice> choices(2);
  choices[0].blocks = {{.text = "A"}, {.text = "B"}};
  choices[0].logprobs = {
      token(5, -0.25F, "A",
            {{{5, -0.25F}, "A"}, {{6, -std::numeric_limits<float>::infinity()}, "\xFF"}}),
      token(7, -1.5F, "B")};
  choices[1].blocks = {{.text = "C"}};
  choices[1].end = {.choice = 1, .stop = AnswerStop::length, .generated_tokens = 1};
  const Parsed answer = Parsed::parse(writer.whole(choices, summary()));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "AB");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "length");
  const Parsed& first = answer["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], "A");
  EXPECT_EQ(first["logprob"], -0.25);
  EXPECT_EQ(first["bytes"], Parsed({65}));
  EXPECT_EQ(first["top_logprobs"].size(), 2U);
  EXPECT_EQ(first["top_logprobs"][1]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(first["top_logprobs"][1]["bytes"], Parsed({255}));
  EXPECT_EQ(first["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_EQ(answer["choices"][0]["logprobs"]["content"].size(), 2U);
  EXPECT_EQ(answer["usage"]["total_tokens"], 14);
}

TEST(Answer, OfAChatWithCallsHasThemAndNoContent) {
  OpenaiWriter writer(head(AnswerKind::chat));
  using BlockKind = AnswerBlock::Kind;
  WholeChoice choice;
  choice.blocks = {{.kind = BlockKind::thinking, .text = "hm"},
                   {.kind = BlockKind::call, .text = "{}", .name = "read", .call_id = "call_1"},
                   {.kind = BlockKind::call,
                    .text = "+x",
                    .name = "patch",
                    .call_id = "call_2",
                    .custom = true}};
  choice.end.stop = AnswerStop::tool_calls;
  choice.end.thinking_tokens = 3;
  const Parsed answer = Parsed::parse(writer.whole({&choice, 1}, summary()));
  const Parsed& message = answer["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"], Parsed::parse(R"([{"id":"call_1","type":"function",
                               "function":{"name":"read","arguments":"{}"}},
                              {"id":"call_2","type":"custom",
                               "custom":{"name":"patch","input":"+x"}}])"));
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
}

TEST(Answer, OfACompletionHasTheLegacyLogprobs) {
  OpenaiWriter writer(head(AnswerKind::completion, false, true));
  WholeChoice choice;
  choice.blocks = {{.text = "ab"}};
  choice.logprobs = {
      token(1, std::nanf(""), "a"),  // The first token of an echoed prompt.
      token(2, -0.5F, "b", {{{2, -0.5F}, "b"}, {{8, -1.0F}, "\xFF"}, {{9, -2.0F}, "\xFE"}})};
  const Parsed answer = Parsed::parse(writer.whole({&choice, 1}, summary()));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "ab");
  const Parsed& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Parsed({"a", "b"}));
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -0.5);
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  // Two tokens with the same text share a name, with the likelier one's number.
  EXPECT_EQ(logprobs["top_logprobs"][1], Parsed({{"b", -0.5}, {"\xEF\xBF\xBD", -1.0}}));
  EXPECT_EQ(logprobs["text_offset"], Parsed({0, 1}));
  OpenaiWriter plain(head(AnswerKind::completion));
  EXPECT_TRUE(
      Parsed::parse(plain.whole({&choice, 1}, summary()))["choices"][0]["logprobs"].is_null());
}

TEST(Answer, TimingsAreLlamaServers) {
  std::string out;
  append_timings(out, summary());
  const Parsed timings = Parsed::parse(out);
  EXPECT_EQ(timings["cache_n"], 6);
  EXPECT_EQ(timings["prompt_n"], 4);
  EXPECT_DOUBLE_EQ(timings["prompt_ms"], 8.0);
  EXPECT_DOUBLE_EQ(timings["prompt_per_token_ms"], 2.0);
  EXPECT_DOUBLE_EQ(timings["prompt_per_second"], 500.0);
  EXPECT_EQ(timings["predicted_n"], 4);
  EXPECT_DOUBLE_EQ(timings["predicted_ms"], 2.0);
  EXPECT_DOUBLE_EQ(timings["predicted_per_token_ms"], 0.5);
  EXPECT_DOUBLE_EQ(timings["predicted_per_second"], 2000.0);
  out.clear();
  append_timings(out, Summary{});  // No division by zero.
  EXPECT_EQ(Parsed::parse(out)["prompt_per_second"], 0.0);
}

TEST(Answer, ReportsWhatWasReusedAndWhy) {
  std::string out;
  Summary sums = summary();
  append_report(out, sums);
  Parsed report = Parsed::parse(out);
  EXPECT_EQ(report["reused_tokens"], 6);
  EXPECT_EQ(report["evaluated_tokens"], 4);
  EXPECT_EQ(report["steps"], Parsed({{"fork", 6}}));
  EXPECT_EQ(report["miss"], "first_use");
  EXPECT_TRUE(report["retokenised_at"].is_null());
  sums.retokenised_at = 5;
  out.clear();
  append_report(out, sums);
  EXPECT_EQ(Parsed::parse(out)["retokenised_at"], 5);
}

TEST(Answer, IdsSayWhatTheyAreOfAndDiffer) {
  EXPECT_TRUE(answer_id(AnswerKind::chat).starts_with("chatcmpl-"));
  EXPECT_TRUE(answer_id(AnswerKind::completion).starts_with("cmpl-"));
  EXPECT_NE(answer_id(AnswerKind::chat), answer_id(AnswerKind::chat));
  EXPECT_EQ(answer_id(AnswerKind::chat).size(), 31U);
}

TEST(Answer, EveryStopHasAReason) {
  EXPECT_EQ(finish_reason(AnswerStop::end), "stop");
  EXPECT_EQ(finish_reason(AnswerStop::stop_text), "stop");
  EXPECT_EQ(finish_reason(AnswerStop::length), "length");
  EXPECT_EQ(finish_reason(AnswerStop::tool_calls), "tool_calls");
  EXPECT_EQ(finish_reason(AnswerStop::cancelled), "abort");
  EXPECT_EQ(finish_reason(AnswerStop::failed), "error");
}

TEST(Answer, ModelsAndTokensAreListed) {
  ModelCard card;
  card.id = "m";
  card.created_s = 5;
  card.context_tokens = 4096;
  card.info.vocabulary = 32000;
  const Parsed models = Parsed::parse(encode_models({&card, 1}));
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "m");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["meta"]["n_vocab"], 32000);
  EXPECT_EQ(Parsed::parse(encode_models({}))["data"], Parsed::array());
  TokenListWriter tokens(false);
  tokens.add(1);
  tokens.add(22);
  EXPECT_EQ(tokens.take(), R"({"tokens":[1,22]})");
  TokenListWriter pieces(true);
  pieces.add(1, "a");
  pieces.add(2, "\xE2\x82");
  EXPECT_EQ(pieces.take(), R"({"tokens":[{"id":1,"piece":"a"},{"id":2,"piece":[226,130]}]})");
  EXPECT_EQ(encode_content("a\"b"), R"({"content":"a\"b"})");
  EXPECT_EQ(encode_prompt("x"), R"({"prompt":"x"})");
}

}  // namespace
}  // namespace stemma::server
