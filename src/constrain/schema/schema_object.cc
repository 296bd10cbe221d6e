// Objects of a JSON schema.
#include <algorithm>
#include <map>
#include <set>

#include "constrain/code_points.h"
#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

constexpr uint64_t kMaxCountedStates = 100'000;  // Members times possible counts of members.

// The states of a string that is not one of some names: a tree of the names' characters.
class NameTree {
 public:
  NameTree(GrammarBuilder& build, const std::vector<std::string>& names) : build_(build) {
    nodes_.emplace_back();
    for (const std::string& name : names) add(name);
    const Expr character = one_of_json(build_, CodePointSet::all());
    rest_ = build_.rule_of(
        build_.sequence({build_.repeat(character, 0, kUnbounded), build_.text("\"")}));
  }

  Expr expression() {
    std::vector<RuleId> rules;
    for (size_t i = 0; i < nodes_.size(); ++i) rules.push_back(build_.rule());
    for (size_t i = 0; i < nodes_.size(); ++i) {
      std::vector<Expr> ways;
      CodePointSet known;
      for (const auto& [code_point, child] : nodes_[i].children) {
        const CodePointSet one = CodePointSet::of({{code_point, code_point}});
        known.add(one);
        ways.push_back(build_.sequence({one_of_json(build_, one), build_.call(rules[child])}));
      }
      ways.push_back(
          build_.sequence({one_of_json(build_, known.complement()), build_.call(rest_)}));
      if (!nodes_[i].is_name) ways.push_back(build_.text("\""));
      build_.define(rules[i], build_.either(ways));
    }
    return build_.sequence({build_.text("\""), build_.call(rules[0])});
  }

 private:
  struct Node {
    std::map<uint32_t, size_t> children;
    bool is_name = false;
  };
  void add(const std::string& name) {
    size_t node = 0;
    for (size_t at = 0; at < name.size();) {
      const uint32_t code_point = next_code_point(name, at);
      if (code_point > CodePointSet::kLast) return;  // No JSON string can be this name.
      const auto [child, made] = nodes_[node].children.try_emplace(code_point, nodes_.size());
      node = child->second;
      if (made) nodes_.emplace_back();
    }
    nodes_[node].is_name = true;
  }

  GrammarBuilder& build_;
  std::vector<Node> nodes_;
  RuleId rest_{};
};

}  // namespace

Expr string_except(GrammarBuilder& build, const std::vector<std::string>& names) {
  return NameTree(build, names).expression();
}

// What the member `name` must satisfy, from every part. names[i] are part i's properties.
Conjunction SchemaCompiler::member_value(const Conjunction& parts, const std::string& name,
                                         const std::vector<Names>& names) {
  Conjunction value;
  for (size_t i = 0; i < parts.size(); ++i) {
    const SchemaPart& part = parts[i];
    const auto at = names[i].find(name);
    bool declared = at != names[i].end();
    if (declared) {
      value.push_back(
          {at->second, pointer_below(pointer_below(part.pointer, "properties"), name), 0});
    }
    const Json* const patterns = part.find("patternProperties");
    if (patterns != nullptr && patterns->object() != nullptr) {
      for (const Json::Member& member : *patterns->object()) {
        const auto regex = parse_regex(member.name);
        if (std::holds_alternative<Problem>(regex)) {
          leave_out("patternProperties", part);
        } else if (regex_matches(std::get<Regex>(regex), name)) {
          value.push_back(
              {&member.value,
               pointer_below(pointer_below(part.pointer, "patternProperties"), member.name), 0});
          declared = true;
        }
      }
    }
    const Json* const others = part.find("additionalProperties");
    if (!declared && others != nullptr) {
      value.push_back({others, pointer_below(part.pointer, "additionalProperties"), 0});
    }
  }
  return value;
}

