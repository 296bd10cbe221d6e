// FrontDoor: where requests arrive, also before there is a model to answer them.
//
// A model of many gigabytes takes minutes to load. Meanwhile the server listens, so that a probe can tell a
// process that loads from one that is dead: /health says that it is alive; /ready and everything else
// answer 503 with Retry-After, before the request's body is read.
//
// Threading:  thread-safe.
// Ownership:  the App outlives every call of handle(): stop the HttpServer before it goes.
#pragma once

#include <atomic>
#include <memory>

#include "server/app.h"
#include "server/http/message.h"
#include "server/http/server.h"

namespace stemma::server {

class FrontDoor {
 public:
  // Makes a server with these options ask here which requests are let in, and report how they were answered.
  // The server must not outlive this object.
  void connect(HttpOptions& http);
  // From now on the App answers.
  void open(App& app) noexcept { app_.store(&app, std::memory_order_release); }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);

 private:
  std::atomic<App*> app_ = nullptr;
};

}  // namespace stemma::server
