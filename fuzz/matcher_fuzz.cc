// Grammars put together by the input, and texts read by them: however a text is cut, the matcher
// decides the same, and a mask decides about every token as the matcher does.
#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "constrain/grammar_builder.h"
#include "constrain/token_masks.h"
#include "constrain_walk.h"
#include "input.h"

namespace stemma::fuzz {
namespace {

using namespace stemma::constrain;  // NOLINT: a test.

// A machine with a stack of expressions; each byte of the input is a command.
Expr build_expression(GrammarBuilder& build, const std::array<RuleId, 3>& rules, Input& input) {
  std::vector<Expr> stack = {build.text("a")};
  const auto pop = [&] {
    const Expr top = stack.back();
    stack.pop_back();
    return top;
  };
  for (uint32_t left = input.below(40); left > 0 && !input.empty(); --left) {
    switch (input.below(8)) {
      case 0:
        stack.push_back(build.text(std::string(1 + input.below(3), "ab"[input.below(2)])));
        break;
      case 1:
        stack.push_back(
            build.byte(ByteSet::range('a', static_cast<uint8_t>('a' + input.below(3)))));
        break;
      case 2:
        stack.push_back(build.sequence({build.text("("), build.call(rules[input.below(3)])}));
        break;
      case 3: stack.push_back(build.call(rules[input.below(3)])); break;
      case 4: {
        const uint32_t min = input.below(4);
        stack.push_back(
            build.repeat(pop(), min, input.below(4) == 0 ? kUnbounded : min + input.below(60)));
        break;
      }
      default:
        if (stack.size() < 2) break;
        const Expr second = pop();
        const Expr first = pop();
        stack.push_back(input.below(2) == 0 ? build.sequence({first, second})
                                            : build.either({first, second}));
    }
    if (stack.empty()) stack.push_back(build.nothing());
  }
  return build.sequence(stack);
}

void run(Input& input) {
  GrammarBuilder build({.depth = 30, .stacks = 128});
  const std::array<RuleId, 3> rules = {build.rule(), build.rule(), build.rule()};
  for (const RuleId rule : rules) build.define(rule, build_expression(build, rules, input));
  const auto made = build.finish(rules[0]);
  if (std::holds_alternative<Problem>(made)) return;
  const GrammarPtr& grammar = std::get<GrammarPtr>(made);
  static const std::vector<std::string> kTokens = {"a",  "b",    "c",  "(",        "aa", "ab",
                                                   "ba", "abab", "((", "aaaaaaaa", "",   "a("};
  static const TokenTable kTable(kTokens);
  TokenMasks masks(kTable, grammar, {.masks = 2, .positions_words = 4'000});
  Matcher matcher(grammar);
  for (int step = 0; step < 30 && !matcher.passed_limit(); ++step) {
    const auto mask = masks.mask(matcher);
    for (uint32_t token = 0; token < kTable.size(); ++token) {
      if (kTokens[token].empty()) {
        FUZZ_EXPECT(!mask->allows(token));
        continue;
      }
      Matcher next = matcher;
      const bool accepted = next.accept(kTokens[token]);
      // Where one of them has reached the limit on stacks, the two may differ: a mask counts stacks
      // with rounded counts.
      FUZZ_EXPECT(mask->allows(token) == accepted || next.passed_limit() || masks.limited() != 0);
    }
    if (!matcher.accept(kTokens[input.below(static_cast<uint32_t>(kTokens.size()))]) &&
        input.empty())
      break;
  }
  walk(grammar, input, 60);
}

}  // namespace
}  // namespace stemma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  stemma::fuzz::Input input(data, size);
  stemma::fuzz::run(input);
  return 0;
}
