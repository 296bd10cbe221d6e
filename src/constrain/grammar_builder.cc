#include "constrain/grammar_builder.h"

#include <algorithm>

namespace stemma::constrain {
namespace {

constexpr uint16_t kMaxHeight = 1000;  // The compiler goes down the tree by recursion.

// Whether (x{a,b}){c,d} equals x{ac,bd}: no count between the two bounds is missing.
bool without_gaps(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  if (c == d) return true;
  if (b == kUnbounded) return c > 0 || a <= 1;
  return c * b + 1 >= (c + 1) * a;
}

}  // namespace

void GrammarBuilder::fail(std::string message) {
  if (failure_.empty()) failure_ = std::move(message);
}

Expr GrammarBuilder::add(Node made, std::span<const Expr> children) {
  if (nodes_.size() >= limits_.states) {
    fail("the grammar has more than " + std::to_string(limits_.states) + " states");
    if (!nodes_.empty()) return Expr{0};
  }
  const auto index = static_cast<uint32_t>(nodes_.size());
  uint32_t last = kNone;
  for (const Expr child : children) {
    const auto at = static_cast<uint32_t>(child);
    Node& below = nodes_[at];
    if (below.parent != kNone || below.is_root) {
      fail("an expression is used twice");
      continue;
    }
    below.parent = index;
    made.height = std::max<uint16_t>(made.height, below.height + 1);
    (last == kNone ? made.first : nodes_[last].next) = at;
    last = at;
  }
  if (made.height > kMaxHeight) {
    fail("expressions are nested more than " + std::to_string(kMaxHeight) + " deep");
    made.first = kNone;
    made.height = 0;
    made.kind = Kind::nothing;
  }
  nodes_.push_back(made);
  return Expr{index};
}

Expr GrammarBuilder::nothing() { return add({.kind = Kind::nothing}, {}); }
Expr GrammarBuilder::never() { return add({.kind = Kind::never}, {}); }

Expr GrammarBuilder::text(std::string_view text) {
  if (text.empty()) return nothing();
  if (texts_.size() + text.size() > limits_.states) {
    fail("the grammar has more than " + std::to_string(limits_.states) + " states");
    return nothing();
  }
  const auto begin = static_cast<uint32_t>(texts_.size());
  texts_ += text;
  return add({.kind = Kind::text, .a = begin, .b = static_cast<uint32_t>(text.size())}, {});
}

uint32_t GrammarBuilder::set_index(const ByteSet& set) {
  const auto [at, made] = set_indexes_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (made) sets_.push_back(set);
  return at->second;
}

Expr GrammarBuilder::byte(const ByteSet& set) {
  if (set.empty()) return never();
  return add({.kind = Kind::byte, .a = set_index(set)}, {});
}

Expr GrammarBuilder::sequence(std::span<const Expr> parts) {
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts[0];
  return add({.kind = Kind::sequence, .b = static_cast<uint32_t>(parts.size())}, parts);
}

Expr GrammarBuilder::either(std::span<const Expr> choices) {
  if (choices.empty()) return never();
  if (choices.size() == 1) return choices[0];
  return add({.kind = Kind::either}, choices);
}

Expr GrammarBuilder::repeat(Expr part, uint32_t min, uint32_t max) {
  if (min > max) {
    fail("a repetition has a minimum above its maximum");
    return nothing();
  }
  if (max == 0) return nothing();
  if (min == 1 && max == 1) return part;
  Node& below = node(part);
  if (below.kind == Kind::repeat && below.parent == kNone && !below.is_root &&
      without_gaps(below.a, below.b, min, max)) {
    const uint64_t least = uint64_t{below.a} * min;
    const uint64_t most =
        below.b == kUnbounded || max == kUnbounded ? kUnbounded : uint64_t{below.b} * max;
    if (least < kUnbounded && (most <= kUnbounded)) {
      below.a = static_cast<uint32_t>(least);
      below.b = static_cast<uint32_t>(most);
      return part;
    }
  }
  return add({.kind = Kind::repeat, .a = min, .b = max}, std::span(&part, 1));
}

Expr GrammarBuilder::call(RuleId rule) {
  return add({.kind = Kind::call, .a = static_cast<uint32_t>(rule)}, {});
}

RuleId GrammarBuilder::rule(std::string name) {
  if (rules_.size() >= limits_.rules) {
    fail("the grammar has more than " + std::to_string(limits_.rules) + " rules");
    if (!rules_.empty()) return RuleId{0};
  }
  rules_.push_back({std::move(name)});
  return RuleId{static_cast<uint32_t>(rules_.size() - 1)};
}

void GrammarBuilder::define(RuleId rule, Expr body) {
  Rule& defined = rules_[static_cast<uint32_t>(rule)];
  Node& root = node(body);
  if (failed()) return;
  if (defined.body != kNone || root.parent != kNone || root.is_root) {
    fail("a rule or an expression is used twice");
    return;
  }
  defined.body = static_cast<uint32_t>(body);
  root.is_root = true;
  root.parent = static_cast<uint32_t>(rule);
}

}  // namespace stemma::constrain
