// Tests Json: it reads strictly within limits, and any other reader understands its output.
#include "json/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "json/utf8.h"
#include "support/environment.h"

namespace stemma {
namespace {

std::string fault_of(std::string_view text, const JsonLimits& limits = {}) {
  const auto parsed = parse_json(text, limits);
  const auto* fault = std::get_if<JsonFault>(&parsed);
  return fault == nullptr ? "" : fault->message.empty() ? "?" : fault->message;
}

std::string round_trip(std::string_view text) {
  const auto parsed = parse_json(text);
  std::string out;
  if (const auto* value = std::get_if<Json>(&parsed)) append_json(out, *value);
  return out;
}

TEST(Json, ValuesOfEveryKindAreReadAndWritten) {
  const std::string text =
      R"({"a":null,"b":[true,false,[]],"c":-7,"d":18446744073709551615,"e":0.5,"f":"x\"y","g":{}})";
  EXPECT_EQ(round_trip(text), text);
  EXPECT_EQ(round_trip(" [ 1 , 2.0 ] "), "[1,2]");
  EXPECT_EQ(round_trip("[-0.0,-0,0.0]"), "[-0.0,0,0]");
  EXPECT_EQ(round_trip("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(round_trip("-9223372036854775808"), "-9223372036854775808");
}

TEST(Json, WhatIsNoJsonIsRefusedWithAReason) {
  for (const std::string_view text :
       {"",    " ",     "{",       "[1,]",       "{\"a\"}",     "{\"a\":1,}", "nul",
        "1 2", "'a'",   "\"\\x\"", "\"\n\"",     "\"\\ud800\"", "01",         "+1",
        "NaN", "1e999", "[1",      "{\"a\":1}x", "\xEF\xBB",    "/* */ 1"}) {
    EXPECT_NE(fault_of(text), "") << text;
  }
}

TEST(Json, InvalidUtf8IsRefused) {
  for (const std::string_view text : {"\"\xFF\"", "\"\xC0\xAF\"", "\"\xED\xA0\x80\"",
                                      "\"\xE2\x82\"", "{\"\x80\":1}", "\"\xF4\x90\x80\x80\""}) {
    EXPECT_NE(fault_of(text), "");
    EXPECT_TRUE(is_utf8(fault_of(text)));
  }
}

TEST(Json, ANameTwiceInOneObjectIsRefused) {
  EXPECT_EQ(fault_of(R"({"a":1,"b":2,"a":3})"), "the name 'a' is there twice");
  EXPECT_EQ(fault_of(R"([{"a":1},{"a":1}])"), "");
  EXPECT_NE(fault_of(R"({"x":{"\u0061":1,"a":2}})"), "");
}

TEST(Json, DepthAndSizeAreLimited) {
  const JsonLimits limits{.depth = 4, .values = 10};
  EXPECT_EQ(fault_of("[[[[]]]]", limits), "");
  EXPECT_EQ(fault_of("[[[[[]]]]]", limits), "more than 4 levels deep");
  EXPECT_EQ(fault_of("[1,2,3,4,5,6,7,8,9]", limits), "");
  EXPECT_EQ(fault_of("[1,2,3,4,5,6,7,8,9,10]", limits), "more than 10 values");
  EXPECT_NE(fault_of(std::string(1'000'000, '[')), "");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_NE(fault_of(objects), "");
}

TEST(Json, TheTextOfAnObjectIsKeptWhateverItsDepthAndNames) {
  const auto compact = [](std::string_view text) {
    std::string out = ">";
    return append_json_object_text(out, text) ? out : "refused" + out;
  };
  EXPECT_EQ(compact(" { \"a b\" : [ 1.50 , \"\\\\\" , \"\\\" ,\" ] }\n"),
            R"(>{"a b":[1.50,"\\","\" ,"]})");
  EXPECT_EQ(compact(R"({"a":1,"a":2})"), R"(>{"a":1,"a":2})");
  const std::string deep = R"({"a":)" + std::string(5000, '[') + std::string(5000, ']') + "}";
  EXPECT_EQ(compact(deep), ">" + deep);
  for (const std::string_view text : {"", "[]", "1", "{", R"({"a":1)", "{} x", "{\"\xFF\":1}"}) {
    EXPECT_EQ(compact(text), "refused>") << text;
  }
}

TEST(Json, NumbersThatJsonCannotSayAreNull) {
  std::string out;
  append_json_number(out, std::nan(""));
  append_json_number(out, std::numeric_limits<float>::infinity());
  EXPECT_EQ(out, "nullnull");
}

TEST(Json, AnyBytesBecomeAStringThatReadsBack) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", std::random_device{}());
  SCOPED_TRACE("STEMMA_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (uint32_t round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t n = random() % 40; n > 0; --n) {
      switch (random() % 4) {
        case 0: text += static_cast<char>(random() % 256); break;
        case 1: text += static_cast<char>(random() % 0x30); break;
        case 2: text += "\xE2\x82\xAC"; break;
        default: text += static_cast<char>('a' + random() % 26);
      }
    }
    std::string out;
    append_json_string(out, text);
    for (const char byte : out) ASSERT_GE(static_cast<uint8_t>(byte), 0x20);
    ASSERT_EQ(nlohmann::json::parse(out).get<std::string>(), to_utf8(text)) << "round " << round;
    ASSERT_EQ(is_utf8(text), to_utf8(text) == text);
  }
}

TEST(Json, FloatsReadBackExactly) {
  std::mt19937_64 random(5);
  for (uint32_t round = 0; round < 10'000; ++round) {
    const float value = -static_cast<float>(random() % 1'000'000'007) / 12345678.0F;
    std::string out;
    append_json_number(out, value);
    ASSERT_EQ(static_cast<float>(nlohmann::json::parse(out).get<double>()), value);
  }
}

TEST(JsonWrite, AnObjectEndsItselfAndEscapesWhatItIsGiven) {
  std::string out = "[";
  {
    JsonObject object(out);
    object.add("requests", uint64_t{3});
    object.add("a \"name\"", "line\nline");
    object.add("seconds", 0.25);
    object.add("never", std::numeric_limits<double>::infinity());
    JsonObject inner(object.name("inner"));
    inner.add("none", "");
  }
  out += ']';
  EXPECT_EQ(out, R"([{"requests":3,"a \"name\"":"line\nline","seconds":0.25,"never":null,)"
                 R"("inner":{"none":""}}])");
}

}  // namespace
}  // namespace stemma
