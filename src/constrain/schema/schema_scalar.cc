// Strings and numbers of a JSON schema.
#include <algorithm>
#include <array>

#include "constrain/schema/pattern_product.h"
#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {

SchemaCompiler::StringFacts SchemaCompiler::string_facts(const Conjunction& parts) {
  StringFacts facts;
  std::vector<std::string> seen;
  const auto add = [&](const std::string& pattern, const SchemaPart& part, const char* keyword) {
    if (std::find(seen.begin(), seen.end(), pattern) != seen.end()) return;
    seen.push_back(pattern);
    auto parsed = parse_regex(pattern);
    if (auto* regex = std::get_if<Regex>(&parsed)) {
      facts.patterns.push_back(std::move(*regex));
      return;
    }
    leave_out(keyword, part);
    if (problem_ && problem_->where == pointer_below(part.pointer, keyword)) {
      problem_->message += ": " + std::get<Problem>(parsed).text();
    }
  };
  for (const SchemaPart& part : parts) {
    facts.min = std::max(facts.min, count(part, "minLength", 0));
    facts.max = std::min(facts.max, count(part, "maxLength", kUnbounded));
    if (const Json* pattern = part.find("pattern")) {
      if (pattern->string() == nullptr) {
        fail("pattern is not a string", part.pointer);
      } else {
        add(*pattern->string(), part, "pattern");
      }
    }
    if (const Json* format = part.find("format");
        format != nullptr && format->string() != nullptr) {
      const std::string_view pattern = pattern_of_format(*format->string());
      if (pattern.empty()) {
        leave_out("format", part);
      } else if (pattern != "any") {
        add(std::string(pattern), part, "format");
      }
    }
  }
  return facts;
}

Expr SchemaCompiler::string(const Conjunction& parts) {
  const StringFacts facts = string_facts(parts);
  if (failed() || facts.min > facts.max) return build_.never();
  const auto quoted = [&](Expr body) {
    return build_.sequence({build_.text("\""), body, build_.text("\"")});
  };
  const bool any_length = facts.min == 0 && facts.max == kUnbounded;
  if (facts.patterns.empty()) {
    if (any_length) return rules_.any_string();
    return quoted(build_.repeat(rules_.character(), facts.min, facts.max));
  }
  // A single pattern is one automaton, which may imply the lengths. Otherwise use the product of
  // all automata, if it is small enough.
  const Regex& regex = facts.patterns[0];
  const bool alone = facts.patterns.size() == 1;
  if (const RegexNode* repeat = regex.single_repeat(); repeat != nullptr && alone && !any_length) {
    RegexWay way{.body = *repeat, .from_begin = true, .to_end = true};
    way.body.min = std::max(way.body.min, facts.min);
    way.body.max = std::min(way.body.max, facts.max);
    if (way.body.min > way.body.max) return build_.never();
    return quoted(regex_in_json(build_, Regex{{std::move(way)}}));
  }
  const bool too_short = facts.min > regex.min_length();
  const bool too_long = facts.max < regex.max_length();
  if (!alone || too_short || too_long) {
    if (const auto body = patterns_in_json(build_, facts.patterns, facts.min, facts.max)) {
      return quoted(*body);
    }
  }
  const auto leave_out_all = [&](bool wanted, std::initializer_list<const char*> keywords) {
    for (const SchemaPart& part : parts) {
      for (const char* keyword : keywords) {
        if (wanted && part.find(keyword) != nullptr) leave_out(keyword, part);
      }
    }
  };
  leave_out_all(!alone, {"pattern", "format"});
  leave_out_all(too_short, {"minLength"});
  leave_out_all(too_long, {"maxLength"});
  return quoted(regex_in_json(build_, regex));
}

NumberRange SchemaCompiler::number_range(const Conjunction& parts, bool whole_only) {
  NumberRange range;
  range.whole_only = whole_only;
  const auto bound = [&](const SchemaPart& part, const char* keyword) -> std::optional<Decimal> {
    const Json* const value = part.find(keyword);
    if (value == nullptr || value->boolean() != nullptr) return std::nullopt;
    if (value->number()) return Decimal::of(*value);
    fail(std::string(keyword) + " is not a number", pointer_below(part.pointer, keyword));
    return std::nullopt;
  };
  // In draft 4, exclusiveMinimum is a flag beside minimum.
  const auto flag = [](const SchemaPart& part, const char* keyword) {
    const Json* const value = part.find(keyword);
    return value != nullptr && value->boolean() != nullptr && *value->boolean();
  };
  const auto raise = [&](std::optional<Decimal> value, bool inclusive) {
    if (!value) return;
    const int order = range.low ? value->compare(range.low->value) : 1;
    if (order > 0 || (order == 0 && !inclusive)) range.low = NumberBound{*value, inclusive};
  };
  const auto lower = [&](std::optional<Decimal> value, bool inclusive) {
    if (!value) return;
    const int order = range.high ? value->compare(range.high->value) : -1;
    if (order < 0 || (order == 0 && !inclusive)) range.high = NumberBound{*value, inclusive};
  };
  for (const SchemaPart& part : parts) {
    raise(bound(part, "minimum"), !flag(part, "exclusiveMinimum"));
    raise(bound(part, "exclusiveMinimum"), false);
    lower(bound(part, "maximum"), !flag(part, "exclusiveMaximum"));
    lower(bound(part, "exclusiveMaximum"), false);
    const std::optional<Decimal> multiple = bound(part, "multipleOf");
    if (!multiple) continue;
    if (multiple->negative || multiple->is_zero()) {
      fail("multipleOf is not above 0", pointer_below(part.pointer, "multipleOf"));
    } else if (range.multiple_of && range.multiple_of->compare(*multiple) != 0) {
      leave_out("multipleOf", part);
    } else {
      range.multiple_of = multiple;
    }
  }
  return range;
}

Expr SchemaCompiler::number(const Conjunction& parts, bool whole_only) {
  const NumberRange range = number_range(parts, whole_only);
  if (!range.low && !range.high && !range.multiple_of) {
    return whole_only ? rules_.any_integer() : rules_.any_number();
  }
  auto made = number_in_range(build_, range);
  if (const Expr* expression = std::get_if<Expr>(&made)) return *expression;
  const Problem& problem = std::get<Problem>(made);
  if (problem.message.starts_with("no number")) return build_.never();
  for (const SchemaPart& part : parts) {
    for (const char* keyword :
         {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
      if (part.find(keyword) != nullptr) leave_out(keyword, part);
    }
  }
  return whole_only ? rules_.any_integer() : rules_.any_number();
}

}  // namespace stemma::constrain
