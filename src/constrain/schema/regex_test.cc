// Tests patterns: they match the same texts as ECMAScript's, which std::regex judges, or are
// refused with a reason.
#include "constrain/schema/regex.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "support/environment.h"

namespace stemma::constrain {
namespace {

std::string pattern_problem(std::string_view pattern) {
  const auto parsed = parse_regex(pattern);
  const auto* problem = std::get_if<Problem>(&parsed);
  return problem == nullptr ? "" : problem->text();
}

bool matches(std::string_view pattern, std::string_view text) {
  const auto parsed = parse_regex(pattern);
  if (const auto* problem = std::get_if<Problem>(&parsed)) {
    ADD_FAILURE() << pattern << ": " << problem->text();
    return false;
  }
  return regex_matches(std::get<Regex>(parsed), text);
}

TEST(Regex, ASearchUnlessItIsAnchored) {
  EXPECT_TRUE(matches("b", "abc"));
  EXPECT_FALSE(matches("^b", "abc"));
  EXPECT_TRUE(matches("^a", "abc"));
  EXPECT_TRUE(matches("c$", "abc"));
  EXPECT_FALSE(matches("^b$", "abc"));
  EXPECT_TRUE(matches("^a|c$", "xc"));
  EXPECT_TRUE(matches("", "anything"));
  EXPECT_TRUE(matches("^(a|b)$", "b"));
  EXPECT_TRUE(matches("^$", ""));
  EXPECT_FALSE(matches("^$", "a"));
}

TEST(Regex, ClassesEscapesAndCharactersBeyondAscii) {
  EXPECT_TRUE(matches("^\\d+\\.\\w\\s[^a-z]$", "12._ A"));
  EXPECT_TRUE(matches("^[\\u00e0-\\u00ff]{2}$", "\xC3\xA9\xC3\xBF"));
  EXPECT_TRUE(matches("^.$", "\xF0\x9F\x98\x80"));
  EXPECT_TRUE(matches("^\\u{1F600}\\ud83d\\ude00$", "\xF0\x9F\x98\x80\xF0\x9F\x98\x80"));
  EXPECT_FALSE(matches("^.$", "\n"));
  EXPECT_TRUE(matches("^[\\s\\S]$", "\n"));
  EXPECT_TRUE(matches("^\"\\\\$", "\"\\"));
  EXPECT_TRUE(matches("^a{,3}$", "a{,3}"));
  EXPECT_TRUE(matches("^[a-]$", "-"));
  EXPECT_TRUE(matches("^(?:ab){2}(?<name>c)$", "ababc"));
  EXPECT_TRUE(matches("^\\x41\\/\\-$", "A/-"));
}

TEST(Regex, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(pattern_problem("a(?=b)"), "character 4: look-around is not supported");
  EXPECT_NE(pattern_problem("(?<!a)b").find("look-around"), std::string::npos);
  EXPECT_NE(pattern_problem("(a)\\1").find("back references"), std::string::npos);
  EXPECT_NE(pattern_problem("\\bword").find("word borders"), std::string::npos);
  EXPECT_NE(pattern_problem("\\p{L}").find("Unicode property"), std::string::npos);
  EXPECT_NE(pattern_problem("a(^b)").find("anchor"), std::string::npos);
}

TEST(Regex, WhatMakesNoSenseIsRefused) {
  for (const char* pattern : {"(", ")", "[a", "a{3,2}", "*", "a**", "[z-a]", "\\", "\\u12",
                              "a{9999999999}", "\xFF", "\\ud800", "^*"}) {
    EXPECT_NE(pattern_problem(pattern), "") << pattern;
  }
  EXPECT_NE(pattern_problem(std::string(10'000, '(')), "");
}

TEST(Regex, HugeRepetitionsCostNothing) {
  GrammarBuilder build;
  const auto parsed = parse_regex("^((a{1,1000}){1,1000}){1,1000}b{50000}$");
  const RuleId root = build.rule_of(regex_in_json(build, std::get<Regex>(parsed)));
  auto made = build.finish(root);
  ASSERT_TRUE(std::holds_alternative<GrammarPtr>(made));
  EXPECT_LT(std::get<GrammarPtr>(made)->states(), 30U);
}

std::string random_pattern(std::mt19937_64& random, int depth) {
  std::string out;
  for (uint64_t parts = 1 + random() % 3; parts > 0; --parts) {
    const uint64_t kind = random() % (depth > 0 ? 8 : 5);
    std::string part = kind < 3    ? std::string(1, "abc"[random() % 3])
                       : kind == 3 ? std::string("[^b]")
                       : kind == 4 ? std::string("[ac]")
                                   : "(" + random_pattern(random, depth - 1) + ")";
    const uint64_t repeat = random() % 8;
    if (repeat == 0) part += "*";
    if (repeat == 1) part += "+";
    if (repeat == 2) part += "?";
    if (repeat == 3) part += "{1,2}";
    if (repeat == 4) part += "{2}";
    out += part;
  }
  if (random() % 4 == 0) out += "|" + random_pattern(random, depth - 1 > 0 ? depth - 1 : 0);
  return out;
}

TEST(Regex, AgreesWithTheStandardLibraryOnRandomPatterns) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    std::string pattern = random_pattern(random, 2);
    if (random() % 2 == 0) pattern = "^(" + pattern + ")$";
    const std::regex judge(pattern);
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (uint64_t left = random() % 7; left > 0; --left) text += "abc"[random() % 3];
      ASSERT_EQ(matches(pattern, text), std::regex_search(text, judge))
          << "seed " << seed << ": " << pattern << " on '" << text << "'";
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
