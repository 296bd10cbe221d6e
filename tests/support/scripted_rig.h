// A whole server over a ScriptedModel: HTTP on loopback, routes, template, parser, cache,
// transcripts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "server/app.h"
#include "server/chat/chat.h"
#include "server/http/server.h"
#include "server/schedule/scheduler.h"
#include "stemma/tier/sequence_tiers.h"
#include "support/engine_kinds.h"
#include "support/http_client.h"
#include "support/scripted_model.h"

namespace stemma::test {

struct ScriptedRigOptions {
  FakeSequences::Options engine = full_engine();
  std::string chat_template;
  server::SchedulerOptions scheduler = {};
  server::AppOptions app = {};
  tier::TierStack* stack = nullptr;  // Under the cache; null: nothing is.
};

// Threading: post() on any thread.
class ScriptedRig {
 public:
  ScriptedRig(ScriptedRigOptions options, ScriptedModel::Script script)
      : model({.engine = options.engine, .chat_template = options.chat_template},
              std::move(script)) {
    std::string why;
    chat = server::Chat::create(model, "", why);
    EXPECT_NE(chat, nullptr) << why;
    if (options.stack != nullptr) {
      tiers = std::make_unique<tier::SequenceTiers>(
          *options.stack, tier::SequenceTiers::Options{.traits = model.sequences().traits()});
      options.scheduler.tiers = tiers.get();
      options.scheduler.cache.listener = tiers.get();
    }
    scheduler = server::Scheduler::create(model, options.scheduler, why);
    EXPECT_NE(scheduler, nullptr) << why;
    app = std::make_unique<server::App>(model, *scheduler, *chat, options.app);
    server::HttpOptions listening;
    listening.log = [](std::string_view) {};
    app->connect(listening);
    auto made = server::HttpServer::create(
        listening,
        [this](server::HttpRequest request, std::shared_ptr<server::HttpReply> reply) {
          app->handle(std::move(request), std::move(reply));
        },
        &why);
    EXPECT_TRUE(made) << why;
    http = *std::move(made);
    EXPECT_TRUE(http->start());
  }
  ~ScriptedRig() {
    scheduler->stop();
    http->stop();
  }

  HttpAnswer ask(std::string_view target, const nlohmann::json& body,
                 const HttpFields& headers = {}) const {
    return HttpClient(http->port(), std::chrono::seconds(60)).post(target, body.dump(), headers);
  }
  nlohmann::json post(std::string_view target, const nlohmann::json& body) const {
    const HttpAnswer answer = ask(target, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return nlohmann::json::parse(answer.body, nullptr, false);
  }
  nlohmann::json get(std::string_view target) const {
    return nlohmann::json::parse(HttpClient(http->port()).get(target).body, nullptr, false);
  }

  ScriptedModel model;
  std::unique_ptr<server::Chat> chat;
  std::unique_ptr<tier::SequenceTiers> tiers;
  std::unique_ptr<server::Scheduler> scheduler;
  std::unique_ptr<server::App> app;
  std::unique_ptr<server::HttpServer> http;
};

}  // namespace stemma::test
