// Tests the grammars of answers: in every format, the texts they allow are read as what was
// requested.
#include "server/rules/answer_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "constrain/matcher.h"
#include "dialect/probe.h"
#include "dialect/write_calls.h"
#include "json/utf8.h"
#include "server/chat/template_talk.h"
#include "support/answer_walker.h"
#include "support/answers.h"

namespace stemma::server::answer_grammar_test {
namespace {

using dialect::AnswerStart;
using dialect::CallShape;
using dialect::Format;
using dialect::ParsedMessage;
using dialect::PieceKind;
using Kind = ToolChoice::Kind;

Format hermes() {
  Format format;
  format.thinking.opener = "<think>";
  format.thinking.closer = "</think>";
  format.calls.shape = CallShape::json;
  format.calls.parallel = true;
  format.calls.name_key = "name";
  format.calls.arguments_key = "arguments";
  format.calls.call_open = "<tool_call>";
  format.calls.call_close = "</tool_call>";
  return format;
}
Format bare() {
  Format format = hermes();
  format.thinking = {};
  format.calls.call_open = format.calls.call_close = "";
  format.calls.arguments_key = "parameters";
  format.calls.optional_opens = {"<|python_tag|>"};
  return format;
}
Format listed() {
  Format format = hermes();
  format.calls.call_open = format.calls.call_close = "";
  format.calls.list = true;
  format.calls.section_open = "[TOOL_CALLS]";
  format.calls.id_key = "id";
  format.history.ids_of_nine = true;
  return format;
}
Format tagged() {
  Format format = hermes();
  dialect::Calls& calls = format.calls;
  calls.shape = CallShape::tagged;
  calls.call_open = "<tool_call>\n<function=";
  calls.call_close = "</function>\n</tool_call>";
  calls.header = {{PieceKind::name, {}}, {PieceKind::text, ">"}};
  calls.argument = {{PieceKind::text, "<parameter="}, {PieceKind::key, {}}, {PieceKind::text, ">"}};
  calls.value_close = "</parameter>";
  calls.value_on_lines = true;
  return format;
}
Format harmony() {
  Format format;
  format.channels = {.opener = "<|start|>assistant",
                     .header_close = "<|message|>",
                     .closers = {"<|end|>", "<|return|>", "<|call|>"},
                     .call_mark = "to=functions.",
                     .calls_in_header = true,
                     .thinking_headers = {"<|channel|>analysis"},
                     .content_headers = {}};
  return format;
}

stemma::Json parsed(const std::string& text) {
  auto value = parse_json(text, {.depth = 300});
  EXPECT_TRUE(std::holds_alternative<stemma::Json>(value)) << text;
  return std::get<stemma::Json>(std::move(value));
}

ToolSpec tool(const std::string& name, const std::string& schema, bool strict = false) {
  return {.name = name, .description = "", .parameters = parsed(schema), .strict = strict};
}
ChatRequest request_of(Kind kind) {
  ChatRequest request;
  request.tools = {tool("get_weather", R"({"type":"object","properties":{"city":{"type":"string"},
           "unit":{"type":"string","enum":["C","F"]},"days":{"type":"integer"},
           "place":{"type":"object","properties":{"lat":{"type":"number"}},"required":["lat"]}},
           "required":["city","days"]})"),
                   tool("find_news", R"({"type":"object","properties":{}})")};
  request.tool_choice.kind = kind;
  if (kind == Kind::named) request.tool_choice.names = {"get_weather"};
  return request;
}
std::vector<dialect::Tool> tools_of(const ChatRequest& request) {
  std::vector<dialect::Tool> tools;
  for (const ToolSpec& each : request.tools) {
    tools.push_back({each.name, template_value(argument_schema(each), jinja::kNoOrigin)});
  }
  return tools;
}
AnswerStart start_of(const Format& format) {
  return format.channels.opener.empty() ? AnswerStart::text : AnswerStart::header;
}
AnswerGrammar grammar_of(const Format& format, const ChatRequest& request, AnswerStart start) {
  auto made = make_answer_grammar(format, start, request);
  const auto* error = std::get_if<ApiError>(&made);
  EXPECT_EQ(error, nullptr) << (error == nullptr ? "" : error->message);
  return error == nullptr ? std::get<AnswerGrammar>(std::move(made)) : AnswerGrammar{};
}
AnswerGrammar grammar_of(const Format& format, const ChatRequest& request) {
  return grammar_of(format, request, start_of(format));
}
bool lets_through(const AnswerGrammar& grammar, const std::string& answer) {
  constrain::Matcher matcher(grammar.grammar);
  return matcher.accept(answer) && matcher.may_end();
}
bool lets_begin(const AnswerGrammar& grammar, const std::string& answer) {
  return constrain::Matcher(grammar.grammar).allows(answer);
}

