#include "tier/redis/slots.h"

#include <gtest/gtest.h>

namespace stemma::tier::redis {
namespace {

Reply parse(std::string_view bytes) {
  ReplyParser parser;
  parser.feed(bytes);
  EXPECT_EQ(parser.stage(), ReplyParser::Stage::done) << bytes;
  return parser.reply();
}

// From `redis-cli cluster keyslot`; the first is the standard check value of this CRC.
TEST(HashSlots, AreWhatTheServersSay) {
  EXPECT_EQ(crc16("123456789"), 0x31C3);
  EXPECT_EQ(crc16(""), 0);
  EXPECT_EQ(hash_slot("foo"), 12'182);
  EXPECT_EQ(hash_slot("bar"), 5'061);
  EXPECT_EQ(hash_slot("hello"), 866);
  EXPECT_EQ(
      hash_slot(
          "stemma:1:0000000000000000000000000000000000000000000000000000000000000000:block:0"),
      5'850);
}

TEST(Endpoints, AreReadAsRedirectionsSpellThem) {
  EXPECT_EQ(parse_endpoint("127.0.0.1:6381", "h"), (Address{"127.0.0.1", 6381}));
  EXPECT_EQ(parse_endpoint(":6381", "asked"), (Address{"asked", 6381}));
  EXPECT_EQ(parse_endpoint("?:6381", "asked"), (Address{"asked", 6381}));
  EXPECT_EQ(parse_endpoint("::1:7000", "h"), (Address{"::1", 7000}));
  EXPECT_EQ(parse_endpoint("[::1]:7000", "h"), (Address{"::1", 7000}));
  EXPECT_EQ(parse_endpoint("h:7000@17000", "x"), (Address{"h", 7000}));
  EXPECT_EQ((Address{"::1", 7000}).text(), "[::1]:7000");
  for (const char* wrong :
       {"", "h", "h:", "h:0", "h:65536", "h:-1", "h:7x", "a b:7000", "h\n:7000"}) {
    EXPECT_EQ(parse_endpoint(wrong, "asked"), std::nullopt) << wrong;
  }
  EXPECT_EQ(parse_endpoint(std::string(256, 'a') + ":7000", "h"), std::nullopt);
}

TEST(ClusterSlots, AreReadWithPrimariesOnly) {
  const Reply reply = parse(
      "*2\r\n"
      "*4\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$1\r\nx\r\n*2\r\n$1\r\nr\r\n:7003\r\n"
      "*3\r\n:8192\r\n:16383\r\n*4\r\n$-1\r\n:7001\r\n$1\r\ny\r\n*0\r\n");
  const auto ranges = read_slots(reply, "asked");
  ASSERT_TRUE(ranges);
  ASSERT_EQ(ranges->size(), 2U);
  EXPECT_EQ((*ranges)[0].last, 8191);
  EXPECT_EQ((*ranges)[0].primary, (Address{"127.0.0.1", 7000}));
  EXPECT_EQ((*ranges)[1].first, 8192);
  EXPECT_EQ((*ranges)[1].primary, (Address{"asked", 7001}));
  EXPECT_TRUE(read_slots(parse("*0\r\n"), "h")->empty());
}

TEST(ClusterSlots, AnythingElseIsNoMap) {
  for (const char* wrong : {
           ":1\r\n",
           "-ERR This instance has cluster support disabled\r\n",
           "*1\r\n:1\r\n",
           "*1\r\n*2\r\n:0\r\n:1\r\n",
           "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n+h\r\n:1\r\n",
           "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n+h\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n+h\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:0\r\n",
           "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:65536\r\n",
           "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n+h\r\n",
           "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n:7\r\n:1\r\n",
           "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$3\r\na b\r\n:1\r\n",
           "*2\r\n*3\r\n:0\r\n:1\r\n*2\r\n+h\r\n:1\r\n*3\r\n:1\r\n:2\r\n*2\r\n+h\r\n:2\r\n",
       }) {
    EXPECT_FALSE(read_slots(parse(wrong), "asked")) << wrong;
  }
}

}  // namespace
}  // namespace stemma::tier::redis
