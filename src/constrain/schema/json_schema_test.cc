// Tests schemas: which values each keyword allows and rejects; and that schemas which are too
// large, too deep or hostile are refused cleanly.
#include "constrain/schema/json_schema.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "constrain/matcher.h"
#include "support/answer_walker.h"
#include "support/environment.h"

namespace stemma::constrain {
namespace {

using Texts = std::initializer_list<std::string_view>;

std::string problem_of(std::string_view schema, const SchemaOptions& options = {}) {
  auto made = compile_schema(schema, options);
  const auto* problem = std::get_if<Problem>(&made);
  return problem == nullptr ? "" : problem->text();
}

std::string unenforced_of(std::string_view schema) {
  auto made = compile_schema(schema);
  if (const auto* problem = std::get_if<Problem>(&made)) return problem->text();
  std::string all;
  for (const Unenforced& one : std::get<CompiledSchema>(made).unenforced) {
    all += (all.empty() ? "" : " ") + one.pointer;
  }
  return all;
}

bool accepts(const GrammarPtr& grammar, std::string_view text) {
  Matcher matcher(grammar);
  return matcher.accept(text) && matcher.may_end();
}

// Uses compact JSON, so that texts in tests are short.
void expect(std::string_view schema, Texts good, Texts bad, SchemaOptions options = {}) {
  options.whitespace = Whitespace::none;
  auto made = compile_schema(schema, options);
  if (auto* problem = std::get_if<Problem>(&made)) {
    ADD_FAILURE() << schema << ": " << problem->text();
    return;
  }
  const auto& compiled = std::get<CompiledSchema>(made);
  EXPECT_TRUE(compiled.unenforced.empty()) << schema;
  for (const std::string_view text : good)
    EXPECT_TRUE(accepts(compiled.grammar, text)) << schema << " " << text;
  for (const std::string_view text : bad)
    EXPECT_FALSE(accepts(compiled.grammar, text)) << schema << " " << text;
}

TEST(JsonSchema, AnEmptySchemaIsAnyJson) {
  for (const char* schema :
       {"{}", "true", R"({"title":"x","description":"y","default":1,"$schema":"z"})"}) {
    expect(schema,
           {"null", "true", "[1,2,[]]", R"({"a":{"b":"c\n\u00e9\ud83d\ude00"}})", "-1.5e10", "\"\"",
            "{}"},
           {"", "nul", "[1,]", "{\"a\"}", "01", "\"\\ud800\"", "\"\n\"", "\"\xFF\"",
            "\"\xED\xA0\x80\"", "1 2"});
  }
}

TEST(JsonSchema, TypesAloneAndInLists) {
  expect(R"({"type":"integer"})", {"0", "-5", "123"}, {"1.5", "1e2", "\"1\"", "-0", "null"});
  expect(R"({"type":["string","null"]})", {"null", "\"a\""}, {"1", "true"});
  expect(R"({"type":"boolean"})", {"true", "false"}, {"1"});
  expect(R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"});
  expect(R"({"type":"object"})", {"{}", R"({"a":[1]})"}, {"[]"});
  expect(R"({"type":"array"})", {"[]", "[1,\"a\"]"}, {"{}"});
}

TEST(JsonSchema, MembersComeInTheOrderOfTheSchemaAndOptionalOnesMayBeLeftOut) {
  expect(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"},"c":{"type":"null"}},
             "required":["b"]})",
      {R"({"b":true})", R"({"a":1,"b":true})", R"({"a":1,"b":true,"c":null})",
       R"({"b":false,"c":null})"},
      {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"b":1})", R"({"b":true,})",
       R"({"b":true,"d":1})", R"({"b":true,"b":true})"});
}

