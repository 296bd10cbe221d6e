#include "server/http/parser.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "support/environment.h"

namespace stemma::server {
namespace {

using Stage = HttpParser::Stage;

constexpr HttpLimits kSmall{.header_bytes = 512, .header_count = 8, .body_bytes = 100};

std::string with_headers(const std::string& headers, const std::string& body = {}) {
  return "POST /x HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n" + body;
}

// Parses a request given at once. Returns 200, or the status of its failure; 0 if the parser
// expects more.
int outcome(std::string_view text) {
  HttpParser parser(kSmall);
  parser.feed(text);
  if (parser.stage() == Stage::done) return 200;
  return parser.stage() == Stage::failed ? parser.status() : 0;
}

TEST(HttpParser, WhereTheBytesAreCutMakesNoDifference) {
  const std::string text =
      "\r\nPOST /a%20b?x=1&y=%2B+z HTTP/1.1\r\nHost: h\r\nX-One:  two words \t\r\n"
      "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\nTrailer: "
      "t\r\n\r\n";
  for (size_t step = 1; step <= text.size(); ++step) {
    HttpParser parser(kSmall);
    for (size_t at = 0; at < text.size(); at += step) {
      const std::string_view part = std::string_view(text).substr(at, step);
      ASSERT_EQ(parser.feed(part), part.size());
    }
    ASSERT_EQ(parser.stage(), Stage::done) << parser.message();
    const HttpRequest request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path, "/a b");
    EXPECT_EQ(request.query, "x=1&y=%2B+z");
    EXPECT_EQ(request.parameter("y"), "+ z");
    EXPECT_EQ(request.parameter("none"), std::nullopt);
    EXPECT_EQ(request.header("x-ONE"), "two words");
    EXPECT_EQ(request.body, "hello world");
    EXPECT_EQ(parser.stage(), Stage::idle);
  }
}

TEST(HttpParser, TheHeadCanBeTakenWithoutTheBody) {
  const std::string text = with_headers("Content-Length: 3\r\n", "abc");
  for (size_t cut = 1; cut < text.size(); ++cut) {
    HttpParser parser(kSmall);
    size_t used = parser.feed_head(std::string_view(text).substr(0, cut));
    used += parser.feed_head(std::string_view(text).substr(used));
    ASSERT_EQ(used, text.size() - 3);
    EXPECT_EQ(parser.stage(), Stage::body);
    EXPECT_EQ(parser.head().path, "/x");
    EXPECT_EQ(parser.body_bytes(), 0U);
    EXPECT_EQ(parser.feed(std::string_view(text).substr(used)), 3U);
    ASSERT_EQ(parser.stage(), Stage::done);
    EXPECT_EQ(parser.take().body, "abc");
  }
}

TEST(HttpParser, TakesOneRequestAndLeavesTheNext) {
  HttpParser parser(kSmall);
  const std::string first = with_headers("Content-Length: 3\r\n", "abc");
  const std::string both = first + "GET / HTTP/1.1\r\n";
  EXPECT_EQ(parser.feed(both), first.size());
  EXPECT_EQ(parser.take().body, "abc");
}

TEST(HttpParser, TargetsAreTakenApart) {
  const auto path_of = [](const std::string& target) {
    HttpParser parser(kSmall);
    parser.feed("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n");
    return parser.stage() == Stage::done ? parser.take().path : std::string("none");
  };
  EXPECT_EQ(path_of("/"), "/");
  EXPECT_EQ(path_of("/?a"), "/");
  EXPECT_EQ(path_of("http://host:1/p?q"), "/p");
  EXPECT_EQ(path_of("HTTPS://host"), "/");
  EXPECT_EQ(path_of("http://host?q"), "/");
  EXPECT_EQ(path_of("/%c3%A4"), "/\xC3\xA4");
  for (const char* bad :
       {"", "x", "*", "%2F", "/%", "/%4", "/%zz", "/%00", "/#f", "host:80", "/a b"}) {
    EXPECT_EQ(path_of(bad), "none") << bad;
  }
}

TEST(HttpParser, KeepAliveFollowsVersionAndConnection) {
  const auto keeps = [](const std::string& version, const std::string& connection) {
    HttpParser parser(kSmall);
    parser.feed("GET / HTTP/" + version + "\r\nHost: h\r\n" + connection + "\r\n");
    EXPECT_EQ(parser.stage(), Stage::done);
    return parser.keep_alive();
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: Close\r\n"));
  EXPECT_FALSE(keeps("1.1", "Connection: x, close\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
  EXPECT_FALSE(keeps("1.0", "Connection: keep-alive\r\nConnection: close\r\n"));
}

TEST(HttpParser, WhatIsNotHttpIs400) {
  const std::string nul("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 28);
  EXPECT_EQ(outcome(nul), 400);
  for (const char* bad : {
           "GET /\r\n",                                     // HTTP/0.9.
           "GET  HTTP/1.1\r\n",                             //
           "GET / HTTP/1.1\nHost: h\n\n",                   // Bare line feeds.
           "GET / http/1.1\r\n",                            //
           "GET / HTTP/1.1x\r\n",                           //
           "G(T / HTTP/1.1\r\n",                            //
           " GET / HTTP/1.1\r\n",                           //
           "GET / HTTP/1.1\r\n\r\n",                        // No Host.
           "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",  //
           "GET / HTTP/1.1\r\nHost : a\r\n\r\n",            // A blank before the colon.
           "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",  //
           "GET / HTTP/1.1\r\nHost: a\r\n: v\r\n\r\n",      //
           "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",  //
           "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n",          // A carriage return inside.
           "\x16\x03\x01\x02",                              // TLS.
       }) {
    EXPECT_EQ(outcome(bad), 400) << bad;
  }
  EXPECT_EQ(outcome("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
}

TEST(HttpParser, LengthsWithTwoReadingsAre400) {
  for (const char* bad : {
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
           "Content-Length: 3\r\nContent-Length: 4\r\n",
           "Content-Length: 3, 3\r\n",
           "Content-Length: +3\r\n",
           "Content-Length: -3\r\n",
           "Content-Length: 0x3\r\n",
           "Content-Length: 3 3\r\n",
           "Content-Length:\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
       }) {
    EXPECT_EQ(outcome(with_headers(bad, "abc")), 400) << bad;
  }
  EXPECT_EQ(outcome(with_headers("Content-Length: 3\r\nContent-Length: 3\r\n", "abc")), 200);
  EXPECT_EQ(outcome("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(HttpParser, OtherEncodingsAre501) {
  for (const char* other : {"gzip", "gzip, chunked", "identity", "xchunked", "chunked;q=1", ""}) {
    EXPECT_EQ(outcome(with_headers("Transfer-Encoding: " + std::string(other) + "\r\n")), 501);
  }
  EXPECT_EQ(outcome(with_headers("Transfer-Encoding: CHUNKED\r\n", "0\r\n\r\n")), 200);
}

TEST(HttpParser, BodiesHaveALimit) {
  EXPECT_EQ(outcome(with_headers("Content-Length: 100\r\n", std::string(100, 'x'))), 200);
  EXPECT_EQ(outcome(with_headers("Content-Length: 101\r\n")), 413);
  EXPECT_EQ(outcome(with_headers("Content-Length: 99999999999999999999999999\r\n")), 413);
  const std::string fifty = "32\r\n" + std::string(50, 'x') + "\r\n";
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(outcome(with_headers(chunked, fifty + fifty + "0\r\n\r\n")), 200);
  EXPECT_EQ(outcome(with_headers(chunked, fifty + fifty + "1\r\n")), 413);
  EXPECT_EQ(outcome(with_headers(chunked, "ffffffffffffffffffffffff\r\n")), 413);
}

TEST(HttpParser, HeadsHaveALimit) {
  EXPECT_EQ(outcome("GET /" + std::string(600, 'a')), 431);
  EXPECT_EQ(outcome(with_headers("X: " + std::string(600, 'a'))), 431);
  std::string many;
  for (int i = 0; i < 10; ++i) many += "A: b\r\n";
  EXPECT_EQ(outcome(with_headers(many)), 431);
  std::string blank;
  for (int i = 0; i < 300; ++i) blank += "\r\n";
  EXPECT_EQ(outcome(blank), 431);
}

TEST(HttpParser, WhoGoesOverALimitIsToldWhichAndWhoSetsIt) {
  const auto said = [](const std::string& text) {
    HttpParser parser(kSmall);
    parser.feed(text);
    return parser.message();
  };
  EXPECT_EQ(said(with_headers("Content-Length: 101\r\n")),
            "the body of the request has more than 100 bytes; the server's --body-bytes sets the "
            "limit");
  EXPECT_EQ(said(with_headers("X: " + std::string(600, 'a'))),
            "the head of the request has more than " + std::to_string(kSmall.header_bytes) +
                " bytes; the server's --header-bytes sets the limit");
}

TEST(HttpParser, BadChunksAre400) {
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  for (const char* bad :
       {"\r\n", "x\r\n", "-1\r\n", "5 5\r\n", "1\r\nabc", "1\r\na\n", "1\n", "0x1\r\n"}) {
    EXPECT_EQ(outcome(with_headers(chunked, bad)), 400) << bad;
  }
  EXPECT_EQ(outcome(with_headers(chunked, "1;" + std::string(300, 'e'))), 400);
  EXPECT_EQ(outcome(with_headers(chunked, "0\r\nT: " + std::string(600, 'e'))), 431);
  EXPECT_EQ(outcome(with_headers(chunked, std::string(300, '0'))), 400);
}

TEST(HttpParser, OnlyTheExpectationToContinueIsKnown) {
  HttpParser parser(kSmall);
  parser.feed(with_headers("Content-Length: 3\r\nExpect: 100-Continue\r\n"));
  EXPECT_EQ(parser.stage(), Stage::body);
  EXPECT_TRUE(parser.expects_continue());
  EXPECT_EQ(outcome(with_headers("Content-Length: 3\r\nExpect: more\r\n")), 417);
}

// Random bytes give the same requests and the same failure in one piece or in many, and never use
// more memory than allowed.
TEST(HttpParser, RandomBytesMeanTheSameHoweverTheyAreCut) {
  const uint64_t seed = test::from_environment("STEMMA_SEED", std::random_device{}());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> words{"GET / HTTP/1.1\r\n",
                                       "POST /p?q HTTP/1.1\r\n",
                                       "Host: h\r\n",
                                       "Content-Length: 7\r\n",
                                       "Content-Length: 0\r\n",
                                       "Transfer-Encoding: chunked\r\n",
                                       "\r\n",
                                       "\r\n",
                                       "\r",
                                       "\n",
                                       "3\r\nabc\r\n",
                                       "0\r\n",
                                       "a;x=y\r\n0123456789\r\n",
                                       "seven!!",
                                       "X-Y: z\r\n",
                                       ":",
                                       " ",
                                       std::string(1, '\0'),
                                       "GET /a HTTP/1.1\r\nHost: h\r\n\r\n",
                                       "T: t\r\n\r\n"};
  const auto story = [&](const std::string& text, const std::function<size_t()>& step) {
    HttpParser parser(kSmall);
    std::string told;
    for (size_t at = 0; at < text.size() && parser.stage() != Stage::failed;) {
      std::string_view part = std::string_view(text).substr(at, step());
      at += part.size();
      while (!part.empty() && parser.stage() != Stage::failed) {
        part.remove_prefix(parser.feed(part));
        EXPECT_LE(parser.body_bytes(), kSmall.body_bytes);
        if (parser.stage() != Stage::done) continue;
        const HttpRequest request = parser.take();
        told += request.method + request.path + request.query + "|" + request.body + "\n";
      }
    }
    return told + std::to_string(parser.status()) + parser.message();
  };
  const int rounds = test::kSanitized ? 5'000 : 50'000;
  for (int round = 0; round < rounds; ++round) {
    std::string text;
    for (size_t i = 0, parts = 1 + random() % 15; i < parts; ++i) {
      text += words[random() % words.size()];
      if (random() % 16 == 0) text[random() % text.size()] = static_cast<char>(random());
    }
    const std::string whole = story(text, [&] { return text.size(); });
    ASSERT_EQ(story(text, [] { return size_t{1}; }), whole) << text;
    ASSERT_EQ(story(text, [&] { return 1 + random() % 9; }), whole) << text;
  }
}

}  // namespace
}  // namespace stemma::server
