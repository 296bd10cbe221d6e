#include "constrain/schema/regex.h"

#include <algorithm>

#include "constrain/matcher.h"
#include "json/json.h"

namespace stemma::constrain {
namespace {

using Kind = RegexNode::Kind;

uint32_t add_up(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(a + b, kUnbounded));
}
uint32_t multiply(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>(std::min<uint64_t>(a * b, kUnbounded));
}

struct Lengths {
  uint32_t min = 0;
  uint32_t max = 0;
};

Lengths lengths_of(const RegexNode& node) {
  if (node.kind == Kind::set) return {1, 1};
  Lengths lengths;
  if (node.kind == Kind::repeat) {
    const Lengths inner = lengths_of(node.children[0]);
    return {multiply(inner.min, node.min), inner.max == 0 ? 0 : multiply(inner.max, node.max)};
  }
  if (node.kind == Kind::either) lengths.min = kUnbounded;
  for (const RegexNode& child : node.children) {
    const Lengths inner = lengths_of(child);
    if (node.kind == Kind::either) {
      lengths = {std::min(lengths.min, inner.min), std::max(lengths.max, inner.max)};
    } else {
      lengths = {add_up(lengths.min, inner.min), add_up(lengths.max, inner.max)};
    }
  }
  return lengths;
}

Expr expression_of(GrammarBuilder& build, const RegexNode& node) {
  switch (node.kind) {
    case Kind::set: return one_of_json(build, node.set);
    case Kind::repeat:
      return build.repeat(expression_of(build, node.children[0]), node.min, node.max);
    case Kind::begin:
    case Kind::end: return build.nothing();
    case Kind::sequence:
    case Kind::either: break;
  }
  std::vector<Expr> parts;
  for (const RegexNode& child : node.children) parts.push_back(expression_of(build, child));
  return node.kind == Kind::sequence ? build.sequence(parts) : build.either(parts);
}

Expr anything(GrammarBuilder& build) {
  return build.repeat(one_of_json(build, CodePointSet::all()), 0, kUnbounded);
}

}  // namespace

uint32_t Regex::min_length() const {
  uint32_t least = kUnbounded;
  for (const RegexWay& way : ways) least = std::min(least, lengths_of(way.body).min);
  return least;
}

uint32_t Regex::max_length() const {
  uint32_t most = 0;
  for (const RegexWay& way : ways) {
    if (!way.from_begin || !way.to_end) return kUnbounded;
    most = std::max(most, lengths_of(way.body).max);
  }
  return most;
}

const RegexNode* Regex::single_repeat() const {
  if (ways.size() != 1 || !ways[0].from_begin || !ways[0].to_end) return nullptr;
  const RegexNode* node = &ways[0].body;
  while (node->kind == Kind::sequence && node->children.size() == 1) node = &node->children[0];
  if (node->kind != Kind::repeat) return nullptr;
  const RegexNode* inner = &node->children[0];
  while (inner->kind == Kind::sequence && inner->children.size() == 1) inner = &inner->children[0];
  return inner->kind == Kind::set ? node : nullptr;
}

Expr regex_in_json(GrammarBuilder& build, const Regex& regex) {
  std::vector<Expr> ways;
  for (const RegexWay& way : regex.ways) {
    std::vector<Expr> parts;
    if (!way.from_begin) parts.push_back(anything(build));
    parts.push_back(expression_of(build, way.body));
    if (!way.to_end) parts.push_back(anything(build));
    ways.push_back(build.sequence(parts));
  }
  return build.either(ways);
}

bool regex_matches(const Regex& regex, std::string_view text) {
  GrammarBuilder build;
  const RuleId root =
      build.rule_of(build.sequence({regex_in_json(build, regex), build.text("\"")}));
  auto finished = build.finish(root);
  const auto* grammar = std::get_if<GrammarPtr>(&finished);
  if (grammar == nullptr) return false;
  Matcher matcher(*grammar);
  // regex_in_json() writes DEL as a plain character.
  for (size_t at = 0; at < text.size();) {
    const uint32_t code_point = next_code_point(text, at);
    std::string spelled;
    if (code_point == 0x7F) {
      spelled = "\x7F";
    } else if (code_point <= CodePointSet::kLast) {
      std::string one;
      append_utf8(one, code_point);
      append_json_escaped(spelled, one);
    }
    if (spelled.empty() || !matcher.accept(spelled)) return false;
  }
  return matcher.accept("\"");
}

}  // namespace stemma::constrain