TEST(JsonSchema, OtherMembersComeLastAndNeverTakeADeclaredName) {
  constexpr std::string_view kOpen =
      R"({"properties":{"abc":{"type":"integer"}},"additionalProperties":{"type":"string"}})";
  expect(kOpen,
         {"{}", R"({"abc":1})", R"({"abc":1,"x":"y"})", R"({"ab":"y","abcd":"z"})", R"({"":"y"})",
          R"({"b\n":"y"})"},
         {R"({"abc":"y"})", R"({"x":"y","abc":1})", R"({"x":1})", R"({"\u0061bc":"y"})",
          R"({"a\u0062c":"y"})"});
  expect(R"({"type":"object","additionalProperties":{"type":"integer"}})",
         {"{}", R"({"a":1,"b":2})"}, {R"({"a":"b"})"});
  expect(R"({"properties":{"a":true}})", {R"({"a":[]})"}, {R"({"b":1})"});
  expect(R"({"properties":{"a":true}})", {R"({"a":[],"b":1})"}, {}, {.open_objects = true});
  expect(R"({"properties":{"a":true},"additionalProperties":false})", {R"({"a":1})"},
         {R"({"b":1})"}, {.open_objects = true});
  expect(R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"});
  expect(R"({"properties":{"a":false,"b":true}})", {R"({"b":1})", "{}"}, {R"({"a":1})"});
}

TEST(JsonSchema, RequiredNamesThatAreNotDeclaredMustCome) {
  expect(R"({"type":"object","required":["x"]})", {R"({"x":1})"}, {"{}"});
  expect(R"({"type":"object","required":["x"],"additionalProperties":{"type":"null"}})",
         {R"({"x":null})", R"({"x":null,"y":null})"}, {"{}", R"({"x":1})"});
}

TEST(JsonSchema, NumbersOfMembers) {
  expect(R"({"type":"object","minProperties":1,"maxProperties":2})",
         {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
  expect(
      R"({"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"minProperties":2,"maxProperties":2})",
      {R"({"a":1,"b":2})", R"({"a":1,"c":3})", R"({"b":2,"c":3})"},
      {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"});
}

TEST(JsonSchema, NamesByPatternAndPropertyNames) {
  expect(
      R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
      {"{}", R"({"x-a":1,"x-":2})"}, {R"({"y":1})", R"({"x-a":"b"})"});
  expect(
      R"({"properties":{"x-a":{"minimum":5,"type":"integer"}},"patternProperties":{"^x-":{"maximum":7}},
             "additionalProperties":false})",
      {R"({"x-a":6})"}, {R"({"x-a":4})", R"({"x-a":8})"});
  expect(
      R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"null"}})",
      {R"({"ab":null})"}, {R"({"A":null})", R"({"ab":1})"});
  expect(R"({"type":"object","propertyNames":{"type":"string"},"additionalProperties":{}})",
         {R"({"A":1})"}, {"[]"});
  expect(R"({"type":"object","propertyNames":{"enum":["a","b"]}})", {R"({"a":1,"b":2})"},
         {R"({"c":1})"});
}

TEST(JsonSchema, ItemsOfArrays) {
  expect(R"({"items":{"type":"integer"}})", {"[]", "[1]", "[1,2]"}, {"[\"a\"]", "[1,]"});
  expect(R"({"items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"},
         {"[1]", "[1,2,3,4]", "[]"});
  expect(R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
         {"[]", "[1]", "[1,\"a\"]"}, {"[\"a\"]", "[1,\"a\",2]"});
  expect(
      R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":2,"maxItems":4})",
      {"[1,\"a\"]", "[1,\"a\",null,null]"}, {"[1]", "[1,\"a\",1]", "[1,\"a\",null,null,null]"});
  expect(
      R"({"type":"array","items":[{"type":"integer"}],"additionalItems":{"type":"null"},"minItems":1})",
      {"[1]", "[1,null]"}, {"[]", "[null]"});
  expect(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(JsonSchema, ConstantsAndLists) {
  expect(R"({"enum":["red","green","redder",1,null,{"a":[1]}]})",
         {"\"red\"", "\"redder\"", "1", "null", R"({"a":[1]})"}, {"\"re\"", "\"blue\"", "2", "{}"});
  expect(R"({"const":"x\ny"})", {R"("x\ny")"}, {"\"x\"", R"("x\u000ay")"});
  expect(R"({"type":"string","enum":["a",1,"bbb"],"maxLength":2})", {"\"a\""}, {"1", "\"bbb\""});
  expect(R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3.0,4]},{"minimum":2.5}]})", {"3"},
         {"1", "2", "4"});
  std::string large = R"({"enum":[)";
  for (int i = 0; i < 20'000; ++i)
    large += (i == 0 ? "\"" : ",\"") + std::to_string(i * 7919) + "\"";
  expect(large + "]}", {"\"7919\"", "\"0\""}, {"\"1\""});
}

