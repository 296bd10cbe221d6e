// The routes of OpenAI's Responses API.
//
//   POST   /v1/responses        answers, and stores the answer unless the request says otherwise
//   GET    /v1/responses/{id}   returns a stored one; ?cache_salt= of the request that made it
//   DELETE /v1/responses/{id}   forgets it
//
// Threading: thread-safe.
#pragma once

#include <memory>

#include "server/http/message.h"
#include "server/service/answer_service.h"

namespace stemma::server {

void serve_responses(AnswerService& service, const HttpRequest& request,
                     const std::shared_ptr<HttpReply>& reply);
void serve_stored_response(AnswerService& service, const HttpRequest& request,
                           const std::shared_ptr<HttpReply>& reply);
void serve_response_deletion(AnswerService& service, const HttpRequest& request,
                             const std::shared_ptr<HttpReply>& reply);

}  // namespace stemma::server
