#include "dialect/answer_parser.h"

#include <gtest/gtest.h>

#include "support/answers.h"

namespace stemma::dialect {
namespace {

Format hermes() {
  Format format;
  format.thinking.opener = "<think>";
  format.thinking.closer = "</think>";
  format.calls.shape = CallShape::json;
  format.calls.name_key = "name";
  format.calls.arguments_key = "arguments";
  format.calls.call_open = "<tool_call>";
  format.calls.call_close = "</tool_call>";
  return format;
}

Format llama() {
  Format format;
  format.calls.shape = CallShape::json;
  format.calls.name_key = "name";
  format.calls.arguments_key = "parameters";
  format.calls.optional_opens = {"<|python_tag|>"};
  return format;
}

Format tagged() {
  Format format;
  Calls& calls = format.calls;
  calls.shape = CallShape::tagged;
  calls.call_open = "<tool_call>\n<function=";
  calls.call_close = "</function>\n</tool_call>";
  calls.header = {{PieceKind::name, {}}, {PieceKind::text, ">"}};
  calls.argument = {{PieceKind::text, "<parameter="}, {PieceKind::key, {}}, {PieceKind::text, ">"}};
  calls.value_close = "</parameter>";
  calls.value_on_lines = true;
  return format;
}

Format listed() {
  Format format = hermes();
  format.calls.call_open = format.calls.call_close = "";
  format.calls.list = true;
  format.calls.section_open = "[TOOL_CALLS]";
  format.calls.id_key = "id";
  return format;
}

Format harmony() {
  Format format;
  format.channels = {.opener = "<|start|>assistant",
                     .header_close = "<|message|>",
                     .closers = {"<|end|>", "<|call|>"},
                     .call_mark = "to=functions.",
                     .calls_in_header = true,
                     .thinking_headers = {"<|channel|>analysis"},
                     .content_headers = {}};
  return format;
}

ParsedMessage said(std::string content) { return {std::move(content), {}, {}}; }

TEST(AnswerParser, PlainTextIsContent) {
  for (const char* text :
       {"", "Hello.", "a < b > c {\"x\": 1}\n", "  two\n\nlines  ", "<tool", "Grüße 😀"}) {
    EXPECT_EQ(parse(hermes(), text), said(text));
    EXPECT_EQ(parse(llama(), text), said(text));
    expect_any_cut_is_the_same(hermes(), text, AnswerStart::text, AnswerEnd::stop, 1);
  }
}

TEST(AnswerParser, ThinkingTextAndCallsAreToldApart) {
  const std::string answer =
      "<think>\nThey ask.\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"get_weather\", "
      "\"arguments\": {\"city\": \"Köln </tool_call>\"}}\n</tool_call>\n<tool_call>\n{\"name\": "
      "\"find_news\"}\n</tool_call>";
  const ParsedMessage expected = {"Let me see.",
                                  "They ask.",
                                  {{"get_weather", "{\"city\": \"Köln </tool_call>\"}", "", true},
                                   {"find_news", "{}", "", true}}};
  EXPECT_EQ(parse(hermes(), answer), expected);
  expect_any_cut_is_the_same(hermes(), answer, AnswerStart::text, AnswerEnd::stop, 2);
}

TEST(AnswerParser, AThoughtThatThePromptOpenedEndsAtItsCloser) {
  const ParsedMessage message = parse(hermes(), "hm\n</think>\n\nYes.", AnswerStart::thinking);
  EXPECT_EQ(message, (ParsedMessage{"Yes.", "hm", {}}));
  // Thinking that never ends lasts to the end of the answer.
  EXPECT_EQ(parse(hermes(), "hm </thi", AnswerStart::thinking, AnswerEnd::length),
            (ParsedMessage{"", "hm </thi", {}}));
}

TEST(AnswerParser, AnOpenerOfThinkingInsideTextIsText) {
  const std::string answer = "Use <think> and </think> tags.";
  EXPECT_EQ(parse(hermes(), answer), said(answer));
}

TEST(AnswerParser, ACloserOfThinkingBeforeAnyTextIsDropped) {
  EXPECT_EQ(parse(hermes(), "\n</think>\n\nYes."), said("Yes."));
}

TEST(AnswerParser, ArgumentsAreToldBeforeTheyAreWhole) {
  const Format format = hermes();
  AnswerParser parser(format, weather_tools(), AnswerStart::text);
  std::vector<Event> events;
  parser.feed("<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ro", events);
  const std::vector<Event> expected = {{EventKind::call_begin, 0, "get_weather", true},
                                       {EventKind::arguments, 0, "{\"city\": \"Ro", true}};
  EXPECT_EQ(events, expected);
  EXPECT_EQ(parser.held_bytes(), 0U);
}

TEST(AnswerParser, WhatOnlyLooksLikeAnOpenerIsHeldAndReleased) {
  const Format format = hermes();
  AnswerParser parser(format, weather_tools(), AnswerStart::text);
  std::vector<Event> events;
  parser.feed("see <tool", events);
  EXPECT_EQ(add_up(events), said("see"));
  parser.feed("box>", events);
  EXPECT_EQ(add_up(events), said("see <toolbox>"));
}

TEST(AnswerParser, WhatItCannotReadIsContent) {
  for (const char* text :
       {"<tool_call>\nnothing\n</tool_call>",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": 3}", "<tool_call>{\"arguments\": {}}", "a <tool_call>",
        "<tool_call>{\"na", "x\n<tool_call>{\"name\": \"get_weather\", \"name\": \"find_news\"}"}) {
    EXPECT_EQ(parse(hermes(), text), said(text));
    expect_any_cut_is_the_same(hermes(), text, AnswerStart::text, AnswerEnd::stop, 3);
  }
  // A second opener after a broken call still begins a call.
  const ParsedMessage message =
      parse(hermes(),
            "<tool_call>oops<tool_call>{\"name\": \"find_news\", \"arguments\": {}}</tool_call>");
  EXPECT_EQ(message, (ParsedMessage{"<tool_call>oops", "", {{"find_news", "{}", "", true}}}));
}

TEST(AnswerParser, ArgumentsThatBreakEndTheCallAndGoOnAsContent) {
  const std::string answer =
      "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": oops}}</tool_call>";
  const ParsedMessage message = parse(hermes(), answer);
  const ParsedMessage expected = {
      "oops}}</tool_call>", "", {{"get_weather", "{\"city\": ", "", false}}};
  EXPECT_EQ(message, expected);
  expect_any_cut_is_the_same(hermes(), answer, AnswerStart::text, AnswerEnd::stop, 4);
}