TEST(JsonSchema, Alternatives) {
  expect(R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1}]})", {"1", "\"a\""},
         {"\"ab\"", "null"});
  expect(
      R"({"oneOf":[{"properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},
                      {"properties":{"k":{"const":"b"},"y":{"type":"null"}},"required":["k"]}]})",
      {R"({"k":"a","x":1})", R"({"k":"b"})", R"({"k":"b","y":null})"},
      {R"({"k":"a"})", R"({"k":"b","x":1})"});
  expect(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],
             "anyOf":[{"properties":{"b":{"type":"integer"}},"required":["b"]},
                      {"properties":{"c":{"type":"integer"}},"required":["c"]}]})",
         {R"({"a":1,"b":2})", R"({"a":1,"c":2})"}, {R"({"a":1})", R"({"b":1})"});
}

TEST(JsonSchema, AllOfIsMerged) {
  expect(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
                      {"properties":{"a":{"minimum":3},"b":{"type":"null"}}}]})",
         {R"({"a":3})", R"({"a":4,"b":null})"}, {R"({"a":2})", R"({"b":null})"});
  expect(R"({"allOf":[{"minLength":2},{"type":"string","maxLength":3}]})", {"\"ab\""},
         {"\"a\"", "\"abcd\"", "1"});
}

