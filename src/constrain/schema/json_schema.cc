#include "constrain/schema/json_schema.h"

#include <utility>

#include "constrain/schema/schema_compiler.h"

namespace stemma::constrain {
namespace {

// Checks for too many values and for too much depth, without recursion.
std::optional<Problem> check_size(const Json& schema, const SchemaOptions& options) {
  std::vector<std::pair<const Json*, uint32_t>> left = {{&schema, 0}};
  uint32_t values = 0;
  while (!left.empty()) {
    const auto [value, depth] = left.back();
    left.pop_back();
    if (++values > options.max_values) {
      return Problem{"the schema has more than " + std::to_string(options.max_values) + " values",
                     "/"};
    }
    if (depth > options.max_depth) {
      return Problem{
          "the schema is more than " + std::to_string(options.max_depth) + " levels deep", "/"};
    }
    if (const Json::Array* array = value->array()) {
      for (const Json& item : *array) left.emplace_back(&item, depth + 1);
    } else if (const Json::Object* object = value->object()) {
      for (const Json::Member& member : *object) left.emplace_back(&member.value, depth + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::variant<SchemaRule, Problem> add_schema(GrammarBuilder& build, JsonRules& rules,
                                             const Json& schema, const SchemaOptions& options) {
  if (auto problem = check_size(schema, options)) return *std::move(problem);
  return SchemaCompiler(build, rules, schema, options).run();
}

std::variant<CompiledSchema, Problem> compile_schema(const Json& schema,
                                                     const SchemaOptions& options) {
  GrammarBuilder build(options.limits);
  JsonRules rules(build, options.whitespace);
  auto added = add_schema(build, rules, schema, options);
  if (auto* problem = std::get_if<Problem>(&added)) return std::move(*problem);
  auto& rule = std::get<SchemaRule>(added);
  auto finished = build.finish(rule.rule);
  if (auto* problem = std::get_if<Problem>(&finished)) return std::move(*problem);
  return CompiledSchema{std::get<GrammarPtr>(std::move(finished)), std::move(rule.unenforced)};
}

std::variant<CompiledSchema, Problem> compile_schema(std::string_view text,
                                                     const SchemaOptions& options) {
  if (text.size() > options.max_bytes) {
    return Problem{"the schema has more than " + std::to_string(options.max_bytes) + " bytes", "/"};
  }
  auto parsed = parse_json(text, {.depth = options.max_depth, .values = options.max_values});
  if (auto* fault = std::get_if<JsonFault>(&parsed)) {
    return Problem{"the schema is no JSON: " + fault->message,
                   "byte " + std::to_string(fault->byte)};
  }
  return compile_schema(std::get<Json>(parsed), options);
}

GrammarPtr any_json_object(Whitespace whitespace) {
  GrammarBuilder build;
  JsonRules rules(build, whitespace);
  auto finished = build.finish(build.rule_of(rules.any_object()));
  return std::get<GrammarPtr>(std::move(finished));
}

}  // namespace stemma::constrain
