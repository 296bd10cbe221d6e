// Tests whether a returned message means the same as the sampled one.
#include "server/chat/meaning.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma::server {
namespace {

Message returned(const std::string& text, const std::string& thought = "") {
  Message message;
  message.role = "assistant";
  message.parts.push_back({.text = text, .cache_control = {}});
  message.reasoning = thought;
  return message;
}

dialect::ParsedMessage sampled(const std::string& text, const std::string& thought = "") {
  return {.content = text, .reasoning = thought, .calls = {}};
}

TEST(Meaning, ArgumentsAreComparedAsValues) {
  EXPECT_TRUE(same_arguments(R"({"a": 1, "b": [true, null]})", R"({"b":[true,null],"a":1.0})"));
  EXPECT_TRUE(same_arguments("", "{}"));
  EXPECT_TRUE(same_arguments(R"({"a":"é"})", R"({"a":"\u00e9"})"));
  EXPECT_TRUE(same_arguments("1e3", "1000"));
  EXPECT_TRUE(same_arguments("not JSON", "not JSON"));
  for (const char* other :
       {R"({"a": 2, "b": [true, null]})", R"({"a": 1, "b": [null, true]})", R"({"a": 1})",
        R"({"a": 1, "b": [true, null], "c": 0})", R"({"a": "1", "b": [true, null]})",
        R"({"a": 1, "b": [true, null]} x)"}) {
    EXPECT_FALSE(same_arguments(R"({"a": 1, "b": [true, null]})", other)) << other;
  }
  EXPECT_FALSE(same_arguments("not JSON", "not  JSON"));
}

TEST(Meaning, NumbersAreNotRounded) {
  EXPECT_FALSE(same_arguments("9007199254740993", "9007199254740992"));
  EXPECT_FALSE(same_arguments("9007199254740993", "9007199254740992.0"));
  EXPECT_TRUE(same_arguments("18446744073709551615", "18446744073709551615"));
  EXPECT_FALSE(same_arguments("18446744073709551615", "-1"));
  EXPECT_TRUE(same_arguments("-9223372036854775808", "-9223372036854775808.0"));
  EXPECT_FALSE(same_arguments("0.1", "0.10000000000000002"));
  EXPECT_TRUE(same_arguments("-0.0", "0"));
}

TEST(Meaning, OnlyBlanksAtTheEndsMayBeDropped) {
  EXPECT_TRUE(same_meaning(returned("Done."), sampled("\n\nDone. \n")));
  EXPECT_FALSE(same_meaning(returned("Do ne."), sampled("Done.")));
  EXPECT_FALSE(same_meaning(returned("done."), sampled("Done.")));
  EXPECT_FALSE(same_meaning(returned("a\nb"), sampled("a\n\nb")));
}

TEST(Meaning, ThinkingIsEqualOrMissing) {
  EXPECT_TRUE(same_meaning(returned("Yes"), sampled("Yes", "Hm.")));
  EXPECT_TRUE(same_meaning(returned("Yes", "Hm.\n"), sampled("Yes", "Hm.")));
  EXPECT_FALSE(same_meaning(returned("Yes", "Hm!"), sampled("Yes", "Hm.")));
  EXPECT_FALSE(same_meaning(returned("Yes", "Hm."), sampled("Yes")));
}

TEST(Meaning, CallsCountInTheirOrder) {
  Message message = returned("");
  message.calls = {{.id = "1", .name = "f", .arguments = "{}"},
                   {.id = "2", .name = "g", .arguments = R"({"x":1})"}};
  dialect::ParsedMessage said;
  said.calls = {{.name = "f", .arguments = "{ }", .id = "", .complete = true},
                {.name = "g", .arguments = R"({"x": 1})", .id = "", .complete = true}};
  EXPECT_TRUE(same_meaning(message, said));
  dialect::ParsedMessage other = said;
  std::swap(other.calls[0], other.calls[1]);
  EXPECT_FALSE(same_meaning(message, other));
  other = said;
  other.calls.pop_back();
  EXPECT_FALSE(same_meaning(message, other));
  other = said;
  other.calls[1].complete = false;
  EXPECT_FALSE(same_meaning(message, other));
  other = said;
  other.calls[0].name = "h";
  EXPECT_FALSE(same_meaning(message, other));
}

TEST(Meaning, ACustomToolsInputIsPlainText) {
  Message message = returned("");
  message.calls = {{.id = "1", .name = "f", .arguments = "a \"b\"", .custom = true}};
  dialect::ParsedMessage said;
  said.calls = {{.name = "f", .arguments = R"({"input": "a \"b\""})", .id = "", .complete = true}};
  EXPECT_TRUE(same_meaning(message, said));
  EXPECT_EQ(digest_of(message, "q"), digest_of(said, "q"));
  said.calls[0].arguments = R"({"input": "a \"c\""})";
  EXPECT_FALSE(same_meaning(message, said));
}

TEST(Meaning, DigestsAreEqualForWhatMeansTheSame) {
  Message message = returned(" Yes", "");
  message.calls = {{.id = "1", .name = "f", .arguments = R"({"b":2.0,"a":[1]})"}};
  dialect::ParsedMessage said = sampled("Yes\n", "thought");
  said.calls = {{.name = "f", .arguments = R"({"a": [1], "b": 2})", .id = "x", .complete = true}};
  EXPECT_EQ(digest_of(message, "before"), digest_of(said, "before"));
  EXPECT_NE(digest_of(message, "before"), digest_of(said, "other"));
  said.calls[0].arguments = R"({"a": [2], "b": 2})";
  EXPECT_NE(digest_of(message, "before"), digest_of(said, "before"));
  // A text does not count as part of the next one.
  EXPECT_NE(digest_of(sampled("b"), "a"), digest_of(sampled(""), "ab"));
}

}  // namespace
}  // namespace stemma::server