TEST(JsonSchema, ReferencesAndRecursion) {
  constexpr std::string_view kTree =
      R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
          "children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["v"]}}})";
  expect(kTree, {R"({"v":1})", R"({"v":1,"children":[{"v":2,"children":[]},{"v":3}]})"},
         {R"({"children":[]})"});
  expect(
      R"({"definitions":{"a/b~":{"type":"null"}},"properties":{"x":{"$ref":"#/definitions/a~1b~0"}}})",
      {R"({"x":null})"}, {R"({"x":1})"});
  expect(R"({"properties":{"x":{"$ref":"#"},"y":{"type":"null"}}})", {R"({"x":{"x":{"y":null}}})"},
         {R"({"x":1})"});
  expect(R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"}}]})", {"[[null],[]]"},
         {"[1]"});
  expect(R"({"$defs":{"n":{"type":"integer"}},"$ref":"#/$defs/n","minimum":5})", {"5"}, {"4"});
}

TEST(JsonSchema, LengthsCountCharacters) {
  expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {"\"ab\"", "\"\xC3\xA9\xF0\x9F\x98\x80\"", R"("\ud83d\ude00\n")", R"("\u00e9ab")"},
         {"\"a\"", "\"abcd\"", R"("\ud83d\ude00")"});
  expect(R"({"type":"string","maxLength":65536})", {"\"\"", "\"" + std::string(65'536, 'x') + "\""},
         {"\"" + std::string(65'537, 'x') + "\""});
}

TEST(JsonSchema, Patterns) {
  expect(R"({"type":"string","pattern":"^[a-z]{2,4}-\\d+$"})", {"\"ab-1\"", "\"abcd-123\""},
         {"\"a-1\"", "\"ab-\"", "1"});
  expect(R"({"type":"string","pattern":"b+"})", {"\"abc\"", "\"b\""}, {"\"ac\""});
  expect(R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":3})",
         {"\"ab\"", "\"abc\""}, {"\"a\"", "\"abcd\""});
  expect(R"({"type":"string","pattern":"^(ab|cde)$","maxLength":5})", {"\"ab\""}, {"\"x\""});
  expect(R"({"type":"string","pattern":"^\"\\\\$"})", {R"("\"\\")"}, {});
}

TEST(JsonSchema, PatternsTogetherWithLengthsAndOtherPatterns) {
  expect(R"({"type":"string","pattern":"^(ab)*$","minLength":1,"maxLength":7})",
         {"\"ab\"", "\"ababab\""}, {"\"\"", "\"aba\"", "\"abababab\""});
  expect(R"({"type":"string","pattern":"^[a-z][a-z0-9-]*[a-z0-9]$","maxLength":5})",
         {"\"ab\"", "\"a-b-c\""}, {"\"a\"", "\"a-\"", "\"abcdef\"", "\"a----"});
  expect(R"({"type":"string","pattern":"x","minLength":3})", {"\"abx\"", "\"xabcdef\""},
         {"\"x\"", "\"abc\""});
  expect(
      R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"},{"pattern":"^\\w+$","maxLength":4}]})",
      {"\"ab\"", "\"xbya\""}, {"\"a\"", "\"a b\"", "\"xxabx\""});
  EXPECT_NE(problem_of(R"({"type":"string","pattern":"^(aaa)+$","minLength":4,"maxLength":5})"),
            "");
}

TEST(JsonSchema, Formats) {
  expect(R"({"type":"string","format":"date"})", {"\"2026-02-28\"", "\"1999-12-31\""},
         {"\"2026-02-30\"", "\"2026-13-01\"", "\"x\""});
  expect(R"({"type":"string","format":"date-time"})",
         {"\"2026-11-18T14:00:00Z\"", "\"2026-11-18T14:00:00.5+01:00\""},
         {"\"2026-11-18\"", "\"2026-11-18T24:00:00Z\""});
  expect(R"({"type":"string","format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567\""});
  expect(R"({"type":"string","format":"ipv4"})", {"\"192.168.0.255\""},
         {"\"256.0.0.1\"", "\"1.2.3\""});
  expect(R"({"type":"string","format":"email"})", {"\"a.b@example.org\""}, {"\"a@b\"", "\"@b.c\""});
  expect(R"({"type":"string","format":"uri"})", {"\"https://example.org/a?b=c\""}, {"\"example\""});
  EXPECT_EQ(unenforced_of(R"({"type":"string","format":"iri"})"), "/format");
}

TEST(JsonSchema, NumbersWithBounds) {
  expect(R"({"type":"integer","minimum":-3,"maximum":120})", {"-3", "0", "99", "120"},
         {"-4", "121", "1000"});
  expect(R"({"type":"number","exclusiveMinimum":0,"maximum":1})", {"0.5", "1", "1.0", "0.0001"},
         {"0", "1.01", "2", "0.0"});
  expect(R"({"type":"integer","multipleOf":5,"minimum":10,"maximum":30})", {"10", "25", "30"},
         {"5", "12", "35"});
  expect(R"({"type":"integer","minimum":5,"exclusiveMinimum":true})", {"6"}, {"5"});
}

TEST(JsonSchema, WhitespaceIsBounded) {
  auto made = compile_schema(R"({"properties":{"a":{"items":{"type":"integer"}}}})");
  const GrammarPtr grammar = std::get<CompiledSchema>(made).grammar;
  EXPECT_TRUE(accepts(grammar, "{\"a\": [1, 2]}"));
  EXPECT_TRUE(accepts(grammar, "{\n  \"a\": [\n    1,\n    2\n  ]\n}"));
  EXPECT_FALSE(accepts(grammar, "{  \"a\":[1]}"));
  EXPECT_FALSE(accepts(grammar, "{\n\n\"a\":[1]}"));
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.accept("{\n"));
  int blanks = 0;
  while (matcher.accept(" ")) ++blanks;
  EXPECT_EQ(blanks, 20);
}

TEST(JsonSchema, WhatCannotBeEnforcedIsListedOrRefused) {
  EXPECT_EQ(unenforced_of(R"({"type":"array","uniqueItems":true})"), "/uniqueItems");
  EXPECT_EQ(
      unenforced_of(R"j({"properties":{"a":{"not":{"type":"null"}},"b":{"pattern":"(?=x)"}}})j"),
      "/properties/a/not /properties/b/pattern");
  EXPECT_EQ(unenforced_of(R"({"type":"string","pattern":"^(ab)*$","maxLength":65536})"),
            "/maxLength");
  EXPECT_EQ(unenforced_of(R"({"if":{},"then":{},"x-mine":1})"), "/if /then");
  EXPECT_EQ(problem_of(R"({"type":"array","uniqueItems":true})", {.strict = true}),
            "/uniqueItems: the keyword 'uniqueItems' cannot be enforced here");
  EXPECT_EQ(problem_of(R"j({"properties":{"b":{"type":"string","pattern":"a(?=x)"}}})j",
                       {.strict = true}),
            "/properties/b/pattern: the keyword 'pattern' cannot be enforced here: character 4: "
            "look-around is not "
            "supported");
  EXPECT_EQ(problem_of(R"({"type":"array","uniqueItems":false})", {.strict = true}), "");
}

TEST(JsonSchema, WhatMakesNoSenseIsRefusedWithItsPlace) {
  EXPECT_EQ(problem_of(R"({"properties":{"a":{"type":"strin"}}})"),
            "/properties/a/type: there is no type 'strin'");
  EXPECT_EQ(problem_of(R"({"$ref":"#/$defs/x"})"), "/: the reference '#/$defs/x' leads nowhere");
  EXPECT_NE(problem_of(R"({"$ref":"https://example.org/x"})"), "");
  EXPECT_EQ(problem_of(R"({"$ref":"#"})"), "/: $ref refers to itself");
  EXPECT_EQ(problem_of(R"({"properties":{"a":5}})"),
            "/properties/a: a schema is an object or a boolean, not an integer");
  EXPECT_NE(problem_of("[]"), "");
  EXPECT_NE(problem_of("{"), "");
  for (const char* schema :
       {"false", R"({"type":"string","minLength":3,"maxLength":2})", R"({"enum":[]})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})", R"({"minItems":2,"maxItems":1})",
        R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"string","minLength":-1})", R"({"type":"integer","multipleOf":0})",
        R"({"anyOf":[]})", R"({"required":5})", R"({"type":[1]})"}) {
    EXPECT_NE(problem_of(schema), "") << schema;
  }
}

// --- hostile and large ---------------------------------------------------------------------------

TEST(JsonSchema, TooLargeTooDeepAndTooEntangledAreRefused) {
  EXPECT_NE(problem_of(std::string(10U << 20U, ' ')).find("more than"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += R"({"items":)";
  EXPECT_NE(problem_of(deep), "");
  EXPECT_NE(problem_of(std::string(1'000'000, '[')), "");
  // 20 lists of 10 alternatives, all of which must hold: 10^20 combinations.
  std::string many = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    many += i == 0 ? R"({"anyOf":[)" : R"(,{"anyOf":[)";
    for (int way = 0; way < 10; ++way) {
      many += (way == 0 ? "" : ",") + (R"({"properties":{"p)" + std::to_string(i * 10 + way)) +
              R"(":{"type":"integer"}}})";
    }
    many += "]}";
  }
  EXPECT_NE(problem_of(many + "]}"), "");
  // A chain of 20,000 references that lead into each other.
  std::string chain = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 20'000; ++i) {
    chain += "\"" + std::to_string(i) + R"(":{"properties":{"x":{"$ref":"#/$defs/)" +
             std::to_string(i + 1) + R"("}}},)";
  }
  EXPECT_EQ(problem_of(chain + R"("20000":{"type":"null"}}})"), "");
}

TEST(JsonSchema, HostilePatternsCostNothing) {
  auto made = compile_schema(R"({"type":"string","pattern":"^((a{1,1000}){1,1000}b?){1,1000}$"})");
  const GrammarPtr grammar = std::get<CompiledSchema>(made).grammar;
  EXPECT_LT(grammar->states(), 200U);
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.accept("\"" + std::string(300, 'a')));
}

TEST(JsonSchema, HundredsOfToolsAreOneGrammar) {
  std::string tools;
  for (int i = 0; i < 200; ++i) {
    tools += (i == 0 ? "" : ",") +
             (R"({"type":"object","properties":{"name":{"const":"tool_)" + std::to_string(i)) +
             R"("},"arguments":{"type":"object","properties":{)";
    for (int p = 0; p < 12; ++p) {
      tools += (p == 0 ? "\"" : ",\"") + ("parameter_" + std::to_string(p)) +
               R"(":{"type":"string","description":")" + std::string(100, 'd') +
               R"(","maxLength":65536})";
    }
    tools +=
        R"(},"required":["parameter_3"],"additionalProperties":false}},"required":["name","arguments"]})";
  }
  const std::string schema = R"({"anyOf":[)" + tools + "]}";
  EXPECT_GT(schema.size(), 400'000U);
  auto made = compile_schema(schema);
  ASSERT_TRUE(std::holds_alternative<CompiledSchema>(made)) << std::get<Problem>(made).text();
  EXPECT_TRUE(accepts(std::get<CompiledSchema>(made).grammar,
                      R"({"name": "tool_77", "arguments": {"parameter_3": "x"}})"));
}

TEST(JsonSchema, AnyJsonObjectIsAnObject) {
  const GrammarPtr grammar = any_json_object();
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, {"b": null}]})"));
  EXPECT_FALSE(accepts(grammar, "[]"));
}

