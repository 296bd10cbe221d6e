// A whole server over a FakeModel: HTTP on loopback, routes, scheduler. Tests know the right
// answers.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "server/app.h"
#include "server/chat/chat.h"
#include "server/http/server.h"
#include "server/schedule/scheduler.h"
#include "support/engine_kinds.h"
#include "support/fake_model.h"
#include "support/http_client.h"

namespace stemma::test {

using Json = nlohmann::json;

struct ServerRigOptions {
  // For an answer that does not end during a test, even on a slow machine: it has kEndless tokens,
  // and each pass takes a while.
  static constexpr uint32_t kEndless = 1U << 20U;
  static ServerRigOptions endless() {
    ServerRigOptions options;
    options.engine.context_tokens = kEndless;
    return options;
  }

  FakeSequences::Options engine = full_engine();
  uint32_t batch_tokens = 64;
  engine::Placement placement = {};
  server::SchedulerOptions scheduler = {};
  server::AppOptions app = {};
  server::HttpOptions http = {};
};

// Whether the condition becomes true within `at_most`.
inline bool becomes_true(const std::function<bool()>& holds,
                         std::chrono::milliseconds at_most = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// Letters determined by a seed.
inline std::string letters(uint32_t count, uint64_t seed) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i)
    text += static_cast<char>('a' + base::mix(seed * 1000 + i) % 26);
  return text;
}

// The answer to a streaming request, event by event.
struct StreamAnswer {
  HttpAnswer head;
  std::vector<Json> events;  // Without [DONE].
  bool done = false;         // [DONE] was the last event.
  bool complete = false;     // And HTTP ended properly.

  // The text of a choice, for chats and completions.
  std::string text(uint32_t choice = 0) const {
    std::string all;
    for (const Json& event : events) {
      if (!event.contains("choices")) continue;
      for (const Json& each : event["choices"]) {
        if (each["index"] != choice) continue;
        if (each.contains("text")) all += each["text"].get<std::string>();
        if (each.contains("delta") && each["delta"].contains("content")) {
          all += each["delta"]["content"].get<std::string>();
        }
      }
    }
    return all;
  }
};

// Threading: see the members; ask() and stream() on any thread.
class ServerRig {
 public:
  explicit ServerRig(ServerRigOptions options = {})
      : model(options.engine, options.batch_tokens), clock(model.fake()) {
    if (options.scheduler.clock == nullptr) options.scheduler.clock = &clock;
    model.change_info().placement = options.placement;
    std::string why;
    chat = server::Chat::create(model, "", why);
    EXPECT_NE(chat, nullptr) << why;
    scheduler = server::Scheduler::create(model, options.scheduler, why);
    EXPECT_NE(scheduler, nullptr) << why;
    if (!options.app.log) {
      options.app.log = [this](std::string_view line) {
        const std::lock_guard lock(mutex_);
        log_.emplace_back(line);
      };
    }
    app = std::make_unique<server::App>(model, *scheduler, *chat, options.app);
    options.http.log = [](std::string_view) {};
    app->connect(options.http);
    auto made = server::HttpServer::create(
        options.http,
        [this](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
          app->handle(std::move(request), std::move(reply));
        },
        &why);
    EXPECT_TRUE(made) << why;
    http = *std::move(made);
    app->watch(http.get());
    EXPECT_TRUE(http->start());
  }
  ~ServerRig() {
    scheduler->stop();
    http->stop();
  }

