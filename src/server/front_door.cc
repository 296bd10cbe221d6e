#include "server/front_door.h"

#include <optional>
#include <utility>

#include "server/api/refuse.h"

namespace stemma::server {

namespace {

bool is_probe(const HttpRequest& request) {
  return request.reads() && (request.path == "/health" || request.path == "/ready");
}
ApiError still_loading() {
  ApiError error = overloaded("the model is loading; ask again later");
  error.code = "loading";
  return error;
}

}  // namespace

void FrontDoor::connect(HttpOptions& http) {
  http.admit = [this](const HttpRequest& head) -> std::optional<HttpRefusal> {
    if (const App* const app = app_.load(std::memory_order_acquire)) return app->admit(head);
    if (is_probe(head)) return std::nullopt;
    return refusal_of(still_loading());
  };
  http.answered = [this](const HttpAsked& asked, int status) {
    if (App* const app = app_.load(std::memory_order_acquire)) app->answered(asked, status);
  };
}

void FrontDoor::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (App* const app = app_.load(std::memory_order_acquire)) {
    app->handle(std::move(request), std::move(reply));
  } else if (!is_probe(request)) {
    refuse(*reply, still_loading());
  } else if (request.path == "/health") {
    reply->respond(200, kJson, R"({"status":"ok"})");
  } else {
    reply->respond(503, kJson, R"({"status":"loading"})", {{"Retry-After", "1"}});
  }
}

}  // namespace stemma::server
