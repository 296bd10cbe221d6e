#include "constrain/schema/json_rules.h"

#include "constrain/code_points.h"

namespace stemma::constrain {
namespace {

const ByteSet kDigits = ByteSet::range('0', '9');
const ByteSet kHex = ByteSet::of("0123456789abcdefABCDEF");

}  // namespace

// The rule gets its number before its definition, so that it may call itself.
Expr JsonRules::shared(std::optional<RuleId>& rule, Expr (JsonRules::*make)()) {
  if (!rule) {
    rule = build_.rule();
    build_.define(*rule, (this->*make)());
  }
  return build_.call(*rule);
}

Expr JsonRules::space() {
  return whitespace_ == Whitespace::none ? build_.nothing()
                                         : shared(space_, &JsonRules::make_space);
}
Expr JsonRules::any_value() { return shared(value_, &JsonRules::make_value); }
Expr JsonRules::any_object() { return shared(object_, &JsonRules::make_object); }
Expr JsonRules::any_array() { return shared(array_, &JsonRules::make_array); }
Expr JsonRules::any_string() { return shared(string_, &JsonRules::make_string); }
Expr JsonRules::any_number() { return shared(number_, &JsonRules::make_number); }
Expr JsonRules::any_integer() { return shared(integer_, &JsonRules::make_integer); }
Expr JsonRules::character() { return shared(character_, &JsonRules::make_character); }

Expr JsonRules::boolean() { return build_.either({build_.text("true"), build_.text("false")}); }
Expr JsonRules::null() { return build_.text("null"); }

Expr JsonRules::make_space() {
  const Expr indent = build_.repeat(build_.byte(ByteSet::of(" \t")), 0, 20);
  return build_.optional(
      build_.either({build_.text(" "), build_.sequence({build_.text("\n"), indent})}));
}

Expr JsonRules::make_value() {
  return build_.either({any_object(), any_array(), any_string(), any_number(), boolean(), null()});
}

// A list of `min` to `max` items with commas between them, without the brackets.
Expr JsonRules::list(Expr first, Expr others, uint32_t min, uint32_t max) {
  if (max == 0) return build_.nothing();
  const Expr more = build_.sequence({build_.text(","), space(), others, space()});
  const Expr items = build_.sequence(
      {first, space(),
       build_.repeat(more, min == 0 ? 0 : min - 1, max == kUnbounded ? kUnbounded : max - 1)});
  return min == 0 ? build_.optional(items) : items;
}

Expr JsonRules::make_object() {
  const auto member = [&] {
    return build_.sequence({any_string(), space(), build_.text(":"), space(), any_value()});
  };
  return build_.sequence(
      {build_.text("{"), space(), list(member(), member(), 0, kUnbounded), build_.text("}")});
}

Expr JsonRules::make_array() {
  return build_.sequence(
      {build_.text("["), space(), list(any_value(), any_value(), 0, kUnbounded), build_.text("]")});
}

Expr JsonRules::make_string() {
  return build_.sequence(
      {build_.text("\""), build_.repeat(make_character(), 0, kUnbounded), build_.text("\"")});
}

// The character itself, a short escape, \uXXXX, or two of those for a character above U+FFFF.
Expr JsonRules::make_character() {
  const CodePointSet plain =
      CodePointSet::of({{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, CodePointSet::kLast}});
  const auto hex = [&](uint32_t count) { return build_.repeat(build_.byte(kHex), count, count); };
  const auto letters = [&](std::string_view set) { return build_.byte(ByteSet::of(set)); };
  const Expr four =
      build_.either({build_.sequence({letters("0123456789abcefABCEF"), hex(3)}),
                     build_.sequence({letters("dD"), letters("01234567"), hex(2)}),
                     build_.sequence({letters("dD"), letters("89abAB"), hex(2), build_.text("\\u"),
                                      letters("dD"), letters("cdefCDEF"), hex(2)})});
  const Expr escape =
      build_.either({letters("\"\\/bfnrt"), build_.sequence({build_.text("u"), four})});
  return build_.either({one_of(build_, plain), build_.sequence({build_.text("\\"), escape})});
}

Expr JsonRules::make_integer() {
  const Expr tail = build_.repeat(build_.byte(kDigits), 0, 17);
  const Expr whole = build_.sequence({build_.byte(ByteSet::range('1', '9')), tail});
  return build_.either(
      {build_.text("0"), build_.sequence({build_.optional(build_.text("-")), whole})});
}

Expr JsonRules::make_number() {
  const Expr tail = build_.repeat(build_.byte(kDigits), 0, 15);
  const Expr whole = build_.either(
      {build_.text("0"), build_.sequence({build_.byte(ByteSet::range('1', '9')), tail})});
  const Expr fraction =
      build_.sequence({build_.text("."), build_.repeat(build_.byte(kDigits), 1, 16)});
  const Expr exponent = build_.sequence({build_.byte(ByteSet::of("eE")),
                                         build_.optional(build_.byte(ByteSet::of("+-"))),
                                         build_.repeat(build_.byte(kDigits), 1, 2)});
  return build_.sequence({build_.optional(build_.text("-")), whole, build_.optional(fraction),
                          build_.optional(exponent)});
}

std::string JsonRules::quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

Expr JsonRules::exactly(const Json& value) {
  const Json::Array* const array = value.array();
  const Json::Object* const object = value.object();
  if (array == nullptr && object == nullptr) {
    std::string text;
    append_json(text, value);
    return build_.text(text);
  }
  std::vector<Expr> parts = {build_.text(array != nullptr ? "[" : "{"), space()};
  const size_t count = array != nullptr ? array->size() : object->size();
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) parts.insert(parts.end(), {build_.text(","), space()});
    if (object != nullptr) {
      parts.insert(parts.end(),
                   {build_.text(quoted((*object)[i].name)), space(), build_.text(":"), space()});
    }
    parts.push_back(exactly(array != nullptr ? (*array)[i] : (*object)[i].value));
    parts.push_back(space());
  }
  parts.push_back(build_.text(array != nullptr ? "]" : "}"));
  return build_.sequence(parts);
}

}  // namespace stemma::constrain
