// The route /v1/embeddings.
// Threading: a thread-safe function.
#pragma once

#include <memory>

#include "server/http/message.h"
#include "server/service/answer_service.h"

namespace stemma::server {

void serve_embeddings(AnswerService& service, const HttpRequest& http,
                      const std::shared_ptr<HttpReply>& reply);

}  // namespace stemma::server
