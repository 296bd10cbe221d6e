// Random walks through grammars of schemas, judged by a tiny validator. ajv judges many more in
// tests/constrain.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <regex>

#include "constrain/schema/json_schema.h"
#include "json/json.h"
#include "support/answer_walker.h"
#include "support/environment.h"

namespace stemma::constrain {
namespace {

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  bool valid(const Json& value, const Json& schema) const {
    if (const bool* all = schema.boolean()) return *all;
    if (const Json* reference = schema.find("$ref")) {
      const Json* target = &root_;
      std::string path = reference->string()->substr(1);
      while (!path.empty()) {
        const size_t slash = path.find('/', 1);
        target = target->find(path.substr(1, slash - 1));
        path = slash == std::string::npos ? "" : path.substr(slash);
      }
      if (!valid(value, *target)) return false;
    }
    return type(value, schema) && choices(value, schema) && combined(value, schema) &&
           number(value, schema) && string(value, schema) && array(value, schema) &&
           object(value, schema);
  }

 private:
  static double limit(const Json& schema, const char* name, double otherwise) {
    const Json* const found = schema.find(name);
    return found == nullptr ? otherwise : found->number().value_or(otherwise);
  }
  static bool is(const Json& value, const std::string& name) {
    const auto real = value.number();
    return (name == "null" && value.is_null()) ||
           (name == "boolean" && value.boolean() != nullptr) ||
           (name == "string" && value.string() != nullptr) ||
           (name == "array" && value.array() != nullptr) ||
           (name == "object" && value.object() != nullptr) || (name == "number" && real) ||
           (name == "integer" && real && *real == std::floor(*real));
  }
  static bool type(const Json& value, const Json& schema) {
    const Json* const wanted = schema.find("type");
    if (wanted == nullptr) return true;
    if (wanted->string() != nullptr) return is(value, *wanted->string());
    return std::any_of(wanted->array()->begin(), wanted->array()->end(),
                       [&](const Json& one) { return is(value, *one.string()); });
  }
  static std::string text(const Json& value) {
    std::string out;
    append_json(out, value);
    return out;
  }
  static bool choices(const Json& value, const Json& schema) {
    if (const Json* only = schema.find("const"); only != nullptr && text(*only) != text(value))
      return false;
    const Json* const list = schema.find("enum");
    return list == nullptr ||
           std::any_of(list->array()->begin(), list->array()->end(),
                       [&](const Json& one) { return text(one) == text(value); });
  }
  bool combined(const Json& value, const Json& schema) const {
    const auto fits = [&](const Json& one) { return valid(value, one); };
    if (const Json* all = schema.find("allOf")) {
      if (!std::all_of(all->array()->begin(), all->array()->end(), fits)) return false;
    }
    const Json* const any = schema.find("anyOf");
    return any == nullptr || std::any_of(any->array()->begin(), any->array()->end(), fits);
  }
  static bool number(const Json& value, const Json& schema) {
    const auto real = value.number();
    return !real || (*real >= limit(schema, "minimum", -INFINITY) &&
                     *real <= limit(schema, "maximum", INFINITY) &&
                     *real > limit(schema, "exclusiveMinimum", -INFINITY) &&
                     *real < limit(schema, "exclusiveMaximum", INFINITY) &&
                     std::fmod(*real, limit(schema, "multipleOf", *real == 0 ? 1 : *real)) == 0);
  }
  static bool string(const Json& value, const Json& schema) {
    if (value.string() == nullptr) return true;
    const auto length = static_cast<double>(
        std::count_if(value.string()->begin(), value.string()->end(),
                      [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80; }));
    if (length < limit(schema, "minLength", 0) || length > limit(schema, "maxLength", INFINITY))
      return false;
    const Json* const pattern = schema.find("pattern");
    return pattern == nullptr || std::regex_search(*value.string(), std::regex(*pattern->string()));
  }
  bool array(const Json& value, const Json& schema) const {
    if (value.array() == nullptr) return true;
    const auto size = static_cast<double>(value.array()->size());
    if (size < limit(schema, "minItems", 0) || size > limit(schema, "maxItems", INFINITY))
      return false;
    const Json* const prefix = schema.find("prefixItems");
    const Json* const items = schema.find("items");
    for (size_t i = 0; i < value.array()->size(); ++i) {
      const bool first = prefix != nullptr && i < prefix->array()->size();
      const Json* const rule = first ? &(*prefix->array())[i] : items;
      if (rule != nullptr && !valid((*value.array())[i], *rule)) return false;
    }
    return true;
  }
  bool object(const Json& value, const Json& schema) const {
    if (value.object() == nullptr) return true;
    const auto size = static_cast<double>(value.object()->size());
    if (size < limit(schema, "minProperties", 0) || size > limit(schema, "maxProperties", INFINITY))
      return false;
    if (const Json* required = schema.find("required")) {
      for (const Json& name : *required->array()) {
        if (value.find(*name.string()) == nullptr) return false;
      }
    }
    const Json* const properties = schema.find("properties");
    const Json* const others = schema.find("additionalProperties");
    return std::all_of(
        value.object()->begin(), value.object()->end(), [&](const Json::Member& member) {
          const Json* rule = properties != nullptr ? properties->find(member.name) : nullptr;
          if (rule == nullptr) rule = others;
          return rule == nullptr || valid(member.value, *rule);
        });
  }

