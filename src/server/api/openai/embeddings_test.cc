// Tests bodies and answers of /v1/embeddings.
#include "server/api/openai/embeddings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stemma::server::embeddings_test {
namespace {

using Value = nlohmann::json;

EmbeddingsRequest decoded(const std::string& body) {
  EmbeddingsRequest request;
  const auto error = decode_embeddings(body, {}, 4, request);
  EXPECT_FALSE(error) << body << ": " << error->message;
  return request;
}
ApiError problem(const std::string& body) {
  EmbeddingsRequest request;
  return decode_embeddings(body, {}, 4, request).value_or(ApiError{.status = 200});
}

TEST(EmbeddingsRequest, InputsAreTextsOrTokens) {
  EXPECT_EQ(decoded(R"({"input":"Hi","model":"m"})").inputs.at(0).text, "Hi");
  EXPECT_EQ(decoded(R"({"input":"Hi","model":"m"})").model, "m");
  EXPECT_EQ(decoded(R"({"input":["a","b"]})").inputs.at(1).text, "b");
  EXPECT_EQ(decoded(R"({"input":[5,6]})").inputs.at(0).tokens, (std::vector<Token>{5, 6}));
  EXPECT_EQ(decoded(R"({"input":[5,6]})").inputs.size(), 1U);
  EXPECT_EQ(decoded(R"({"input":[[5],[6,7]]})").inputs.at(1).tokens, (std::vector<Token>{6, 7}));
}

TEST(EmbeddingsRequest, FieldsMeanSomethingOrAreNamed) {
  EXPECT_FALSE(decoded(R"({"input":"a"})").base64);
  EXPECT_FALSE(decoded(R"({"input":"a","encoding_format":"float"})").base64);
  EXPECT_TRUE(decoded(R"({"input":"a","encoding_format":"base64","dimensions":4})").base64);
  EXPECT_EQ(decoded(R"({"input":"a","user":"u","newer":1})").ignored,
            (std::vector<std::string>{"user", "newer"}));
}

TEST(EmbeddingsRequest, WhatIsWrongIsNamed) {
  EXPECT_EQ(problem("{}").param, "input");
  EXPECT_EQ(problem(R"({"input":[]})").param, "input");
  EXPECT_EQ(problem(R"({"input":[[]]})").param, "input");
  EXPECT_EQ(problem(R"({"input":{"a":1}})").param, "input");
  EXPECT_EQ(problem(R"({"input":["a",5]})").param, "input");
  EXPECT_EQ(problem(R"({"input":[-1]})").param, "input");
  EXPECT_EQ(problem(R"({"input":"a","encoding_format":"hex"})").param, "encoding_format");
  EXPECT_EQ(problem(R"({"input":"a","dimensions":2})").code, "unsupported_parameter");
  Value many = {{"input", std::vector<std::string>(2049, "a")}};
  EXPECT_EQ(problem(many.dump()).param, "input");
  many["input"].erase(0);
  EXPECT_EQ(decoded(many.dump()).inputs.size(), 2048U);
}

TEST(Base64, IsAsInItsStandard) {
  const std::pair<const char*, const char*> pairs[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"},
                                                       {"\xFF\xFE\xFD", "//79"}};
  for (const auto& [bytes, text] : pairs) {
    std::string out;
    append_base64(out, {reinterpret_cast<const uint8_t*>(bytes), std::strlen(bytes)});
    EXPECT_EQ(out, text);
  }
}

TEST(EmbeddingsWriter, VectorsAreNumbersOrBytes) {
  const std::vector<float> one = {1.0F, -0.5F};
  const std::vector<float> other = {0.0F, 0.25F};
  EmbeddingsWriter plain(false);
  plain.add(one);
  plain.add(other);
  const Value whole = Value::parse(plain.take("m", 7));
  EXPECT_EQ(whole["object"], "list");
  EXPECT_EQ(whole["model"], "m");
  EXPECT_EQ(whole["data"][0]["embedding"], Value(one));
  EXPECT_EQ(whole["data"][1]["embedding"], Value(other));
  EXPECT_EQ(whole["data"][1]["index"], 1);
  EXPECT_EQ(whole["data"][1]["object"], "embedding");
  EXPECT_EQ(whole["usage"], Value({{"prompt_tokens", 7}, {"total_tokens", 7}}));
  EmbeddingsWriter packed(true);
  packed.add(one);
  // 0x3F800000 and 0xBF000000, the lowest byte first.
  EXPECT_EQ(Value::parse(packed.take("m", 1))["data"][0]["embedding"], "AACAPwAAAL8=");
}

}  // namespace
}  // namespace stemma::server::embeddings_test