void SchemaCompiler::add_members(const Conjunction& parts, ObjectFacts& facts) {
  std::map<std::string, size_t> places;
  std::vector<Names> names(parts.size());
  const auto member = [&](const std::string& name) -> MemberFacts& {
    const auto [at, made] = places.try_emplace(name, facts.members.size());
    if (made) facts.members.push_back({.name = name, .value = member_value(parts, name, names)});
    return facts.members[at->second];
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json* const properties = parts[i].find("properties");
    if (properties == nullptr) continue;
    if (properties->object() == nullptr) {
      fail("properties is not an object", parts[i].pointer);
      return;
    }
    for (const Json::Member& one : *properties->object()) names[i].emplace(one.name, &one.value);
  }
  for (const SchemaPart& part : parts) {
    const Json* const properties = part.find("properties");
    if (properties == nullptr) continue;
    for (const Json::Member& one : *properties->object()) member(one.name);
  }
  for (const SchemaPart& part : parts) {
    const Json* const required = part.find("required");
    if (required == nullptr || required->boolean() != nullptr) continue;
    if (required->array() == nullptr) {
      fail("required is not a list", part.pointer);
      return;
    }
    for (const Json& name : *required->array()) {
      if (name.string() == nullptr) {
        fail("required is not a list of strings", part.pointer);
        return;
      }
      member(*name.string()).required = true;
    }
  }
  for (MemberFacts& one : facts.members) one.possible = !impossible(one.value);
}

// Finds whether undeclared members are allowed, and what they must satisfy.
void SchemaCompiler::other_members(const Conjunction& parts, ObjectFacts& facts) {
  bool said = false;
  for (const SchemaPart& part : parts) {
    facts.min = std::max(facts.min, count(part, "minProperties", 0));
    facts.max = std::min(facts.max, count(part, "maxProperties", kUnbounded));
    if (const Json* others = part.find("additionalProperties")) {
      said = true;
      facts.others.push_back({others, pointer_below(part.pointer, "additionalProperties"), 0});
    }
    if (const Json* others = part.find("unevaluatedProperties")) {
      if (others->boolean() == nullptr) leave_out("unevaluatedProperties", part);
      if (is_false(others)) facts.open = false;
      said = true;
    }
  }
  if (impossible(facts.others)) facts.open = false;
  if (!said && !facts.members.empty() && !options_.open_objects) facts.open = false;
}

// With patterns, adds only names that match one; it does not compute which other names are allowed.
void SchemaCompiler::pattern_members(const Conjunction& parts, ObjectFacts& facts) {
  std::vector<std::pair<SchemaPart, std::string>> found;
  for (const SchemaPart& part : parts) {
    const Json* const patterns = part.find("patternProperties");
    if (patterns == nullptr) continue;
    if (patterns->object() == nullptr) {
      fail("patternProperties is not an object", part.pointer);
      return;
    }
    for (const Json::Member& member : *patterns->object()) {
      found.push_back(
          {{&member.value, pointer_below(part.pointer, "patternProperties"), 0}, member.name});
    }
  }
  if (found.empty()) return;
  const auto regex = parse_regex(found[0].second);
  facts.open = false;
  // Names that match two patterns, or a pattern and a declared name, would need more than one
  // automaton.
  if (found.size() > 1 || std::holds_alternative<Problem>(regex)) return;
  for (const MemberFacts& member : facts.members) {
    if (regex_matches(std::get<Regex>(regex), member.name)) return;
  }
  facts.open = !impossible({found[0].first});
  facts.others = {found[0].first};
  facts.key = build_.sequence(
      {build_.text("\""), regex_in_json(build_, std::get<Regex>(regex)), build_.text("\"")});
}

// Applies `propertyNames` to names that are not declared.
void SchemaCompiler::named_members(const Conjunction& parts, ObjectFacts& facts) {
  Conjunction names;
  for (const SchemaPart& part : parts) {
    const Json* const rule = part.find("propertyNames");
    if (rule == nullptr || (rule->boolean() != nullptr && *rule->boolean())) continue;
    if (rule->object() != nullptr) {
      const Json* const type = rule->find("type");
      const bool any_string =
          rule->object()->empty() || (rule->object()->size() == 1 && type != nullptr &&
                                      type->string() != nullptr && *type->string() == "string");
      if (any_string) continue;
    }
    names.push_back({rule, pointer_below(part.pointer, "propertyNames"), 0});
  }
  if (names.empty()) return;
  if (!facts.members.empty() || facts.key) {
    for (const SchemaPart& part : parts) {
      if (part.find("propertyNames") != nullptr) leave_out("propertyNames", part);
    }
    return;
  }
  if (!flatten(names)) {
    facts.open = false;
    return;
  }
  const auto choices = choices_of(names);
  if (choices) {
    std::vector<const Json*> fitting;
    for (const Json* choice : *choices) {
      if (choice->string() != nullptr && choice_fits(*choice, kString, names))
        fitting.push_back(choice);
    }
    facts.key = one_of_choices(fitting);
  } else {
    facts.key = string(names);
  }
}

