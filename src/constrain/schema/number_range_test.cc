// Tests ranges of numbers: they allow exactly the numbers within the bounds, digit by digit.
#include "constrain/schema/number_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "constrain/matcher.h"
#include "support/answer_walker.h"
#include "support/environment.h"

namespace stemma::constrain {
namespace {

Decimal decimal(double value) { return Decimal::of(Json{value}); }
Decimal read_number(const std::string& text) {
  return Decimal::of(std::get<Json>(parse_json(text)));
}

GrammarPtr grammar_of(const NumberRange& range) {
  GrammarBuilder build;
  auto made = number_in_range(build, range);
  if (std::holds_alternative<Problem>(made)) return nullptr;
  auto finished = build.finish(build.rule_of(std::get<Expr>(made)));
  return std::holds_alternative<Problem>(finished) ? nullptr : std::get<GrammarPtr>(finished);
}

bool whole(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept(text) && matcher.may_end();
}

TEST(NumberRange, WholeNumbersAreExact) {
  const GrammarPtr grammar = grammar_of({.low = NumberBound{decimal(-12)},
                                         .high = NumberBound{decimal(305), false},
                                         .whole_only = true});
  for (int i = -400; i <= 400; ++i) {
    EXPECT_EQ(whole(grammar, std::to_string(i)), i >= -12 && i < 305) << i;
  }
  for (const char* text : {"-0", "01", "1.0", "", "-", "1e1", "+1"})
    EXPECT_FALSE(whole(grammar, text)) << text;
}

TEST(NumberRange, FractionsAreExact) {
  const GrammarPtr grammar =
      grammar_of({.low = NumberBound{decimal(-0.25), false}, .high = NumberBound{decimal(1.5)}});
  for (const char* text :
       {"0", "0.0", "-0.2499", "-0.1", "1", "1.5", "1.50", "1.4999", "0.000000001"}) {
    EXPECT_TRUE(whole(grammar, text)) << text;
  }
  for (const char* text :
       {"-0.25", "-0.250", "-0.3", "-1", "1.51", "1.5000001", "2", "10", "-0.0", "1.", ".5"}) {
    EXPECT_FALSE(whole(grammar, text)) << text;
  }
}

TEST(NumberRange, MultiplesAreExact) {
  const GrammarPtr sevens =
      grammar_of({.low = NumberBound{decimal(0)}, .multiple_of = decimal(7), .whole_only = true});
  for (int i = 0; i < 300; ++i) EXPECT_EQ(whole(sevens, std::to_string(i)), i % 7 == 0) << i;
  const GrammarPtr quarters = grammar_of({.multiple_of = decimal(0.25)});
  for (const char* text : {"0", "0.25", "0.5", "0.50", "-3.75", "100"})
    EXPECT_TRUE(whole(quarters, text)) << text;
  for (const char* text : {"0.2", "0.3", "-3.7", "0.125", "0.255"})
    EXPECT_FALSE(whole(quarters, text)) << text;
  const GrammarPtr halves = grammar_of({.multiple_of = decimal(2.5), .whole_only = true});
  EXPECT_TRUE(whole(halves, "5"));
  EXPECT_FALSE(whole(halves, "2"));
}

TEST(NumberRange, WhatCannotBeIsAProblem) {
  EXPECT_EQ(grammar_of({.low = NumberBound{decimal(2)}, .high = NumberBound{decimal(1)}}), nullptr);
  EXPECT_EQ(grammar_of({.low = NumberBound{decimal(1e30)}}), nullptr);
  EXPECT_EQ(grammar_of({.multiple_of = decimal(123457)}), nullptr);
  EXPECT_NE(grammar_of({.low = NumberBound{decimal(-1e300)}, .high = NumberBound{decimal(1e300)}}),
            nullptr);
}

TEST(NumberRange, RandomBoundsAgreeWithComparing) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  std::mt19937_64 random(seed);
  const auto some = [&] {
    const double scale = std::pow(10, static_cast<double>(random() % 7) - 3);
    return (static_cast<double>(random() % 2001) - 1000) * scale;
  };
  for (int round = 0; round < 200; ++round) {
    NumberRange range;
    if (random() % 4 != 0) range.low = NumberBound{decimal(some()), random() % 2 == 0};
    if (random() % 4 != 0) range.high = NumberBound{decimal(some()), random() % 2 == 0};
    if (random() % 4 == 0)
      range.multiple_of = decimal(std::vector{0.01, 0.5, 2.0, 3.0, 10.0}[random() % 5]);
    range.whole_only = random() % 2 == 0;
    const GrammarPtr grammar = grammar_of(range);
    if (grammar == nullptr) continue;
    for (int i = 0; i < 200; ++i) {
      std::string text;
      append_json_number(text, some());
      const Decimal number = read_number(text);
      if (number.whole.size() + number.fraction.size() > 15) continue;
      if (text.find('e') != std::string::npos || text.starts_with("-0.0") || text == "-0") continue;
      ASSERT_EQ(whole(grammar, text), in_range(number, range))
          << "seed " << seed << " round " << round << ": " << text;
    }
    const test::AnswerWalker walker(grammar);
    for (int i = 0; i < 20; ++i) {
      const auto answer = walker.walk(random, random() % 8);
      ASSERT_TRUE(answer.has_value());
      ASSERT_TRUE(in_range(read_number(*answer), range)) << "seed " << seed << ": " << *answer;
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
