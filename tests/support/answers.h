// Answers of models, parsed in any portions: for tests of src/dialect.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/answer_parser.h"
#include "dialect/values/json_text.h"

namespace stemma::dialect {

inline jinja::Value json(std::string_view text) {
  const auto value = read_json(text);
  EXPECT_TRUE(value) << text;
  return value.value_or(jinja::Value());
}

// The same JSON, written in one way.
inline std::string normal(std::string_view text) {
  const auto value = read_json(text);
  return value ? write_json(*value) : "not JSON: " + std::string(text);
}

// The tools of most tests: one with an argument of each type, one without arguments.
inline std::vector<Tool> weather_tools() {
  return {{"get_weather", json(R"({"type": "object", "properties": {
               "city": {"type": "string", "description": "Where."},
               "note": {"type": "string", "description": "A note."},
               "days": {"type": "integer", "description": "How long."},
               "exact": {"type": "boolean", "description": "How well."},
               "place": {"type": "object", "description": "Where exactly.",
                         "additionalProperties": {"type": "string"}},
               "hours": {"type": "array", "description": "When.", "items": {"type": "integer"}},
               "limit": {"type": "number", "description": "How much."}}, "required": ["city"]})")},
          {"find_news", json(R"({"type": "object", "properties": {
               "topic": {"type": "string", "description": "What."}}, "required": []})")}};
}

inline ParsedMessage add_up(const std::vector<Event>& events) {
  ParsedMessage message;
  for (const Event& event : events) message.add(event);
  return message;
}

// Feeds the answer in portions that end at `ends`.
inline std::vector<Event> parse_events(const Format& format, std::string_view answer,
                                       const std::vector<size_t>& ends,
                                       AnswerStart start = AnswerStart::text,
                                       AnswerEnd end = AnswerEnd::stop,
                                       std::vector<Tool> tools = weather_tools()) {
  AnswerParser parser(format, std::move(tools), start);
  std::vector<Event> events;
  size_t from = 0;
  for (const size_t to : ends) {
    parser.feed(answer.substr(from, to - from), events);
    from = to;
  }
  parser.feed(answer.substr(from), events);
  parser.finish(end, events);
  return events;
}

inline ParsedMessage parse(const Format& format, std::string_view answer,
                           AnswerStart start = AnswerStart::text, AnswerEnd end = AnswerEnd::stop) {
  return add_up(parse_events(format, answer, {}, start, end));
}

inline std::vector<size_t> every_byte(std::string_view answer) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < answer.size(); ++i) ends.push_back(i);
  return ends;
}

inline bool is_whole_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const jinja::Character character = jinja::character_at(text, at);
    if (character.code == jinja::kNotACharacter) return false;
    at += character.bytes;
  }
  return true;
}

// However an answer is cut, it is the same message, and no event splits a character.
inline void expect_any_cut_is_the_same(const Format& format, std::string_view answer,
                                       AnswerStart start, AnswerEnd end, uint64_t seed) {
  const ParsedMessage whole = parse(format, answer, start, end);
  const auto check = [&](const std::vector<size_t>& ends) {
    const std::vector<Event> events = parse_events(format, answer, ends, start, end);
    ASSERT_EQ(add_up(events), whole) << "answer: " << answer << "\ncuts: " << ends.size();
    for (const Event& event : events) ASSERT_TRUE(is_whole_utf8(event.text)) << event.text;
  };
  check(every_byte(answer));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 10; ++i) {
    std::vector<size_t> ends;
    for (size_t at = 0; at < answer.size();) {
      at += 1 + random() % (1 + answer.size() / (1 + random() % 8));
      if (at < answer.size()) ends.push_back(at);
    }
    check(ends);
  }
}

}  // namespace stemma::dialect

namespace stemma::dialect {

inline void PrintTo(const ParsedMessage& message, std::ostream* out) {
  *out << "content " << json_string(message.content) << ", reasoning "
       << json_string(message.reasoning);
  for (const ParsedCall& call : message.calls) {
    *out << ", call " << call.name << " " << call.arguments << (call.complete ? "" : " (cut)")
         << (call.id.empty() ? "" : " id " + call.id);
  }
}

}  // namespace stemma::dialect
