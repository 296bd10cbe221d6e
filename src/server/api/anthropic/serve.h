// Routes of Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens.
// Threading: thread-safe functions.
#pragma once

#include <memory>

#include "server/http/message.h"
#include "server/service/answer_service.h"

namespace stemma::server {

void serve_messages(AnswerService& service, const HttpRequest& http,
                    const std::shared_ptr<HttpReply>& reply);
void serve_count_tokens(AnswerService& service, const HttpRequest& http,
                        const std::shared_ptr<HttpReply>& reply);

}  // namespace stemma::server
