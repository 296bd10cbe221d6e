// FrontDoor: receives requests, even before a model is loaded to answer them.
//
// A model of many gigabytes takes minutes to load. Meanwhile the server listens, so that a probe
// can tell a loading process from a dead one: /health says that it is alive; /ready and everything
// else answer 503 (529 under /v1/messages) with Retry-After, in the shape of the path's API, before
// the request's body is read. These answers are logged, and counted in the /metrics of the App.
//
// Threading:  thread-safe.
// Ownership:  the App outlives every call of handle(): stop the HttpServer before it goes.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "base/lock.h"
#include "server/app.h"
#include "server/http/message.h"
#include "server/http/server.h"

namespace stemma::server {

class FrontDoor {
 public:
  using Log = std::function<void(std::string_view line)>;
  // Makes a server with these options ask this object which requests to admit, and report how they
  // were answered. The server must not outlive this object. `log` gets a line for each request that
  // no App answered, except probes.
  void connect(HttpOptions& http, Log log = {});
  // From now on the App answers.
  void open(App& app);
  void handle(HttpRequest request, std::shared_ptr<HttpReply> reply);

 private:
  void answered(const HttpAsked& asked, int status);

  Log log_;
  std::atomic<App*> app_ = nullptr;
  base::WaitMutex mutex_;
  std::map<std::pair<std::string_view, int>, uint64_t> answers_
      STEMMA_GUARDED_BY(mutex_);  // By route and status, until the App counts them.
};

}  // namespace stemma::server