// Checks arguments of a call against its schema, without the grammar.
void expect_arguments(const dialect::ParsedCall& call, const std::string& answer) {
  const stemma::Json arguments = parsed(call.arguments);
  ASSERT_NE(arguments.object(), nullptr) << answer;
  if (call.name == "find_news") return;
  ASSERT_NE(arguments.find("city"), nullptr) << answer;
  EXPECT_NE(arguments.find("city")->string(), nullptr) << answer;
  ASSERT_NE(arguments.find("days"), nullptr) << answer;
  EXPECT_NE(std::get_if<int64_t>(&arguments.find("days")->value), nullptr) << answer;
  if (const stemma::Json* unit = arguments.find("unit")) {
    EXPECT_TRUE(*unit->string() == "C" || *unit->string() == "F") << answer;
  }
}

// Random answers under the grammar are complete calls of existing tools.
void expect_walks_are_calls(const Format& format, Kind kind, const std::string& what,
                            bool judge_arguments) {
  const ChatRequest request = request_of(kind);
  const AnswerGrammar made = grammar_of(format, request);
  ASSERT_NE(made.grammar, nullptr) << what;
  const test::AnswerWalker walker(made.grammar);
  std::mt19937_64 random(7);
  for (int i = 0; i < 6; ++i) {
    auto answer = walker.walk(random, 40 + 40 * static_cast<size_t>(i));
    ASSERT_TRUE(answer) << what;
    answer = to_utf8(*answer);  // As the scheduler passes it on.
    const ParsedMessage message = dialect::add_up(dialect::parse_events(
        format, *answer, {}, start_of(format), dialect::AnswerEnd::stop, tools_of(request)));
    ASSERT_GE(message.calls.size(), 1U) << what << ": " << *answer;
    if (kind == Kind::named) {
      EXPECT_EQ(message.calls.size(), 1U) << what << ": " << *answer;
    }
    for (const dialect::ParsedCall& call : message.calls) {
      EXPECT_TRUE(call.complete) << what << ": " << *answer;
      if (kind == Kind::named) {
        EXPECT_EQ(call.name, "get_weather") << what;
      }
      if (judge_arguments) expect_arguments(call, what + ": " + *answer);
    }
    EXPECT_EQ(message.content.find_first_not_of(" \n\r\t"), std::string::npos)
        << what << ": " << *answer;
  }
}

TEST(AnswerGrammar, RequiredAndNamedAnswersAreCalls) {
  for (const Kind kind : {Kind::required, Kind::named}) {
    expect_walks_are_calls(hermes(), kind, "hermes", true);
    expect_walks_are_calls(bare(), kind, "bare", true);
    expect_walks_are_calls(listed(), kind, "listed", true);
    expect_walks_are_calls(tagged(), kind, "tagged", true);
    expect_walks_are_calls(harmony(), kind, "harmony", true);
  }
}

