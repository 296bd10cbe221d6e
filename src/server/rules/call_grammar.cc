#include "server/rules/call_grammar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "constrain/schema/json_schema.h"
#include "dialect/values/json_text.h"
#include "dialect/values/schema_types.h"
#include "server/chat/template_talk.h"
#include "server/rules/free_text.h"

namespace stemma::server {

using constrain::ByteSet;
using constrain::Expr;
using constrain::GrammarBuilder;
using constrain::Problem;
using constrain::RuleId;
using dialect::CallShape;
using dialect::PieceKind;

namespace {

constexpr uint32_t kMostBlanks = 8;
constexpr uint32_t kMostCalls = 128;  // In one block.

ByteSet name_bytes() {
  ByteSet set = ByteSet::range('0', '9') | ByteSet::range('a', 'z') | ByteSet::range('A', 'Z');
  set.add('_');
  set.add('-');
  set.add('.');
  return set;
}

// Keywords that require nothing.
bool is_note(std::string_view keyword) {
  static constexpr std::array kNotes = {"description", "title",    "default", "examples",
                                        "$comment",    "$schema",  "$id",     "deprecated",
                                        "readOnly",    "writeOnly"};
  return std::ranges::find(kNotes, keyword) != kNotes.end();
}
// Enforced keywords of a text in tags.
bool is_of_text(std::string_view keyword) {
  return keyword == "type" || keyword == "enum" || keyword == "const" || is_note(keyword);
}
// Keywords of arguments in tags that are enforced, or that references use.
bool is_of_tags(std::string_view keyword) {
  static constexpr std::array kKnown = {"type",  "properties", "required", "additionalProperties",
                                        "$defs", "definitions"};
  return std::ranges::find(kKnown, keyword) != kKnown.end() || is_note(keyword);
}

}  // namespace

Expr CallGrammar::blanks() {
  return build_.repeat(build_.byte(ByteSet::of(" \n\r\t")), 0, kMostBlanks);
}

std::optional<Problem> CallGrammar::add(const std::vector<CallableTool>& tools) {
  for (const CallableTool& tool : tools) {
    if (auto problem = add_arguments(tool)) return problem;
  }
  return {};
}

std::optional<Problem> CallGrammar::add_arguments(const CallableTool& tool) {
  const bool json = format_.channels.calls_in_header || format_.calls.shape == CallShape::json ||
                    format_.calls.shape == CallShape::named_json;
  Arguments made{.name = tool.name};
  if (json) {
    auto arguments = by_schema(tool, tool.parameters, "");
    if (auto* problem = std::get_if<Problem>(&arguments)) return std::move(*problem);
    made.rule = build_.rule_of(std::get<Expr>(arguments));
  } else if (format_.calls.shape == CallShape::tagged && !format_.calls.nested_tags) {
    auto arguments = tagged(tool);
    if (auto* problem = std::get_if<Problem>(&arguments)) return std::move(*problem);
    made.rule = std::get<RuleId>(arguments);
  } else {
    if (tool.strict) {
      return Problem{"'strict' cannot be enforced in the way in which this model writes calls",
                     tool.place};
    }
    unenforced_.push_back(tool.place);
    made.rule = format_.calls.shape == CallShape::tagged ? any_tagged() : any_literals();
  }
  tools_.push_back(std::move(made));
  return {};
}

// The value by its schema, in JSON. If the schema is invalid and the tool not strict: any value.
std::variant<Expr, Problem> CallGrammar::by_schema(const CallableTool& tool, const Json& schema,
                                                   const std::string& pointer) {
  constrain::SchemaOptions options;
  options.strict = tool.strict;
  auto made = constrain::add_schema(build_, rules_, schema, options);
  if (auto* problem = std::get_if<Problem>(&made)) {
    if (tool.strict) {
      problem->where = tool.place + pointer + problem->where;
      return std::move(*problem);
    }
    unenforced_.push_back(tool.place + pointer);
    return pointer.empty() ? rules_.any_object() : rules_.any_value();
  }
  const auto& rule = std::get<constrain::SchemaRule>(made);
  for (const constrain::Unenforced& each : rule.unenforced) {
    unenforced_.push_back(tool.place + pointer + each.pointer);
  }
  return build_.call(rule.rule);
}

// --- arguments in tags ---------------------------------------------------------------------------

Expr CallGrammar::open_argument(const std::string& key, bool is_text) {
  std::vector<Expr> parts = {blanks()};
  for (const dialect::Piece& piece : format_.calls.argument) {
    switch (piece.kind) {
      case PieceKind::text: parts.push_back(build_.text(piece.text)); break;
      case PieceKind::key: parts.push_back(build_.text(key)); break;
      case PieceKind::type: parts.push_back(build_.text(is_text ? "true" : "false")); break;
      default: break;
    }
  }
  return build_.sequence(parts);
}

// Handles keywords that tags cannot enforce: an error for a strict tool, otherwise listed.
std::optional<Problem> CallGrammar::list_others(const CallableTool& tool,
                                                const std::string& pointer, const Json& schema,
                                                bool (*is_enforced)(std::string_view)) {
  if (schema.object() == nullptr) return {};
  for (const Json::Member& member : *schema.object()) {
    if (is_enforced(member.name)) continue;
    if (tool.strict) {
      return Problem{"'" + member.name +
                         "' cannot be enforced in tags, as this model writes "
                         "arguments",
                     tool.place + pointer};
    }
    unenforced_.push_back(tool.place + pointer + "/" + member.name);
  }
  return {};
}

std::variant<Expr, Problem> CallGrammar::tagged_value(const CallableTool& tool,
                                                      const std::string& name, bool is_text,
                                                      const Json& schema) {
  const std::string pointer = "/properties/" + name;
  if (!is_text) {
    // The schema may refer to the whole one.
    Json alone = schema;
    for (const char* shared : {"$defs", "definitions"}) {
      const Json* const defined = tool.parameters.find(shared);
      auto* const object = std::get_if<Json::Object>(&alone.value);
      if (defined != nullptr && object != nullptr && alone.find(shared) == nullptr) {
        object->push_back({shared, *defined});
      }
    }
    auto value = by_schema(tool, alone, pointer);
    if (auto* problem = std::get_if<Problem>(&value)) return std::move(*problem);
    return build_.sequence({blanks(), std::get<Expr>(value), blanks()});
  }
  if (auto problem = list_others(tool, pointer, schema, is_of_text)) return *std::move(problem);
  std::vector<Expr> choices;
  const auto add_choice = [&](const Json& value) {
    if (value.string() != nullptr) choices.push_back(build_.text(*value.string()));
  };
  if (const Json* const constant = schema.find("const")) {
    add_choice(*constant);
  } else if (const Json* const values = schema.find("enum");
             values != nullptr && values->array() != nullptr) {
    for (const Json& each : *values->array()) add_choice(each);
  }
  if (!choices.empty()) {
    // One newline on each side is not part of the value.
    const auto line = [&] { return build_.optional(build_.text("\n")); };
    return format_.calls.value_on_lines ? build_.sequence({line(), build_.either(choices), line()})
                                        : build_.either(choices);
  }
  if (!value_text_) value_text_ = text_without(build_, std::array{format_.calls.value_close});
  return build_.call(*value_text_);
}

std::variant<RuleId, Problem> CallGrammar::tagged(const CallableTool& tool) {
  if (auto problem = list_others(tool, "", tool.parameters, is_of_tags)) {
    return *std::move(problem);
  }
  const Json* const properties = tool.parameters.find("properties");
  if (properties == nullptr || properties->object() == nullptr || properties->object()->empty()) {
    const Json* const others = tool.parameters.find("additionalProperties");
    const bool closed = others != nullptr && others->boolean() != nullptr && !*others->boolean();
    if (closed || (properties != nullptr && properties->object() != nullptr)) {
      return build_.rule_of(build_.nothing());
    }
    if (tool.strict) {
      return Problem{"a strict tool needs 'properties'", tool.place};
    }
    return any_tagged();
  }
  const auto required = [&](const std::string& name) {
    const Json* const list = tool.parameters.find("required");
    if (list == nullptr || list->array() == nullptr) return false;
    return std::ranges::any_of(*list->array(), [&](const Json& each) {
      return each.string() != nullptr && *each.string() == name;
    });
  };
  // Use the answer reader's rule for which values are text.
  const jinja::Value schema = template_value(tool.parameters, jinja::kNoOrigin);
  std::vector<Expr> all;
  for (const Json::Member& property : *properties->object()) {
    const bool is_text =
        dialect::type_of_argument(schema, property.name) == dialect::ArgumentType::text;
    const Expr open = open_argument(property.name, is_text);
    if (property.value.object() == nullptr) {
      if (tool.strict) return Problem{"a property must be an object", tool.place};
      unenforced_.push_back(tool.place + "/properties/" + property.name);
      all.push_back(build_.optional(
          build_.sequence({open, rules_.any_value(), build_.text(format_.calls.value_close)})));
      continue;
    }
    auto value = tagged_value(tool, property.name, is_text, property.value);
    if (auto* problem = std::get_if<Problem>(&value)) return std::move(*problem);
    std::string close = format_.calls.value_close;
    if (format_.calls.closer_names_key) close += property.name + ">";
    const Expr argument = build_.sequence({open, std::get<Expr>(value), build_.text(close)});
    all.push_back(required(property.name) ? argument : build_.optional(argument));
  }
  return build_.rule_of(build_.sequence(all));
}

// Any arguments in tags.
RuleId CallGrammar::any_tagged() {
  const dialect::Calls& calls = format_.calls;
  if (!value_text_) value_text_ = text_without(build_, std::array{calls.value_close});
  std::vector<Expr> parts = {blanks()};
  for (const dialect::Piece& piece : calls.argument) {
    switch (piece.kind) {
      case PieceKind::text: parts.push_back(build_.text(piece.text)); break;
      case PieceKind::key: parts.push_back(build_.repeat(build_.byte(name_bytes()), 1, 64)); break;
      case PieceKind::type:
        parts.push_back(build_.either({build_.text("true"), build_.text("false")}));
        break;
      default: break;
    }
  }
  parts.push_back(build_.call(*value_text_));
  parts.push_back(build_.text(calls.value_close));
  if (calls.closer_names_key) {
    parts.push_back(build_.repeat(build_.byte(name_bytes()), 1, 64));
    parts.push_back(build_.text(">"));
  }
  return build_.rule_of(build_.repeat(build_.sequence(parts), 0, 64));
}

// Any arguments in Gemma's and Python's notation.
RuleId CallGrammar::any_literals() {
  if (literals_) return *literals_;
  const bool python = format_.calls.shape == CallShape::python;
  const RuleId value = build_.rule("literal");
  const auto name = [&] { return build_.repeat(build_.byte(name_bytes()), 1, 64); };
  const auto quoted = [&]() -> Expr {
    if (python) return rules_.any_string();
    const RuleId text = text_without(build_, std::array{format_.calls.quote});
    return build_.sequence(
        {build_.text(format_.calls.quote), build_.call(text), build_.text(format_.calls.quote)});
  };
  const auto list = [&](Expr first, Expr other, const char* open, const char* close) {
    const Expr rest =
        build_.repeat(build_.sequence({build_.text(","), blanks(), other}), 0, kMostCalls);
    return build_.sequence(
        {build_.text(open), build_.optional(build_.sequence({first, rest})), build_.text(close)});
  };
  const auto entry = [&] {
    const Expr key = python ? rules_.any_string() : name();
    return build_.sequence({key, build_.text(":"), blanks(), build_.call(value)});
  };
  std::vector<Expr> ways = {quoted(), rules_.any_number(),
                            list(build_.call(value), build_.call(value), "[", "]"),
                            list(entry(), entry(), "{", "}")};
  for (const char* word :
       python ? std::array{"True", "False", "None"} : std::array{"true", "false", "null"}) {
    ways.push_back(build_.text(word));
  }
  build_.define(value, build_.either(ways));
  if (python) {
    const auto argument = [&] {
      return build_.sequence({name(), build_.text("="), build_.call(value)});
    };
    literals_ = build_.rule_of(list(argument(), argument(), "", ")"));
  } else {
    literals_ = build_.rule_of(list(entry(), entry(), "{", "}"));
  }
  return *literals_;
}

// --- whole calls ---------------------------------------------------------------------------------

Expr CallGrammar::json_call(const Arguments& tool) {
  const dialect::Calls& calls = format_.calls;
  const auto quoted = [&](const std::string& text) {
    return build_.text(constrain::JsonRules::quoted(text));
  };
  const auto separated = [&](const char* sign) {
    return build_.sequence({rules_.space(), build_.text(sign), rules_.space()});
  };
  std::vector<Expr> parts = {build_.text("{"), rules_.space()};
  if (calls.name_is_key) {
    parts.insert(parts.end(), {quoted(tool.name), separated(":"), build_.call(tool.rule)});
  } else {
    parts.insert(parts.end(),
                 {quoted(calls.name_key), separated(":"), quoted(tool.name), separated(","),
                  quoted(calls.arguments_key), separated(":"), build_.call(tool.rule)});
    if (!calls.id_key.empty()) {
      const Expr id =
          format_.history.ids_of_nine
              ? build_.repeat(build_.byte(ByteSet::range('0', '9') | ByteSet::range('a', 'z') |
                                          ByteSet::range('A', 'Z')),
                              9, 9)
              : build_.repeat(build_.byte(name_bytes()), 1, 64);
      parts.insert(parts.end(), {separated(","), quoted(calls.id_key), separated(":"),
                                 build_.text("\""), id, build_.text("\"")});
    }
  }
  parts.insert(parts.end(), {rules_.space(), build_.text("}")});
  return build_.sequence(parts);
}

Expr CallGrammar::header(const std::string& name) {
  std::vector<Expr> parts;
  for (const dialect::Piece& piece : format_.calls.header) {
    switch (piece.kind) {
      case PieceKind::text: parts.push_back(build_.text(piece.text)); break;
      case PieceKind::name: parts.push_back(build_.text(name)); break;
      case PieceKind::id: parts.push_back(build_.repeat(build_.byte(name_bytes()), 1, 64)); break;
      case PieceKind::number:
        parts.push_back(build_.repeat(build_.byte(ByteSet::range('0', '9')), 1, 4));
        break;
      default: break;
    }
  }
  return build_.sequence(parts);
}

std::string CallGrammar::first_line(std::string_view marker) {
  return std::string(dialect::trimmed(marker.substr(0, marker.find('\n'))));
}

// Returns the marker without its first line. A newline inside a marker stands for any blanks.
Expr CallGrammar::behind_first_line(std::string_view marker) {
  std::vector<Expr> parts = {build_.nothing()};
  for (size_t line = marker.find('\n'); line != std::string_view::npos; line = marker.find('\n')) {
    marker.remove_prefix(line + 1);
    const std::string text = first_line(marker);
    if (text.empty()) continue;
    parts.push_back(blanks());
    parts.push_back(build_.text(text));
  }
  return build_.sequence(parts);
}

// A call from after its opener up to and including its closer.
Expr CallGrammar::one_call() {
  const dialect::Calls& calls = format_.calls;
  std::vector<Expr> ways;
  for (const Arguments& tool : tools_) {
    switch (calls.shape) {
      case CallShape::json: ways.push_back(json_call(tool)); break;
      case CallShape::named_json:
        ways.push_back(build_.sequence({header(tool.name), blanks(), build_.call(tool.rule)}));
        break;
      default: ways.push_back(build_.sequence({header(tool.name), build_.call(tool.rule)})); break;
    }
  }
  Expr call = build_.either(ways);
  if (calls.call_open.find('\n') != std::string::npos) {
    call = build_.sequence({behind_first_line(calls.call_open), call});
  } else if (!calls.call_open.empty() && calls.shape == CallShape::json) {
    call = build_.sequence({blanks(), call});
  }
  std::vector<Expr> parts = {call};
  if (!calls.call_close.empty()) {
    parts.push_back(blanks());
    parts.push_back(build_.text(first_line(calls.call_close)));
    parts.push_back(behind_first_line(calls.call_close));
  }
  return build_.sequence(parts);
}

std::string CallGrammar::opener() const {
  const dialect::Calls& calls = format_.calls;
  return first_line(calls.section_open.empty() ? calls.call_open : calls.section_open);
}

Expr CallGrammar::block(bool with_opener, bool more) {
  const dialect::Calls& calls = format_.calls;
  const RuleId call = build_.rule("call");
  build_.define(call, one_call());
  const bool section = !calls.section_open.empty();
  const std::string call_open = first_line(calls.call_open);
  // A call with its opener, for a section; without a section the opener belongs to the block.
  const auto opened = [&] { return build_.sequence({build_.text(call_open), build_.call(call)}); };
  const auto more_of = [&](Expr separator) {
    const uint32_t most = more && calls.parallel ? kMostCalls : 0;
    return build_.repeat(build_.sequence({separator, opened()}), 0, most);
  };
  std::vector<Expr> parts;
  if (with_opener) parts.push_back(build_.text(opener()));
  if (!section) {
    if (calls.list) {
      parts.insert(parts.end(), {build_.text("["), blanks(), opened(),
                                 more_of(build_.sequence({blanks(), build_.text(","), blanks()})),
                                 blanks(), build_.text("]")});
      return build_.sequence(parts);
    }
    parts.push_back(build_.call(call));
    parts.push_back(more_of(blanks()));
    return build_.sequence(parts);
  }
  parts.push_back(behind_first_line(calls.section_open));
  parts.push_back(blanks());
  if (calls.list) parts.insert(parts.end(), {build_.text("["), blanks()});
  parts.push_back(opened());
  parts.push_back(
      more_of(calls.list ? build_.sequence({blanks(), build_.text(","), blanks()}) : blanks()));
  if (calls.list) parts.insert(parts.end(), {blanks(), build_.text("]")});
  if (!calls.section_close.empty()) {
    parts.insert(parts.end(), {blanks(), build_.text(first_line(calls.section_close)),
                               behind_first_line(calls.section_close)});
  }
  return build_.sequence(parts);
}

Expr CallGrammar::channel_call() {
  const dialect::Channels& channels = format_.channels;
  std::vector<Expr> ways;
  for (const Arguments& tool : tools_) {
    const auto arguments = [&] { return build_.call(tool.rule); };
    if (channels.call_mark.empty()) {
      ways.push_back(
          build_.sequence({build_.text(tool.name + channels.header_close), arguments()}));
      continue;
    }
    // The recipient comes before or after the channel's name.
    const std::string to = channels.call_mark + tool.name;
    const auto kind = [&] {
      return build_.optional(
          build_.either({build_.text(" json"), build_.text(" <|constrain|>json")}));
    };
    ways.push_back(build_.sequence({build_.text(" " + to + "<|channel|>commentary"), kind(),
                                    build_.text(channels.header_close), arguments()}));
    ways.push_back(build_.sequence({build_.text("<|channel|>commentary " + to), kind(),
                                    build_.text(channels.header_close), arguments()}));
  }
  return build_.either(ways);
}

}  // namespace stemma::server
