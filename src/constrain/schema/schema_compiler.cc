#include "constrain/schema/schema_compiler.h"

#include <algorithm>
#include <array>
#include <set>

#include "constrain/code_points.h"

namespace stemma::constrain {
namespace {

constexpr uint64_t kMaxSchemasRead = 3'000'000;  // In all conjunctions.

// Keywords that do not restrict a value, or that are read together with another one.
const std::set<std::string_view>& known_keywords() {
  static const std::set<std::string_view> kKnown = {"$schema",
                                                    "$id",
                                                    "id",
                                                    "$comment",
                                                    "$defs",
                                                    "definitions",
                                                    "$ref",
                                                    "$anchor",
                                                    "$vocabulary",
                                                    "title",
                                                    "description",
                                                    "default",
                                                    "examples",
                                                    "example",
                                                    "deprecated",
                                                    "readOnly",
                                                    "writeOnly",
                                                    "externalDocs",
                                                    "xml",
                                                    "discriminator",
                                                    "contentEncoding",
                                                    "contentMediaType",
                                                    "contentSchema",
                                                    "type",
                                                    "nullable",
                                                    "enum",
                                                    "const",
                                                    "allOf",
                                                    "anyOf",
                                                    "oneOf",
                                                    "properties",
                                                    "required",
                                                    "additionalProperties",
                                                    "patternProperties",
                                                    "propertyNames",
                                                    "minProperties",
                                                    "maxProperties",
                                                    "unevaluatedProperties",
                                                    "items",
                                                    "prefixItems",
                                                    "additionalItems",
                                                    "unevaluatedItems",
                                                    "minItems",
                                                    "maxItems",
                                                    "minLength",
                                                    "maxLength",
                                                    "pattern",
                                                    "format",
                                                    "minimum",
                                                    "maximum",
                                                    "exclusiveMinimum",
                                                    "exclusiveMaximum",
                                                    "multipleOf"};
  return kKnown;
}

}  // namespace

std::string pointer_below(const std::string& pointer, std::string_view token) {
  std::string out = pointer + "/";
  for (const char c : token.substr(0, 100))
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

void SchemaCompiler::fail(std::string message, const std::string& pointer) {
  if (!problem_) problem_ = Problem{std::move(message), pointer.empty() ? "/" : pointer};
}

void SchemaCompiler::leave_out(std::string_view keyword, const SchemaPart& part) {
  Unenforced entry{std::string(keyword), pointer_below(part.pointer, keyword)};
  if (options_.strict) {
    fail("the keyword '" + entry.keyword + "' cannot be enforced here", entry.pointer);
  }
  if (std::find(unenforced_.begin(), unenforced_.end(), entry) == unenforced_.end() &&
      unenforced_.size() < 1000) {
    unenforced_.push_back(std::move(entry));
  }
}

std::variant<SchemaRule, Problem> SchemaCompiler::run() {
  SchemaPart root{&root_, "", 0};
  references_["#"] = root;
  SchemaRule made;
  made.rule = build_.rule_of(value({root}));
  while (!waiting_.empty() && !failed() && !build_.failed()) {
    auto [rule, parts] = std::move(waiting_.front());
    waiting_.pop_front();
    define(rule, std::move(parts));
  }
  if (problem_) return *problem_;
  made.unenforced = std::move(unenforced_);
  return made;
}

// --- conjunctions --------------------------------------------------------------------------------

// Returns a value that satisfies all of `parts`: a call of their rule, which is made if it is new.
Expr SchemaCompiler::value(Conjunction parts) {
  std::vector<std::pair<const Json*, uint8_t>> key;
  for (const SchemaPart& part : parts) key.emplace_back(part.schema, part.split);
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  if (key.empty()) return rules_.any_value();
  const auto [at, made] = known_.try_emplace(std::move(key), RuleId{});
  if (made) {
    at->second = build_.rule();
    waiting_.emplace_back(at->second, std::move(parts));
  }
  return build_.call(at->second);
}

void SchemaCompiler::define(RuleId rule, Conjunction parts) {
  const bool possible = flatten(parts);
  if (failed()) return;
  Expr body = build_.never();
  if (possible) {
    const std::optional<Expr> alternatives = split_alternatives(parts);
    body = alternatives ? *alternatives : one_shape(parts);
  }
  build_.define(rule, body);
}

// Adds the schemas of `$ref` and `allOf`. Returns false if no value can satisfy the parts.
bool SchemaCompiler::flatten(Conjunction& parts) {
  std::map<const Json*, size_t> places;
  Conjunction flat;
  std::deque<SchemaPart> left(parts.begin(), parts.end());
  while (!left.empty() && !failed()) {
    SchemaPart part = std::move(left.front());
    left.pop_front();
    if (++work_ > kMaxSchemasRead) fail("the schema combines too many others", part.pointer);
    if (const bool* all = part.schema->boolean()) {
      if (!*all) return false;
      continue;
    }
    if (part.schema->object() == nullptr) {
      fail(std::string("a schema is an object or a boolean, not ") + part.schema->kind(),
           part.pointer);
      return false;
    }
    const auto [at, made] = places.try_emplace(part.schema, flat.size());
    if (!made) {
      flat[at->second].split |= part.split;
      continue;
    }
    flat.push_back(part);
    check_keywords(part);
    Conjunction more;
    if (!add_reference(part, more)) return false;
    if (const Json* all = part.find("allOf")) {
      if (all->array() == nullptr) fail("allOf is not a list", part.pointer);
      for (size_t i = 0; all->array() != nullptr && i < all->array()->size(); ++i) {
        more.push_back({&(*all->array())[i],
                        pointer_below(pointer_below(part.pointer, "allOf"), std::to_string(i)), 0});
      }
    }
    left.insert(left.begin(), more.begin(), more.end());
  }
  parts = std::move(flat);
  return true;
}

// If some part has alternatives: one value for each, which must also satisfy the other parts.
std::optional<Expr> SchemaCompiler::split_alternatives(const Conjunction& parts) {
  constexpr std::array<std::pair<const char*, uint8_t>, 2> kKeywords = {
      {{"anyOf", 1}, {"oneOf", 2}}};
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& [keyword, bit] : kKeywords) {
      const Json* const list = parts[i].find(keyword);
      if (list == nullptr || (parts[i].split & bit) != 0) continue;
      if (list->array() == nullptr || list->array()->empty()) {
        fail(std::string(keyword) + " is not a list of schemas", parts[i].pointer);
        return build_.never();
      }
      const std::string pointer = pointer_below(parts[i].pointer, keyword);
      std::vector<Expr> ways;
      for (size_t way = 0; way < list->array()->size(); ++way) {
        Conjunction with = parts;
        with[i].split |= bit;
        with.push_back({&(*list->array())[way], pointer_below(pointer, std::to_string(way)), 0});
        work_ += with.size();
        ways.push_back(value(std::move(with)));
      }
      return build_.either(ways);
    }
  }
  return std::nullopt;
}