TEST(AnswerParser, WithoutToolsCallsAreText) {
  const std::string answer =
      "<tool_call>{\"name\": \"get_weather\", \"arguments\": {}}</tool_call>";
  const Format format = hermes();
  EXPECT_EQ(add_up(parse_events(format, answer, {}, AnswerStart::text, AnswerEnd::stop, {})),
            said(answer));
}

TEST(AnswerParser, MembersMayComeInAnyOrderAndArgumentsAsText) {
  const ParsedMessage expected = {"", "", {{"get_weather", "{\"days\": 3}", "", true}}};
  for (const char* answer :
       {"<tool_call>{\"arguments\": {\"days\": 3}, \"name\": \"get_weather\"}</tool_call>",
        "<tool_call>{\"arguments\": \"{\\\"days\\\": 3}\", \"name\": \"get_weather\"}",
        "<tool_call>{\"type\": \"function\", \"x\": [1, {}], \"name\": \"get_weather\", "
        "\"arguments\": "
        "\"{\\\"days\\\": 3}\"}</tool_call>"}) {
    EXPECT_EQ(parse(hermes(), answer), expected) << answer;
    expect_any_cut_is_the_same(hermes(), answer, AnswerStart::text, AnswerEnd::stop, 5);
  }
}

TEST(AnswerParser, JsonAloneIsACallOnlyIfItIsOneOfATool) {
  const std::string call = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Rome\"}}";
  const ParsedMessage expected = {"", "", {{"get_weather", "{\"city\": \"Rome\"}", "", true}}};
  EXPECT_EQ(parse(llama(), call), expected);
  EXPECT_EQ(parse(llama(), "<|python_tag|>" + call), expected);
  EXPECT_EQ(parse(llama(), "\n\n" + call).calls, expected.calls);
  for (const char* text :
       {"{\"name\": \"Ann\", \"age\": 3}", "{\"city\": \"Rome\"}", "{", "{}",
        "if (x) {\"name\": \"get_weather\", \"parameters\": {}}", "{\"na\\u006de"}) {
    EXPECT_EQ(parse(llama(), text), said(text));
    expect_any_cut_is_the_same(llama(), text, AnswerStart::text, AnswerEnd::stop, 6);
  }
}

