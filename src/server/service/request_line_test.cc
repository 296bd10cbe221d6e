#include "server/service/request_line.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma::server {
namespace {

RequestLine line_of_a_chat() {
  RequestLine line;
  line.id = "chatcmpl-1";
  line.path = "/v1/chat/completions";
  line.client = "127.0.0.1:41234";
  line.request_id = "mine";
  line.prompt_tokens = 76;
  return line;
}

TEST(RequestLine, SaysWhereThePromptBecameNew) {
  Summary summary;
  summary.report.reused_tokens = 12;
  summary.report.matched_tokens = 13;
  summary.report.evaluated_tokens = 64;
  summary.parted_in = "messages[0]";
  const std::string text = line_of_a_chat().text(200, &summary, "");
  EXPECT_NE(text.find(" status=200 prompt=76 reused=12 evaluated=64 "), std::string::npos) << text;
  EXPECT_NE(text.find(" matched=13 "), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with(" parted_in=messages[0] client=127.0.0.1:41234 request_id=mine"))
      << text;
}

TEST(RequestLine, WhatIsAllKnownPartsNowhere) {
  const Summary summary;
  const std::string text = line_of_a_chat().text(200, &summary, "");
  EXPECT_EQ(text.find("parted_in"), std::string::npos) << text;
}

TEST(RequestLine, ErrorsArePrintable) {
  const std::string text = line_of_a_chat().text(400, nullptr, "a \"b\"\n\xff");
  EXPECT_NE(text.find(" status=400 prompt=76 error=\"a ?b???\" client="), std::string::npos)
      << text;
}

}  // namespace
}  // namespace stemma::server