void SchemaCompiler::check_keywords(const SchemaPart& part) {
  for (const Json::Member& member : *part.schema->object()) {
    if (known_keywords().contains(member.name) || member.name.starts_with("x-")) continue;
    const bool* const flag = member.value.boolean();
    if (member.name == "uniqueItems" && flag != nullptr && !*flag) continue;
    leave_out(member.name, part);
  }
}

// --- types ---------------------------------------------------------------------------------------

uint8_t SchemaCompiler::type_bit(const std::string& name, const SchemaPart& part) {
  static const std::map<std::string_view, uint8_t> kBits = {{"null", kNull},
                                                            {"boolean", kBoolean},
                                                            {"string", kString},
                                                            {"integer", kInteger},
                                                            {"number", kInteger | kFraction},
                                                            {"array", kArray},
                                                            {"object", kObject},
                                                            {"any", kAnyType}};
  const auto at = kBits.find(name);
  if (at != kBits.end()) return at->second;
  fail("there is no type '" + name.substr(0, 100) + "'", pointer_below(part.pointer, "type"));
  return 0;
}

uint8_t SchemaCompiler::types_of_part(const SchemaPart& part) {
  const Json* const type = part.find("type");
  if (type == nullptr) return kAnyType;
  uint8_t types = 0;
  if (const std::string* name = type->string()) {
    types = type_bit(*name, part);
  } else if (const Json::Array* names = type->array()) {
    for (const Json& one : *names) {
      if (one.string() == nullptr)
        fail("a type is not a string", pointer_below(part.pointer, "type"));
      types |= one.string() != nullptr ? type_bit(*one.string(), part) : 0;
    }
  } else {
    fail("type is neither a string nor a list", pointer_below(part.pointer, "type"));
  }
  const Json* const nullable = part.find("nullable");
  const bool* const flag = nullable != nullptr ? nullable->boolean() : nullptr;
  if (flag != nullptr && *flag) types |= kNull;
  return types;
}

