#include "dialect/write_calls.h"

#include <gtest/gtest.h>

#include "support/answers.h"

namespace stemma::dialect {
namespace {

Format rendering() {
  Format format;
  format.calls.shape = CallShape::json;
  format.calls.name_key = "name";
  format.calls.arguments_key = "arguments";
  format.calls.call_open = "<call>";
  format.calls.call_close = "</call>";
  format.calls.parallel = true;
  format.history.renders_calls = true;
  format.history.results = ResultsAs::tool_messages;
  return format;
}

std::vector<Message> conversation() {
  return {{.role = "user", .content = "Hi"},
          {.role = "assistant",
           .content = "Well.",
           .reasoning = "hm",
           .calls = {{"id-1", "get_weather", R"({"days": 3, "o": {"a": true}})"},
                     {"id-2", "find_news", "{}"}}},
          {.role = "tool", .content = "sun", .call_id = "id-1"},
          {.role = "tool", .content = "none", .call_id = "id-2"}};
}

std::string written(const Format& format, const std::vector<Message>& messages) {
  return write_json(jinja::Value::list(write_messages(format, messages)));
}

TEST(WriteCalls, ArgumentsAreObjectsOrTexts) {
  Format format = rendering();
  format.thinking.field = "reasoning_content";
  EXPECT_EQ(
      written(format, conversation()),
      R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning_content": "hm", )"
      R"("content": "Well.", "tool_calls": [{"id": "id-1", "type": "function", "function": {"name": )"
      R"("get_weather", "arguments": {"days": 3, "o": {"a": true}}}}, {"id": "id-2", "type": "function", )"
      R"("function": {"name": "find_news", "arguments": {}}}]}, {"role": "tool", "tool_call_id": "id-1", )"
      R"("content": "sun", "name": "get_weather"}, {"role": "tool", "tool_call_id": "id-2", "content": )"
      R"("none", "name": "find_news"}])");
  format.history.arguments = ArgumentsAs::text;
  EXPECT_NE(
      written(format, conversation()).find(R"("arguments": "{\"days\": 3, \"o\": {\"a\": true}}")"),
      std::string::npos);
}

TEST(WriteCalls, ArgumentsThatAreNoObjectStayText) {
  Format format = rendering();
  std::vector<Message> cut = conversation();
  cut[1].calls[0].arguments = R"({"days": )";
  EXPECT_NE(written(format, cut).find(R"("arguments": "{\"days\": "})"), std::string::npos)
      << written(format, cut);
  // A template that writes each argument in its own tags goes through an object.
  format.calls.shape = CallShape::tagged;
  EXPECT_NE(written(format, cut).find(R"("arguments": {"arguments": "{\"days\": "}})"),
            std::string::npos)
      << written(format, cut);
}

TEST(WriteCalls, NestedValuesAreTextWhereTheTemplatePrintsThemAsPythonDoes) {
  Format format = rendering();
  format.history.nested_as_text = true;
  EXPECT_NE(written(format, conversation()).find(R"({"days": 3, "o": "{\"a\": true}"})"),
            std::string::npos);
}

TEST(WriteCalls, OneCallAMessageWhereTheTemplateTakesOne) {
  Format format = rendering();
  format.calls.parallel = false;
  const auto messages = write_messages(format, conversation());
  std::string roles;
  for (const auto& message : messages) {
    roles += std::string(message.as_dict().find("role")->as_text().view()) + " ";
  }
  EXPECT_EQ(roles, "user assistant tool assistant tool ");
}

TEST(WriteCalls, CallsBecomeTextWhereTheTemplateRendersNone) {
  Format format = rendering();
  format.history.renders_calls = false;
  format.history.results = ResultsAs::user_text;
  const std::string text = written(format, conversation());
  EXPECT_NE(text.find("Well.\\n<call>{\\\"name\\\": \\\"get_weather\\\""), std::string::npos)
      << text;
  EXPECT_EQ(text.find("tool_calls"), std::string::npos);
  EXPECT_EQ(text.find("\"tool\""), std::string::npos);
}

TEST(WriteCalls, ContentGoesIntoAMessageOfItsOwnWhereItWouldHideTheCalls) {
  Format format = rendering();
  format.history.content_hides_calls = true;
  format.history.empty_content = EmptyContentAs::none;
  const auto messages = write_messages(format, conversation());
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[1].as_dict().find("content")->as_text().view(), "Well.");
  EXPECT_TRUE(messages[2].as_dict().find("content")->is(jinja::Kind::none));
}

TEST(WriteCalls, IdsAreMadeToFitAndStayTheSame) {
  Format format = rendering();
  format.history.ids_of_nine = true;
  const auto messages = write_messages(format, conversation());
  const auto& call = messages[1].as_dict().find("tool_calls")->as_list().items[0];
  const std::string id(call.as_dict().find("id")->as_text().view());
  EXPECT_EQ(id.size(), 9U);
  EXPECT_EQ(messages[2].as_dict().find("tool_call_id")->as_text().view(), id);
}

TEST(WriteCalls, WhatAMessageSaysKeepsItsOrigin) {
  std::vector<Message> messages = conversation();
  messages[1].origin = jinja::Origin{5};
  const auto values = write_messages(rendering(), messages);
  const auto& call = values[1].as_dict().find("tool_calls")->as_list().items[0];
  const jinja::Text& name = call.as_dict().find("function")->as_dict().find("name")->as_text();
  ASSERT_EQ(name.marks.size(), 1U);
  EXPECT_EQ(name.marks[0].origin, jinja::Origin{5});
}

TEST(WriteCalls, BrokenArgumentsAreGivenAsText) {
  std::vector<Message> messages = conversation();
  messages[1].calls[0].arguments = "{oops";
  EXPECT_NE(written(rendering(), messages).find(R"("arguments": "{oops")"), std::string::npos);
}

}  // namespace
}  // namespace stemma::dialect
