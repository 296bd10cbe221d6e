// Clients that misbehave: nonsense, slow bytes, crowds, and disconnects.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "server/http/server.h"
#include "support/environment.h"
#include "support/http_fixture.h"

namespace stemma::server {
namespace {

class HttpAbuseTest : public HttpServerTest {};

// --- what clients do wrong ----------------------------------------------------------------------

TEST_F(HttpAbuseTest, BadRequestsGetAJsonErrorAndAreClosed) {
  serve({.header_bytes = 1024, .body_bytes = 1000});
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::vector<std::pair<int, std::string>> bad{
      {400, "nonsense\r\n\r\n"},
      {400, std::string("GET /\0 HTTP/1.1\r\n", 17)},
      {400, std::string(5000, '\0')},
      {400, post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"},
      {413, post + "Content-Length: 99999999999\r\n\r\n"},
      {413, post + "Transfer-Encoding: chunked\r\n\r\n3e9\r\n"},
      {431, "GET / HTTP/1.1\r\n" + std::string(5000, 'h')},
      {400, post + "Transfer-Encoding: chunked\r\n\r\n" + std::string(5000, '0')},
      {501, post + "Transfer-Encoding: gzip\r\n\r\n"},
      {505, "GET / HTTP/3.0\r\n"},
  };
  for (const auto& [status, text] : bad) {
    HttpClient c = client();
    c.send(text);
    const HttpAnswer answer = c.read_answer();
    EXPECT_EQ(answer.status, status) << text.substr(0, 80);
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.header("content-type"), "application/json");
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_TRUE(answer.body.starts_with(R"({"error":{"message":")")) << answer.body;
    EXPECT_TRUE(answer.body.ends_with(R"("code":null}})")) << answer.body;
    EXPECT_EQ(c.read_all(), "");
    EXPECT_TRUE(c.closed());
  }
  EXPECT_EQ(server_->counters().requests, 0);
  EXPECT_EQ(server_->counters().bad_requests, bad.size());
}

TEST_F(HttpAbuseTest, WhatWasGoodBeforeABadRequestIsAnswered) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/good") + "bad\r\n\r\n" + request_text("GET", "/never"));
  EXPECT_EQ(c.read_answer().body, "GET /good? ");
  EXPECT_EQ(c.read_answer().status, 400);
  EXPECT_EQ(c.read_all(), "");
}

TEST_F(HttpAbuseTest, AClientThatStillSendsReadsWhyItWasRefused) {
  serve({.body_bytes = 1000});
  HttpClient c = client();
  c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4000000\r\n\r\n");
  c.send(std::string(4'000'000, 'x'));
  EXPECT_EQ(c.read_answer().status, 413);
}

TEST_F(HttpAbuseTest, SlowHeadsAndBodiesAre408) {
  serve({.header_time = 1s, .body_time = 1s});
  for (const std::string& text : {request_text("POST", "/", std::string(50, 'b')),
                                  std::string("GET /") + std::string(50, 'a')}) {
    HttpClient c = client();
    const auto start = WallClock::now();
    const size_t at_once = text.size() - 50;
    c.send(text.substr(0, at_once));
    // A byte now and then does not extend the time.
    for (size_t i = at_once; i < text.size() && WallClock::now() - start < 800ms; ++i) {
      c.send(text.substr(i, 1));
      std::this_thread::sleep_for(50ms);
    }
    EXPECT_EQ(c.read_answer().status, 408);
    EXPECT_LT(WallClock::now() - start, 30s);
  }
  EXPECT_EQ(server_->counters().timeouts, 2);
}

TEST_F(HttpAbuseTest, SilentConnectionsAreClosedWithoutAWord) {
  serve({.header_time = 1s, .keep_alive_time = 1s});
  HttpClient silent = client();
  EXPECT_EQ(silent.read_all(), "");
  EXPECT_TRUE(silent.closed());
  HttpClient idle = client();
  EXPECT_EQ(idle.get("/").status, 200);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(soon([&] { return server_->counters().connections_open == 0; }));
}

TEST_F(HttpAbuseTest, AReplyMayTakeLongerThanAnyTimeout) {
  // A busy machine may take a while to send the request; after that every timeout passes.
  serve({.header_time = 2s, .body_time = 2s, .write_time = 400ms, .keep_alive_time = 400ms});
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  std::this_thread::sleep_for(1200ms);
  reply->begin(200, "text/plain");
  std::this_thread::sleep_for(1200ms);
  EXPECT_TRUE(reply->send("patience"));
  reply->end();
  EXPECT_EQ(c.read_answer().body, "patience");
}

TEST_F(HttpAbuseTest, BytesOfAllBodiesHaveALimit) {
  serve({.body_bytes = 1 << 20, .bodies_bytes = 1 << 20});
  HttpClient first = client();
  HttpClient second = client();
  const std::string text = request_text("POST", "/", std::string(900'000, 'b'));
  first.send(text.substr(0, text.size() - 1));
  ASSERT_TRUE(soon([&] { return server_->counters().bytes_in == text.size() - 1; }));
  second.send(text);
  const HttpAnswer refused = second.read_answer();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  first.send("b");
  EXPECT_EQ(first.read_answer().status, 200);
  EXPECT_EQ(client().post("/", std::string(900'000, 'b')).status, 200);
}

TEST_F(HttpAbuseTest, LargeBodiesLeaveRoomForSmallOnes) {
  serve({.body_bytes = 1 << 20, .bodies_bytes = 1 << 20});
  std::vector<HttpClient> large;
  size_t sent = 0;
  for (const size_t bytes : {780'000, 250'000}) {
    large.push_back(client());
    large.back().send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n");
    large.back().send(std::string(bytes, 'b'));
    sent += bytes;
  }
  ASSERT_TRUE(soon([&] { return server_->counters().bytes_in >= sent; }));
  EXPECT_EQ(client().post("/", std::string(30'000, 's')).status, 200);
  EXPECT_EQ(client().post("/", std::string(60'000, 's')).status, 200);
  // Another large request is one too many.
  EXPECT_EQ(client().post("/", std::string(300'000, 'b')).status, 503);
}

TEST_F(HttpAbuseTest, LargeAnswersThatNobodyReadsHaveALimit) {
  serve({.replies_bytes = size_t{9} << 20});  // Room for one /large, not for two.
  HttpClient slow(server_->port(), 60s, 4096);
  slow.send(request_text("GET", "/large"));
  ASSERT_TRUE(soon([&] { return server_->counters().bytes_out > 0; }));
  const HttpAnswer refused = client().get("/large");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.header("retry-after"), "1");
  EXPECT_EQ(client().get("/").status, 200);
  slow.abort();
  EXPECT_TRUE(soon([&] { return client().get("/large").body.size() == size_t{8} << 20; }));
}

TEST_F(HttpAbuseTest, ConnectionsBeyondTheLimitHear503) {
  serve({.connections = 2});
  HttpClient a = client();
  HttpClient b = client();
  EXPECT_EQ(a.get("/").status, 200);
  EXPECT_EQ(b.get("/").status, 200);
  for (int i = 0; i < 3; ++i) {
    HttpClient c = client();
    c.send(request_text("GET", "/"));
    const HttpAnswer answer = c.read_answer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.header("retry-after"), "1");
    EXPECT_TRUE(answer.complete);
  }
  EXPECT_EQ(server_->counters().refused, 3);
  a.close();
  EXPECT_TRUE(soon([&] { return client().get("/").status == 200; }));
}

// --- clients that go ----------------------------------------------------------------------------

TEST_F(HttpAbuseTest, AClientThatClosesIsSeenWhileNothingIsSent) {
  serve();
  for (const bool politely : {true, false}) {
    const int before = gone_;
    HttpClient c = client();
    c.send(request_text("GET", "/held"));
    const Reply reply = held();
    EXPECT_FALSE(reply->gone());
    politely ? c.close() : c.abort();
    EXPECT_TRUE(soon([&] { return gone_ == before + 1; }));
    EXPECT_TRUE(reply->gone());
    EXPECT_FALSE(reply->respond(200, "text/plain", "nobody"));
    bool told = false;
    reply->on_gone([&] { told = true; });
    EXPECT_TRUE(told) << "at once, for it is gone already";
    let_go();
  }
  EXPECT_EQ(server_->counters().gone, 2);
}

TEST_F(HttpAbuseTest, AClientThatClosesInAStreamIsSeenSoon) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  reply->begin(200, "text/event-stream");
  reply->send("data: 1\n\n");
  c.read_head();
  EXPECT_TRUE(c.read_piece());
  c.close();
  EXPECT_TRUE(soon([&] { return !reply->send("data: more\n\n"); }));
  EXPECT_TRUE(soon([&] { return gone_ == 1; }));
  EXPECT_FALSE(reply->end());
}

TEST_F(HttpAbuseTest, AClientThatClosesIsSeenBehindWhatItSentAhead) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  held();
  // More than the server reads ahead, so it does not read the end of the stream.
  c.send(request_text("POST", "/ahead", std::string(100'000, 'x')));
  std::this_thread::sleep_for(50ms);
  c.close();
  EXPECT_TRUE(soon([&] { return gone_ == 1; }));
}

TEST_F(HttpAbuseTest, AClientThatHalfClosesGetsItsAnswers) {
  serve();
  {
    HttpClient c = client();
    c.send(request_text("GET", "/a") + request_text("GET", "/stream") + request_text("GET", "/b"));
    c.half_close();
    EXPECT_EQ(c.read_answer().body, "GET /a? ");
    EXPECT_TRUE(c.read_answer().complete);
    EXPECT_EQ(c.read_answer().body, "GET /b? ");
    EXPECT_EQ(c.read_all(), "");
    EXPECT_TRUE(c.closed());
    EXPECT_FALSE(c.reset());
  }
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  c.half_close();
  std::this_thread::sleep_for(200ms);
  held()->respond(200, "text/plain", "in time");
  EXPECT_EQ(c.read_answer().body, "in time");
}

TEST_F(HttpAbuseTest, AHalfClosedClientGetsAStreamThatGoesOn) {
  serve({.half_close_time = 2s});  // A busy machine may let the sender sleep for a while.
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  c.half_close();
  const Reply reply = held();
  reply->begin(200, "text/plain");
  for (int i = 0; i < 25; ++i) {
    std::this_thread::sleep_for(100ms);
    ASSERT_TRUE(reply->send("."));
  }
  reply->end();
  EXPECT_EQ(c.read_answer().body, std::string(25, '.'));
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpAbuseTest, AHalfClosedClientGetsALateAnswer) {
  serve({.half_close_time = 100ms});
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  c.half_close();
  const Reply reply = held();
  EXPECT_EQ(c.read_head(HttpClient::Interim::show).status, 100) << "is it still there?";
  std::this_thread::sleep_for(1000ms);
  EXPECT_EQ(gone_, 0);
  ASSERT_TRUE(reply->respond(503, "text/plain", "late"));
  const HttpAnswer answer = c.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "late");
}

TEST_F(HttpAbuseTest, AClientThatClosesAfterItsRequestIsGone) {
  serve({.half_close_time = 200ms});
  for (const bool first_half : {false, true}) {
    const int before = gone_;
    HttpClient c = client();
    c.send(request_text("GET", "/held"));
    const Reply reply = held();
    if (first_half) {
      c.half_close();
      std::this_thread::sleep_for(500ms);
      EXPECT_EQ(gone_, before);
      EXPECT_EQ(c.read_head(HttpClient::Interim::show).status, 100);
    }
    c.close();
    EXPECT_TRUE(soon([&] { return gone_ == before + 1; }));
    EXPECT_TRUE(reply->gone());
    let_go();
  }
}

TEST_F(HttpAbuseTest, AHalfClosedClientOfHttp10CannotBeAsked) {
  serve({.half_close_time = 200ms});
  HttpClient c = client();
  c.send("GET /held HTTP/1.0\r\n\r\n");
  c.half_close();
  EXPECT_TRUE(soon([&] { return gone_ == 1; }));
  EXPECT_EQ(c.read_answer().status, 0);
}

TEST_F(HttpAbuseTest, AHalfClosedClientGetsAStreamThatPauses) {
  serve({.half_close_time = 100ms});
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  c.half_close();
  const Reply reply = held();
  reply->keep_alive({.piece = "~", .content_type = "text/plain"});
  std::this_thread::sleep_for(300ms);
  ASSERT_TRUE(reply->begin(200, "text/plain")) << "it was only asked whether it is there";
  reply->send("a");
  c.read_head();
  std::string body;
  while (!body.ends_with("a~")) {
    const auto piece = c.read_piece();
    ASSERT_TRUE(piece) << body;
    body += *piece;
  }
  ASSERT_TRUE(reply->send("b"));
  reply->end();
  while (const auto piece = c.read_piece()) body += *piece;
  EXPECT_GT(std::erase(body, '~'), 0U);
  EXPECT_EQ(body, "ab");
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpAbuseTest, AHalfClosedClientOfAStreamThatCannotAskIsGone) {
  serve({.half_close_time = 200ms});
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  c.half_close();
  const Reply reply = held();
  reply->begin(200, "text/plain");
  EXPECT_TRUE(soon([&] { return gone_ == 1; }));
}

TEST_F(HttpAbuseTest, ACallbackMayHoldItsOwnReply) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  std::weak_ptr<HttpReply> watched;
  {
    const Reply reply = held();
    reply->on_gone([reply] {});
    watched = reply;
    let_go();
  }
  EXPECT_FALSE(watched.expired());
  c.close();
  EXPECT_TRUE(soon([&] { return watched.expired(); }));
}

TEST_F(HttpAbuseTest, ACallbackThatThrowsHurtsNobody) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  held()->on_gone([] { throw std::runtime_error("in a callback"); });
  c.abort();
  EXPECT_TRUE(soon([&] { return log().find("in a callback") != std::string::npos; }));
  EXPECT_EQ(client().get("/").status, 200);
}

TEST_F(HttpAbuseTest, ASlowReaderHurtsNobodyAndIsCutOff) {
  {
    // However long the others take, its time is not over.
    serve({.threads = 1, .write_time = 3600s});
    HttpClient slow(server_->port(), 60s, 4096);
    slow.send(request_text("GET", "/large"));
    ASSERT_TRUE(soon([&] { return server_->counters().bytes_out > 0; }));
    HttpClient quick = client();
    for (int i = 0; i < 100; ++i) ASSERT_EQ(quick.get("/").status, 200);
    EXPECT_EQ(server_->counters().gone, 0);
  }
  serve({.threads = 1, .write_time = 400ms});
  HttpClient slow(server_->port(), 60s, 4096);
  slow.send(request_text("GET", "/large"));
  EXPECT_TRUE(soon([&] { return server_->counters().gone == 1; }));
  EXPECT_EQ(server_->counters().timeouts, 1);
  EXPECT_FALSE(slow.read_answer().complete);
}

TEST_F(HttpAbuseTest, AStreamingClientThatFallsBehindIsGone) {
  serve({.stream_buffer_bytes = 256 << 10});
  HttpClient slow(server_->port(), 60s, 4096);
  slow.send(request_text("GET", "/held"));
  const Reply reply = held();
  reply->begin(200, "text/plain");
  const std::string piece(10'000, 'p');
  uint64_t taken = 0;
  EXPECT_TRUE(soon([&] {
    // Send faster than the loop can write: the client's buffer fills, then the kernel's, then ours.
    if (!reply->send(piece)) return true;
    taken += piece.size();
    return false;
  }));
  EXPECT_TRUE(reply->gone());
  EXPECT_TRUE(soon([&] { return gone_ == 1; })) << "long before its write_time";
  EXPECT_LT(taken, uint64_t{64} << 20);
  EXPECT_FALSE(slow.read_answer().complete);
}

TEST_F(HttpAbuseTest, OneSendMayBeLargerThanTheBuffer) {
  serve({.stream_buffer_bytes = 1000});
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  reply->begin(200, "text/plain");
  EXPECT_TRUE(reply->send(std::string(1 << 20, 'x')));
  c.read_head();
  const auto piece = c.read_piece();
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->size(), size_t{1} << 20);
  reply->end();
}

// --- many ---------------------------------------------------------------------------------------

// Raises the limit of file descriptors, as far as the system allows.
rlim_t allow_descriptors(rlim_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, std::max(limit.rlim_cur, wanted));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

TEST_F(HttpAbuseTest, AThousandClientsConnectAtOnce) {
  if (allow_descriptors(2500) < 2500) GTEST_SKIP() << "too few file descriptors";
  serve();
  std::vector<HttpClient> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().connected()) << i;
    clients.back().send(request_text("GET", "/" + std::to_string(i)));
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(clients[i].read_answer().body, "GET /" + std::to_string(i) + "? ");
  }
  EXPECT_EQ(server_->counters().connections_open, 1000);
  clients.clear();
  EXPECT_TRUE(soon([&] { return server_->counters().connections_open == 0; }));
}

TEST_F(HttpAbuseTest, ClientsWaitWhileThereAreNoDescriptors) {
  serve();
  HttpClient first = client();
  ASSERT_EQ(first.get("/").status, 200);
  // One descriptor is left: the next client's own end takes it, and the server's end gets none.
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const int spare = ::socket(AF_INET, SOCK_STREAM, 0);
  ::close(spare);
  const rlimit one{.rlim_cur = static_cast<rlim_t>(spare) + 1, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &one);
  HttpClient late = client();
  EXPECT_TRUE(late.connected());
  late.send(request_text("GET", "/late"));
  const auto start = WallClock::now();
  EXPECT_TRUE(soon([&] { return server_->counters().accept_failures >= 2; }));
  EXPECT_EQ(first.get("/").status, 200) << "the others are served";
  std::this_thread::sleep_for(300ms);
  const auto failures = server_->counters().accept_failures;
  EXPECT_LT(failures, 20 + (WallClock::now() - start) / 10ms) << "it does not spin";
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(late.read_answer().body, "GET /late? ");
}

TEST_F(HttpAbuseTest, RandomBytesHurtNobody) {
  serve({.header_time = 300ms, .body_time = 300ms});
  const uint64_t seed = test::from_environment("STEMMA_SEED", std::random_device{}());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::string> words{
      "GET ",
      "POST ",
      "/",
      "/stream",
      "/drop",
      "/throw",
      " HTTP/1.1\r\n",
      " HTTP/1.0\r\n",
      "\r\n",
      "\r\n\r\n",
      "Host: h\r\n",
      "Content-Length: 5\r\n",
      "Transfer-Encoding: chunked\r\n",
      "5\r\nhello\r\n",
      "0\r\n\r\n",
      "Expect: 100-continue\r\n",
      "Connection: close\r\n",
      "X: y\r\n",
      "%41",
      "?",
      ":",
      "\n",
      std::string(1, '\0'),
      "\xFF\xFE",
      std::string(3000, 'a'),
      request_text("GET", "/fine"),
      request_text("POST", "/fine", "body"),
  };
  const auto end = WallClock::now() + 1s;
  uint64_t connections = 0;
  while (WallClock::now() < end || connections < 20) {
    HttpClient c = client();
    ASSERT_TRUE(c.connected());
    ++connections;
    const size_t parts = 1 + random() % 12;
    for (size_t i = 0; i < parts; ++i) {
      std::string part = words[random() % words.size()];
      if (random() % 8 == 0) part[random() % part.size()] = static_cast<char>(random());
      if (!c.send(part)) break;
    }
    switch (random() % 3) {
      case 0: c.abort(); break;
      case 1: c.close(); break;
      default:
        c.half_close();
        c.read_all();
        EXPECT_TRUE(c.closed());
    }
  }
  // One that is itself too slow for so short a time is cut off, and comes again.
  EXPECT_TRUE(soon([&] { return client().get("/after").status == 200; }));
}

}  // namespace
}  // namespace stemma::server