// --- random schemas ------------------------------------------------------------------------------

// A schema and a way to make values that are valid under it.
struct Made {
  std::string schema;
  std::function<std::string(std::mt19937_64&)> value;
};

Made random_schema(std::mt19937_64& random, int depth);

Made random_object(std::mt19937_64& random, int depth) {
  std::vector<Made> members;
  std::vector<bool> required;
  std::string schema = R"({"type":"object","properties":{)";
  std::string names;
  for (uint64_t i = 0; i < random() % 4; ++i) {
    members.push_back(random_schema(random, depth - 1));
    required.push_back(random() % 2 == 0);
    schema += (i == 0 ? "\"m" : ",\"m") + std::to_string(i) + "\":" + members.back().schema;
    if (required.back()) names += (names.empty() ? "\"m" : ",\"m") + std::to_string(i) + "\"";
  }
  const bool open = random() % 3 == 0;
  schema += R"(},"required":[)" + names + R"(],"additionalProperties":)" +
            (open ? R"({"type":"integer"}})" : "false}");
  return {schema, [=](std::mt19937_64& r) {
            std::string text;
            for (size_t i = 0; i < members.size(); ++i) {
              if (!required[i] && r() % 2 == 0) continue;
              text +=
                  (text.empty() ? "\"m" : ",\"m") + std::to_string(i) + "\":" + members[i].value(r);
            }
            if (open && r() % 2 == 0)
              text += (text.empty() ? "" : ",") + std::string(R"("m\"x":7)");
            return "{" + text + "}";
          }};
}

