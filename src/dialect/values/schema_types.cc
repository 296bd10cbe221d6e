#include "dialect/values/schema_types.h"

#include <array>

#include "dialect/values/json_text.h"
#include "dialect/values/literal_reader.h"

namespace stemma::dialect {

using jinja::Kind;
using jinja::Value;

namespace {

constexpr int kMostReferences = 8;

const Value* member(const Value& value, std::string_view key) {
  return value.is(Kind::dict) ? value.as_dict().find(key) : nullptr;
}

ArgumentType type_named(const Value& name) {
  if (!name.is(Kind::string)) return ArgumentType::unknown;
  return name.as_text().view() == "string" ? ArgumentType::text : ArgumentType::other;
}

bool is_null_schema(const Value& schema) {
  const Value* type = schema.is(Kind::string) ? &schema : member(schema, "type");
  return type != nullptr && type->is(Kind::string) && type->as_text().view() == "null";
}

// The type that all of them give, ignoring null; unknown if they differ.
template <class TypeOf>
ArgumentType agreed(const Value& list, TypeOf type_of) {
  if (!list.is(Kind::list)) return ArgumentType::unknown;
  ArgumentType all = ArgumentType::unknown;
  bool first = true;
  for (const Value& item : list.as_list().items) {
    if (is_null_schema(item)) continue;
    const ArgumentType one = type_of(item);
    if (!first && one != all) return ArgumentType::unknown;
    all = one;
    first = false;
  }
  return all;
}

// Looks up "#/$defs/place" in the schema of the whole tool.
const Value* referenced(const Value& root, std::string_view path) {
  if (path.substr(0, 2) != "#/") return nullptr;
  path.remove_prefix(2);
  const Value* at = &root;
  while (at != nullptr && !path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    at = member(*at, path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

ArgumentType type_of_schema(const Value& root, const Value& schema, int references) {
  if (const Value* type = member(schema, "type")) {
    return type->is(Kind::list) ? agreed(*type, type_named) : type_named(*type);
  }
  const auto of_constant = [](const Value& constant) {
    return constant.is(Kind::string) ? ArgumentType::text : ArgumentType::other;
  };
  if (const Value* constant = member(schema, "const")) return of_constant(*constant);
  if (const Value* values = member(schema, "enum")) return agreed(*values, of_constant);
  if (references == 0) return ArgumentType::unknown;
  const auto of_schema = [&](const Value& inner) {
    return type_of_schema(root, inner, references - 1);
  };
  for (const char* choice : std::array{"anyOf", "oneOf"}) {
    if (const Value* choices = member(schema, choice)) return agreed(*choices, of_schema);
  }
  const Value* path = member(schema, "$ref");
  if (path == nullptr || !path->is(Kind::string)) return ArgumentType::unknown;
  const Value* target = referenced(root, path->as_text().view());
  return target == nullptr ? ArgumentType::unknown : of_schema(*target);
}

}  // namespace

ArgumentType type_of_argument(const Value& parameters, std::string_view key) {
  const Value* properties = member(parameters, "properties");
  const Value* schema = properties == nullptr ? nullptr : member(*properties, key);
  return schema == nullptr ? ArgumentType::unknown
                           : type_of_schema(parameters, *schema, kMostReferences);
}

std::string argument_as_json(std::string_view written, ArgumentType type) {
  if (type == ArgumentType::text) return json_string(written);
  const std::string_view value = trimmed(written);
  if (is_json(value)) return std::string(value);
  // Some templates print values in Python's notation, and their models learned it from them.
  const bool container = !value.empty() && (value.front() == '{' || value.front() == '[');
  const bool word = value == "True" || value == "False" || value == "None";
  if (container || word) {
    if (std::optional<std::string> json = python_as_json(value)) return *json;
  }
  return json_string(written);
}

}  // namespace stemma::dialect
