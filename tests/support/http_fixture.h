// A server with a handler that knows a few routes, for tests of HTTP itself.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/http/server.h"
#include "support/http_client.h"

namespace stemma::server {

using namespace std::chrono_literals;
using WallClock = std::chrono::steady_clock;
using Reply = std::shared_ptr<HttpReply>;
using test::HttpAnswer;
using test::HttpClient;
using test::HttpFields;
using test::request_text;

// Becomes true within `at_most`.
inline bool soon(const std::function<bool()>& holds, std::chrono::milliseconds at_most = 60s) {
  const auto end = WallClock::now() + at_most;
  while (!holds()) {
    if (WallClock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

// A server whose handler knows a few routes; replies to /held are kept for the test to complete.
class HttpServerTest : public ::testing::Test {
 protected:
  void serve(HttpOptions options = {}) {
    options.log = [this](std::string_view line) {
      const std::scoped_lock lock(mutex_);
      log_ += std::string(line) + "\n";
    };
    auto server = HttpServer::create(options, [this](HttpRequest request, Reply reply) {
      handle(std::move(request), std::move(reply));
    });
    ASSERT_TRUE(server) << server.error().to_string();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->start());
  }

  void handle(HttpRequest request, Reply reply) {
    if (request.path == "/held") {
      const std::scoped_lock lock(mutex_);
      reply->on_gone([this] { ++gone_; });
      held_.push_back(std::move(reply));
    } else if (request.path == "/stream") {
      reply->begin(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
      for (const char* word : {"data: one\n\n", "data: two\n\n", "data: [DONE]\n\n"})
        reply->send(word);
      reply->end();
    } else if (request.path == "/throw") {
      throw std::runtime_error("as asked");
    } else if (request.path == "/throw-late") {
      reply->begin(200, "text/plain");
      reply->send("half");
      const std::scoped_lock lock(mutex_);
      held_.push_back(std::move(reply));
      throw 42;
    } else if (request.path == "/drop") {
      reply.reset();
    } else if (request.path == "/drop-late") {
      reply->begin(200, "text/plain");
      reply->send("half");
    } else if (request.path == "/large") {
      reply->respond(200, "text/plain", std::string(size_t{8} << 20, 'L'));
    } else if (request.path == "/empty") {
      reply->respond(204, "", "");
    } else {
      const std::string body =
          request.method + " " + request.path + "?" + request.query + " " + request.body;
      reply->respond(200, "text/plain", body, {{"X-Peer", request.peer}});
    }
  }

  HttpClient client(std::chrono::milliseconds timeout = 60s) {
    return HttpClient(server_->port(), timeout);
  }

  // The reply to the next request for /held.
  Reply held(size_t index = 0) {
    EXPECT_TRUE(soon([&] {
      const std::scoped_lock lock(mutex_);
      return held_.size() > index;
    }));
    const std::scoped_lock lock(mutex_);
    return held_.at(index);
  }
  void let_go() {
    std::vector<Reply> all;
    const std::scoped_lock lock(mutex_);
    all.swap(held_);
  }
  std::string log() {
    const std::scoped_lock lock(mutex_);
    return log_;
  }

  std::mutex mutex_;
  std::vector<Reply> held_;
  std::string log_;
  std::atomic<int> gone_{0};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace stemma::server