  HttpClient client(std::chrono::milliseconds timeout = std::chrono::seconds(60)) const {
    return HttpClient(http->port(), timeout);
  }
  HttpAnswer get(std::string_view target, const HttpFields& headers = {}) const {
    return client().get(target, headers);
  }
  HttpAnswer post(std::string_view target, const Json& body, const HttpFields& headers = {}) const {
    return client().post(target, body.dump(), headers);
  }
  StreamAnswer stream(std::string_view target, const Json& body) const {
    HttpClient asking = client();
    asking.send(request_text("POST", target, body.dump()));
    return read_stream(asking);
  }
  static StreamAnswer read_stream(HttpClient& asking) {
    StreamAnswer answer;
    answer.head = asking.read_head();
    std::string all;
    while (auto piece = asking.read_piece()) all += *piece;
    answer.complete = asking.complete();
    if (answer.head.header("content-type") != "text/event-stream") {
      answer.head.body = all;
      return answer;
    }
    for (const std::string& data : sse_data(all)) {
      EXPECT_FALSE(answer.done) << "after [DONE]: " << data;
      if (data == "[DONE]") {
        answer.done = true;
      } else {
        answer.events.push_back(Json::parse(data));
      }
    }
    return answer;
  }

  // The text of the likeliest tokens after this prompt.
  std::string expected(const std::string& prompt, uint32_t max_tokens) const {
    return model.text(model.greedy(*model.tokenize(prompt, true, true), max_tokens));
  }
  // The prompt of a conversation by the model's template, without its BOS.
  static std::string rendered(const std::vector<std::pair<std::string, std::string>>& messages) {
    std::string text;
    for (const auto& [role, content] : messages) {
      text += "<|im_start|>" + role + "\n" + content + "<|im_end|>\n";
    }
    return text + "<|im_start|>assistant\n";
  }
  // A prompt whose answer has at least this many tokens; with `at_least` false, fewer.
  std::string prompt_with(uint32_t tokens, bool at_least, uint32_t length = 30) const {
    for (uint32_t seed = 1;; ++seed) {
      std::string prompt = letters(length, seed);
      if ((expected(prompt, tokens).size() >= tokens) == at_least) return prompt;
    }
  }

  // All requests have ended: nothing is leased, none waits.
  void expect_quiet() const {
    EXPECT_TRUE(becomes_true([&] {
      const server::SchedulerStats stats = scheduler->stats();
      return scheduler->cache().stats().leased_sequences == 0 && stats.running == 0 &&
             stats.waiting == 0 &&
             stats.requests == stats.completed + stats.failed + stats.cancelled;
    }));
    EXPECT_TRUE(scheduler->run([](SequenceCache& cache) { cache.check_invariants(); }));
  }
  std::vector<std::string> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  FakeModel model;
  EngineClock clock;
  std::unique_ptr<server::Chat> chat;
  std::unique_ptr<server::Scheduler> scheduler;
  std::unique_ptr<server::App> app;
  std::unique_ptr<server::HttpServer> http;

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
};

// Answers.
inline constexpr const char* kChat = "/v1/chat/completions";
inline constexpr const char* kCompletions = "/v1/completions";

inline Json json(const HttpAnswer& answer) {
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.header("content-type"), "application/json") << answer.body;
  return Json::parse(answer.body, nullptr, false);
}
// The code of an error in the form that OpenAI's clients read.
inline std::string error_code(const HttpAnswer& answer, int status) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const Json body = json(answer);
  if (!body.contains("error")) return "no error: " + answer.body;
  const Json& error = body["error"];
  EXPECT_TRUE(error["message"].is_string() && error["type"].is_string());
  EXPECT_TRUE(error.contains("param"));
  return error["code"].is_null() ? "" : error["code"].get<std::string>();
}

// Bodies: greedy, unless `more` says otherwise.
inline Json completion(const std::string& prompt, uint32_t max_tokens, const Json& more = {}) {
  Json body = {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
  if (!more.is_null()) body.update(more);
  return body;
}
inline Json conversation(const std::vector<std::pair<std::string, std::string>>& messages,
                         uint32_t max_tokens, const Json& more = {}) {
  Json body = {{"messages", Json::array()}, {"max_tokens", max_tokens}, {"temperature", 0}};
  for (const auto& [role, content] : messages) {
    body["messages"].push_back({{"role", role}, {"content", content}});
  }
  if (!more.is_null()) body.update(more);
  return body;
}

}  // namespace stemma::test
