// What well-behaved clients and handlers can rely on, from the first connection to the last.
#include "server/http/server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/environment.h"
#include "support/http_fixture.h"

namespace stemma::server {
namespace {

// --- requests and replies -----------------------------------------------------------------------

TEST_F(HttpServerTest, ARequestIsHandedOverWhole) {
  serve();
  HttpClient c = client();
  const HttpAnswer answer = c.post("/a%20b?x=1", "the body");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST /a b?x=1 the body");
  EXPECT_EQ(answer.header("content-type"), "text/plain");
  EXPECT_TRUE(answer.header("x-peer").starts_with("127.0.0.1:"));
  EXPECT_FALSE(answer.header("date").empty());
  EXPECT_TRUE(answer.complete);
}

TEST_F(HttpServerTest, AConnectionServesManyRequests) {
  serve();
  HttpClient c = client();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(c.post("/r", std::to_string(i)).body, "POST /r? " + std::to_string(i));
  }
  EXPECT_EQ(server_->counters().connections_total, 1);
  EXPECT_EQ(server_->counters().requests, 100);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  serve();
  HttpClient c = client();
  std::string all;
  for (int i = 0; i < 200; ++i) {
    all += request_text("POST", i % 7 == 3 ? "/stream" : "/p", std::to_string(i));
  }
  ASSERT_TRUE(c.send(all));
  for (int i = 0; i < 200; ++i) {
    const HttpAnswer answer = c.read_answer();
    ASSERT_TRUE(answer.complete) << i;
    ASSERT_EQ(answer.body, i % 7 == 3 ? "data: one\n\ndata: two\n\ndata: [DONE]\n\n"
                                      : "POST /p? " + std::to_string(i));
  }
}

TEST_F(HttpServerTest, APipelinedRequestWaitsForTheReplyBeforeIt) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held") + request_text("GET", "/second"));
  const Reply first = held();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server_->counters().requests, 1);
  EXPECT_FALSE(first->gone());
  first->respond(200, "text/plain", "first");
  EXPECT_EQ(c.read_answer().body, "first");
  EXPECT_EQ(c.read_answer().body, "GET /second? ");
}

TEST_F(HttpServerTest, AReplyIsCompletedFromAnotherThread) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  std::thread([reply = held()] { reply->respond(201, "text/plain", "later"); }).join();
  const HttpAnswer answer = c.read_answer();
  EXPECT_EQ(answer.status, 201);
  EXPECT_EQ(answer.body, "later");
}

TEST_F(HttpServerTest, AStreamArrivesPieceByPiece) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  EXPECT_TRUE(reply->begin(200, "text/event-stream", {{"X-A", "b"}}));
  EXPECT_EQ(c.read_head().header("x-a"), "b");
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(reply->send(std::to_string(i)));
    ASSERT_EQ(c.read_piece(), std::to_string(i));
  }
  EXPECT_TRUE(reply->end());
  EXPECT_EQ(c.read_piece(), std::nullopt);
  EXPECT_TRUE(c.complete());
  EXPECT_EQ(c.get("/next").body, "GET /next? ");
}

TEST_F(HttpServerTest, EightThreadsStreamAtOnce) {
  serve();
  constexpr int kPieces = 2000;
  std::vector<std::thread> clients;
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&] {
      HttpClient c = client();
      c.send(request_text("GET", "/held"));
      c.read_head();
      int got = 0;
      while (const auto piece = c.read_piece()) got += *piece == "piece";
      EXPECT_EQ(got, kPieces);
      EXPECT_TRUE(c.complete());
    });
  }
  std::vector<std::thread> senders;
  for (size_t t = 0; t < 8; ++t) {
    senders.emplace_back([reply = held(t)] {
      reply->begin(200, "text/plain");
      for (int i = 0; i < kPieces; ++i) reply->send("piece");
      reply->end();
    });
  }
  for (auto& thread : senders) thread.join();
  for (auto& thread : clients) thread.join();
}

