// Tests token tables and masks: a mask agrees with the matcher about every token.
#include "constrain/token_masks.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "constrain/gbnf.h"
#include "constrain/schema/json_schema.h"
#include "support/answer_walker.h"
#include "support/environment.h"

namespace stemma::constrain {
namespace {

GrammarPtr schema(std::string_view text) {
  auto made = compile_schema(text);
  if (auto* problem = std::get_if<Problem>(&made)) ADD_FAILURE() << problem->text();
  return std::get<CompiledSchema>(made).grammar;
}

// Every byte, pieces of JSON, words, parts of characters, one token twice, and an empty token.
std::vector<std::string> vocabulary(std::mt19937_64& random) {
  std::vector<std::string> tokens = {""};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* text :
       {"\":", "\": ",  "\", \"",   "\"}",      "\"]",      "}}",           "[{",
        "{\"", "\n  ",  "true",     "false",    "null",     "12",           "345",
        "the", " and",  "\xC3\xA9", "\xE2\x82", "\x82\xAC", "\xF0\x9F\x98", "\xF0\x9F\x98\x80",
        "\\n", "\\u00", "\\\"",     "name",     "\"name\"", "the",          "0.5",
        "-1"}) {
    tokens.push_back(text);
  }
  for (int i = 0; i < 600; ++i) {
    std::string token;
    for (uint64_t left = 1 + random() % 6; left > 0; --left)
      token += "abcde \"\\{}[],:01"[random() % 16];
    tokens.push_back(token);
  }
  tokens.push_back(std::string(40, ' '));
  return tokens;
}

const char* const kSchemas[] = {
    R"({})",
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":50},"age":{"type":"integer","minimum":0}},
        "required":["name"]})",
    R"({"type":"array","items":{"type":"string","minLength":3,"maxLength":500},"minItems":2})",
    R"({"type":"string","pattern":"^[a-c]{2,40}(, [d-e]+)*$"})",
    R"({"type":"object","properties":{"a":{"type":"number"}},"additionalProperties":true})",
};

TEST(TokenTable, KeepsTheBytesOfEveryToken) {
  const std::vector<std::string> tokens = {"b", "", "abc", "ab", "b", "a\0c"};
  const TokenTable table(tokens);
  ASSERT_EQ(table.size(), tokens.size());
  for (uint32_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(table.bytes(i), tokens[i]);
  EXPECT_EQ(table.longest_bytes(), 3U);
  EXPECT_EQ(table.tokens().size(), 5U);  // No mask contains the empty token.
}

TEST(TokenMasks, SayWhatTheMatcherSays) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  std::mt19937_64 random(seed);
  const std::vector<std::string> tokens = vocabulary(random);
  const TokenTable table(tokens);
  for (const char* text : kSchemas) {
    const GrammarPtr grammar = schema(text);
    // The second object forgets all the time.
    TokenMasks masks(table, grammar);
    TokenMasks forgetful(table, grammar, {.masks = 1, .positions_words = 2'000});
    for (int answer = 0; answer < 6; ++answer) {
      Matcher matcher(grammar);
      for (int step = 0; step < 60; ++step) {
        const auto mask = masks.mask(matcher);
        const auto other = forgetful.mask(matcher);
        std::vector<uint32_t> allowed;
        for (uint32_t token = 0; token < table.size(); ++token) {
          const bool expected = !tokens[token].empty() && matcher.allows(tokens[token]);
          ASSERT_EQ(mask->allows(token), expected) << "seed " << seed << ", " << text << ", step "
                                                   << step << ", token '" << tokens[token] << "'";
          ASSERT_EQ(other->allows(token), expected);
          if (expected) allowed.push_back(token);
        }
        ASSERT_EQ(mask->count, allowed.size());
        if (allowed.empty()) break;
        ASSERT_TRUE(matcher.accept(tokens[allowed[random() % allowed.size()]]));
      }
    }
  }
}

TEST(TokenMasks, ALongBoundedStringHasOneMaskUntilItNearsItsEnd) {
  const std::vector<std::string> tokens = {"a", "b", "\"", "aaaaaaaa"};
  const TokenTable table(tokens);
  const GrammarPtr grammar = schema(R"({"type":"string","minLength":100,"maxLength":65536})");
  TokenMasks masks(table, grammar);
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept("\""));
  for (int i = 0; i < 65'000; ++i) {
    if (i % 50 == 0) masks.mask(matcher);
    ASSERT_TRUE(matcher.accept("a"));
  }
  EXPECT_LE(masks.misses(), 3U);
  EXPECT_TRUE(masks.mask(matcher)->allows(3));
  while (matcher.accept("a")) {
  }
  const auto last = masks.mask(matcher);
  EXPECT_TRUE(last->allows(2));
  EXPECT_EQ(last->count, 1U);
}

// Every letter of the answer makes other stacks, so hardly any step of a mask is known already.
GrammarPtr slow_grammar() {
  std::string text = "w ::= [a-z]\nroot ::= ";
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    text += (letter == 'a' ? "w* \"" : " | w* \"") + std::string(1, letter) + "\" w{500}";
  }
  auto made = compile_gbnf(text);
  if (auto* problem = std::get_if<Problem>(&made)) ADD_FAILURE() << problem->text();
  return std::get<GrammarPtr>(made);
}

