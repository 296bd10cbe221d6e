// Tests Ollama's answers: one object on each line, and all lines together equal the whole answer.
#include "server/api/ollama/writer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

// A separate namespace, because sources are compiled together.
namespace stemma::server::ollama_writer_test {
namespace {

using Parsed = nlohmann::json;
using dialect::EventKind;

std::vector<Parsed> lines(const std::string& text) {
  std::vector<Parsed> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(Parsed::parse(line));
  return out;
}

OllamaHead head(OllamaKind kind) {
  return {.kind = kind, .id = "x", .model = "m", .created_at = ollama_time(1'000'000'000)};
}

Summary summary() {
  Summary out;
  out.prompt_tokens = 10;
  out.generated_tokens = 4;
  out.timings = {.queued_ns = 1, .prompt_ns = 20, .generated_ns = 300};
  return out;
}

TEST(OllamaWriter, AStreamSaysWhatTheWholeSays) {
  OllamaWriter writer(head(OllamaKind::chat));
  std::string out;
  writer.start({}, out);
  writer.part({.event = {.kind = EventKind::reasoning, .text = "hm"}}, out);
  writer.part({.event = {.text = "Hello "}}, out);
  writer.part({.event = {.text = "you"}}, out);
  writer.part({.event = {.kind = EventKind::call_begin, .text = "f"}, .call_id = "call_1"}, out);
  writer.part({.event = {.kind = EventKind::arguments, .text = R"({"b":1,)"}}, out);
  writer.part({.event = {.kind = EventKind::arguments, .text = R"("a":2})"}}, out);
  writer.part({.event = {.kind = EventKind::call_end}}, out);
  writer.part({.event = {.kind = EventKind::call_begin, .call = 1, .text = "g"}}, out);
  writer.part({.event = {.kind = EventKind::arguments, .call = 1, .text = R"({"cut)"}}, out);
  writer.part({.event = {.kind = EventKind::call_end, .call = 1, .complete = false}}, out);
  const AnswerEnd end{.stop = AnswerStop::length};
  writer.end_choice(end, out);
  writer.finish(summary(), out);
  const auto said = lines(out);
  ASSERT_EQ(said.size(), 5U);
  Parsed joined = said.back();
  std::string content;
  std::string thinking;
  Parsed calls = Parsed::array();
  for (const Parsed& line : said) {
    const Parsed& message = line["message"];
    EXPECT_EQ(line["created_at"], "2001-09-09T01:46:40Z");
    EXPECT_EQ(line["done"], &line == &said.back());
    content += message["content"].get<std::string>();
    thinking += message.value("thinking", "");
    for (const Parsed& call : message.value("tool_calls", Parsed::array())) calls.push_back(call);
  }
  joined["message"]["content"] = content;
  joined["message"]["thinking"] = thinking;
  joined["message"]["tool_calls"] = calls;

  using Kind = AnswerBlock::Kind;
  WholeChoice choice{.end = end};
  choice.blocks = {
      {.kind = Kind::thinking, .text = "hm"},
      {.text = "Hello you"},
      {.kind = Kind::call, .text = R"({"b":1,"a":2})", .name = "f", .call_id = "call_1"},
      {.kind = Kind::call, .text = R"({"cut)", .name = "g", .complete = false}};
  OllamaWriter whole(head(OllamaKind::chat));
  EXPECT_EQ(Parsed::parse(whole.whole({&choice, 1}, summary())), joined);
  EXPECT_EQ(calls, (Parsed{{{"id", "call_1"},
                            {"function", {{"name", "f"}, {"arguments", {{"a", 2}, {"b", 1}}}}}}}));
  EXPECT_NE(out.find(R"({"b":1,"a":2})"), std::string::npos) << "keys keep their order";
  EXPECT_EQ(joined["done_reason"], "length");
  EXPECT_EQ(joined["total_duration"], 321);
  EXPECT_EQ(joined["prompt_eval_count"], 10);
  EXPECT_EQ(joined["eval_count"], 4);
}

TEST(OllamaWriter, ArgumentsOfAnyDepthAndNamesThatComeTwiceAreSent) {
  const std::string deep = R"({"a":)" + std::string(300, '[') + std::string(300, ']') + "}";
  for (const std::string& arguments : {deep, std::string(R"({"a":1,"a":2})")}) {
    WholeChoice choice;
    choice.blocks = {{.kind = AnswerBlock::Kind::call, .text = arguments, .name = "f"}};
    OllamaWriter writer(head(OllamaKind::chat));
    const std::string whole = writer.whole({&choice, 1}, summary());
    EXPECT_NE(whole.find(R"("arguments":)" + arguments), std::string::npos) << whole;
  }
  // A line is one object, so line breaks between values go.
  WholeChoice choice;
  choice.blocks = {{.kind = AnswerBlock::Kind::call, .text = "{\n  \"a\": 1\n}", .name = "f"}};
  OllamaWriter writer(head(OllamaKind::chat));
  EXPECT_NE(writer.whole({&choice, 1}, summary()).find(R"("arguments":{"a":1}})"),
            std::string::npos);
}

TEST(OllamaWriter, GenerateHasAResponse) {
  OllamaWriter writer(head(OllamaKind::generate));
  std::string out;
  writer.part({.event = {.text = "Hi"}}, out);
  writer.end_choice({}, out);
  writer.finish(summary(), out);
  const auto said = lines(out);
  EXPECT_EQ(said[0]["response"], "Hi");
  EXPECT_EQ(said[1]["response"], "");
  EXPECT_EQ(said[1]["done_reason"], "stop");
  EXPECT_EQ(Parsed::parse(writer.loaded())["done_reason"], "load");
}

TEST(OllamaWriter, ErrorsAreOneText) {
  OllamaWriter writer(head(OllamaKind::chat));
  EXPECT_EQ(writer.refusal({.message = "no \"x\""}), R"({"error":"no \"x\""})");
  std::string out;
  writer.fail({.message = "gone"}, out);
  EXPECT_EQ(out, "{\"error\":\"gone\"}\n");
  EXPECT_TRUE(writer.keep_alive().empty());
}

}  // namespace
}  // namespace stemma::server::ollama_writer_test
