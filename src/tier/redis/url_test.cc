#include "stemma/tier/redis_url.h"

#include <gtest/gtest.h>

#include <string>

namespace stemma::tier::redis {
namespace {

TEST(RedisUrl, SaysWhereAndHowToBeLetIn) {
  const auto plain = parse_url("redis://localhost");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->hosts, (std::vector<Address>{{"localhost", 6379}}));
  EXPECT_FALSE(plain->tls);
  EXPECT_TRUE(plain->password.empty());

  const auto full = parse_url(
      "rediss://me:p%40ss%2Fw:d@a.example:7000,[fe80::1]:7001,b/0"
      "?ca=/etc/ca.pem&ttl=3600&tls-name=cache");
  ASSERT_TRUE(full) << full.error().message();
  EXPECT_TRUE(full->tls);
  EXPECT_TRUE(full->tls_verify);
  EXPECT_EQ(full->user, "me");
  EXPECT_EQ(full->password, "p@ss/w:d");
  EXPECT_EQ(full->hosts,
            (std::vector<Address>{{"a.example", 7000}, {"fe80::1", 7001}, {"b", 6379}}));
  EXPECT_EQ(full->tls_ca, "/etc/ca.pem");
  EXPECT_EQ(full->tls_name, "cache");
  EXPECT_EQ(full->ttl_s, 3600U);
  EXPECT_EQ(full->text(), "rediss://a.example:7000,[fe80::1]:7001,b:6379");

  EXPECT_EQ(parse_url("redis://:secret@h:1/3")->db, 3U);
  EXPECT_EQ(parse_url("redis://:secret@h:1/3")->user, "");
  EXPECT_EQ(parse_url("redis://:se?cr/e@t@h")->password, "se?cr/e@t");
  EXPECT_FALSE(parse_url("rediss://h?verify=no")->tls_verify);
}

TEST(RedisUrl, WrongOnesAreNamedWithoutThePassword) {
  for (const char* url : {"",
                          "localhost:6379",
                          "http://h",
                          "redis://",
                          "redis://:hunter2@",
                          "redis://hunter2@h",
                          "redis://u:@h",
                          "redis://h:0",
                          "redis://h:65536",
                          "redis://h:x",
                          "redis://h:",
                          "redis://::1:6379",
                          "redis://[::1",
                          "redis://[::1]6379",
                          "redis://[host]:1",
                          "redis://h,,g",
                          "redis://h/x",
                          "redis://h/-1",
                          "redis://a,b/2",
                          "redis://:hunter2%zz@h",
                          "redis://:a%00b@h",
                          "redis://h i",
                          "redis://h?ttl=0",
                          "redis://h?ttl=x",
                          "redis://h?nope=1",
                          "redis://h?ca=/x",
                          "redis://h?ttl",
                          "rediss://h?verify=maybe",
                          "rediss://h?cert=/a",
                          "redis://h?"}) {
    const auto place = parse_url(url);
    ASSERT_FALSE(place) << url;
    EXPECT_EQ(place.error().code(), Errc::invalid_argument) << url;
    EXPECT_EQ(std::string(place.error().message()).find("hunter2"), std::string::npos);
    EXPECT_TRUE(std::string(place.error().message()).starts_with("redis URL: ")) << url;
  }
  std::string many = "redis://h";
  for (int i = 0; i < 64; ++i) many += ",h";
  EXPECT_FALSE(parse_url(many));
}

}  // namespace
}  // namespace stemma::tier::redis