TEST(AnswerGrammar, TextIsFreeUntilACallBegins) {
  const AnswerGrammar made = grammar_of(hermes(), request_of(Kind::automatic));
  EXPECT_TRUE(lets_through(made, ""));
  EXPECT_TRUE(lets_through(made, "Any <text> {\"a\": } <tool_cal"));
  EXPECT_TRUE(lets_through(made, "<think>hm</think>\n\nHi"));
  EXPECT_TRUE(lets_through(
      made,
      "Let me see.\n<tool_call>\n{\"name\": \"find_news\", \"arguments\": {}}\n</tool_call>\nOk"));
  EXPECT_FALSE(lets_begin(made, "x <tool_call>\n{\"name\": \"drop_table"));
  EXPECT_FALSE(lets_begin(made, "x <tool_call>\nno"));
  EXPECT_FALSE(
      lets_begin(made, "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": 5"));
  EXPECT_FALSE(lets_through(made, "<tool_call>{\"name\": \"find_news\""));  // Incomplete.
}

TEST(AnswerGrammar, NoMoreThanOneCallWhereThatIsAsked) {
  const std::string call = "<tool_call>{\"name\": \"find_news\", \"arguments\": {}}</tool_call>";
  for (const Kind kind : {Kind::automatic, Kind::required}) {
    ChatRequest request = request_of(kind);
    EXPECT_TRUE(lets_through(grammar_of(hermes(), request), call + "\n" + call));
    request.parallel_calls = false;
    EXPECT_TRUE(lets_through(grammar_of(hermes(), request), call));
    EXPECT_FALSE(lets_begin(grammar_of(hermes(), request), call + "\n" + call));
  }
}

TEST(AnswerGrammar, OnlyToolsThatMayBeCalledAreCalled) {
  ChatRequest request = request_of(Kind::required);
  request.tool_choice.names = {"find_news"};
  EXPECT_FALSE(lets_begin(grammar_of(hermes(), request), "<tool_call>{\"name\": \"get"));
  request.tool_choice.kind = Kind::none;
  EXPECT_EQ(grammar_of(hermes(), request).grammar, nullptr);
}

TEST(AnswerGrammar, ThinkingComesFirstAndIsFree) {
  ChatRequest request = request_of(Kind::required);
  const std::string call = "<tool_call>{\"name\": \"find_news\", \"arguments\": {}}</tool_call>";
  const AnswerGrammar text = grammar_of(hermes(), request);
  EXPECT_TRUE(lets_through(text, "<think>\nany <tool_call> {</think>\n\n" + call));
  EXPECT_TRUE(lets_through(text, call));
  const AnswerGrammar opened = grammar_of(hermes(), request, AnswerStart::thinking);
  EXPECT_TRUE(lets_through(opened, "any</think>" + call));
  EXPECT_FALSE(lets_through(opened, call));
  ChatRequest json;
  json.form.kind = AnswerForm::Kind::json_object;
  EXPECT_TRUE(lets_through(grammar_of(hermes(), json), "<think>x</think>\n{\"a\":1}"));
  EXPECT_FALSE(lets_begin(grammar_of(hermes(), json), "Sure"));
}

TEST(AnswerGrammar, FormsAreEnforced) {
  ChatRequest request;
  request.form.kind = AnswerForm::Kind::json_schema;
  request.form.schema = parsed(R"({"type":"object","properties":{"a":{"type":"integer"}},
                                   "required":["a"],"additionalProperties":false})");
  EXPECT_TRUE(lets_through(grammar_of(hermes(), request), "{\"a\": 5}"));
  EXPECT_FALSE(lets_begin(grammar_of(hermes(), request), "{\"b"));
  const AnswerGrammar channel = grammar_of(harmony(), request);
  EXPECT_TRUE(lets_through(channel, "<|channel|>final<|message|>{\"a\": 5}"));
  EXPECT_TRUE(lets_through(channel,
                           "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
                           "final<|message|>{\"a\": 5}"));
  EXPECT_FALSE(lets_begin(channel, "<|channel|>final<|message|>no"));
  request.form = {
      .kind = AnswerForm::Kind::gbnf, .schema = {}, .grammar = "root ::= \"yes\" | \"no\""};
  EXPECT_TRUE(lets_through(grammar_of(hermes(), request), "yes"));
  EXPECT_FALSE(lets_begin(grammar_of(hermes(), request), "maybe"));
}

TEST(AnswerGrammar, WithAFormAnAnswerIsCallsOrOfThatForm) {
  ChatRequest request = request_of(Kind::automatic);
  request.form.kind = AnswerForm::Kind::json_object;
  const AnswerGrammar made = grammar_of(hermes(), request);
  EXPECT_TRUE(lets_through(made, "{\"a\": 1}"));
  EXPECT_TRUE(
      lets_through(made, "<tool_call>{\"name\": \"find_news\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(lets_begin(made, "Text"));
}

TEST(AnswerGrammar, WhatCannotBeEnforcedIsListedOrRefused) {
  const char* const schema =
      R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})";
  ChatRequest request;
  request.tools = {tool("f", schema)};
  const AnswerGrammar made = grammar_of(hermes(), request);
  ASSERT_EQ(made.unenforced.size(), 1U);
  EXPECT_EQ(made.unenforced[0], "tools[0].parameters/properties/a/uniqueItems");
  request.tools = {tool("f", schema, true)};
  auto refused = make_answer_grammar(hermes(), AnswerStart::text, request);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  const ApiError& error = std::get<ApiError>(refused);
  EXPECT_EQ(error.status, 400);
  EXPECT_NE(error.message.find("uniqueItems"), std::string::npos) << error.message;
  // An invalid schema counts as any object, and is listed.
  request.tools = {tool("f", R"({"type":"wizard"})")};
  EXPECT_FALSE(grammar_of(hermes(), request).unenforced.empty());
  request.form.kind = AnswerForm::Kind::json_schema;
  request.form.schema = parsed(R"({"type":"wizard"})");
  EXPECT_TRUE(
      std::holds_alternative<ApiError>(make_answer_grammar(hermes(), AnswerStart::text, request)));
  request.form = {.kind = AnswerForm::Kind::gbnf, .schema = {}, .grammar = "root ::= ("};
  EXPECT_TRUE(
      std::holds_alternative<ApiError>(make_answer_grammar(hermes(), AnswerStart::text, request)));
}

TEST(AnswerGrammar, TextsInTagsAreWhatTheReaderTakesForText) {
  ChatRequest request;
  request.tool_choice.kind = Kind::required;
  request.tools = {tool("f", R"({"type":"object","properties":{
      "note":{"type":["string","null"]},"mode":{"const":"fast"},"text":{"type":"string","minLength":2},
      "ref":{"$ref":"#/$defs/n"}},"required":["note","mode","text","ref"],"minProperties":1,
      "$defs":{"n":{"type":"integer"}}})")};
  const AnswerGrammar made = grammar_of(tagged(), request);
  EXPECT_TRUE(
      lets_through(made,
                   "<tool_call>\n<function=f>\n<parameter=note>\nany \"text\n</parameter>\n"
                   "<parameter=mode>\nfast\n</parameter>\n<parameter=text>\nx\n</parameter>\n"
                   "<parameter=ref>\n5\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_FALSE(lets_begin(made,
                          "<tool_call>\n<function=f>\n<parameter=note>\nx\n</parameter>\n"
                          "<parameter=mode>\nslow"));
  EXPECT_EQ(made.unenforced,
            (std::vector<std::string>{"tools[0].parameters/minProperties",
                                      "tools[0].parameters/properties/text/minLength"}));
  request.tools[0].strict = true;
  EXPECT_TRUE(
      std::holds_alternative<ApiError>(make_answer_grammar(tagged(), AnswerStart::text, request)));
}

