// Tests the scheduler's rules: special tokens stand for markers, not for text.
#include "server/rules/rule_maker.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/rules/answer_grammar.h"

namespace stemma::server::rule_maker_test {
namespace {

// Every byte, and two special tokens.
constexpr Token kCall = 256, kCallEnd = 257;

std::unique_ptr<TokenRules> required_call() {
  dialect::Format format;
  format.calls.shape = dialect::CallShape::json;
  format.calls.name_key = "name";
  format.calls.arguments_key = "arguments";
  format.calls.call_open = "<tool_call>";
  format.calls.call_close = "</tool_call>";
  auto schema =
      parse_json(R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})");
  ChatRequest request;
  request.tools.push_back({.name = "f", .parameters = std::get<stemma::Json>(schema)});
  request.tool_choice.kind = ToolChoice::Kind::required;
  auto made = make_answer_grammar(format, dialect::AnswerStart::text, request);
  EXPECT_TRUE(std::holds_alternative<AnswerGrammar>(made));
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.emplace_back("<tool_call>");
  bytes.emplace_back("</tool_call>");
  const std::vector<Token> specials = {kCall, kCallEnd};
  return grammar_rules(std::make_shared<const constrain::TokenTable>(bytes),
                       std::get<AnswerGrammar>(made).grammar,
                       std::make_shared<const std::vector<Token>>(specials))
      ->begin();
}

TEST(RuleMaker, SpecialTokensStandForMarkersAndNotInsideStrings) {
  const std::unique_ptr<TokenRules> rules = required_call();
  EXPECT_TRUE(rules->allows(kCall));
  EXPECT_TRUE(rules->mask()->allows(kCall));
  EXPECT_FALSE(rules->allows(kCallEnd));
  rules->accept(kCall);
  for (const char c : std::string(R"({"name": "f", "arguments": {"a": "x)")) {
    ASSERT_TRUE(rules->allows(static_cast<Token>(c)));
    ASSERT_TRUE(rules->mask()->allows(static_cast<Token>(c)));
    rules->accept(static_cast<Token>(c));
  }
  EXPECT_TRUE(rules->allows('<'));  // Spelled out as bytes, it is text.
  for (const Token special : {kCall, kCallEnd}) {
    EXPECT_FALSE(rules->allows(special));
    EXPECT_FALSE(rules->mask()->allows(special));
  }
  for (const char c : std::string("\"}}")) rules->accept(static_cast<Token>(c));
  EXPECT_FALSE(rules->may_end());
  EXPECT_TRUE(rules->allows(kCallEnd));
  EXPECT_TRUE(rules->mask()->allows(kCallEnd));
  rules->accept(kCallEnd);
  EXPECT_TRUE(rules->may_end());
}

}  // namespace
}  // namespace stemma::server::rule_maker_test