TEST_F(HttpServerTest, CallsThatDoNotFitChangeNothing) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  EXPECT_FALSE(reply->send("before its time"));
  EXPECT_FALSE(reply->end());
  EXPECT_TRUE(reply->respond(200, "text/plain", "once"));
  EXPECT_FALSE(reply->respond(500, "text/plain", "twice"));
  EXPECT_FALSE(reply->begin(200, "text/plain"));
  EXPECT_FALSE(reply->send("late"));
  EXPECT_FALSE(reply->end());
  EXPECT_FALSE(reply->gone());
  EXPECT_EQ(c.read_answer().body, "once");
  c.close();
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(reply->gone()) << "a complete reply cannot lose its client";
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, HeadersOfAReplyCannotBreakItsHead) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  held()->respond(200, "text/plain", "b",
                  {{"X-Good", "1"},
                   {"X-Bad", "1\r\nX-Smuggled: 1"},
                   {"Bad name", "1"},
                   {"Content-Length", "77"},
                   {"Connection", "close"}});
  const HttpAnswer answer = c.read_answer();
  EXPECT_EQ(answer.body, "b");
  EXPECT_EQ(answer.header("x-good"), "1");
  EXPECT_EQ(answer.header("x-smuggled"), "");
  EXPECT_EQ(answer.header("connection"), "");
  EXPECT_NE(log().find("cannot be sent"), std::string::npos);
}

TEST_F(HttpServerTest, HeadHasTheHeadersOfGetAndNoBody) {
  serve();
  HttpClient c = client();
  c.send(request_text("HEAD", "/large"));
  EXPECT_EQ(c.read_answer(true).header("content-length"), std::to_string(8 << 20));
  c.send(request_text("HEAD", "/stream"));
  EXPECT_EQ(c.read_answer(true).header("transfer-encoding"), "chunked");
  c.send(request_text("HEAD", "/drop"));
  EXPECT_EQ(c.read_answer(true).status, 500);
  EXPECT_EQ(c.get("/after").body, "GET /after? ");
}

TEST_F(HttpServerTest, AReplyWithoutContentHasNoBody) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/empty") + request_text("GET", "/after"));
  EXPECT_EQ(c.read_answer().status, 204);
  EXPECT_EQ(c.read_answer().body, "GET /after? ");
}

TEST_F(HttpServerTest, CloseIsDoneAsAsked) {
  serve();
  HttpClient c = client();
  const HttpAnswer answer = c.get("/", {{"Connection", "close"}});
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_EQ(c.read_all(), "");
  EXPECT_TRUE(c.closed());
}

