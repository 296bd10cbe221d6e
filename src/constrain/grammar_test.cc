// Tests grammars and matchers against a tiny recogniser.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "constrain/grammar_builder.h"
#include "constrain/matcher.h"
#include "support/answer_walker.h"
#include "support/environment.h"

namespace stemma::constrain {
namespace {

GrammarPtr finished(GrammarBuilder& build, RuleId root) {
  auto made = build.finish(root);
  if (auto* problem = std::get_if<Problem>(&made)) ADD_FAILURE() << problem->text();
  return std::get<GrammarPtr>(made);
}

std::string problem_of(GrammarBuilder& build, RuleId root) {
  auto made = build.finish(root);
  const auto* problem = std::get_if<Problem>(&made);
  return problem == nullptr ? "" : problem->text();
}

bool whole(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept(text) && matcher.may_end();
}

TEST(Grammar, RulesMayCallThemselves) {
  GrammarBuilder build;
  const RuleId list = build.rule("list");
  build.define(list, build.sequence(
                         {build.text("("), build.repeat(build.call(list), 0, 9), build.text(")")}));
  const GrammarPtr grammar = finished(build, list);
  EXPECT_TRUE(whole(grammar, "()"));
  EXPECT_TRUE(whole(grammar, "(()(()))"));
  EXPECT_FALSE(whole(grammar, "(()"));
  EXPECT_FALSE(whole(grammar, "())"));
  EXPECT_TRUE(whole(grammar, "(()()()()()()()()())"));
  EXPECT_FALSE(whole(grammar, "(()()()()()()()()()())"));
}

TEST(Grammar, ARepetitionCostsTheSameWhateverItsBounds) {
  const auto states = [](uint32_t max) {
    GrammarBuilder build;
    return finished(build, build.rule_of(build.repeat(build.text("ab"), 2, max)))->states();
  };
  EXPECT_EQ(states(3), states(65'536));
  GrammarBuilder build;
  const GrammarPtr grammar =
      finished(build, build.rule_of(build.repeat(build.text("a"), 2, 65'536)));
  EXPECT_FALSE(whole(grammar, "a"));
  EXPECT_TRUE(whole(grammar, std::string(65'536, 'a')));
  EXPECT_FALSE(whole(grammar, std::string(65'537, 'a')));
}

TEST(Grammar, NestedRepetitionsWithoutGapsAreOne) {
  GrammarBuilder build;
  const Expr inner = build.repeat(build.text("a"), 1, 1000);
  const GrammarPtr grammar = finished(build, build.rule_of(build.repeat(inner, 1, 1000)));
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.accept(std::string(100'000, 'a')));
  EXPECT_EQ(matcher.stacks().count, 1U);
}

TEST(Grammar, NestedRepetitionsThatAreAmbiguousStaySmall) {
  GrammarBuilder build;
  const Expr inner =
      build.sequence({build.repeat(build.text("a"), 1, 300), build.optional(build.text("b"))});
  const GrammarPtr grammar = finished(build, build.rule_of(build.repeat(inner, 1, 300)));
  Matcher matcher(grammar);
  for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(matcher.accept(i % 7 == 6 ? "b" : "a")) << i;
  EXPECT_LE(matcher.stacks().count, 700U);
}

TEST(Grammar, ARuleThatCallsItselfFirstIsRefused) {
  GrammarBuilder build;
  const RuleId a = build.rule("a");
  const RuleId b = build.rule("b");
  build.define(a, build.sequence({build.optional(build.text("x")), build.call(b)}));
  build.define(b,
               build.either({build.text("y"), build.sequence({build.call(a), build.text("z")})}));
  EXPECT_NE(problem_of(build, a).find("calls itself before it reads anything"), std::string::npos);
}

TEST(Grammar, ARuleThatIsNotDefinedIsRefused) {
  GrammarBuilder build;
  EXPECT_EQ(problem_of(build, build.rule_of(build.call(build.rule("lost")))),
            "the rule 'lost' is not defined");
}

TEST(Grammar, AGrammarWithoutATextIsRefused) {
  GrammarBuilder build;
  const RuleId endless = build.rule();
  build.define(endless, build.sequence({build.text("a"), build.call(endless), build.text("b")}));
  EXPECT_NE(problem_of(build, endless).find("no text can be completed"), std::string::npos);
}

TEST(Grammar, WaysThatLeadNowhereAreNotOffered) {
  GrammarBuilder build;
  const RuleId endless = build.rule();
  build.define(endless, build.sequence({build.text("a"), build.call(endless), build.text("b")}));
  const GrammarPtr grammar =
      finished(build, build.rule_of(build.either({build.call(endless), build.text("c")})));
  EXPECT_FALSE(Matcher(grammar).allows("a"));
  EXPECT_TRUE(Matcher(grammar).allows("c"));
}

TEST(Grammar, LimitsAreNamed) {
  GrammarBuilder few_states({.states = 10});
  for (int i = 0; i < 5; ++i) few_states.text("abc");
  EXPECT_EQ(problem_of(few_states, few_states.rule_of(few_states.text("x"))),
            "the grammar has more than 10 states");
  GrammarBuilder few_rules({.rules = 2});
  for (int i = 0; i < 3; ++i) few_rules.rule();
  EXPECT_EQ(problem_of(few_rules, RuleId{0}), "the grammar has more than 2 rules");
  GrammarBuilder deep;
  Expr nested = deep.text("a");
  for (int i = 0; i < 5'000; ++i) nested = deep.sequence({nested, deep.text("b")});
  EXPECT_NE(problem_of(deep, deep.rule_of(nested)).find("nested more than"), std::string::npos);
}

TEST(Grammar, AnExpressionCannotBeUsedTwice) {
  GrammarBuilder build;
  const Expr once = build.text("a");
  EXPECT_NE(problem_of(build, build.rule_of(build.sequence({once, once}))).find("used twice"),
            std::string::npos);
}

// At the depth limit nothing deeper is offered, and every answer can still be completed.
TEST(Matcher, NestingEndsAtTheLimitAndTheAnswerCanBeCompleted) {
  GrammarBuilder build({.depth = 40});
  const RuleId list = build.rule();
  build.define(
      list, build.sequence({build.text("["), build.optional(build.call(list)), build.text("]")}));
  const GrammarPtr grammar = finished(build, list);
  Matcher matcher(grammar);
  int depth = 0;
  while (matcher.accept("[")) ++depth;
  EXPECT_EQ(depth, 41);
  for (int i = 0; i < depth; ++i) ASSERT_TRUE(matcher.accept("]"));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_TRUE(matcher.must_end());
}

TEST(Matcher, TooManyWaysAtOnceAreRefusedAndNamed) {
  GrammarBuilder build({.stacks = 8});
  std::vector<Expr> ways;
  for (int i = 0; i < 9; ++i)
    ways.push_back(build.text("a" + std::string(static_cast<size_t>(i + 1), 'b')));
  const GrammarPtr grammar =
      finished(build, build.rule_of(build.sequence({build.text("x"), build.either(ways)})));
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept("x"));
  EXPECT_TRUE(matcher.passed_limit());
}

TEST(Matcher, WhatIsRefusedChangesNothing) {
  GrammarBuilder build;
  const GrammarPtr grammar = finished(build, build.rule_of(build.text("abc")));
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.accept("a"));
  const Stacks before = matcher.stacks();
  EXPECT_FALSE(matcher.accept("bx"));
  EXPECT_EQ(matcher.stacks(), before);
  Matcher fork = matcher;
  EXPECT_TRUE(fork.accept("bc"));
  EXPECT_TRUE(fork.may_end());
  EXPECT_FALSE(matcher.may_end());
  EXPECT_TRUE(matcher.accept(""));
}

// --- against a tiny recogniser -------------------------------------------------------------------

struct Model {
  enum Kind { letter, sequence, either, repeat, call } kind = letter;
  char value = 'a';
  uint32_t min = 0;
  uint32_t max = 0;
  std::vector<Model> children;
};

// Returns where the model may stop when it begins at `from`.
std::set<size_t> ends(const Model& model, const std::vector<Model>& rules, std::string_view text,
                      size_t from, int fuel) {
  std::set<size_t> found;
  if (fuel == 0) return found;
  switch (model.kind) {
    case Model::letter:
      if (from < text.size() && text[from] == model.value) found.insert(from + 1);
      break;
    case Model::either:
      for (const Model& child : model.children) found.merge(ends(child, rules, text, from, fuel));
      break;
    case Model::call: found = ends(rules[model.min], rules, text, from, fuel - 1); break;
    case Model::sequence: {
      found = {from};
      for (const Model& child : model.children) {
        std::set<size_t> next;
        for (const size_t at : found) next.merge(ends(child, rules, text, at, fuel));
        found = next;
      }
      break;
    }
    case Model::repeat: {
      std::set<size_t> now = {from};
      if (model.min == 0) found = now;
      // After as many rounds as the text has letters, further rounds read nothing.
      for (uint32_t round = 1; round <= std::min<uint32_t>(model.max, model.min + 10); ++round) {
        std::set<size_t> next;
        for (const size_t at : now) next.merge(ends(model.children[0], rules, text, at, fuel));
        now = next;
        if (round >= model.min) found.insert(now.begin(), now.end());
      }
      break;
    }
  }
  return found;
}

Model random_model(std::mt19937_64& random, int depth) {
  Model model;
  const uint64_t kind = depth == 0 ? 0 : random() % 9;
  if (kind < 3) {
    model.value = "ab"[random() % 2];
    return model;
  }
  if (kind == 8) {
    // Calls follow a letter, so that no rule calls itself before reading.
    model.kind = Model::sequence;
    model.children = {
        Model{.value = "ab"[random() % 2], .children = {}},
        Model{.kind = Model::call, .min = static_cast<uint32_t>(random() % 2), .children = {}}};
    return model;
  }
  model.kind = kind < 5 ? Model::sequence : kind < 6 ? Model::either : Model::repeat;
  const size_t count = model.kind == Model::repeat ? 1 : 1 + random() % 3;
  for (size_t i = 0; i < count; ++i) model.children.push_back(random_model(random, depth - 1));
  if (model.kind == Model::repeat) {
    model.min = static_cast<uint32_t>(random() % 4);
    model.max = random() % 4 == 0 ? kUnbounded : model.min + static_cast<uint32_t>(random() % 4);
    if (model.max == 0) model.max = 1;
  }
  return model;
}

Expr build_model(GrammarBuilder& build, const Model& model, const std::vector<RuleId>& rules) {
  std::vector<Expr> children;
  for (const Model& child : model.children) children.push_back(build_model(build, child, rules));
  switch (model.kind) {
    case Model::letter: return build.text(std::string(1, model.value));
    case Model::sequence: return build.sequence(children);
    case Model::either: return build.either(children);
    case Model::repeat: return build.repeat(children[0], model.min, model.max);
    case Model::call: return build.call(rules[model.min]);
  }
  return build.nothing();
}

TEST(Matcher, AgreesWithATinyRecogniserOnRandomGrammars) {
  const uint64_t rounds =
      test::from_environment("STEMMA_CONSTRAIN_ROUNDS", test::kSanitized ? 60 : 300);
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed * 1'000'003 + round);
    const std::vector<Model> models = {random_model(random, 4), random_model(random, 3)};
    GrammarBuilder build;
    const std::vector<RuleId> rules = {build.rule(), build.rule()};
    for (size_t i = 0; i < 2; ++i) build.define(rules[i], build_model(build, models[i], rules));
    auto made = build.finish(rules[0]);
    if (std::holds_alternative<Problem>(made)) continue;  // The grammar matches no text at all.
    const GrammarPtr& grammar = std::get<GrammarPtr>(made);
    for (uint32_t length = 0; length <= 8; ++length) {
      for (uint32_t bits = 0; bits < 1U << length; ++bits) {
        std::string text;
        for (uint32_t i = 0; i < length; ++i) text += (bits >> i & 1U) != 0 ? 'b' : 'a';
        const bool expected = ends(models[0], models, text, 0, 12).contains(length);
        ASSERT_EQ(whole(grammar, text), expected)
            << "seed " << seed << " round " << round << ": " << text;
      }
    }
    // Every partial answer can be completed.
    const test::AnswerWalker walker(grammar);
    for (int i = 0; i < 5; ++i) {
      const auto answer = walker.walk(random, random() % 30);
      ASSERT_TRUE(answer.has_value()) << "seed " << seed << " round " << round;
      EXPECT_TRUE(whole(grammar, *answer)) << *answer;
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
