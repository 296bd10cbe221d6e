#include "dialect/values/literal_reader.h"

#include <gtest/gtest.h>

#include "dialect/values/json_text.h"
#include "dialect/values/nested_tags.h"
#include "dialect/values/schema_types.h"
#include "support/answers.h"

namespace stemma::dialect {
namespace {

std::string read_all(LiteralReader reader, std::string_view text, size_t portion) {
  std::string out;
  size_t at = 0;
  for (size_t end = portion;; end += portion) {
    const bool final = end >= text.size();
    const auto verdict = reader.read(text.substr(0, end), at, final, out);
    if (verdict == LiteralReader::Verdict::done) return out + "|" + std::string(text.substr(at));
    if (verdict == LiteralReader::Verdict::bad) return out + "!";
    if (final) return out + "...";
  }
}

TEST(LiteralReader, PythonCallsBecomeJson) {
  const std::string text =
      "city='Pa\"ris', days=3, exact=True, x=None, o={'a': [1, False], \"b\": 'c'}) rest";
  const std::string expected =
      R"({"city":"Pa\"ris","days":3,"exact":true,"x":null,"o":{"a":[1,false],"b":"c"}}| rest)";
  for (size_t portion = 1; portion < text.size(); ++portion) {
    EXPECT_EQ(read_all(LiteralReader({}, true), text, portion), expected) << portion;
  }
  EXPECT_EQ(read_all(LiteralReader({}, true), ")", 1), "{}|");
}

TEST(LiteralReader, AQuoteInsideAStringDoesNotEndIt) {
  EXPECT_EQ(read_all(LiteralReader({}, true), "a='it's', b='\\'x\\n')", 1),
            R"({"a":"it's","b":"'x\n"}|)");
}

TEST(LiteralReader, GemmaValuesBecomeJson) {
  const std::string text = R"({city:<|"|>a"b<|"|>,days:3,o:{k:[1,true]},e:{}}<tool_call|>)";
  for (size_t portion = 1; portion < text.size(); ++portion) {
    EXPECT_EQ(read_all(LiteralReader("<|\"|>"), text, portion),
              R"({"city":"a\"b","days":3,"o":{"k":[1,true]},"e":{}}|<tool_call|>)");
  }
}

TEST(LiteralReader, WhatIsNoLiteralIsRefused) {
  for (const char* text : {"=1)", "a=)", "a={]", "a=[1}"}) {
    EXPECT_EQ(read_all(LiteralReader({}, true), text, 1).back(), '!') << text;
  }
  EXPECT_EQ(python_as_json("{'a': [1, True, None, 'x']}"), R"({"a":[1,true,null,"x"]})");
  EXPECT_FALSE(python_as_json("{'a'"));
  EXPECT_FALSE(python_as_json("{'a': 1} and"));
}

TEST(NestedTags, TagsInTagsBecomeObjectsAndLists) {
  const auto convert = [](std::string_view text) {
    return nested_tags_as_json("~<", text, ArgumentType::unknown);
  };
  EXPECT_EQ(convert("~<w>3~</w>~<h>high~</h>"), R"({"w":3,"h":"high"})");
  EXPECT_EQ(convert("~<item>1~</item>~<item>~<a>b~</a>~</item>"), R"([1,{"a":"b"}])");
  EXPECT_EQ(convert("plain"), R"("plain")");
  EXPECT_EQ(convert("~<w>3"), R"("~<w>3")");
  EXPECT_EQ(nested_tags_as_json("~<", "3", ArgumentType::text), R"("3")");
}

TEST(SchemaTypes, TheSchemaSaysWhetherAnArgumentIsText) {
  const jinja::Value schema = json(R"({"properties": {
      "s": {"type": "string"}, "n": {"type": "number"}, "o": {"type": ["string", "null"]},
      "m": {"type": ["string", "number"]}, "e": {"enum": ["a", "b"]}, "f": {"enum": ["a", 1]},
      "c": {"const": 3}, "y": {"anyOf": [{"type": "string"}, {"type": "null"}]},
      "z": {"anyOf": [{"type": "string"}, {"type": "object"}]}, "r": {"$ref": "#/$defs/name"},
      "loop": {"$ref": "#/properties/loop"}, "lost": {"$ref": "#/$defs/none"}, "any": {}},
      "$defs": {"name": {"type": "string"}}})");
  const auto type = [&](const char* key) { return type_of_argument(schema, key); };
  for (const char* key : {"s", "o", "e", "y", "r"}) EXPECT_EQ(type(key), ArgumentType::text) << key;
  for (const char* key : {"n", "c"}) EXPECT_EQ(type(key), ArgumentType::other) << key;
  for (const char* key : {"m", "f", "z", "loop", "lost", "any", "absent"}) {
    EXPECT_EQ(type(key), ArgumentType::unknown) << key;
  }
  EXPECT_EQ(type_of_argument(jinja::Value(), "s"), ArgumentType::unknown);
}

TEST(SchemaTypes, ValuesBecomeJsonOfTheirType) {
  EXPECT_EQ(argument_as_json("3", ArgumentType::text), "\"3\"");
  EXPECT_EQ(argument_as_json(" 3\n", ArgumentType::other), "3");
  EXPECT_EQ(argument_as_json("three", ArgumentType::other), "\"three\"");
  EXPECT_EQ(argument_as_json("True", ArgumentType::other), "true");
  EXPECT_EQ(argument_as_json("{'a': [1, True]}", ArgumentType::unknown), R"({"a":[1,true]})");
  EXPECT_EQ(argument_as_json("{not json", ArgumentType::unknown), "\"{not json\"");
}

}  // namespace
}  // namespace stemma::dialect