Made random_schema(std::mt19937_64& random, int depth) {
  switch (random() % (depth > 0 ? 9 : 5)) {
    case 0:
      return {R"({"type":"boolean"})",
              [](std::mt19937_64& r) { return r() % 2 == 0 ? "true" : "false"; }};
    case 1: {
      const int64_t low = static_cast<int64_t>(random() % 2000) - 1000;
      const int64_t high = low + static_cast<int64_t>(random() % 500);
      return {R"({"type":"integer","minimum":)" + std::to_string(low) + R"(,"maximum":)" +
                  std::to_string(high) + "}",
              [=](std::mt19937_64& r) {
                return std::to_string(
                    low + static_cast<int64_t>(r() % static_cast<uint64_t>(high - low + 1)));
              }};
    }
    case 2: {
      const uint64_t min = random() % 3;
      const uint64_t max = min + random() % 5;
      return {
          R"({"type":"string","minLength":)" + std::to_string(min) + R"(,"maxLength":)" +
              std::to_string(max) + "}",
          [=](std::mt19937_64& r) {
            std::string text = "\"";
            for (uint64_t left = min + r() % (max - min + 1); left > 0; --left) {
              text += std::vector<const char*>{
                  "a", "\xC3\xA9", "\\n", "\\u00e9", "\\ud83d\\ude00", "\xF0\x9F\x98\x80"}[r() % 6];
            }
            return text + "\"";
          }};
    }
    case 3:
      return {R"({"enum":["x","xy",3,null]})", [](std::mt19937_64& r) {
                return std::vector<std::string>{"\"x\"", "\"xy\"", "3", "null"}[r() % 4];
              }};
    case 4:
      return {"{}", [](std::mt19937_64& r) {
                return std::vector<std::string>{R"({"a":[1,{"b":null}]})", "[]", "-1.5e-3",
                                                "\"\\\\\""}[r() % 4];
              }};
    case 5:
    case 6: return random_object(random, depth);
    case 7: {
      const Made item = random_schema(random, depth - 1);
      const uint64_t min = random() % 3;
      return {R"({"type":"array","items":)" + item.schema + R"(,"minItems":)" +
                  std::to_string(min) + R"(,"maxItems":4})",
              [=](std::mt19937_64& r) {
                std::string text;
                for (uint64_t left = min + r() % (5 - min); left > 0; --left) {
                  text += (text.empty() ? "" : ",") + item.value(r);
                }
                return "[" + text + "]";
              }};
    }
    default: {
      const Made a = random_schema(random, depth - 1);
      const Made b = random_schema(random, depth - 1);
      return {R"({"anyOf":[)" + a.schema + "," + b.schema + "]}",
              [=](std::mt19937_64& r) { return r() % 2 == 0 ? a.value(r) : b.value(r); }};
    }
  }
}

TEST(JsonSchema, EveryValidDocumentOfAGeneratorIsAccepted) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", 1);
  const uint64_t rounds =
      test::from_environment("STEMMA_CONSTRAIN_ROUNDS", test::kSanitized ? 100 : 400);
  for (uint64_t round = 0; round < rounds; ++round) {
    std::mt19937_64 random(seed * 7'919 + round);
    const Made made = random_schema(random, 4);
    auto compiled = compile_schema(made.schema, {.strict = true});
    ASSERT_TRUE(std::holds_alternative<CompiledSchema>(compiled))
        << made.schema << ": " << std::get<Problem>(compiled).text();
    for (int i = 0; i < 20; ++i) {
      const std::string text = made.value(random);
      ASSERT_TRUE(accepts(std::get<CompiledSchema>(compiled).grammar, text))
          << "seed " << seed << " round " << round << "\n"
          << made.schema << "\n"
          << text;
    }
  }
}

}  // namespace
}  // namespace stemma::constrain