std::vector<std::string> words_of_letters(size_t count, std::mt19937_64& random) {
  std::vector<std::string> tokens;
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
  while (tokens.size() < count) {
    std::string token;
    for (uint64_t left = 2 + random() % 8; left > 0; --left)
      token += "abcdefghijklmno"[random() % 15];
    tokens.push_back(token);
  }
  return tokens;
}

TEST(TokenMasks, AMaskThatTakesTooLongIsCutShortButLetsTheAnswerGoOn) {
  std::mt19937_64 random(test::from_environment("STEMMA_SEED", 1));
  const std::vector<std::string> tokens = words_of_letters(20'000, random);
  const TokenTable table(tokens);
  const GrammarPtr grammar = slow_grammar();
  Matcher matcher(grammar);
  for (int i = 0; i < 400; ++i) ASSERT_TRUE(matcher.accept(tokens[random() % 26]));
  TokenMasks masks(table, grammar, {.work = 200'000});
  const auto mask = masks.mask(matcher);
  EXPECT_EQ(masks.cut_short(), 1U);
  EXPECT_LT(mask->count, tokens.size());  // All of them could follow.
  uint32_t count = 0;
  for (uint32_t token = 0; token < tokens.size(); ++token) {
    if (!mask->allows(token)) {
      EXPECT_GE(token, 26U) << tokens[token];
      continue;
    }
    ++count;
    EXPECT_TRUE(matcher.allows(tokens[token]));
  }
  EXPECT_EQ(mask->count, count);
  TokenMasks patient(table, grammar, {.work = uint64_t{1} << 60U});
  EXPECT_EQ(patient.mask(matcher)->count, tokens.size());
  EXPECT_EQ(patient.cut_short(), 0U);
}

TEST(Matcher, ATokenThatTakesTooLongIsRefusedUnlessItIsOneByte) {
  std::mt19937_64 random(test::from_environment("STEMMA_SEED", 1));
  const GrammarPtr grammar = slow_grammar();
  Matcher matcher(grammar);
  std::string text;
  for (int i = 0; i < 450; ++i) text += static_cast<char>('a' + random() % 26);
  // As one token, this would cost hundreds of thousands of steps.
  EXPECT_FALSE(matcher.allows(text));
  EXPECT_FALSE(matcher.accept(text));
  EXPECT_TRUE(matcher.passed_limit());
  for (const char letter : text) ASSERT_TRUE(matcher.accept(std::string_view(&letter, 1)));
}

TEST(Matcher, AnyCuttingOfTheBytesGivesTheSameResult) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  std::mt19937_64 random(seed);
  for (const char* text : kSchemas) {
    const GrammarPtr grammar = schema(text);
    const test::AnswerWalker walker(grammar);
    for (int i = 0; i < 30; ++i) {
      const auto answer = walker.walk(random, random() % 100);
      ASSERT_TRUE(answer.has_value()) << "seed " << seed;
      Matcher at_once(grammar);
      ASSERT_TRUE(at_once.accept(*answer));
      Matcher in_parts(grammar);
      for (size_t at = 0; at < answer->size();) {
        const size_t bytes = 1 + random() % 5;
        ASSERT_TRUE(in_parts.accept(std::string_view(*answer).substr(at, bytes)));
        at += bytes;
      }
      EXPECT_EQ(at_once.stacks(), in_parts.stacks());
      EXPECT_TRUE(in_parts.may_end());
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