TEST(AnswerGrammar, WhereNothingTellsCallsFromTextThatIsSaid) {
  ChatRequest request = request_of(Kind::automatic);
  const AnswerGrammar made = grammar_of(bare(), request);
  EXPECT_EQ(made.grammar, nullptr);
  EXPECT_EQ(made.unenforced, std::vector<std::string>{"tools"});
  // A strict tool is enforced: a text that begins with a brace is its call.
  request.tools.resize(1);
  request.tools[0] = tool("f", R"({"type":"object","properties":{"a":{"type":"integer"}},
                                   "required":["a"],"additionalProperties":false})",
                          true);
  const AnswerGrammar strict = grammar_of(bare(), request);
  EXPECT_TRUE(lets_through(strict, "Text {"));
  EXPECT_TRUE(lets_through(strict, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"));
  EXPECT_FALSE(lets_begin(strict, "{\"name\": \"f\", \"parameters\": {\"b"));
}

TEST(AnswerGrammar, HarmonysMessagesAreFreeUntilACall) {
  const AnswerGrammar made = grammar_of(harmony(), request_of(Kind::automatic));
  EXPECT_TRUE(lets_through(made, "<|channel|>final<|message|>Hi"));
  EXPECT_TRUE(lets_through(made,
                           "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
                           "commentary to=functions.find_news <|constrain|>json<|message|>{}"));
  EXPECT_FALSE(lets_begin(made, "<|channel|>commentary to=functions.drop"));
}

#ifdef STEMMA_TEMPLATES_DIR
TEST(AnswerGrammar, OfEveryTemplateLetsThroughWhatItsModelWritesAndWhatIsRead) {
  if (!std::filesystem::exists(STEMMA_TEMPLATES_DIR)) GTEST_SKIP() << "no templates";
  size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STEMMA_TEMPLATES_DIR)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream source;
    source << file.rdbuf();
    auto chat = jinja::Template::parse(source.str());
    if (!std::holds_alternative<jinja::Template>(chat)) continue;
    const Format format = dialect::probe(std::get<jinja::Template>(chat), source.str());
    if (!dialect::supports_tools(format)) continue;
    ++seen;
    // A call in the model's own format.
    ChatRequest request = request_of(Kind::named);
    const dialect::Call call{
        .id = "call00001", .name = "get_weather", .arguments = R"({"city": "Bonn", "days": 3})"};
    std::string written = dialect::write_calls_as_text(format, {&call, 1});
    if (format.channels.calls_in_header) {
      written.erase(0, format.channels.opener.size());
      const std::string closer =
          format.channels.closers.empty() ? "" : format.channels.closers.back();
      if (written.ends_with(closer)) written.resize(written.size() - closer.size());
    } else if (!format.channels.opener.empty()) {
      written.insert(0, format.channels.header_close);
    }
    const AnswerGrammar made = grammar_of(format, request);
    ASSERT_NE(made.grammar, nullptr) << name;
    EXPECT_TRUE(lets_through(made, written)) << name << ": " << written;
    const bool by_schema = made.unenforced.empty();
    for (const Kind kind : {Kind::required, Kind::named}) {
      expect_walks_are_calls(format, kind, name, by_schema);
    }
  }
  EXPECT_GE(seen, 60U);
}
#endif

}  // namespace
}  // namespace stemma::server::answer_grammar_test
