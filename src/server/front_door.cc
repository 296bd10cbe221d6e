#include "server/front_door.h"

#include <utility>

#include "server/refuse.h"

namespace stemma::server {

void FrontDoor::handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  if (App* const app = app_.load(std::memory_order_acquire)) {
    app->handle(std::move(request), std::move(reply));
  } else if (request.reads() && request.path == "/health") {
    reply->respond(200, kJson, R"({"status":"ok"})");
  } else if (request.reads() && request.path == "/ready") {
    reply->respond(503, kJson, R"({"status":"loading"})", {{"Retry-After", "1"}});
  } else {
    ApiError error = overloaded("the model is loading; ask again later");
    error.code = "loading";
    refuse(*reply, error);
  }
}

}  // namespace stemma::server
