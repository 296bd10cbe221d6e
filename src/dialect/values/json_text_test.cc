#include "dialect/values/json_text.h"

#include <gtest/gtest.h>

namespace stemma::dialect {
namespace {

TEST(JsonText, JsonIsToldFromWhatIsNone) {
  for (const char* text : {"{}", "[]", "0", "-0.5e+3", " [1, {\"a\": null}, \"x\\u00e4\\n\"] ",
                           "true", "\"\"", "[[],{}]", "1E5", "{\"a\":{\"b\":[false]}}"}) {
    EXPECT_TRUE(is_json(text)) << text;
  }
  for (const char* text :
       {"",     "{",   "[1,]",  "{\"a\":}",  "{a: 1}", "01",         "1.",         "-",
        "nul",  "'x'", "[1 2]", "{\"a\" 1}", "\"\n\"", "\"\\x\"",    "{\"a\":1,}", "1 2",
        "True", "]",   "1e",    "{]",        "[}",     "\"\\u12g4\""}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

TEST(JsonText, NestingHasALimit) {
  const std::string deep(JsonScanner::kMostDepth, '[');
  EXPECT_TRUE(is_json(deep + std::string(deep.size(), ']')));
  EXPECT_FALSE(is_json("[" + deep + std::string(deep.size() + 1, ']')));
}

TEST(JsonText, ValuesComeBackAsTheyWere) {
  const std::string text =
      R"({"a": "q\"\\\n\t", "n": -12, "r": 0.5, "l": [true, null, {}], "u": "aä😀"})";
  const auto value = read_json(text);
  ASSERT_TRUE(value);
  EXPECT_EQ(write_json(*value), text);
  EXPECT_EQ(write_json(*read_json(R"("\u00e4\ud83d\ude00\ud800")")), "\"ä😀\xEF\xBF\xBD\"");
  EXPECT_EQ(write_json(*read_json("123456789012345678901234567890")), "1.2345678901234568e+29");
  EXPECT_EQ(write_json(*read_json("1e-999")), "0.0");
  EXPECT_TRUE(is_json(write_json(*read_json("-1e999"))));
}

TEST(JsonText, AValueIsReadOutOfTheMiddle) {
  const std::string text = "before {\"a\": [1]} behind";
  size_t at = 7;
  const auto value = read_json_at(text, at);
  ASSERT_TRUE(value);
  EXPECT_EQ(text.substr(at), " behind");
  at = 0;
  EXPECT_FALSE(read_json_at(text, at));
}

TEST(JsonText, StringsAreQuotedAndUnquoted) {
  const std::string odd = "a\"b\\c\n\x01\x1f/ä";
  EXPECT_EQ(json_unquoted(json_string(odd)), odd);
  EXPECT_FALSE(json_unquoted("\"open"));
  EXPECT_FALSE(json_unquoted("12"));
}

TEST(JsonText, OriginsMarkStrings) {
  const auto value = read_json(R"({"a": "text"})", jinja::Origin{7});
  ASSERT_TRUE(value);
  const jinja::Text& text = value->as_dict().find("a")->as_text();
  ASSERT_EQ(text.marks.size(), 1U);
  EXPECT_EQ(text.marks[0].origin, jinja::Origin{7});
}

}  // namespace
}  // namespace stemma::dialect
