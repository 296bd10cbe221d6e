// Tests AnswerReader: its parts add up to the model's message, however the text arrived.
#include "server/api/answer_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stemma::server::answer_reader_test {
namespace {

using Kind = dialect::EventKind;

AnswerReading reading() {
  dialect::Format format;
  format.thinking.opener = "<think>";
  format.thinking.closer = "</think>";
  format.calls.shape = dialect::CallShape::json;
  format.calls.name_key = "name";
  format.calls.arguments_key = "arguments";
  format.calls.call_open = "<tool_call>";
  format.calls.call_close = "</tool_call>";
  AnswerReading how;
  how.format = std::make_shared<const dialect::Format>(std::move(format));
  how.tools = {{"read", {}}, {"patch", {}}};
  how.custom_tools = {"patch"};
  how.call_prefix = "toolu_";
  how.keep_message = true;
  return how;
}

// Joins kind, call and text of all parts, without ids.
std::string told(const std::vector<AnswerPart>& parts) {
  std::string out;
  const AnswerPart* last = nullptr;
  for (const AnswerPart& part : parts) {
    const bool same = last != nullptr && last->event.kind == part.event.kind &&
                      last->event.call == part.event.call && part.event.kind != Kind::call_end;
    if (!same) out += "|" + std::to_string(static_cast<int>(part.event.kind));
    if (!same && part.custom) out += "c";
    out += same ? part.event.text : ":" + part.event.text;
    last = &part;
  }
  return out;
}
std::string read_in(const std::string& answer, size_t portion) {
  const AnswerReading how = reading();
  AnswerReader reader(how, 3);
  std::vector<AnswerPart> parts;
  for (size_t at = 0; at < answer.size(); at += portion) {
    reader.feed(std::string_view(answer).substr(at, portion), parts);
  }
  reader.finish(false, parts);
  for (const AnswerPart& part : parts) EXPECT_EQ(part.choice, 3U);
  return told(parts);
}

TEST(AnswerReader, TellsThinkingTextAndCallsHoweverTheyArrive) {
  const std::string answer =
      "<think>hm</think>\nLet me see.\n<tool_call>\n{\"name\": \"read\", \"arguments\": "
      "{\"a\": \"x\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"patch\", \"arguments\": "
      "{\"input\": \"+a\\n\\u00e4\\ud83d\\ude00\\\"\"}}\n</tool_call>";
  const std::string whole = read_in(answer, answer.size());
  EXPECT_EQ(whole, "|1:hm|0:Let me see.|2:read|3:{\"a\": \"x\"}|4:|2c:patch|3c:+a\nä😀\"|4c:");
  for (size_t portion = 1; portion < 20; ++portion) EXPECT_EQ(read_in(answer, portion), whole);
}

TEST(AnswerReader, CustomInputOfAnotherFormIsPassedOnAsItIs) {
  for (const char* arguments : {R"({"other": 1})", R"({"input": 5})", R"({})"}) {
    const std::string answer =
        "<tool_call>{\"name\": \"patch\", \"arguments\": " + std::string(arguments) +
        "}</tool_call>";
    EXPECT_EQ(read_in(answer, 1), "|2c:patch|3c:" + std::string(arguments) + "|4c:") << arguments;
  }
}

TEST(AnswerReader, CustomInputThatIsCutOffSaysWhatThereWas) {
  const AnswerReading how = reading();
  AnswerReader reader(how, 0);
  std::vector<AnswerPart> parts;
  reader.feed("<tool_call>{\"name\": \"patch\", \"arguments\": {\"input\": \"one two", parts);
  reader.finish(true, parts);
  EXPECT_EQ(told(parts), "|2c:patch|3c:one two|4c:");
  EXPECT_FALSE(parts.back().event.complete);
  EXPECT_TRUE(reader.calls_tools());
}

TEST(AnswerReader, EveryCallHasAnIdOfItsOwn) {
  const AnswerReading how = reading();
  AnswerReader reader(how, 0);
  std::vector<AnswerPart> parts;
  const std::string call = "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>";
  reader.feed(call + "\n" + call, parts);
  reader.finish(false, parts);
  ASSERT_EQ(reader.call_ids().size(), 2U);
  EXPECT_NE(reader.call_ids()[0], reader.call_ids()[1]);
  EXPECT_TRUE(reader.call_ids()[0].starts_with("toolu_"));
  EXPECT_EQ(reader.message().calls.size(), 2U);
}

TEST(AnswerReader, WithoutAFormatEverythingIsText) {
  AnswerReading how = reading();
  how.format = nullptr;
  AnswerReader reader(how, 0);
  std::vector<AnswerPart> parts;
  reader.feed("<think>a</think> <tool_call>", parts);
  reader.finish(false, parts);
  EXPECT_EQ(told(parts), "|0:<think>a</think> <tool_call>");
}

}  // namespace
}  // namespace stemma::server::answer_reader_test