Expr SchemaCompiler::object(const Conjunction& parts) {
  ObjectFacts facts;
  add_members(parts, facts);
  other_members(parts, facts);
  pattern_members(parts, facts);
  named_members(parts, facts);
  if (failed()) return build_.never();
  for (const MemberFacts& member : facts.members) {
    if (member.required && !member.possible) return build_.never();
  }
  const bool free = facts.members.empty() && facts.open && facts.others.empty() && !facts.key;
  if (free && facts.min == 0 && facts.max == kUnbounded) return rules_.any_object();
  return member_chain(facts);
}

// Makes two states for each place in the list of members: one before a member that must come next,
// and one after a member. Each may skip optional members. With bounds on the number of members
// there is a pair for each count.
Expr SchemaCompiler::member_chain(ObjectFacts& facts) {
  const size_t places = facts.members.size() + 1;
  uint32_t most = facts.max == kUnbounded ? facts.min : facts.max;
  if (facts.max != kUnbounded && !facts.open && facts.max >= facts.members.size()) {
    facts.max = kUnbounded;
    most = facts.min;
  }
  if (uint64_t{most} * places > kMaxCountedStates) {
    fail("minProperties or maxProperties is too large to be enforced", "");
    return build_.never();
  }
  const size_t counts = most + 1;
  std::vector<RuleId> before;
  std::vector<RuleId> behind;
  for (size_t i = 0; i < places * counts; ++i) {
    before.push_back(build_.rule());
    behind.push_back(build_.rule());
  }
  std::vector<bool> rest_is_optional(places, true);
  std::vector<std::string> names;
  for (size_t i = places - 1; i-- > 0;) {
    rest_is_optional[i] = rest_is_optional[i + 1] && !facts.members[i].required;
  }
  for (const MemberFacts& member : facts.members) names.push_back(member.name);
  std::optional<RuleId> other_key;
  if (facts.open) {
    other_key = build_.rule_of(facts.key       ? *facts.key
                               : names.empty() ? rules_.any_string()
                                               : string_except(build_, names));
  }
  for (size_t i = 0; i < places; ++i) {
    for (uint32_t done = 0; done < counts; ++done) {
      const size_t here = i * counts + done;
      const uint32_t more = std::min<uint32_t>(done + 1, most);
      const bool room = facts.max == kUnbounded || done < facts.max;
      std::vector<Expr> ways;
      const auto member = [&](Expr key, const Conjunction& value_parts, size_t next) {
        ways.push_back(build_.sequence({key, rules_.space(), build_.text(":"), rules_.space(),
                                        value(value_parts), rules_.space(),
                                        build_.call(behind[next * counts + more])}));
      };
      if (i + 1 < places) {
        const MemberFacts& facts_here = facts.members[i];
        if (facts_here.possible && room) {
          member(build_.text(JsonRules::quoted(facts_here.name)), facts_here.value, i + 1);
        }
        if (!facts_here.required) ways.push_back(build_.call(before[here + counts]));
      } else if (facts.open && room) {
        member(build_.call(*other_key), facts.others, i);
      }
      build_.define(before[here], build_.either(ways));
      const Expr further =
          build_.sequence({build_.text(","), rules_.space(), build_.call(before[here])});
      const bool may_close = rest_is_optional[i] && done >= facts.min;
      build_.define(behind[here], may_close ? build_.either({build_.text("}"), further}) : further);
    }
  }
  const bool may_be_empty = rest_is_optional[0] && facts.min == 0;
  const Expr first = build_.call(before[0]);
  return build_.sequence({build_.text("{"), rules_.space(),
                          may_be_empty ? build_.either({build_.text("}"), first}) : first});
}

}  // namespace stemma::constrain
