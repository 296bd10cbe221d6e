#include "server/front_door.h"

#include <optional>
#include <utility>
#include <vector>

#include "server/api/refuse.h"
#include "server/service/request_line.h"

namespace stemma::server {

namespace {

bool is_probe(std::string_view path) { return path == "/health" || path == "/ready"; }
bool is_probe(const HttpRequest& request) { return request.reads() && is_probe(request.path); }
ApiError still_loading() {
  ApiError error = overloaded("the model is loading; ask again later");
  error.code = "loading";
  return error;
}

}  // namespace

void FrontDoor::connect(HttpOptions& http, Log log) {
  log_ = std::move(log);
  http.admit = [this](const HttpRequest& head) -> std::optional<HttpRefusal> {
    if (const App* const app = app_.load(std::memory_order_acquire)) return app->admit(head);
    if (is_probe(head)) return std::nullopt;
    return App::refusal(head.path, still_loading());
  };
  http.refusal = &App::http_refusal;
  http.answered = [this](const HttpAsked& asked, int status) { answered(asked, status); };
}

void FrontDoor::open(App& app) {
  const base::Lock lock(mutex_);
  std::vector<AnswerCount> counts;
  for (const auto& [key, count] : answers_) counts.push_back({key.first, key.second, count});
  app.count_earlier(counts);
  answers_.clear();
  app_.store(&app, std::memory_order_release);
}

void FrontDoor::answered(const HttpAsked& asked, int status) {
  App* app = app_.load(std::memory_order_acquire);
  if (app == nullptr) {
    const base::Lock lock(mutex_);
    app = app_.load(std::memory_order_acquire);
    if (app == nullptr) ++answers_[{App::route_name(asked.path, asked.method), status}];
  }
  if (app != nullptr) return app->answered(asked, status);
  // Probes come every few seconds.
  if (log_ && !is_probe(asked.path)) log_(answered_line(asked, status));
}

void FrontDoor::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (App* const app = app_.load(std::memory_order_acquire)) {
    app->handle(std::move(request), std::move(reply));
  } else if (!is_probe(request)) {
    static_cast<void>(try_refuse(*reply, App::refusal(request.path, still_loading())));
  } else if (request.path == "/health") {
    reply->respond(200, kJson, R"({"status":"ok"})");
  } else {
    reply->respond(503, kJson, R"({"status":"loading"})", {{"Retry-After", "1"}});
  }
}

}  // namespace stemma::server