TEST(AnswerParser, CallsInAListHaveIdsAndEndWithIt) {
  const std::string answer =
      "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"days\": 1}, \"id\": \"abc\"}, "
      "{\"name\": "
      "\"find_news\", \"arguments\": {}}] Done.";
  const ParsedMessage expected = {
      "Done.", "", {{"get_weather", "{\"days\": 1}", "abc", true}, {"find_news", "{}", "", true}}};
  EXPECT_EQ(parse(listed(), answer), expected);
  expect_any_cut_is_the_same(listed(), answer, AnswerStart::text, AnswerEnd::stop, 7);
  EXPECT_EQ(parse(listed(), "[TOOL_CALLS][]"), said("[TOOL_CALLS][]"));
}

TEST(AnswerParser, TaggedArgumentsGetTheTypesOfTheSchema) {
  const std::string answer =
      "Fine.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n42\n</"
      "parameter>\n<parameter=days>\n3\n"
      "</parameter>\n<parameter=place>\n{\"a\": "
      "[1]}\n</parameter>\n<parameter=other>\ntrue\n</parameter>\n"
      "</function>\n</tool_call>";
  const ParsedMessage message = parse(tagged(), answer);
  ASSERT_EQ(message.calls.size(), 1U);
  EXPECT_EQ(message.calls[0].arguments,
            R"({"city":"42","days":3,"place":{"a": [1]},"other":true})");
  EXPECT_TRUE(message.calls[0].complete);
  EXPECT_EQ(message.content, "Fine.");
  expect_any_cut_is_the_same(tagged(), answer, AnswerStart::text, AnswerEnd::stop, 8);
}

TEST(AnswerParser, ClosersInsideATaggedTextDoNotEndIt) {
  const std::string city = "a </parameter> b </function>\n</tool_call> \"q\"\n\nc\n";
  const std::string answer = "<tool_call><function=get_weather><parameter=city>\n" + city +
                             "\n</parameter></function></tool_call>";
  const ParsedMessage message = parse(tagged(), answer);
  ASSERT_EQ(message.calls.size(), 1U);
  EXPECT_EQ(normal(message.calls[0].arguments), "{\"city\": " + json_string(city) + "}");
  expect_any_cut_is_the_same(tagged(), answer, AnswerStart::text, AnswerEnd::stop, 9);
}

TEST(AnswerParser, AMissingCloserIsForgivenWhereTheModelStopped) {
  const std::string answer = "<tool_call><function=get_weather><parameter=city>Rome</parameter>";
  EXPECT_EQ(parse(tagged(), answer, AnswerStart::text, AnswerEnd::stop).calls,
            (std::vector<ParsedCall>{{"get_weather", "{\"city\":\"Rome\"}", "", true}}));
  EXPECT_FALSE(parse(tagged(), answer, AnswerStart::text, AnswerEnd::length).calls[0].complete);
  // Of a text that is cut off, everything is reported except a part of the closer.
  EXPECT_EQ(
      parse(tagged(), answer.substr(0, answer.size() - 4), AnswerStart::text, AnswerEnd::length)
          .calls,
      (std::vector<ParsedCall>{{"get_weather", "{\"city\":\"Rome", "", false}}));
}

