#include "tier/redis/resp.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma::tier::redis {
namespace {

using Stage = ReplyParser::Stage;

Stage feed_all(ReplyParser& parser, std::string_view bytes, size_t piece = 1'000'000) {
  while (!bytes.empty() && parser.stage() != Stage::failed) {
    const size_t took = parser.feed(bytes.substr(0, piece));
    bytes.remove_prefix(took);
    if (parser.stage() == Stage::done || took == 0) break;
  }
  return parser.stage();
}

TEST(RespParser, ReadsEveryKindOfReply) {
  ReplyParser parser;
  ASSERT_EQ(feed_all(parser, "+OK\r\n"), Stage::done);
  EXPECT_TRUE(parser.reply().is_text("OK"));
  ASSERT_EQ(feed_all(parser, "-MOVED 3999 127.0.0.1:6381\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().type, Reply::Type::error);
  EXPECT_EQ(parser.reply().text, "MOVED 3999 127.0.0.1:6381");
  ASSERT_EQ(feed_all(parser, ":-42\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().integer, -42);
  ASSERT_EQ(feed_all(parser, "$5\r\na\r\nbc\r\n"), Stage::done);
  EXPECT_TRUE(parser.reply().is_text("a\r\nbc"));
  ASSERT_EQ(feed_all(parser, "$0\r\n\r\n"), Stage::done);
  EXPECT_TRUE(parser.reply().is_text(""));
  for (const char* null : {"$-1\r\n", "*-1\r\n", "_\r\n"}) {
    ASSERT_EQ(feed_all(parser, null), Stage::done);
    EXPECT_EQ(parser.reply().type, Reply::Type::null);
  }
  ASSERT_EQ(feed_all(parser, "#t\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().integer, 1);
  ASSERT_EQ(feed_all(parser, ",3.25\r\n"), Stage::done);
  EXPECT_TRUE(parser.reply().is_text("3.25"));
  ASSERT_EQ(feed_all(parser, "!5\r\nERR x\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().type, Reply::Type::error);
  ASSERT_EQ(feed_all(parser, ">1\r\n+x\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().type, Reply::Type::push);
  ASSERT_EQ(feed_all(parser, "%1\r\n+k\r\n:7\r\n"), Stage::done);
  ASSERT_EQ(parser.reply().elements.size(), 2U);
  EXPECT_EQ(parser.reply().elements[1].integer, 7);
}

TEST(RespParser, NestedArraysAreTheSameHoweverTheyAreCut) {
  const std::string bytes =
      "*3\r\n*2\r\n:0\r\n*0\r\n$3\r\nabc\r\n*2\r\n*1\r\n$-1\r\n*2\r\n+x\r\n:9\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    ReplyParser parser;
    ASSERT_EQ(feed_all(parser, bytes, piece), Stage::done) << piece;
    const Reply& reply = parser.reply();
    ASSERT_EQ(reply.elements.size(), 3U);
    EXPECT_EQ(reply.elements[0].elements[0].integer, 0);
    EXPECT_TRUE(reply.elements[0].elements[1].elements.empty());
    EXPECT_EQ(reply.elements[1].text, "abc");
    EXPECT_EQ(reply.elements[2].elements[0].elements[0].type, Reply::Type::null);
    EXPECT_EQ(reply.elements[2].elements[1].elements[0].text, "x");
    EXPECT_EQ(reply.elements[2].elements[1].elements[1].integer, 9);
  }
}

TEST(RespParser, TakesOneReplyAtATime) {
  ReplyParser parser;
  const std::string_view bytes = ":1\r\n:2\r\n";
  EXPECT_EQ(parser.feed(bytes), 4U);
  EXPECT_EQ(parser.reply().integer, 1);
  EXPECT_EQ(parser.feed(bytes.substr(4)), 4U);
  EXPECT_EQ(parser.reply().integer, 2);
}

TEST(RespParser, AWantedBulkStringIsTheCallers) {
  ReplyParser parser;
  parser.want_bulk(true);
  const std::string_view bytes = "$10\r\n0123456789\r\n+next\r\n";
  EXPECT_EQ(parser.feed(bytes), 5U);
  ASSERT_EQ(parser.stage(), Stage::bulk);
  EXPECT_EQ(parser.bulk_bytes(), 10U);
  EXPECT_EQ(parser.feed("x"), 0U);  // Nothing before the caller has taken the bulk.
  parser.end_bulk();
  EXPECT_EQ(parser.feed("\r"), 1U);
  EXPECT_EQ(parser.stage(), Stage::inside);
  EXPECT_EQ(parser.feed("\n+next"), 1U);
  EXPECT_EQ(parser.stage(), Stage::done);
  // Only if the bulk is the whole reply. Errors and nulls stay what they are.
  ASSERT_EQ(feed_all(parser, "*1\r\n$2\r\nhi\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().elements[0].text, "hi");
  ASSERT_EQ(feed_all(parser, "$-1\r\n"), Stage::done);
  EXPECT_EQ(parser.reply().type, Reply::Type::null);
}

TEST(RespParser, ABulkStringMustEndWhereItSays) {
  ReplyParser parser;
  EXPECT_EQ(feed_all(parser, "$3\r\nabcd\r\n"), Stage::failed);
  ReplyParser other;
  other.want_bulk(true);
  other.feed("$3\r\n");
  other.end_bulk();
  other.feed("x");
  EXPECT_EQ(other.stage(), Stage::failed);
}

TEST(RespParser, WhatIsNotRespFails) {
  for (const char* bytes :
       {"HTTP/1.1 200 OK\r\n", "+OK\n", ":1x\r\n", ":\r\n", ": 1\r\n", "$x\r\n", "$-2\r\n",
        "*-2\r\n", "%-1\r\n", "$?\r\n", "*?\r\n", "#y\r\n", "_x\r\n", "+a\rb\r\n", "\r\n",
        ":99999999999999999999\r\n", "$18446744073709551615\r\n", "|1\r\n"}) {
    ReplyParser parser;
    EXPECT_EQ(feed_all(parser, bytes), Stage::failed) << bytes;
    EXPECT_NE(parser.problem()[0], 0) << bytes;
    EXPECT_EQ(parser.feed("+OK\r\n"), 0U);  // And stays so.
  }
}

TEST(RespParser, LimitsHoldBeforeMemoryIsTaken) {
  const ReplyLimits limits{
      .line_bytes = 16, .text_bytes = 32, .elements = 8, .depth = 2, .bulk_bytes = 100};
  const auto fails = [&](std::string_view bytes, bool want_bulk = false) {
    ReplyParser parser(limits);
    parser.want_bulk(want_bulk);
    return feed_all(parser, bytes) == Stage::failed;
  };
  EXPECT_TRUE(fails("+" + std::string(17, 'x')));
  EXPECT_TRUE(fails("$33\r\n"));
  EXPECT_TRUE(fails("*3\r\n$16\r\n0123456789abcdef\r\n$16\r\n0123456789abcdef\r\n$1\r\n"));
  EXPECT_TRUE(fails("*9\r\n"));
  EXPECT_TRUE(fails("*9223372036854775807\r\n"));
  EXPECT_TRUE(fails("%5\r\n"));
  EXPECT_TRUE(fails("%9223372036854775807\r\n"));
  EXPECT_TRUE(fails("*4\r\n*5\r\n"));
  EXPECT_TRUE(fails("*1\r\n*1\r\n*1\r\n"));
  EXPECT_TRUE(fails("$101\r\n", true));
  EXPECT_FALSE(fails("$100\r\n", true));
  EXPECT_FALSE(fails("*1\r\n*1\r\n:1\r\n"));
}

}  // namespace
}  // namespace stemma::tier::redis