TEST_F(HttpServerTest, Http10GetsAnEndByCloseAndKeepsAliveIfAsked) {
  serve();
  {
    HttpClient c = client();
    c.send("GET /stream HTTP/1.0\r\n\r\n");
    const HttpAnswer answer = c.read_answer();
    EXPECT_EQ(answer.header("transfer-encoding"), "");
    EXPECT_EQ(answer.header("connection"), "close");
    EXPECT_EQ(test::sse_data(answer.body), (std::vector<std::string>{"one", "two", "[DONE]"}));
    EXPECT_TRUE(answer.complete);
  }
  HttpClient c = client();
  for (int i = 0; i < 2; ++i) {
    c.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(c.read_answer().header("connection"), "keep-alive");
  }
  c.send("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_EQ(c.read_answer().header("connection"), "close");
  c.read_all();
  EXPECT_TRUE(c.closed());
}

TEST_F(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  serve({.body_bytes = 100});
  HttpClient c = client();
  const HttpFields expect{{"Expect", "100-continue"}, {"Content-Length", "4"}};
  c.send(request_text("POST", "/e", "", expect));
  EXPECT_EQ(c.read_head(HttpClient::Interim::show).status, 100);
  c.send("body");
  EXPECT_EQ(c.read_answer().body, "POST /e? body");
  c.send(request_text("POST", "/e", "", {{"Expect", "100-continue"}, {"Content-Length", "101"}}));
  EXPECT_EQ(c.read_head(HttpClient::Interim::show).status, 413) << "and not 100 first";
}

TEST_F(HttpServerTest, LargeBodiesGoBothWays) {
  serve();
  HttpClient c = client();
  const std::string body(size_t{6} << 20, 'b');
  EXPECT_EQ(c.post("/", body).body.size(), body.size() + 8);
  EXPECT_EQ(c.get("/large").body.size(), size_t{8} << 20);
  c.send("POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string chunk = "10000\r\n" + std::string(0x10000, 'c') + "\r\n";
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(c.send(chunk));
  c.send("0\r\n\r\n");
  EXPECT_EQ(c.read_answer().body.size(), (size_t{2} << 20) + 9);
}

TEST_F(HttpServerTest, CorsIsAMatterOfOptions) {
  serve();
  const std::string preflight = request_text(
      "OPTIONS", "/x", "", {{"Origin", "http://o"}, {"Access-Control-Request-Method", "POST"}});
  {
    HttpClient c = client();
    c.send(preflight);
    const HttpAnswer answer = c.read_answer();
    EXPECT_EQ(answer.body, "OPTIONS /x? ");
    EXPECT_EQ(answer.header("access-control-allow-origin"), "");
  }
  serve({.cors_origin = "http://o"});
  HttpClient c = client();
  c.send(preflight);
  const HttpAnswer answer = c.read_answer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("access-control-allow-origin"), "http://o");
  EXPECT_NE(answer.header("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(c.get("/x").header("access-control-allow-origin"), "http://o");
  c.send("garbage\r\n");
  EXPECT_EQ(c.read_answer().header("access-control-allow-origin"), "http://o");
}

// --- what handlers do wrong ---------------------------------------------------------------------

TEST_F(HttpServerTest, AHandlerThatThrowsAnswers500) {
  serve();
  HttpClient c = client();
  const HttpAnswer answer = c.get("/throw");
  EXPECT_EQ(answer.status, 500);
  EXPECT_NE(answer.body.find("\"type\":\"server_error\""), std::string::npos);
  EXPECT_NE(log().find("as asked"), std::string::npos);
  EXPECT_EQ(c.get("/after").status, 200);
}

TEST_F(HttpServerTest, ADroppedReplyAnswers500) {
  serve();
  HttpClient c = client();
  EXPECT_EQ(c.get("/drop").status, 500);
  EXPECT_EQ(c.get("/after").status, 200);
  c.send(request_text("GET", "/held"));
  held();
  let_go();
  EXPECT_EQ(c.read_answer().status, 500);
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, AStreamThatIsNotEndedIsSeenToBeBroken) {
  serve();
  for (const char* path : {"/drop-late", "/throw-late"}) {
    HttpClient c = client();
    const HttpAnswer answer = c.get(path);
    EXPECT_EQ(answer.body, "half");
    EXPECT_FALSE(answer.complete);
    EXPECT_TRUE(c.closed());
  }
  HttpClient c = client();
  c.send("GET /drop-late HTTP/1.0\r\n\r\n");
  EXPECT_FALSE(c.read_answer().complete);
  EXPECT_TRUE(c.reset());
}

// --- the address --------------------------------------------------------------------------------

TEST_F(HttpServerTest, ABusyPortIsNamed) {
  serve();
  std::string why;
  const auto second =
      HttpServer::create({.port = server_->port()}, [](HttpRequest, const Reply&) {}, &why);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Errc::busy);
  EXPECT_NE(why.find("127.0.0.1:" + std::to_string(server_->port())), std::string::npos) << why;
  EXPECT_NE(why.find("in use"), std::string::npos) << why;
}

TEST_F(HttpServerTest, ABadAddressOrOptionIsAnError) {
  const HttpHandler handler = [](HttpRequest, const Reply&) {};
  std::string why;
  for (const char* host : {"192.0.2.1", "no.such.host.invalid"}) {
    const auto server = HttpServer::create({.host = host}, handler, &why);
    ASSERT_FALSE(server) << host;
    EXPECT_NE(why.find(host), std::string::npos) << why;
  }
  EXPECT_FALSE(HttpServer::create({.threads = 0}, handler));
  EXPECT_FALSE(HttpServer::create({.write_time = 0ms}, handler));
  EXPECT_FALSE(HttpServer::create({}, nullptr));
}

TEST_F(HttpServerTest, NamesAndIpv6AreListenedOn) {
  const HttpHandler handler = [](HttpRequest, const Reply& reply) { reply->respond(200, "", "x"); };
  EXPECT_TRUE(HttpServer::create({.host = "localhost"}, handler));
  const int probe = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (probe < 0) GTEST_SKIP() << "no IPv6 here";
  ::close(probe);
  std::string why;
  const auto server = HttpServer::create({.host = "[::1]"}, handler, &why);
  if (!server) GTEST_SKIP() << why;
  EXPECT_NE((*server)->port(), 0);
}

TEST_F(HttpServerTest, APortIsFreeAgainAtOnce) {
  serve();
  const uint16_t port = server_->port();
  client().get("/");
  server_.reset();
  serve({.port = port});
  EXPECT_EQ(client().get("/").status, 200);
}

// --- the end ------------------------------------------------------------------------------------

TEST_F(HttpServerTest, DrainLetsRepliesFinish) {
  serve({.threads = 1});
  HttpClient idle = client();
  EXPECT_EQ(idle.get("/").status, 200);
  HttpClient waiting = client();
  waiting.send(request_text("GET", "/held"));
  const Reply first = held(0);
  HttpClient streaming = client();
  streaming.send(request_text("GET", "/held"));
  const Reply second = held(1);
  second->begin(200, "text/plain");
  EXPECT_EQ(streaming.read_head().status, 200);
  HttpClient asking = client();
  const uint64_t before = server_->counters().bytes_in;
  asking.send("GET /half HTTP/1.1\r\n");
  ASSERT_TRUE(soon([&] { return server_->counters().bytes_in > before; }));
  bool finished = false;
  std::thread draining([&] { finished = server_->drain(10s); });
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(soon([&] { return !client().connected(); })) << "nobody listens any longer";
  first->respond(200, "text/plain", "the last");
  second->send("word");
  second->end();
  EXPECT_EQ(waiting.read_answer().body, "the last");
  asking.send("Host: h\r\n\r\n");
  const HttpAnswer answer = asking.read_answer();
  EXPECT_EQ(answer.body, "GET /half? ");
  EXPECT_EQ(answer.header("connection"), "close");
  EXPECT_EQ(streaming.read_piece(), "word");
  EXPECT_EQ(streaming.read_piece(), std::nullopt);
  EXPECT_TRUE(streaming.complete());
  asking.close();
  waiting.close();
  streaming.close();
  draining.join();
  EXPECT_TRUE(finished);
  EXPECT_EQ(server_->counters().connections_open, 0);
}

TEST_F(HttpServerTest, DrainCutsOffWhatDoesNotFinish) {
  serve();
  HttpClient c = client();
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  const auto start = WallClock::now();
  EXPECT_FALSE(server_->drain(200ms));
  EXPECT_LT(WallClock::now() - start, 30s);
  EXPECT_TRUE(reply->gone());
  EXPECT_EQ(gone_, 1);
  EXPECT_EQ(c.read_answer().status, 0);
}

TEST_F(HttpServerTest, AClientThatThereIsNoMemoryForKeepsNobodyElseOut) {
  std::atomic<int> clients = 0;
  HttpOptions options;
  options.accepted = [&] {
    if (clients.fetch_add(1) % 2 == 0) throw std::bad_alloc();
  };
  serve(options);
  for (int i = 0; i < 5; ++i) {
    HttpClient lost = client();
    EXPECT_EQ(lost.get("/lost").status, 0);
    EXPECT_EQ(client().get("/next").status, 200);
  }
  EXPECT_EQ(server_->counters().accept_failures, 5U);
  EXPECT_TRUE(soon([&] { return server_->counters().connections_open == 0; }));
}

TEST_F(HttpServerTest, StopAcceptingKeepsWhoIsThere) {
  serve();
  HttpClient c = client();
  EXPECT_EQ(c.get("/").status, 200);
  server_->stop_accepting();
  EXPECT_FALSE(client().connected());
  EXPECT_EQ(c.get("/").status, 200);
}

TEST_F(HttpServerTest, RepliesOutliveTheirServer) {
  serve();
  std::vector<HttpClient> clients;
  for (size_t i = 0; i < 20; ++i) {
    clients.push_back(client());
    clients.back().send(request_text("GET", "/held"));
    if (i % 2 == 0) held(i)->begin(200, "text/plain");
    held(i);
  }
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop) {
      for (size_t i = 0; i < 20; ++i) held(i)->send("x");
    }
  });
  std::this_thread::sleep_for(20ms);
  server_.reset();
  EXPECT_EQ(gone_, 20);
  stop = true;
  sender.join();
  EXPECT_FALSE(held(0)->respond(200, "", ""));
  EXPECT_TRUE(held(1)->gone());
  for (HttpClient& c : clients) EXPECT_FALSE(c.read_answer().complete);
  let_go();
}