TEST(AnswerParser, ChannelsHaveThinkingCallsAndContent) {
  const std::string answer =
      "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get_weather <|constrain|>json<|message|>{\"days\": 1}<|call|><|start|>assistant"
      "<|channel|>final<|message|>Done.";
  const ParsedMessage expected = {
      "Done.", "They ask.", {{"get_weather", "{\"days\": 1}", "", true}}};
  EXPECT_EQ(parse(harmony(), answer, AnswerStart::header), expected);
  expect_any_cut_is_the_same(harmony(), answer, AnswerStart::header, AnswerEnd::stop, 10);
  const std::string unknown = " to=functions.other<|channel|>commentary<|message|>{}";
  EXPECT_EQ(parse(harmony(), unknown, AnswerStart::header), said(unknown));
}

TEST(AnswerParser, LiteralsThatAreNoObjectAreNoArguments) {
  Format format;
  format.calls.shape = CallShape::literals;
  format.calls.call_open = "<|call>call:";
  format.calls.call_close = "<call|>";
  format.calls.header = {{PieceKind::name, {}}};
  format.calls.quote = "<|\"|>";
  EXPECT_EQ(parse(format, "<|call>call:get_weather{days:3}<call|>").calls,
            (std::vector<ParsedCall>{{"get_weather", "{\"days\":3}", "", true}}));
  const ParsedMessage broken = parse(format, "<|call>call:get_weather 3,<call|>");
  EXPECT_EQ(broken, (ParsedMessage{"3,<call|>", "", {{"get_weather", "", "", false}}}));
}

TEST(AnswerParser, MemoryIsBounded) {
  const Format format = hermes();
  AnswerParser parser(format, weather_tools(), AnswerStart::text);
  std::vector<Event> events;
  parser.feed("<tool_call>{\"other\": \"", events);
  for (int i = 0; i < 1000; ++i) {
    parser.feed(std::string(1000, 'x'), events);
    ASSERT_LE(parser.held_bytes(), kMostHeldBytes);
  }
  parser.feed(std::string(100'000, '\n'), events);
  EXPECT_LE(parser.held_bytes(), kMostBlanks);
  parser.finish(AnswerEnd::length, events);
  EXPECT_EQ(add_up(events).content.size(), 22 + 1'000'000U + 100'000U);
}

TEST(AnswerParser, LongHeldTextEndsInTheSamePlaceHoweverItIsCut) {
  for (const char fill : {'x', ' '}) {
    std::string answer = "<tool_call>{\"other\": ";
    if (fill == 'x') answer += '"';
    answer += std::string(kMostHeldBytes + 500, fill) + "<tool_call>{\"name\": \"find_news\"}";
    const ParsedMessage whole = parse(hermes(), answer);
    for (const size_t portion : {1U, 7U, 4096U, 70'000U}) {
      std::vector<size_t> ends;
      for (size_t at = portion; at < answer.size(); at += portion) ends.push_back(at);
      EXPECT_EQ(add_up(parse_events(hermes(), answer, ends)), whole) << portion;
    }
    EXPECT_EQ(whole.calls.size(), 1U);
  }
}

TEST(AnswerParser, ThePromptTellsWhereTheAnswerBegins) {
  EXPECT_EQ(answer_start(hermes(), "<|im_start|>assistant\n<think>\n"), AnswerStart::thinking);
  EXPECT_EQ(answer_start(hermes(), "assistant\n<think>\n\n</think>\n\n"), AnswerStart::text);
  EXPECT_EQ(answer_start(hermes(), ""), AnswerStart::text);
  EXPECT_EQ(answer_start(harmony(), "<|end|><|start|>assistant"), AnswerStart::header);
}

}  // namespace
}  // namespace stemma::dialect
