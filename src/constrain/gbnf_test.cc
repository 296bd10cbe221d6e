// Tests GBNF: the notation as llama.cpp documents it, and errors with line and column.
#include "constrain/gbnf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "constrain/matcher.h"
#include "support/answer_walker.h"

namespace stemma::constrain {
namespace {

GrammarPtr gbnf(std::string_view text) {
  auto made = compile_gbnf(text);
  if (auto* problem = std::get_if<Problem>(&made)) {
    ADD_FAILURE() << text << "\n" << problem->text();
    return nullptr;
  }
  return std::get<GrammarPtr>(made);
}

bool whole(std::string_view grammar, std::string_view text) {
  const GrammarPtr made = gbnf(grammar);
  if (made == nullptr) return false;
  Matcher matcher(made);
  return matcher.accept(text) && matcher.may_end();
}

std::string problem_of(std::string_view text) {
  auto made = compile_gbnf(text);
  const auto* problem = std::get_if<Problem>(&made);
  return problem == nullptr ? "" : problem->text();
}

TEST(Gbnf, RulesSequencesAndAlternatives) {
  constexpr std::string_view kList = R"(
# A list of words.
root ::= "[" ws item ("," ws item)* "]"   # the whole
item ::= word | number |
  "nothing"
word ::= [a-z]+
number ::= [1-9] [0-9]{0,3} | "0"
ws ::= " "?
)";
  EXPECT_TRUE(whole(kList, "[abc, 12,0]"));
  EXPECT_TRUE(whole(kList, "[ nothing]"));
  EXPECT_FALSE(whole(kList, "[]"));
  EXPECT_FALSE(whole(kList, "[12345]"));
}

TEST(Gbnf, GroupsMaySpanLinesAndRepetitionsCount) {
  constexpr std::string_view kText =
      "root ::= (\n  \"a\" # one\n  | \"b\"\n){2,3} \"c\"{2} \"d\"{1,} \"e\"{,2}";
  EXPECT_TRUE(whole(kText, "abccd"));
  EXPECT_TRUE(whole(kText, "bbaccddddee"));
  EXPECT_FALSE(whole(kText, "accd"));
  EXPECT_FALSE(whole(kText, "abcd"));
  EXPECT_FALSE(whole(kText, "abccdeee"));
}

TEST(Gbnf, CharactersAreUnicodeAndMayBeEscaped) {
  EXPECT_TRUE(whole("root ::= [\xE3\x81\x81-\xE3\x82\x9F]+", "\xE3\x81\x82\xE3\x82\x9F"));
  EXPECT_TRUE(whole(R"(root ::= "\x41\u00e9\U0001F600\n\t\"\\" [^\n\]] [\[\]] . )",
                    "A\xC3\xA9\xF0\x9F\x98\x80\n\t\"\\x]\n"));
  EXPECT_FALSE(whole("root ::= [^a]", "a"));
  EXPECT_TRUE(whole("root ::= [a-]", "-"));
  EXPECT_FALSE(whole("root ::= .", "\xFF"));
}

TEST(Gbnf, RecursionToTheRightCostsNoDepth) {
  const GrammarPtr grammar = gbnf("root ::= \"a\" root | \"b\"");
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.accept(std::string(100'000, 'a')));
  EXPECT_TRUE(matcher.accept("b"));
  EXPECT_TRUE(matcher.may_end());
}

TEST(Gbnf, MistakesHaveALineAndAColumn) {
  EXPECT_EQ(problem_of("root ::= \"a\n"), "line 1, column 10: a literal without its end");
  EXPECT_EQ(problem_of("root ::= a\na := \"b\""),
            "line 2, column 3: '::=' is missing after the name of a rule");
  EXPECT_EQ(problem_of("root ::= \"x\" lost"), "line 1, column 14: the rule 'lost' is not defined");
  EXPECT_EQ(problem_of("root ::= x\nx ::= \"\" x \"a\" | \"b\""),
            "line 2, column 1: the rule 'x' calls itself before it reads anything");
  EXPECT_EQ(problem_of("a ::= \"b\""), "line 1, column 10: there is no rule called 'root'");
  EXPECT_EQ(problem_of("root ::= <think> .*"),
            "line 1, column 10: tokens are not supported: a grammar knows bytes only");
  EXPECT_EQ(problem_of("root ::= \"a\"\nroot ::= \"b\""),
            "line 2, column 1: the rule 'root' is defined twice");
  for (const char* text :
       {"", "root", "root ::= (\"a\"", "root ::= [a", "root ::= \"\\q\"", "root ::= \"a\"{3,2}",
        "root ::= \"a\"{x}", "root ::= [z-a]", "root ::= \"a\" )", "root ::= \"\\ud800\"",
        "root ::= \"a\"{99999999999}", "root ::= root"}) {
    EXPECT_NE(problem_of(text), "") << text;
  }
  EXPECT_NE(problem_of("root ::= " + std::string(100'000, '(')), "");
  EXPECT_NE(problem_of(std::string(2U << 20U, '#')), "");
}

// Reads the grammars in llama.cpp's sources, if STEMMA_GBNF_FOLDER names their folder.
TEST(Gbnf, TheGrammarsOfLlamaCppAreUnderstood) {
  const char* const folder = std::getenv("STEMMA_GBNF_FOLDER");
  if (folder == nullptr) GTEST_SKIP() << "STEMMA_GBNF_FOLDER is not set";
  std::mt19937_64 random(1);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gbnf") continue;
    ++files;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const GrammarPtr grammar = gbnf(text.str());
    ASSERT_NE(grammar, nullptr) << entry.path();
    const test::AnswerWalker walker(grammar);
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(walker.walk(random, 200).has_value()) << entry.path();
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace stemma::constrain