TEST_F(HttpServerTest, AServerNeedNotBeStarted) {
  auto server = HttpServer::create({}, [](HttpRequest, const Reply&) {});
  ASSERT_TRUE(server);
  HttpClient c((*server)->port(), 60s);
  EXPECT_TRUE(c.connected()) << "it waits in the backlog";
  EXPECT_TRUE((*server)->drain(10ms));
  (*server)->stop();
  (*server)->stop();
  EXPECT_FALSE((*server)->start());
}

TEST_F(HttpServerTest, CountersAddUp) {
  serve();
  {
    HttpClient c = client();
    c.post("/", "12345");
    c.get("/stream");
    EXPECT_EQ(server_->counters().connections_open, 1);
  }
  EXPECT_TRUE(soon([&] { return server_->counters().connections_open == 0; }));
  const HttpCounters counters = server_->counters();
  EXPECT_EQ(counters.connections_total, 1);
  EXPECT_EQ(counters.requests, 2);
  EXPECT_EQ(counters.bytes_in,
            request_text("POST", "/", "12345").size() + request_text("GET", "/stream").size());
  EXPECT_GT(counters.bytes_out, 200);
  EXPECT_EQ(counters.gone + counters.timeouts + counters.refused + counters.bad_requests, 0);
}

// Only measures: prints the cost of the layer itself. STEMMA_HTTP_MEASURE=seconds.
TEST_F(HttpServerTest, Measure) {
  const uint64_t seconds = test::from_environment("STEMMA_HTTP_MEASURE", 0);
  if (seconds == 0) GTEST_SKIP() << "STEMMA_HTTP_MEASURE is not set";
  serve();
  const auto time = std::chrono::seconds(seconds);
  for (const int connections : {1, 2, 8}) {
    std::atomic<uint64_t> requests{0};
    std::vector<std::thread> threads;
    const auto end = WallClock::now() + time;
    for (int t = 0; t < connections; ++t) {
      threads.emplace_back([&] {
        HttpClient c = client();
        while (WallClock::now() < end) requests += c.get("/r").status == 200;
      });
    }
    for (auto& thread : threads) thread.join();
    std::printf("%d connections: %.0f requests/s\n", connections,
                static_cast<double>(requests) / static_cast<double>(seconds));
  }
  HttpClient c = client();
  std::string all;
  for (int i = 0; i < 100; ++i) all += request_text("GET", "/r");
  const auto start = WallClock::now();
  uint64_t pipelined = 0;
  while (WallClock::now() - start < time) {
    c.send(all);
    for (int i = 0; i < 100; ++i) pipelined += c.read_answer().status == 200;
  }
  std::printf("pipelined by 100: %.0f requests/s\n",
              static_cast<double>(pipelined) / static_cast<double>(seconds));
  c.send(request_text("GET", "/held"));
  const Reply reply = held();
  reply->begin(200, "text/event-stream");
  c.read_head();
  const std::string event = "data: {\"choices\":[{\"delta\":{\"content\":\" word\"}}]}\n\n";
  constexpr int kPieces = 20'000;
  const auto begun = WallClock::now();
  for (int i = 0; i < kPieces; ++i) {
    reply->send(event);
    c.read_piece();
  }
  const auto one_by_one = WallClock::now() - begun;
  std::atomic<bool> read_all{false};
  std::thread reader([&] {
    for (int i = 0; i < kPieces; ++i) c.read_piece();
    read_all = true;
  });
  const auto burst = WallClock::now();
  int sent = 0;
  for (; sent < kPieces && reply->send(event); ++sent) {
  }
  const auto handed = WallClock::now() - burst;
  if (sent < kPieces) c.half_close();
  reader.join();
  const auto us = [](WallClock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count() / kPieces;
  };
  std::printf(
      "a chunk to the client and back to us: %.2f us; send() in a burst of %d: %.2f us each, %.2f "
      "us "
      "until read\n",
      us(one_by_one), sent, us(handed), us(WallClock::now() - burst));
  reply->end();
}

}  // namespace
}  // namespace stemma::server
