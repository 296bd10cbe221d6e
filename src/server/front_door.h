// FrontDoor: where requests arrive, also before there is a model to answer them.
//
// A model of many gigabytes takes minutes to load. Meanwhile the server listens, so that a probe can tell a process
// that loads from one that is dead: /health says that it is alive, /ready and all else that it is loading (503 with
// Retry-After).
//
// Threading:  thread-safe.
// Ownership:  the App outlives every call of handle(): stop the HttpServer before it goes.
#pragma once

#include <atomic>
#include <memory>

#include "server/app.h"
#include "server/http_message.h"

namespace stemma::server {

class FrontDoor {
 public:
  // From now on the App answers.
  void open(App& app) noexcept { app_.store(&app, std::memory_order_release); }
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);

 private:
  std::atomic<App*> app_ = nullptr;
};

}  // namespace stemma::server