  const Json& root_;
};

const char* const kSchemas[] = {
    R"({})",
    R"({"type":"object","properties":{"command":{"type":"string","minLength":1},"timeout":{"type":"number","minimum":0,
        "maximum":600000},"background":{"type":"boolean"},"env":{"type":"object","additionalProperties":{"type":"string"}}},
        "required":["command"],"additionalProperties":false})",
    R"({"type":"object","properties":{"todos":{"type":"array","minItems":1,"items":{"type":"object","properties":{
        "content":{"type":"string","minLength":1},"status":{"type":"string","enum":["pending","in_progress","completed"]},
        "id":{"type":"string","pattern":"^[a-z]{2,5}-\\d{1,3}$"}},"required":["content","status"],"additionalProperties":false}}},
        "required":["todos"],"additionalProperties":{"type":"integer","multipleOf":3}})",
    R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"value":{"type":["integer","null"]},
        "left":{"$ref":"#/$defs/node"},"right":{"$ref":"#/$defs/node"}},"required":["value"]}}})",
    R"({"type":"object","properties":{"a":{"anyOf":[{"type":"string","maxLength":3},{"type":"array","prefixItems":[
        {"type":"integer"},{"const":"x"}],"items":{"type":"boolean"},"minItems":1,"maxItems":5},{"type":"null"}]}},
        "additionalProperties":true,"minProperties":1,"maxProperties":3})",
    R"({"allOf":[{"properties":{"n":{"type":"number"}},"required":["n"]},{"properties":{"n":{"exclusiveMinimum":-2.5,
        "exclusiveMaximum":17.25}}}]})",
    R"j({"type":"array","items":{"type":"string","pattern":"(foo|ba[rz]+)"},"maxItems":3})j",
};

TEST(SchemaWalks, EveryAnswerIsValid) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  const uint64_t rounds =
      test::from_environment("STEMMA_CONSTRAIN_ROUNDS", test::kSanitized ? 20 : 100);
  std::mt19937_64 random(seed);
  for (const char* text : kSchemas) {
    const Json schema = std::get<Json>(parse_json(text));
    for (const Whitespace whitespace : {Whitespace::none, Whitespace::bounded}) {
      auto made = compile_schema(schema, {.whitespace = whitespace, .strict = true});
      ASSERT_TRUE(std::holds_alternative<CompiledSchema>(made))
          << text << std::get<Problem>(made).text();
      const test::AnswerWalker walker(std::get<CompiledSchema>(made).grammar);
      for (uint64_t i = 0; i < rounds; ++i) {
        const auto answer = walker.walk(random, random() % 300);
        ASSERT_TRUE(answer.has_value()) << "seed " << seed << ": " << text;
        const auto parsed = parse_json(*answer, {.depth = 300});
        if (const auto* fault = std::get_if<JsonFault>(&parsed)) {
          ASSERT_NE(fault->message.find("is there twice"), std::string::npos)
              << fault->message << "\n"
              << *answer;
          continue;
        }
        ASSERT_TRUE(Validator(schema).valid(std::get<Json>(parsed), schema))
            << "seed " << seed << "\n"
            << text << "\n"
            << *answer;
      }
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