// The types to which the part's keywords apply.
uint8_t SchemaCompiler::implied_types(const SchemaPart& part) {
  static const std::map<std::string_view, uint8_t> kSpeakOf = {
      {"properties", kObject},
      {"required", kObject},
      {"additionalProperties", kObject},
      {"patternProperties", kObject},
      {"propertyNames", kObject},
      {"minProperties", kObject},
      {"maxProperties", kObject},
      {"items", kArray},
      {"prefixItems", kArray},
      {"minItems", kArray},
      {"maxItems", kArray},
      {"uniqueItems", kArray},
      {"contains", kArray},
      {"minLength", kString},
      {"maxLength", kString},
      {"pattern", kString},
      {"format", kString},
      {"minimum", kInteger | kFraction},
      {"maximum", kInteger | kFraction},
      {"exclusiveMinimum", kInteger | kFraction},
      {"exclusiveMaximum", kInteger | kFraction},
      {"multipleOf", kInteger | kFraction}};
  uint8_t types = 0;
  for (const Json::Member& member : *part.schema->object()) {
    const auto at = kSpeakOf.find(member.name);
    if (at != kSpeakOf.end()) types |= at->second;
  }
  return types;
}

uint8_t SchemaCompiler::types_of(const Conjunction& parts) {
  uint8_t types = kAnyType;
  uint8_t implied = 0;
  bool said = false;
  for (const SchemaPart& part : parts) {
    types &= types_of_part(part);
    said |= part.find("type") != nullptr || part.find("enum") != nullptr ||
            part.find("const") != nullptr;
    implied |= implied_types(part);
  }
  return said || implied == 0 ? types : types & implied;
}

Expr SchemaCompiler::one_shape(const Conjunction& parts) {
  const uint8_t types = types_of(parts);
  if (failed()) return build_.never();
  if (const auto choices = choices_of(parts)) {
    std::vector<const Json*> fitting;
    for (const Json* choice : *choices) {
      if (choice_fits(*choice, types, parts)) fitting.push_back(choice);
    }
    return one_of_choices(fitting);
  }
  std::vector<Expr> kinds;
  if ((types & kObject) != 0) kinds.push_back(object(parts));
  if ((types & kArray) != 0) kinds.push_back(array(parts));
  if ((types & kString) != 0) kinds.push_back(string(parts));
  if ((types & (kInteger | kFraction)) != 0) {
    kinds.push_back(number(parts, (types & kFraction) == 0));
  }
  if ((types & kBoolean) != 0) kinds.push_back(rules_.boolean());
  if ((types & kNull) != 0) kinds.push_back(rules_.null());
  return build_.either(kinds);
}

bool SchemaCompiler::impossible(const Conjunction& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const SchemaPart& part) { return is_false(part.schema); });
}

uint32_t SchemaCompiler::count(const SchemaPart& part, std::string_view keyword,
                               uint32_t otherwise) {
  const Json* const value = part.find(keyword);
  if (value == nullptr) return otherwise;
  const std::optional<double> number = value->number();
  if (!number || *number < 0 ||
      *number != static_cast<double>(static_cast<uint64_t>(std::min(*number, 1e15)))) {
    fail(std::string(keyword) + " is not a whole number of at least 0",
         pointer_below(part.pointer, keyword));
    return otherwise;
  }
  return *number >= Grammar::kMaxCount ? Grammar::kMaxCount : static_cast<uint32_t>(*number);
}

}  // namespace stemma::constrain
